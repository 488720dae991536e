"""S2 in captures: sessions, event streams, JSON and protobuf over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.capture.dialogue.http.plugin import HTTP_REDACTS, http_dialogue
from penstock.capture.plugin import HTTP, CapturePlugin

if TYPE_CHECKING:
    from penstock.capture.dialogue.http.exchange import HttpProtocol
    from penstock.capture.redaction.requests import HttpBodies
    from penstock.capture.wireshark.fields import WiresharkProtocol

__all__ = ["PLUGIN"]


def _http() -> HttpProtocol:
    from penstock_s2.capture.exchanges import S2Exchanges

    return S2Exchanges()


def _bodies() -> HttpBodies:
    from penstock_s2.capture.redaction import S2Bodies

    return S2Bodies()


def _wireshark() -> dict[str, WiresharkProtocol]:
    from penstock_s2.capture.wireshark import s2_protocols

    return s2_protocols()


PLUGIN: Final = CapturePlugin(
    dialogue=http_dialogue,
    layers=(HTTP, "s2s", "sse"),
    unasked_layers=frozenset({"s2s", "sse"}),
    wireshark=_wireshark,
    heartbeats={"s2s": "heartbeat", "sse": "ping"},
    varying_headers=frozenset({"s2-request-token"}),
    secret_headers=("s2-encryption-key",),
    format_headers=("s2-format",),
    http=_http,
    takes_unclaimed=True,
    bodies=_bodies,
    redacts={
        **HTTP_REDACTS,
        "tokens": "the access token in the response that issues it",
        "record_headers": "values in S2S frames, protobuf, JSON and events",
        "patterns": "heads, bodies and records, also inside JSON escapes, base64, zstd and gzip",
        "withheld": "bodies in other content codings, bodies and events above 4 MiB, and what cannot be parsed",
    },
)
