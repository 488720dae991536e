"""The record model that every protocol's records are converted to, and back.

A *record* is a body of bytes, headers (pairs of bytes) and a position. Positions are kept in the terms of all protocols
at once:

* sequence number: dense, from 0;
* timestamp: milliseconds since the Unix epoch, never falling within a stream;
* seq: how many records of the stream before this one share its timestamp.

Timestamp and seq are the record id, `<ms>-<seq>`.

Work is done per batch, never per record. A `RecordBatch` holds columns, because columns decode as fast as anything and
encode far faster than objects (design, section 3); `records()` yields objects for filters, tests and people. A batch
may carry the wire bytes that it arrived in, and then decodes only on access.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from typing import Final, NamedTuple, Self

from msgspec import Struct, field

from penstock.model.limits import MAX_RECORD_BYTES

__all__ = [
    "EVENT_TIME",
    "NO_HEADERS",
    "U64_MAX",
    "BatchPart",
    "Columns",
    "Header",
    "Headers",
    "Record",
    "RecordBatch",
    "RecordId",
    "StreamPosition",
    "StreamRef",
    "WireBytes",
    "add_event_times",
    "equal_runs",
    "event_time_of",
    "id_at",
    "is_command",
    "long_runs",
    "metered_size",
    "next_record_id",
    "parts_within",
]

U64_MAX = 2**64 - 1
_DECIMAL: Final = re.compile(rb"[0-9]{1,20}")
_RECORD_ID: Final = re.compile(rb"0*([0-9]{1,20})-0*([0-9]{1,20})")
EVENT_TIME: Final = b"penstock-event-time"
"""Name of the header with the time of a record's event, in ms as a decimal number: only where it differs from the
timestamp, which never falls (docs/adr/0029)."""
_EVENT_TIME_BYTES: Final = 64
"""More than the metered bytes of this header."""
NO_HEADERS: Mapping[int, Headers] = {}
_LONG_RUN: Final = 8
"""Mean number of records with one timestamp from which on encoding them in runs is the faster way."""


class Header(NamedTuple):
    """One name/value pair; both are any bytes. An empty name marks a command record (S2 fact sheet, 5.3)."""

    name: bytes
    value: bytes


Headers = tuple[Header, ...]


class StreamRef(NamedTuple):
    """The name of a stream, in a basin. Each protocol's names are mapped onto the two."""

    basin: str
    stream: str

    def __str__(self) -> str:
        return f"{self.basin}/{self.stream}"


class StreamPosition(NamedTuple):
    """A sequence number and a timestamp in ms. As a tail: the next sequence number and the last timestamp."""

    seq_num: int
    timestamp: int


class RecordId(NamedTuple):
    """A record id `<ms>-<seq>` (S3P 0.2.0, section 5): timestamp in ms, and place within that ms, from 0."""

    ms: int
    seq: int

    @classmethod
    def parse(cls, text: bytes) -> Self | None:
        """Parse `<ms>-<seq>`, both unsigned 64-bit; leading zeros are accepted (S3P fact sheet 3, item 18). None if
        malformed."""
        match = _RECORD_ID.fullmatch(text)
        if match is None:
            return None
        ms, seq = int(match[1]), int(match[2])
        return cls(ms, seq) if ms <= U64_MAX and seq <= U64_MAX else None

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"


def next_record_id(last: RecordId | None, timestamp: int) -> RecordId:
    """Return the id of a record stamped `timestamp` that follows `last` (S3P 0.2.0, section 12)."""
    if last is None or timestamp > last.ms:
        return RecordId(timestamp, 0)
    return RecordId(last.ms, last.seq + 1)


class Record(NamedTuple):
    """One record as an object, for filters, tests and people; hot paths use columns."""

    seq_num: int
    timestamp: int
    headers: Headers
    body: bytes


