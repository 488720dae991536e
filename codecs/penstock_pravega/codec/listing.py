"""Segment messages, decoded by their layouts. Blocks are listed with their contents; the order of messages is not
checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from penstock.wire.listing import Line, Listing, Reading, Undecodable, size
from penstock_pravega.codec.appends import Violation
from penstock_pravega.codec.draft import BeginAppendBlock, Partial, PartialKind
from penstock_pravega.codec.frames import FrameFault, decode_message
from penstock_pravega.codec.layout import (
    HEADER,
    HEADER_BYTES,
    Dialect,
    Direction,
    SegmentMessage,
    message_class,
    show_value,
    spans,
)
from penstock_pravega.codec.limits import SEGMENT_MAX_LENGTH, SEGMENT_VERSIONS
from penstock_pravega.codec.partials import Reassembly
from penstock_pravega.codec.released import AppendBlock, Event, Hello, Padding, PartialEvent
from penstock_pravega.codec.wire import MalformedValue

__all__ = ["LISTING"]

_HELLO: Final = Hello.type_id.to_bytes(4, "big", signed=True)
_SENDERS: Final = {
    Direction.REQUEST: "from a client",
    Direction.REPLY: "from a server",
    Direction.BOTH: "from either side",
    Direction.INNER: "in a block",
}
_FORBIDDEN: Final = {"client": Direction.REPLY, "server": Direction.REQUEST, "auto": None}
_WITH_EVENTS: Final = ("AppendBlock", "AppendBlockEnd", "SegmentRead")
"""Messages with a segment's bytes, in either dialect."""
_WRAPPERS: Final[dict[int, type[SegmentMessage]]] = {cls.type_id: cls for cls in (Padding, PartialEvent)}
_BEGIN_BYTES: Final = 28
"""Bytes in the body of a BeginAppendBlock (reading 6)."""
_ZEROS: Final = re.compile(rb"\0+")


