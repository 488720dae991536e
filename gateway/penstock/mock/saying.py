"""What a client said, so that it can be told whether another one says the same: by message, not by byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from penstock_codecs.capture import Sender
from penstock_codecs.dialogue import Message, Problem

__all__ = ["END", "ENDS", "Saying", "alike", "saying_of"]

_VOLATILE: Final = frozenset(
    {
        *("authority", "frame_bytes", "bytes"),  # where the server is, and how things were packed
        *("writer_id", "request_id", "delegation_token_size"),  # made up anew by each client of Pravega
    }
)
"""Fields that may differ from one run of a client to the next."""
_VOLATILE_HEADERS: Final = frozenset(
    {
        *("host", "authorization", "cookie", "date", "user-agent"),
        *("traceparent", "tracestate", "x-request-id", "x-correlation-id"),
        *("grpc-timeout", "content-length", "s2-request-token"),
    }
)


END: Final = "END"
"""The end of a request's body."""
ENDS: Final = frozenset({END, "RST_STREAM"})
"""What only ends an exchange."""
_ANSWERED: Final = "done"
_BLANKED: Final = re.compile(r"\*{3,}")
"""What the recorder leaves of a secret."""
_ANYTHING: Final = r'(?:[^"\\]|\\.)*'
"""In its place, within one text of JSON."""


class Saying(NamedTuple):
    """A message of a client. `exchange`: over HTTP, where exchanges go on beside each other; 0 where messages follow
    each other. `text`: its kind, stream and fields, the same for two that are alike. `offset`: its first byte."""

    exchange: int
    kind: str
    text: str
    offset: int


def saying_of(told: Message | Problem) -> Saying | None:
    """What a client said; None for what a server did, and for what only keeps a connection going."""
    if told.sender is not Sender.CLIENT:
        return None
    if isinstance(told, Problem):
        kind = "problem"
        return Saying(0, kind, f"{kind} {told.rule}", told.offset) if told.fatal else None
    if not told.length or (told.layer == "http" and told.exchange is None):
        return None
    if told.kind == END and told.state == _ANSWERED:
        return None  # nothing waited for it; whether it came before the answer is chance
    over_http = told.layer not in ("s3p", "segment", "tcp")
    fields = json.dumps(_steady(told.fields), sort_keys=True, ensure_ascii=False, default=str)
    stream = f" {told.stream}" if told.stream else ""
    return Saying((told.exchange or 0) if over_http else 0, told.kind, f"{told.kind}{stream} {fields}", told.offset)


def alike(recorded: str, live: str) -> bool:
    """Whether two texts of sayings are the same, whatever stands where the recorded one was redacted."""
    if recorded == live:
        return True
    parts = _BLANKED.split(recorded)
    return len(parts) > 1 and re.fullmatch(_ANYTHING.join(map(re.escape, parts)), live, re.DOTALL) is not None


def _steady(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without those that change from run to run."""
    kept = {name: value for name, value in fields.items() if name not in _VOLATILE and name != "headers"}
    if "headers" in fields:
        kept["headers"] = sorted(_steady_headers(fields["headers"]))
    return kept


def _steady_headers(headers: Iterable[Iterable[str]]) -> list[list[str]]:
    return [list(pair) for pair in headers if next(iter(pair)) not in _VOLATILE_HEADERS]