class Columns(Struct):
    """The records of a batch, column by column; all sequences have one length.

    `headers` maps the index of a record in the batch to its headers and has entries only for records that have any, so
    it is nearly always empty.
    """

    seq_nums: Sequence[int]
    timestamps: Sequence[int]
    bodies: list[bytes]
    headers: Mapping[int, Headers] = field(default_factory=dict)

    def part(self, start: int, stop: int) -> Columns:
        """Return the records from index `start` up to `stop`; the columns themselves if that is all of them."""
        if start == 0 and stop == len(self.bodies):
            return self
        headers = self.headers
        if headers:
            headers = {index - start: some for index, some in headers.items() if start <= index < stop}
        return Columns(self.seq_nums[start:stop], self.timestamps[start:stop], self.bodies[start:stop], headers)


class WireBytes(NamedTuple):
    """Bytes that a codec can send as they are: `pieces` of one payload, in the encoding of that name."""

    encoding: str
    pieces: tuple[bytes, ...]

    @property
    def data(self) -> bytes:
        """The payload in one piece."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def part(self, start: int, stop: int) -> WireBytes:
        """Return the bytes from `start` up to `stop`; pieces of which all bytes are wanted are not copied."""
        pieces, at = [], 0
        for piece in self.pieces:
            some = piece[max(start - at, 0) : max(stop - at, 0)]
            at += len(piece)
            if some:
                pieces.append(some)
        return WireBytes(self.encoding, tuple(pieces))


class JoinedBatch(NamedTuple):
    """One of the batches that were joined to a batch: its number of records, their metered bytes, the bytes of its
    payload, and the identifier of its first record."""

    records: int
    metered: int
    size: int
    first_id: RecordId


def equal_runs(timestamps: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where each run of equal timestamps begins and ends; they never fall."""
    start, count = 0, len(timestamps)
    while start < count:
        stop = bisect_right(timestamps, timestamps[start], start)
        yield start, stop
        start = stop