class _Segment:
    """One listing: its dialect, the wire version agreed by Hellos, the open block and the Partials in progress."""

    def __init__(self, data: bytes, side: str, dialect: Dialect, *, inner: bool = True) -> None:
        self._data = data
        self._forbidden = _FORBIDDEN[side]
        self._dialect = dialect
        self._inner = inner
        self._version = SEGMENT_VERSIONS[0]
        self._block_end = 0
        self._partials = Reassembly(SEGMENT_MAX_LENGTH)

    def lines(self) -> Iterator[Line]:
        at = 0
        while at < len(self._data):
            zeros = self._zeros(at)
            if zeros:
                yield Line(at, 1, f"{size(zeros)} of zeros: {zeros // HEADER_BYTES} empty events, or padding")
                at += zeros
                continue
            cls, length = self._head(at)
            end = at + HEADER_BYTES + length
            depth = int(at < self._block_end)
            yield Line(at, depth, f"{cls.__name__} (type {cls.type_id}, {size(length)}, {_SENDERS[cls.direction]})")
            values: dict[str, Any] = {}
            yield from self._fields(cls, at + HEADER_BYTES, end, depth + 1, values)
            if end > len(self._data):
                raise Undecodable(f"{cls.__name__} of {size(length)} is cut off, {end - len(self._data)} missing", at)
            yield from self._follow(cls, values, at, depth + 1)
            at = end

    def _head(self, at: int) -> tuple[type[SegmentMessage], int]:
        if at + HEADER_BYTES > len(self._data):
            raise Undecodable(f"{size(len(self._data) - at)} where a message of at least 8 was expected", at)
        type_id, length = HEADER.unpack_from(self._data, at)
        cls = message_class(self._dialect, type_id)
        if cls is None:
            raise Undecodable(f"unknown message type {type_id}", at)
        if not 0 <= length <= SEGMENT_MAX_LENGTH:
            raise Undecodable(f"{cls.__name__} of {length} bytes, at most {SEGMENT_MAX_LENGTH} are allowed", at + 4)
        if cls.direction is Direction.INNER and not self._inner:
            raise Undecodable(f"{cls.__name__} outside a block", at)
        if cls.direction is self._forbidden:
            raise Undecodable(f"{cls.__name__} must not be sent by that side", at)
        return cls, length

    def _zeros(self, at: int) -> int:
        """Return the number of zero bytes at this place in a draft block, or 0 if they are exactly one empty event."""
        left = min(self._block_end, len(self._data)) - at
        if left <= 0:
            return 0
        match = _ZEROS.match(self._data, at, at + left)
        zeros = 0 if match is None else len(match[0])
        if zeros < left:
            zeros -= zeros % HEADER_BYTES
        return 0 if zeros == HEADER_BYTES else zeros

    def _fields(
        self, cls: type[SegmentMessage], start: int, end: int, depth: int, values: dict[str, Any]
    ) -> Iterator[Line]:
        """Yield the fields of a body and put their values into `values`. Of a body that is cut off, yield the complete
        ones."""
        body = memoryview(self._data)[start:end]
        cut = end > len(self._data)
        known = {field.name: field for field in cls.fields}
        last = 0
        try:
            for name, value, begin, last in spans(cls, body, self._version if cut else self._layout(cls, body)):
                field = known[name]
                left_out = field.tail and begin == last
                if cut and (left_out or (last == len(body) and field.wire.size is None)):
                    return
                note = " (left out)" if left_out else ""
                yield Line(
                    None if left_out else start + begin, depth, f"{name}: {field.wire.name} = {show_value(value)}{note}"
                )
                values[name] = value
                if name == "data" and cls.__name__ in _WITH_EVENTS:
                    yield from _events(cls, value, start + last - len(value), depth + 1)
        except MalformedValue as error:
            raise Undecodable(error.text, start + error.at) from None
        if last < len(body):
            yield Line(start + last, depth, f"{size(len(body) - last)} more, which are ignored")

    def _layout(self, cls: type[SegmentMessage], body: memoryview) -> int:
        """Return the wire version whose layout fits: a server's bytes do not tell which version its client speaks."""
        if cls.older is not None:
            try:
                list(spans(cls, body, self._version))
            except MalformedValue:
                return cls.older.before - 1
        return self._version

    def _follow(self, cls: type[SegmentMessage], values: dict[str, Any], at: int, depth: int) -> Iterator[Line]:
        """Apply the effect of a message on the listing of the messages that follow, or complete the Partials before
        it."""
        if cls is Hello:
            self._version = min(self._version, values["high_version"])
        elif cls is BeginAppendBlock:
            self._block_end = at + HEADER_BYTES + _BEGIN_BYTES + max(values["length"], 0)
        elif cls is Partial:
            yield from self._partial(values["part"], values["data"], at, depth)

    def _partial(self, part: PartialKind, data: bytes, at: int, depth: int) -> Iterator[Line]:
        try:
            whole = self._partials.take(Partial(part, data))
            if whole is not None:
                yield Line(None, depth, f"completes {decode_message(whole, self._dialect, self._version, at)!r}")
        except (Violation, FrameFault) as error:  # not fatal: the messages after it can be decoded
            self._partials = Reassembly(SEGMENT_MAX_LENGTH)
            yield Line(None, depth, f"cannot be reassembled: {error}")


def _events(cls: type[SegmentMessage], data: bytes, base: int, depth: int) -> Iterator[Line]:
    """Yield the events at the beginning of a segment's bytes, which are at `base`.

    An AppendBlock may end with a wrapper, all other messages inside an event.
    """
    at = 0
    while at + HEADER_BYTES <= len(data):
        type_id, length = HEADER.unpack_from(data, at)
        following = at + HEADER_BYTES + length
        if cls is AppendBlock and type_id in _WRAPPERS and following == len(data):
            yield Line(base + at, depth, f"{_WRAPPERS[type_id].__name__} ({size(length)})")
            return
        if type_id != Event.type_id or length < 0 or following > len(data):
            break
        yield Line(base + at, depth, f"Event = {show_value(data[at + HEADER_BYTES : following])}")
        at = following
    if 0 < at < len(data):
        yield Line(base + at, depth, f"{size(len(data) - at)} of an event that continues in another block")


def _readings(side: str, dialect: str) -> list[Reading]:
    def of(one: Dialect) -> Reading:
        return lambda data: _Segment(data, side, one).lines()

    if dialect != "auto":
        return [of(Dialect(dialect))]
    return [
        lambda data: _by_hello(data, side),
        lambda data: _Segment(data, side, Dialect.RELEASED, inner=False).lines(),  # from the middle of a connection
    ]


def _by_hello(data: bytes, side: str) -> Iterator[Line]:
    """Decode as a server does, which tells the dialects apart by the first message: Hello means released, anything else
    draft."""
    dialect = Dialect.RELEASED if data.startswith(_HELLO) else Dialect.DRAFT
    return _Segment(data, side, dialect).lines()


LISTING: Final = Listing(tuple(dialect.value for dialect in Dialect), _readings)
