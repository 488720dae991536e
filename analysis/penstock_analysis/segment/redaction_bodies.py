"""Find secrets in messages of the segment protocol by their layouts: tokens, texts, events, keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock_analysis.redaction.leaves import Leaves
from penstock_analysis.redaction.text import Edit, Span, stars
from penstock_codecs.segment.layout import HEADER, HEADER_BYTES, Message
from penstock_codecs.segment.released import Padding, PartialEvent
from penstock_codecs.segment.wire import Malformed

__all__ = ["TOKENS", "append_edits", "body_edits", "event_leaves", "events_in", "field_places"]

TOKENS: Final = frozenset({"delegation_token", "token"})
"""Names of fields that are tokens, in every message."""
_PREFIXES: Final = {"rest": 0, "str": 2, "name": 2, "bytes32": 4, "Event": HEADER_BYTES}
"""Wire types of text and bytes, and the sizes of the lengths before them."""
_TEXTS: Final = frozenset({"str", "name"})
_RUNS: Final = frozenset({("SegmentRead", "data"), ("AppendBlockEnd", "data"), ("ConditionalBlockEnd", "data")})
"""Fields that hold events one after the other."""
_LISTS: Final = frozenset({"entries", "keys"})


def body_edits(cls: type[Message], body: bytes, leaves: Leaves) -> list[Edit]:
    """Return the edits of the bytes behind a header. Raises Malformed."""
    edits: list[Edit] = []
    at = end = 0
    for name, (at, end) in field_places(cls, body).items():
        kind = _KINDS[cls][name]
        if name in TOKENS and leaves.tokens:
            edits.append(Edit(at + 2, stars(end - at - 2)))
        elif (cls.__name__, name) in _RUNS:
            start = at + _PREFIXES[kind]
            edits += event_leaves(body[start:end], leaves, start)
        elif kind in _PREFIXES and end > at:
            start = at + _PREFIXES[kind]
            edits += leaves.leaf(body[start:end], start, text=kind in _TEXTS)
        elif name in _LISTS:
            for start, stop in _keys_and_values(body, at, end, with_values=name == "entries"):
                edits += leaves.leaf(body[start:stop], start)
    return edits + leaves.leaf(body[end:], end)  # fields of a later version


class _Kinds(dict[type[Message], dict[str, str]]):
    """Names of the fields' wire types."""

    def __missing__(self, cls: type[Message]) -> dict[str, str]:
        kinds = self[cls] = {field.name: field.wire.name for field in cls.fields}
        return kinds


_KINDS: Final = _Kinds()


def field_places(cls: type[Message], body: bytes) -> dict[str, Span]:
    """Return start and end of each field of a message. Raises Malformed."""
    view, at = memoryview(body), 0
    places = {}
    for name, wire, tail, _ in cls.fields:
        end = at
        if not tail or len(body) - at >= (wire.size or 1):
            _, end = wire.read(view, at)
        places[name] = (at, end)
        at = end
    return places


def _keys_and_values(body: bytes, at: int, end: int, *, with_values: bool) -> Iterator[Span]:
    """Return the keys and values of a table's list, which must be well-formed (segment fact sheet, 1.3, Tables)."""
    at += 4
    while at < end:
        size = _number(body, at + 4)
        yield at + 8, at + 8 + size
        at += 8 + size + (8 if size else 0)
        if with_values:
            size = _number(body, at + 4)
            yield at + 8, at + 8 + size
            at += 8 + size


def _number(body: bytes, at: int) -> int:
    return int.from_bytes(body[at : at + 4], "big")


def events_in(data: bytes) -> tuple[list[Span], int]:
    """Return the payloads of the whole events that begin at the first byte, and the place where the next event, or
    anything else, begins."""
    found, at = [], 0
    while at + HEADER_BYTES <= len(data):
        kind, size = HEADER.unpack_from(data, at)
        if kind != 0 or size < 0 or at + HEADER_BYTES + size > len(data):
            break
        found.append((at + HEADER_BYTES, at + HEADER_BYTES + size))
        at += HEADER_BYTES + size
    return found, at


def event_leaves(data: bytes, leaves: Leaves, base: int = 0) -> list[Edit]:
    """Return the edits of events, or of bytes that are not events."""
    if not leaves.may_be_in(data):
        return []
    events, end = events_in(data)
    edits = [edit for start, stop in events for edit in leaves.leaf(data[start:stop], base + start)]
    start = end + HEADER_BYTES if data[end : end + 4] == bytes(4) else end  # the header of an event that is cut
    return edits + leaves.leaf(data[start:], base + start)


def append_edits(block: bytes, whole: int, rest: bytes, leaves: Leaves) -> tuple[list[Edit], list[Edit]]:
    """Return the edits of an AppendBlock's data, and of its end's data. `whole`: size_of_whole_events.

    The last event may begin in the block, behind a PartialEvent's header, and continue in its end.
    """
    if not 0 <= whole <= len(block):
        raise Malformed("", 0)
    start = whole
    if len(block) - whole >= HEADER_BYTES:
        kind, _ = HEADER.unpack_from(block, whole)
        if kind == Padding.type_id:
            return event_leaves(block[:whole], leaves), event_leaves(rest, leaves)
        start += HEADER_BYTES if kind == PartialEvent.type_id else 0
    stored = block[:whole] + block[start:] + rest
    first: list[Edit] = []
    last: list[Edit] = []
    in_block = whole + len(block) - start
    for at, data in event_leaves(stored, leaves):
        for out, low, high, shift in (
            (first, 0, whole, 0),
            (first, whole, in_block, start - whole),
            (last, in_block, len(stored), -in_block),
        ):
            begin, end = max(at, low), min(at + len(data), high)
            if begin < end:
                out.append(Edit(begin + shift, data[begin - at : end - at]))
    return first, last
