"""Limits of the whole process and of each client (`penstock.app.config.schema`)."""

from __future__ import annotations

from typing import Annotated

from penstock.core.config_fields import Table, key
from penstock_codecs.limits import MIB

__all__ = ["Limits"]


class Limits(Table, frozen=True, kw_only=True):
    """Limits of the whole process, over all listeners but the management one, and of each client. A client is the
    identity that it proved, else its address (of IPv6 the first 64 bits). Each worker applies the limits separately.
    What happens at each limit: docs/limits.md."""

    max_connections: Annotated[
        int,
        key(
            "Connections at once, but never so many that descriptors run out. One more closes the one that has been at "
            "rest longest; where none is at rest it is refused.",
            least=1,
        ),
    ] = 20_000
    max_connections_per_client: Annotated[
        int, key("The same for one client: it is its own connections that make room.", least=1)
    ] = 5_000
    max_inflight_bytes: Annotated[
        int,
        key(
            "Of requests that are not complete or wait to be carried out, and of answers that wait for their clients. "
            "Beyond it nobody is read who holds more than 64 KiB.",
            least=64 * MIB,
        ),
    ] = 256 * MIB
    max_inflight_bytes_per_client: Annotated[int, key("The same for one client.", least=32 * MIB)] = 128 * MIB
    inflight_wait_seconds: Annotated[
        float, key("How long a client waits for room for such bytes before it is refused.", least=0.1)
    ] = 10.0
    connections_per_second: Annotated[
        float, key("New connections of one client; more of them wait before they are served. 0: any.", least=0)
    ] = 1000.0
    requests_per_second: Annotated[
        float,
        key("Requests, commands and calls of one client, refused beyond it (segment requests wait); 0: any.", least=0),
    ] = 0.0
    bytes_per_second: Annotated[float, key("What one client may send; more is read later. 0: any.", least=0)] = 0.0
    burst_seconds: Annotated[
        float, key("A client that was quiet may use this many seconds' worth of each rate at once.", least=0.1)
    ] = 2.0
    first_byte_seconds: Annotated[
        float, key("A connection must say something within this. Over TLS: from the handshake on.", least=0.1)
    ] = 30.0
    receive_grace_seconds: Annotated[
        float, key("How long a message, command or frame may take to come at any rate.", least=0.1)
    ] = 30.0
    min_receive_rate: Annotated[
        int, key("After that it must have come at so many bytes a second, or the client is cut off.", least=1)
    ] = 1024
