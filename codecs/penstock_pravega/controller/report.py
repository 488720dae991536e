"""Texts about controllers for people: reports and the first commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from penstock.core.address import Address
from penstock.protocols.plugin import Example
from penstock.protocols.tables import ConfigView
from penstock_pravega.controller.config import ControllerListener, segment_listener_of

__all__ = ["commands", "describe"]

_SEGMENTS: Final = {
    "separate": "each segment is a stream of its own, and order holds within each only",
    "single": "it has only one segment, so clients of all protocols see one order",
    "refuse": "it is not created",
}


def describe(listener: ControllerListener, config: ConfigView) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.describe`."""
    carrier = "HTTPS" if listener.tls_certificate else "HTTP"
    guarded = segment_listener_of(listener, config)[1].delegation_tokens
    needed = listener.clients("clients with a user name and password" if guarded else "any client")
    yield f"Pravega's controller (gRPC by {carrier}/2, REST) on {listener.bind}, for {needed}"
    where = listener.advertise or "the segment listener, on the host by which they reached the controller"
    yield f"The controller sends its clients to {where}"
    yield f"A stream created with several segments: {_SEGMENTS[listener.segments]}"


def commands(listener: ControllerListener, address: Address, example: Example) -> Iterator[str]:
    """See `penstock.protocols.plugin.ListenerKind.commands`. The command's create calls return False if scope or stream
    exist."""
    scope, stream, manager = example.basin, example.stream, f'StreamManager("{address}")'
    yield from ("", "  # append one in Python, with Pravega's own client (pip install pravega)")
    if listener.tls_certificate:
        host = "localhost" if address.is_loopback else address.host  # this client knows certificates by names only
        manager = f'StreamManager("tls://{Address(host, address.port)}", False, True)'
        yield f"  pravega_client_tls_cert_path={shlex.quote(listener.tls_certificate)} \\"
    yield from (
        f"  python3 -c 'from pravega_client import StreamManager; manager = {manager}; \\",
        f'    manager.create_scope("{scope}"); manager.create_stream("{scope}", "{stream}", 1); \\',
        f'    writer = manager.create_writer("{scope}", "{stream}"); writer.write_event("third"); writer.flush()\'',
    )
