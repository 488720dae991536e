"""Messages of clients in a form that can be compared by content instead of by byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from penstock_analysis.capture import Sender
from penstock_analysis.dialogue import Message, Problem
from penstock_codecs.expressions import compile_expression

__all__ = ["END", "ENDS", "Saying", "alike", "saying_of"]

_VOLATILE: Final = frozenset(
    {
        *("authority", "frame_bytes", "bytes"),  # the server's address, and the framing
        *("writer_id", "request_id", "delegation_token_size"),  # generated anew by each client of Pravega
    }
)
"""Fields that differ between runs of the same client."""
_VOLATILE_HEADERS: Final = frozenset(
    {
        *("host", "authorization", "cookie", "date", "user-agent"),
        *("traceparent", "tracestate", "x-request-id", "x-correlation-id"),
        *("grpc-timeout", "content-length", "s2-request-token"),
    }
)


END: Final = "END"
"""Kind of the end of a request's body."""
ENDS: Final = frozenset({END, "RST_STREAM"})
"""Kinds of messages that only end an exchange."""
_ANSWERED: Final = "done"
_BLANKED: Final = re.compile(r"\*{3,}")
"""The recorder's replacement for a secret."""
_ANYTHING: Final = rb'(?:[^"\\]|\\(?s:.))*'
"""Pattern for any text in its place, within one string of JSON."""


class Saying(NamedTuple):
    """A message of a client. `exchange`: over HTTP, where exchanges overlap; 0 for protocols whose messages follow each
    other. `text`: its kind, stream and fields, equal for equal messages. `offset`: of its first byte."""

    exchange: int
    kind: str
    text: str
    offset: int


def saying_of(told: Message | Problem) -> Saying | None:
    """Return the client's message; None for those of a server, and for those that only keep a connection alive."""
    if told.sender is not Sender.CLIENT:
        return None
    if isinstance(told, Problem):
        kind = "problem"
        return Saying(0, kind, f"{kind} {told.rule}", told.offset) if told.fatal else None
    if not told.length or (told.layer == "http" and told.exchange is None):
        return None
    if told.kind == END and told.state == _ANSWERED:
        return None  # nothing depended on it; whether it precedes the response is chance
    over_http = told.layer not in ("s3p", "segment", "tcp")
    fields = json.dumps(_steady(told.fields), sort_keys=True, ensure_ascii=False, default=str)
    stream = f" {told.stream}" if told.stream else ""
    return Saying((told.exchange or 0) if over_http else 0, told.kind, f"{told.kind}{stream} {fields}", told.offset)


def alike(recorded: str, live: str) -> bool:
    """Return whether two texts are equal, apart from redacted parts of the recorded one."""
    if recorded == live:
        return True
    first, *rest = (part.encode("utf-8", "surrogatepass") for part in _BLANKED.split(recorded))
    said = live.encode("utf-8", "surrogatepass")
    if not rest or not said.startswith(first) or not said[len(first) :].endswith(rest[-1]):
        return False
    between = _ANYTHING.join((b"", *map(re.escape, rest[:-1]), b""))
    return compile_expression(between).fullmatch(said[len(first) : len(said) - len(rest[-1])]) is not None


def _steady(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without those that differ between runs."""
    kept = {name: value for name, value in fields.items() if name not in _VOLATILE and name != "headers"}
    if "headers" in fields:
        kept["headers"] = sorted(_steady_headers(fields["headers"]))
    return kept


def _steady_headers(headers: Iterable[Iterable[str]]) -> list[list[str]]:
    return [list(pair) for pair in headers if next(iter(pair)) not in _VOLATILE_HEADERS]