def long_runs(timestamps: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return `equal_runs` if they are long on average, else None; also None if timestamps fall, as they must not."""
    most = len(timestamps) // _LONG_RUN
    runs = list(islice(equal_runs(timestamps), most + 1))
    if len(runs) > most or any(timestamps[start:stop].count(timestamps[start]) < stop - start for start, stop in runs):
        return None
    return runs


def id_at(timestamps: Sequence[int], first_id: RecordId, index: int) -> RecordId:
    """Return the identifier of the record at `index` of a batch whose first record has `first_id`."""
    timestamp = timestamps[index]
    if timestamp == first_id.ms:
        return RecordId(timestamp, first_id.seq + index)
    return RecordId(timestamp, index - bisect_left(timestamps, timestamp, 0, index))


def metered_size(bodies: Sequence[bytes], headers: Mapping[int, Headers]) -> int:
    """Return the metered bytes of records (S2 fact sheet, 5.1): the sum of 8 + 2 x headers + header bytes + body."""
    size = 8 * len(bodies) + sum(map(len, bodies))
    if headers:
        size += 2 * sum(map(len, headers.values()))
        size += sum(map(len, chain.from_iterable(chain.from_iterable(headers.values()))))
    return size


def add_event_times(
    bodies: Sequence[bytes], headers: Mapping[int, Headers], timestamps: Sequence[int], event_times: Sequence[int]
) -> Mapping[int, Headers]:
    """Return the headers of records, with EVENT_TIME behind the others where timestamp and event time differ.

    A record that has no room for it, of 1 MiB metered, goes without.
    """
    extended = dict(headers)
    for index, (timestamp, event_time) in enumerate(zip(timestamps, event_times, strict=True)):
        if timestamp == event_time:
            continue
        others = headers.get(index, ())
        metered = metered_size((bodies[index],), {0: others} if others else NO_HEADERS)
        if metered <= MAX_RECORD_BYTES - _EVENT_TIME_BYTES:
            extended[index] = (*others, Header(EVENT_TIME, b"%d" % event_time))
    return extended


def event_time_of(headers: Headers) -> int | None:
    """Return the event time of a record in ms; None if it is the timestamp, or the header is no number of 64 bits."""
    for name, value in headers:
        if name == EVENT_TIME:
            event_time = int(value) if _DECIMAL.fullmatch(value) else U64_MAX + 1
            return event_time if event_time <= U64_MAX else None
    return None


class BatchPart(NamedTuple):
    """Consecutive records of a batch, from index `start` up to `stop`, and their metered bytes."""

    start: int
    stop: int
    metered: int


def parts_within(
    bodies: Sequence[bytes], headers: Mapping[int, Headers], max_records: int, max_bytes: int
) -> Iterator[BatchPart]:
    """Yield the parts in which records are within the limits of a batch; a larger record is a part of its own."""
    start, count = 0, len(bodies)
    marked = sorted(headers)
    while start < count:
        stop = min(start + max_records, count)
        own = {n - start: headers[n] for n in marked[bisect_left(marked, start) : bisect_left(marked, stop)]}
        metered = metered_size(bodies[start:stop], own)
        if metered > max_bytes:
            sizes = [metered_size((body,), {0: own.get(n, ())}) for n, body in enumerate(bodies[start:stop])]
            ends = list(accumulate(sizes))
            fitting = max(bisect_right(ends, max_bytes), 1)
            stop, metered = start + fitting, ends[fitting - 1]
        yield BatchPart(start, stop, metered)
        start = stop


def is_command(headers: Headers) -> bool:
    """Return whether a record with these headers is a command (S2 fact sheet, 5.3): exactly one, with an empty name."""
    return len(headers) == 1 and not headers[0].name


class RecordBatch:
    """Consecutive records of one stream on their way to a reader; never empty.

    Made from columns (`RecordBatch(columns)`) or from wire bytes and a function that decodes them
    (`RecordBatch.from_wire`), in which case columns are made on first use. `first_id` is the id of the first record
    if the source knows it. `tail` is the stream's tail as known when the batch was made, or None while
    catching up.
    """

    __slots__ = (
        "_columns",
        "_decode",
        "_encoded",
        "_joined",
        "count",
        "first_id",
        "first_seq_num",
        "metered",
        "tail",
        "wire",
    )

    def __init__(
        self,
        columns: Columns,
        *,
        first_id: RecordId | None = None,
        tail: StreamPosition | None = None,
        metered: int | None = None,
    ) -> None:
        self._columns: Columns | None = columns
        self._decode: Callable[[bytes, RecordId | None], Columns] | None = None
        self._encoded: dict[object, bytes] = {}
        self._joined: Sequence[JoinedBatch] = ()
        self.wire: WireBytes | None = None
        self.count = len(columns.bodies)
        self.first_seq_num = columns.seq_nums[0]
        self.first_id = first_id
        self.tail = tail
        self.metered = metered_size(columns.bodies, columns.headers) if metered is None else metered

    @classmethod
    def from_wire(
        cls,
        wire: WireBytes,
        decode: Callable[[bytes, RecordId | None], Columns],
        *,
        count: int,
        first_seq_num: int,
        metered: int,
        first_id: RecordId | None = None,
        tail: StreamPosition | None = None,
        joined: Sequence[JoinedBatch] = (),
    ) -> RecordBatch:
        """Return a batch that keeps the bytes it came in; `decode(wire.data, first_id)` is called at most once, when
        needed.

        `joined`: the batches that it was joined from, if parts of it shall keep the bytes that they came in, too.
        """
        batch = cls.__new__(cls)
        batch._columns = None
        batch._decode = decode
        batch._encoded = {}
        batch._joined = joined
        batch.wire = wire
        batch.count = count
        batch.first_seq_num = first_seq_num
        batch.first_id = first_id
        batch.tail = tail
        batch.metered = metered
        return batch

    @property
    def columns(self) -> Columns:
        """The decoded columns; decoding happens on first use."""
        if self._columns is None:
            assert self._decode is not None and self.wire is not None
            self._columns = self._decode(self.wire.data, self.first_id)
        return self._columns

    @property
    def next_seq_num(self) -> int:
        """The sequence number that follows the batch's last record (sequence numbers are dense)."""
        return self.first_seq_num + self.count

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"<RecordBatch {self.first_seq_num}..{self.next_seq_num - 1} {self.metered} B metered>"

    def records(self) -> Iterator[Record]:
        """Yield the records one by one."""
        columns = self.columns
        headers = columns.headers
        for index, (seq_num, timestamp, body) in enumerate(
            zip(columns.seq_nums, columns.timestamps, columns.bodies, strict=True)
        ):
            yield Record(seq_num, timestamp, headers.get(index, ()), body)

    def record_ids(self) -> Iterator[RecordId]:
        """Yield the ids of the records.

        Raises ValueError if the source did not tell the first one, which cannot be derived.
        """
        if self.first_id is None:
            raise ValueError("this batch has no identifier for its first record")
        ms, seq = self.first_id
        seq -= 1
        for timestamp in self.columns.timestamps:
            if timestamp > ms:
                ms, seq = timestamp, 0
            else:
                seq += 1
            yield RecordId(ms, seq)

    def part(self, start: int, stop: int) -> RecordBatch:
        """Return the records from index `start` up to `stop`, at least one: the batch itself if that is all of it.

        A part that begins and ends with batches that it was joined from keeps the bytes that they came in.
        """
        if start == 0 and stop == self.count:
            return self
        whole = self._whole_batches(start, stop)
        if whole is not None and self._columns is None:
            return whole
        columns = self.columns
        some = columns.part(start, stop)
        if whole is not None:  # it is not decoded again
            whole._columns = some
            return whole
        first_id = None if self.first_id is None else id_at(columns.timestamps, self.first_id, start)
        return RecordBatch(some, first_id=first_id, tail=self.tail if stop == self.count else None)

    def _whole_batches(self, start: int, stop: int) -> RecordBatch | None:
        """Return a part as the batches that were joined; None if it does not begin and end with any."""
        first = last = None
        index = at = 0
        for number, (records, _, size, _) in enumerate(self._joined):
            if index == start:
                first = number, at
            index += records
            at += size
            if index == stop:
                last = number + 1, at
                break
        if first is None or last is None:
            return None
        assert self.wire is not None and self._decode is not None, "batches that were joined are bytes"
        joined = self._joined[first[0] : last[0]]
        return RecordBatch.from_wire(
            self.wire.part(first[1], last[1]),
            self._decode,
            count=stop - start,
            first_seq_num=self.first_seq_num + start,
            metered=sum([batch.metered for batch in joined]),
            first_id=joined[0].first_id,
            tail=self.tail if stop == self.count else None,
            joined=joined,
        )

    def fitting(self, max_bytes: int) -> int:
        """Return how many of the first records have at most `max_bytes` metered bytes together."""
        if self.metered <= max_bytes:
            return self.count
        columns = self.columns
        if not columns.headers:
            used = list(accumulate(map(len, columns.bodies)))
            return bisect_right(range(self.count), max_bytes, key=lambda index: used[index] + 8 * (index + 1))
        size = 0
        for index, body in enumerate(columns.bodies):
            size += metered_size((body,), {0: columns.headers.get(index, ())})
            if size > max_bytes:
                return index
        raise AssertionError("its records have more than `max_bytes`")

    def encoded(self, key: object, encode: Callable[[RecordBatch], bytes]) -> bytes:
        """Return `encode(self)`, computed once per key: a thousand followers of one stream share one encoding."""
        encoding = self._encoded.get(key)
        if encoding is None:
            encoding = self._encoded[key] = encode(self)
        return encoding
