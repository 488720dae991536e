"""Detect the dialect of a segment conversation, and whether bytes look like one of its messages."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from penstock.model.failures import LocalProtocolError
from penstock_pravega.codec.draft import Event, Partial
from penstock_pravega.codec.layout import (
    HEADER,
    HEADER_BYTES,
    Dialect,
    Direction,
    SegmentMessage,
    decode_body,
    encode,
    fields_of,
    message_class,
)
from penstock_pravega.codec.limits import SEGMENT_MAX_LENGTH, SEGMENT_VERSIONS
from penstock_pravega.codec.released import Hello
from penstock_pravega.codec.wire import MalformedValue

__all__ = ["HELLO", "DetectedDialect", "smallest"]

HELLO: Final = Hello.type_id.to_bytes(4, "big", signed=True)
"""First bytes of both sides of a released conversation (reading 2)."""
LOOKED_AT: Final = 4096
ENOUGH: Final = 64
"""Bytes after which an undecided dialect is guessed."""
_FIRST: Final = (b"\0", b"\xff")
"""The first byte of every type id."""
_LOOSE: Final = ("rest", "zero bytes")
_SMALLEST: Final = {"name": 2, "str": 2, "bytes32": 4, "Event": 8}
"""Bytes that fields of no fixed size have at least; lists have their count, the rest of a message may be empty."""


class Fit(IntEnum):
    """Degree to which bytes fit a dialect, from not at all."""

    NONE = 0
    HEADER = 1
    """The header is that of a message; the body is not all there."""
    SHORT = 2
    """A message without the fields that older peers leave out."""
    LOOSE = 3
    """A message that ends with all remaining bytes."""
    WHOLE = 4


class DetectedDialect(msgspec.Struct):
    """Dialect and version of both sides, as far as their Hellos or their first messages have revealed them."""

    dialect: Dialect | None = None
    guess: Dialect = Dialect.RELEASED
    """Dialect of a conversation from its middle, until a message was decoded."""
    version: int = SEGMENT_VERSIONS[0]

    def begins(self, direction: Direction, data: bytes) -> bool | None:
        """Return whether a message of the requests or replies begins here; None: too few bytes to tell.

        Some messages look alike in both dialects. If nothing distinguishes them, the released one is assumed.
        """
        if data[:1] not in _FIRST:
            return False if data else None
        if len(data) < HEADER_BYTES:
            return None
        dialects = list(Dialect) if self.dialect is None else [self.dialect]
        fits = [_fit(dialect, direction, data) for dialect in dialects]
        best = max(fits)
        if best is Fit.NONE:
            return False
        type_id, _ = HEADER.unpack_from(data)
        same = len({message_class(dialect, type_id) for dialect in dialects}) == 1
        certain = best > Fit.HEADER and (same or fits.count(best) == 1)
        if len(dialects) > 1 and not certain and len(data) < ENOUGH:
            return None
        self.guess = dialects[fits.index(best)]
        return True

    def decide(self, data: bytes | bytearray) -> bool:
        """Return whether the dialect is known, given the first bytes of a side; four of them always suffice."""
        if self.dialect is None and len(data) >= len(HELLO):
            self.dialect = Dialect.RELEASED if data.startswith(HELLO) else Dialect.DRAFT
        return self.dialect is not None


def _fit(dialect: Dialect, direction: Direction, data: bytes) -> Fit:
    """Return how well these bytes fit messages of that dialect and direction; the first message counts."""
    view = memoryview(data)[:LOOKED_AT]
    first: Fit | None = None
    at = 0
    while at + HEADER_BYTES <= len(view):
        type_id, length = HEADER.unpack_from(view, at)
        cls = message_class(dialect, type_id)
        if cls is None or not smallest(cls) <= length <= SEGMENT_MAX_LENGTH:
            return Fit.NONE
        if first is not None and dialect is Dialect.DRAFT and cls in (Event, Partial):
            return first  # a block's content is no chain of whole messages
        if cls.direction not in (direction, Direction.BOTH):
            return Fit.NONE
        start = at + HEADER_BYTES
        at = start + length
        fit = Fit.HEADER if at > len(view) else _body_fit(cls, view[start:at])
        first = fit if first is None else first
        if fit is Fit.NONE:
            return fit
    return Fit.HEADER if first is None else first


def smallest(cls: type[SegmentMessage]) -> int:
    """Return the least length of a body."""
    firm = [field.wire for field in cls.fields if not field.tail]
    if cls.older is not None:
        firm = [field.wire for field in fields_of(cls, cls.older.before - 1)]
    return sum(
        wire.size if wire.size is not None else _SMALLEST.get(wire.name, 4 if wire.name.startswith("i32 n") else 0)
        for wire in firm
    )


def _body_fit(cls: type[SegmentMessage], body: memoryview) -> Fit:
    """Return how well a body fits this message: encoded again, the decoded fields must give the same bytes."""
    whole = Fit.LOOSE if cls.fields and cls.fields[-1].wire.name in _LOOSE else Fit.WHOLE
    versions = [SEGMENT_VERSIONS[0]] + ([] if cls.older is None else [cls.older.before - 1])
    for version in versions:
        for tail, fit in ((True, whole), (False, Fit.SHORT)):
            try:
                again = b"".join(encode(decode_body(cls, body, version), version=version, tail=tail))
            except (MalformedValue, LocalProtocolError):
                continue
            if again[HEADER_BYTES:] == body:
                return fit
    return Fit.NONE
