"""The controller in captures: gRPC calls over HTTP/2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.capture.dialogue.http.plugin import HTTP_REDACTS, http_dialogue
from penstock.capture.pcapng import Sender
from penstock.capture.plugin import HTTP, CapturePlugin

if TYPE_CHECKING:
    from penstock.capture.dialogue.http.exchange import HttpProtocol
    from penstock.capture.redaction.requests import HttpBodies

__all__ = ["PLUGIN"]


def _http() -> HttpProtocol:
    from penstock_pravega.capture.controller.calls import ControllerCalls

    return ControllerCalls()


def _bodies() -> HttpBodies:
    from penstock_pravega.capture.controller.redaction import ControllerBodies

    return ControllerBodies()


PLUGIN: Final = CapturePlugin(
    dialogue=http_dialogue,
    layers=(HTTP, "grpc"),
    hides=frozenset({Sender.SERVER}),
    http=_http,
    bodies=_bodies,
    redacts={
        **HTTP_REDACTS,
        "tokens": "delegation tokens in responses",
        "patterns": "gRPC messages and metadata",
        "withheld": "messages above 4 MiB, and what cannot be parsed",
    },
)
