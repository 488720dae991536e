"""Durable Streams in captures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.capture.dialogue.http.plugin import HTTP_REDACTS, http_dialogue
from penstock.capture.plugin import HTTP, CapturePlugin

if TYPE_CHECKING:
    from penstock.capture.dialogue.http.exchange import HttpProtocol
    from penstock.capture.redaction.requests import HttpBodies

__all__ = ["PLUGIN"]


def _http() -> HttpProtocol:
    from penstock_durable.capture.exchanges import DurableExchanges

    return DurableExchanges()


def _bodies() -> HttpBodies:
    from penstock_durable.capture.redaction import DurableBodies

    return DurableBodies()


PLUGIN: Final = CapturePlugin(
    dialogue=http_dialogue,
    layers=(HTTP, "durable"),
    unasked_layers=frozenset({"durable"}),
    heartbeats={"durable": "control"},
    format_headers=("stream-sse-data-encoding",),
    varying_headers=frozenset({"producer-id"}),
    http=_http,
    bodies=_bodies,
    redacts={
        **HTTP_REDACTS,
        "record_headers": "values in bodies of a bridge, in envelopes and in events",
        "patterns": "heads, bodies and events, also inside JSON escapes and base64",
        "withheld": "bodies in other content codings, bodies and events above 4 MiB, and what cannot be parsed",
    },
)
