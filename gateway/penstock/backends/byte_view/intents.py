"""Intents of writers, and the search for their batches at the back: a crash makes no append stored twice.

Before bytes of a writer are sent to the back, an *intent* is made durable: the writer, its position after the append,
and fingerprints of the batches. Appends of a stream go to the back one after the other, so of the unacknowledged ones
the back has the first few or none. They are found by reading on from the place where the stream ended then. Equal bytes
that another client of that server appended at the same time are taken for ours; nothing else can be mistaken.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

from penstock.backends.byte_view.labels import Fingerprint
from penstock.backends.byte_view.offsets import RecordOffset
from penstock.model.byte_operations import Attribute
from penstock.model.records import StreamPosition

__all__ = [
    "FoundBatch",
    "Intent",
    "IntentGroup",
    "Matcher",
    "pack_found",
    "pack_group",
    "unpack_found",
    "unpack_group",
    "without_bytes",
]

_GROUP: Final = struct.Struct(">QQQI")
_INTENT: Final = struct.Struct(">16sqI")
_PRINT: Final = struct.Struct(">III16s")
_FOUND: Final = struct.Struct(">6Q")


class Intent(NamedTuple):
    """An append that is about to be sent. `writer`: None unless the append is exactly once. `position`: the writer's
    position after it. `prints`: fingerprints of its batches, in order."""

    writer: Attribute | None
    position: int
    prints: tuple[Fingerprint, ...]


class IntentGroup(NamedTuple):
    """Intents that became durable together. `number`: number of the first one, counted over the stream. `base`: a place
    at or before the end that the stream had when they were made."""

    number: int
    base: RecordOffset
    intents: Sequence[Intent]


def pack_group(group: IntentGroup) -> bytes:
    """Encode a group; all its intents must have a writer."""
    packed = [_GROUP.pack(group.number, *group.base, len(group.intents))]
    for writer, position, prints in group.intents:
        packed.append(_INTENT.pack(writer, position, len(prints)))
        packed += [_PRINT.pack(*fingerprint) for fingerprint in prints]
    return b"".join(packed)


def unpack_group(data: bytes) -> IntentGroup:
    """Decode a group."""
    number, seq_num, offset, count = _GROUP.unpack_from(data)
    at = _GROUP.size
    intents = []
    for _ in range(count):
        writer, position, prints = _INTENT.unpack_from(data, at)
        at += _INTENT.size
        stop = at + prints * _PRINT.size
        intents.append(
            Intent(
                writer, position, tuple(Fingerprint(*fingerprint) for fingerprint in _PRINT.iter_unpack(data[at:stop]))
            )
        )
        at = stop
    return IntentGroup(number, RecordOffset(seq_num, offset), intents)


class FoundBatch(NamedTuple):
    """A batch that the back has: the range of its records and of its bytes."""

    start: StreamPosition
    end: StreamPosition
    offset: int
    end_offset: int


def pack_found(batches: Sequence[FoundBatch]) -> bytes:
    """Encode batches that the back has."""
    return b"".join([_FOUND.pack(*batch.start, *batch.end, batch.offset, batch.end_offset) for batch in batches])


def unpack_found(data: bytes) -> tuple[FoundBatch, ...]:
    """Decode batches that the back has."""
    return tuple(
        FoundBatch(StreamPosition(first, at), StreamPosition(last, then), offset, end)
        for first, at, last, then, offset, end in _FOUND.iter_unpack(data)
    )


def without_bytes(batches: Sequence[FoundBatch], count: int) -> tuple[FoundBatch, ...]:
    """Return these batches without their first `count` bytes."""
    left = []
    for batch in batches:
        length = batch.end_offset - batch.offset
        if count < length:
            left.append(batch._replace(offset=batch.offset + count))
        count = max(count - length, 0)
    return tuple(left)


class _Seen(NamedTuple):
    seq_num: int
    timestamp: int
    offset: int
    data: bytes


class Matcher:
    """Searches the records of a stream for batches with these fingerprints, in order."""

    def __init__(self, prints: Iterable[Fingerprint]) -> None:
        self._wanted = deque(prints)
        self._seen: deque[_Seen] = deque()
        self.found: list[FoundBatch] = []

    @property
    def done(self) -> bool:
        """True if all batches were found."""
        return not self._wanted

    def feed(self, records: Iterable[tuple[int, int, int, bytes]]) -> None:
        """Take the next records: number, timestamp, offset and bytes of each."""
        for record in records:
            self._seen.append(_Seen(*record))
            while self._wanted and len(self._seen) >= self._wanted[0].records:
                self._look()

    def _look(self) -> None:
        """Match the next batch against the first records seen: take its records, or else drop the first record."""
        wanted = self._wanted[0]
        if crc32(self._seen[0].data) != wanted.head or not self._matches(wanted):
            self._seen.popleft()
            return
        records = [self._seen.popleft() for _ in range(wanted.records)]
        end = records[-1].offset + len(records[-1].data)
        start = StreamPosition(records[0].seq_num, records[0].timestamp)
        self.found.append(
            FoundBatch(start, StreamPosition(records[-1].seq_num + 1, records[-1].timestamp), records[0].offset, end)
        )
        self._wanted.popleft()

    def _matches(self, wanted: Fingerprint) -> bool:
        digest, length = blake2b(digest_size=16), 0
        for index in range(wanted.records):
            length += len(self._seen[index].data)
            digest.update(self._seen[index].data)
        return length == wanted.length and digest.digest() == wanted.digest
