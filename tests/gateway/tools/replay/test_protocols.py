"""The protocols of conversations that no gateway recorded."""

from __future__ import annotations

import pytest
from support.captures.dialogues import CLIENT, conversation, events

from penstock.tools.replay.recorded import protocol_of

SERVICE = "io.pravega.controller.stream.api.grpc.v1.ControllerService"


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        (b"GET /v1/basins HTTP/1.1\r\nhost: a\r\n\r\n", "s2"),
        (b"GET /nothing-of-any-protocol HTTP/1.1\r\nhost: a\r\n\r\n", "s2"),
        (b"POST /%b/createScope HTTP/1.1\r\nhost: a\r\n\r\n" % SERVICE.encode(), "controller"),
        (b"*2\r\n$4\r\nTAIL\r\n$1\r\ns\r\n", "s3p"),
        (b"GET /v1/bas", None),
        (b"GET", None),
    ],
)
def test_the_first_request_tells(first: bytes, protocol: str | None) -> None:
    of = conversation("")
    assert protocol_of(of, list(events(of, [(CLIENT, first)]))) == protocol


def test_the_recording_goes_first() -> None:
    of = conversation("controller")
    assert protocol_of(of, list(events(of, [(CLIENT, b"GET /v1/basins HTTP/1.1\r\nhost: a\r\n\r\n")]))) == "controller"
