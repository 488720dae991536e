"""Messages of clients in a form that can be compared by content instead of by byte."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from penstock_analysis.capture import Sender
from penstock_analysis.dialogue import Message, Problem
from penstock_analysis.plugin import HTTP, layers_over_http, plugins
from penstock_codecs.expressions import compile_expression

__all__ = ["END", "ENDS", "ClientMessage", "alike", "client_message_of"]

END: Final = "END"
"""Kind of the end of a request's body."""
ENDS: Final = frozenset({END, "RST_STREAM"})
"""Kinds of messages that only end an exchange."""
_ANSWERED: Final = "done"
_BLANKED: Final = re.compile(r"\*{3,}")
"""The recorder's replacement for a secret."""
_ANYTHING: Final = rb'(?:[^"\\]|\\(?s:.))*'
"""Pattern for any text in its place, within one string of JSON."""


class ClientMessage(NamedTuple):
    """A message of a client. `exchange`: over HTTP, where exchanges overlap; 0 for protocols whose messages follow each
    other. `text`: its kind, stream and fields, equal for equal messages. `offset`: of its first byte."""

    exchange: int
    kind: str
    text: str
    offset: int


def client_message_of(item: Message | Problem) -> ClientMessage | None:
    """Return the client's message; None for those of a server, and for those that only keep a connection alive."""
    if item.sender is not Sender.CLIENT:
        return None
    if isinstance(item, Problem):
        kind = "problem"
        return ClientMessage(0, kind, f"{kind} {item.rule}", item.offset) if item.fatal else None
    if not item.length or (item.layer == HTTP and item.exchange is None):
        return None
    if item.kind == END and item.state == _ANSWERED:
        return None  # nothing depended on it; whether it precedes the response is chance
    fields = json.dumps(_steady(item.layer, item.fields), sort_keys=True, ensure_ascii=False, default=str)
    stream = f" {item.stream}" if item.stream else ""
    return ClientMessage(
        (item.exchange or 0) if item.layer in layers_over_http() else 0,
        item.kind,
        f"{item.kind}{stream} {fields}",
        item.offset,
    )


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


def _steady(layer: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without those that differ between runs."""
    varying_fields, varying_headers = _varying(layer)
    kept = {name: value for name, value in fields.items() if name not in varying_fields and name != "headers"}
    if "headers" in fields:
        kept["headers"] = sorted(list(pair) for pair in fields["headers"] if next(iter(pair)) not in varying_headers)
    return kept


@cache
def _varying(layer: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the fields, and the headers, that differ between runs in messages of a layer."""
    together = layers_over_http() if layer in layers_over_http() else {layer}
    found = [plugin for plugin in plugins().values() if not together.isdisjoint(plugin.layers)]
    return (
        frozenset().union(*(plugin.varying_fields for plugin in found)),
        frozenset().union(*(plugin.varying_headers for plugin in found)),
    )
