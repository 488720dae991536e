"""Record batches of format 2 ("magic 2", KIP-98): columns of keys, values and headers, with one header and checksum.

    int64  base offset              int8   magic, 2
    int32  length of what follows   uint32 CRC-32C of what follows
    int32  leader epoch             int16  attributes: compression (3 bits), time of append, transactional, control
                                    int32  offset of the last record, counted from the base
    int64  base timestamp, ms       int64  largest timestamp
    int64  producer id              int16  producer epoch
    int32  base sequence            int32  number of records, which follow, compressed or not

Numbers inside a record are variable integers; its timestamp and offset are counted from the base. Formats 0 and 1,
which Kafka 4 has dropped, are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import google_crc32c

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MIB
from penstock.wire.compression import DecompressionError, TooLarge, UnsupportedWindow
from penstock_kafka.codec.compression import KafkaCompression, compress, decompress
from penstock_kafka.codec.wire import KafkaFault, KafkaReader, varint

__all__ = [
    "APPEND_TIME",
    "BATCH_HEADER",
    "LARGEST",
    "MOST_RECORDS",
    "NO_PRODUCER",
    "TRANSACTIONAL",
    "BatchHeader",
    "KafkaBatch",
    "KafkaHeaders",
    "compression_of",
    "count_of",
    "encode_batch",
    "header_of",
    "is_checksum_right",
    "numbered",
    "read_batch",
    "read_batches",
    "resealed",
    "whole_batches",
]

_HEAD: Final = struct.Struct(">qiibI")
_BODY: Final = struct.Struct(">hiqqqhii")
_FRAME: Final = struct.Struct(">8xi4xb")
"""Of a batch only its length and its format."""
_ATTRIBUTES: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">i")
BATCH_HEADER: Final = _HEAD.size + _BODY.size
"""Bytes before the records of a batch."""
_BEFORE_LENGTH: Final = 12
_MAGIC_AT: Final = 16
_LEAST: Final = BATCH_HEADER - _BEFORE_LENGTH
_CODEC: Final = 0x07
APPEND_TIME: Final = 0x08
"""Attribute: all records have the largest timestamp."""
TRANSACTIONAL: Final = 0x10
"""Attribute: the batch belongs to a transaction."""
_CONTROL: Final = 0x20
_NULL_LENGTH: Final = 1
"""The length -1 of a field that is null, as its variable integer."""
_LEAST_RECORD: Final = 7
"""Bytes of an empty record: its length, attributes, two numbers, two lengths, and the number of headers."""
MOST_RECORDS: Final = 100_000
"""Default of the most records of a batch, or of all batches in one request: each costs more memory than bytes."""
MOST_BYTES: Final = 16 * MIB
"""Default of the most decompressed bytes of a batch."""
LARGEST: Final = (1 << 63) - 1
"""The largest offset or timestamp."""
MOST_HEADERS: Final = 100_000
"""Most headers of the records of one batch."""
NO_PRODUCER: Final = -1
_NO_SEQUENCE: Final = -1

KafkaHeaders = tuple[tuple[bytes, bytes | None], ...]
"""Headers of a record: names, of any bytes, and values, which may be null."""
_NULL: Final = varint(-1)


@dataclass(slots=True, kw_only=True)
class KafkaBatch:
    """The records of one batch, column by column, and its producer. Timestamps in ms; -1: none.

    `headers` maps the index of a record to its headers, for records that have any. `control`: markers of Kafka's own,
    which clients hide from programs. `append_time`: the broker has stamped all records. `size`: bytes of all of it;
    `decompressed`: of its records. `data`: the bytes that it was read from. Offsets that were read are a range if they
    have no gaps.
    """

    base_offset: int = 0
    compression: KafkaCompression = KafkaCompression.NONE
    append_time: bool = False
    transactional: bool = False
    control: bool = False
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = _NO_SEQUENCE
    leader_epoch: int = -1
    keys: Sequence[bytes | None] = ()
    values: Sequence[bytes | None] = ()
    timestamps: Sequence[int] = ()
    offsets: Sequence[int] = ()
    headers: Mapping[int, KafkaHeaders] = field(default_factory=dict)
    next_offset: int = 0
    size: int = 0
    decompressed: int = field(default=0, compare=False)
    data: bytes = field(default=b"", repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def dense(self) -> bool:
        """True if a batch that was read has a record for each of its offsets, in order."""
        return isinstance(self.offsets, range) and self.next_offset == self.base_offset + len(self)


# ---- decoding --------------------------------------------------------------------------------------------------------


def read_batches(data: bytes, *, max_bytes: int = MOST_BYTES, max_records: int = MOST_RECORDS) -> Iterator[KafkaBatch]:
    """Yield the batches in the `records` of a message; a part of a batch at the end, as Fetch may return, is left out.

    `max_bytes`: decompressed, and `max_records`: of all of them. Raises OperationFailed: BAD_FORMAT for damaged ones,
    LIMIT_EXCEEDED, and NOT_IMPLEMENTED for the formats 0 and 1.
    """
    for start, end in whole_batches(data):
        batch = read_batch(data[start:end], start, max_bytes=max_bytes, max_records=max_records)
        max_records -= len(batch)
        yield batch


def is_checksum_right(data: bytes) -> bool:
    """Return whether a whole batch has the checksum that it states."""
    checksum = int(_HEAD.unpack_from(data)[-1])
    return bool(checksum == google_crc32c.value(data[_HEAD.size :]))


def whole_batches(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each whole batch begins and ends. Raises as `read_batches` for those of other formats."""
    at = 0
    while len(data) - at > _MAGIC_AT:
        length, magic = _FRAME.unpack_from(data, at)
        size = _BEFORE_LENGTH + length
        if magic in (0, 1):
            raise fail(FailureCode.NOT_IMPLEMENTED, f"a batch of format {magic}, which Kafka 4 has dropped; 2 is known")
        if magic != 2 or size < BATCH_HEADER:
            raise _damaged(f"a batch of format {magic} and {size} bytes", at)
        if size > len(data) - at:
            return
        yield at, at + size
        at += size


def read_batch(
    data: bytes,
    at: int = 0,
    *,
    max_bytes: int = MOST_BYTES,
    max_records: int = MOST_RECORDS,
    start: int | None = None,
) -> KafkaBatch:
    """Return the batch that `data` is; `at`: its place in the message, for errors. Raises as `read_batches`.

    `start`: return a part of the batch, from this offset on. It ends behind `max_records` records or `MOST_HEADERS`
    headers; its `next_offset` is where the next part begins.
    """
    base_offset, _, leader_epoch, _, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if google_crc32c.value(body) != crc:
        raise _damaged("the checksum does not match", at)
    attributes, last, base_time, newest, producer_id, producer_epoch, sequence, count = _BODY.unpack_from(body)
    if count < 0 or (start is None and count > max_records):
        raise fail(FailureCode.LIMIT_EXCEEDED, f"a batch of {count} records, at most {max_records} are allowed")
    if not 0 <= last < 1 << 31 or (count and last < count - 1):
        raise _damaged(f"{count} records up to offset {last}", at)
    codec = attributes & _CODEC
    if codec not in KafkaCompression.__members__.values():
        raise fail(FailureCode.NOT_IMPLEMENTED, f"compression {codec} is not known")
    try:
        payload = decompress(KafkaCompression(codec), body[_BODY.size :], max_bytes)
    except TooLarge as error:  # clients cut such a batch in two, and send one that is damaged again
        raise fail(FailureCode.LIMIT_EXCEEDED, f"a batch of {count} records: {error}") from None
    except UnsupportedWindow as error:
        raise fail(FailureCode.NOT_IMPLEMENTED, f"a batch of {count} records: {error}") from None
    except DecompressionError as error:
        raise _damaged(str(error), at) from None
    if count * _LEAST_RECORD > len(payload):
        raise _damaged(f"{count} records in {len(payload)} bytes", at)
    batch = KafkaBatch(
        base_offset=base_offset,
        compression=KafkaCompression(codec),
        append_time=bool(attributes & APPEND_TIME),
        transactional=bool(attributes & TRANSACTIONAL),
        control=bool(attributes & _CONTROL),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        leader_epoch=leader_epoch,
        next_offset=base_offset + last + 1,
        size=len(data),
        decompressed=len(payload),
        data=data,
    )
    try:
        _read_records(batch, payload, count, base_time, max_records, start)
    except KafkaFault as fault:
        raise _damaged(f"in its records, {fault}", at) from None
    if batch.append_time:  # the broker has set the largest timestamp, and left those of the records
        batch.timestamps = [newest] * len(batch)
    return batch


def _read_records(
    batch: KafkaBatch, payload: bytes, count: int, base_time: int, max_records: int, start: int | None
) -> None:
    """Set the columns of a batch, or of its part. Numbers of one byte, as nearly all are, are read without a call: 1.2
    us a record instead of 4."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    times: list[int] = []
    places: list[int] = []
    headers: dict[int, KafkaHeaders] = {}
    at, size, headers_left = 0, len(payload), MOST_HEADERS
    first = index = 0
    try:
        if start is not None:
            first, at = _first_from(payload, count, start - batch.base_offset)
        for index in range(first, count if start is None else min(count, first + max_records)):
            begin, number, at = at, payload[at], at + 1
            if number > 0x7F:
                number, at = _longer(payload, at, number)
            end = at + (number >> 1)
            if number & 1 or not at < end <= size:
                raise KafkaFault(f"record {index} has {number >> 1 ^ -(number & 1)} bytes", begin)
            at += 1  # attributes, of which none is used
            number, at = payload[at], at + 1
            if number > 0x7F:
                number, at = _longer(payload, at, number, 64)
            times.append(number)
            number, at = payload[at], at + 1
            if number > 0x7F:
                number, at = _longer(payload, at, number)
            places.append(number)
            for column in (keys, values):
                number, at = payload[at], at + 1
                if number == _NULL_LENGTH:
                    column.append(None)
                    continue
                if number > 0x7F:
                    number, at = _longer(payload, at, number)
                stop = at + (number >> 1)
                if number & 1 or stop > end:
                    raise _too_long(number, end, at)
                column.append(payload[at:stop])
                at = stop
            number, at = payload[at], at + 1
            if number:
                most = headers_left if start is None else MOST_HEADERS
                some, at = _read_headers(payload, at - 1, end, min(most, end - at))
                headers[index - first], headers_left = some, headers_left - len(some)
            if at != end:
                raise KafkaFault(f"record {index} is followed by {end - at} bytes", begin)
            if headers_left <= 0 and start is not None:
                break
    except IndexError:
        raise KafkaFault(f"they end within record {index}", size) from None
    stop = first + len(values)
    if at != size and stop == count:
        raise KafkaFault(f"{size - at} bytes follow the last record", at)
    batch.keys, batch.values, batch.headers = keys, values, headers
    batch.timestamps = [base_time + (number >> 1 ^ -(number & 1)) for number in times]
    batch.offsets = range(batch.base_offset + first, batch.base_offset + stop)
    if places != list(range(2 * first, 2 * stop, 2)):
        batch.offsets = [batch.base_offset + (number >> 1 ^ -(number & 1)) for number in places]
    if stop < count:
        batch.next_offset = min(batch.next_offset, batch.offsets[-1] + 1)


def _first_from(payload: bytes, count: int, distance: int) -> tuple[int, int]:
    """Return the index of the first record with at least this distance from the base offset, and where it begins.
    Raises as `_longer`."""
    at = 0
    for index in range(count):
        begin, number, at = at, payload[at], at + 1
        if number > 0x7F:
            number, at = _longer(payload, at, number)
        end, at = at + (number >> 1), at + 1
        number, at = payload[at], at + 1
        if number > 0x7F:
            _, at = _longer(payload, at, number, 64)
        number, at = payload[at], at + 1
        if number > 0x7F:
            number, at = _longer(payload, at, number)
        if number >> 1 ^ -(number & 1) >= distance:
            return index, begin
        at = end
    return count, at


def _longer(data: bytes, at: int, first: int, bits: int = 32) -> tuple[int, int]:
    """Return a variable integer of more than one byte, not unfolded, and the place behind it; `first`: its first byte.

    Raises KafkaFault, and IndexError at the end of the data.
    """
    second = data[at]
    if second < 0x80:
        return first & 0x7F | second << 7, at + 1
    reader = KafkaReader(data, at - 1)
    return reader.uvarint(bits), reader.at


def _too_long(number: int, end: int, at: int) -> KafkaFault:
    length = number >> 1 ^ -(number & 1)
    if length < 0:
        return KafkaFault(f"length {length}", at)
    return KafkaFault(f"a field of {length} bytes, of which only {max(end - at, 0)} are there", at)


def _read_headers(data: bytes, at: int, end: int, most: int) -> tuple[KafkaHeaders, int]:
    """Return the headers of a record, at most `most`, and the place behind them."""
    reader = KafkaReader(data, at)
    reader.end = end
    count = reader.varint()
    if not 0 < count <= most:
        raise KafkaFault(f"a record has {count} headers", at)
    return tuple((_name(reader), _nullable(reader)) for _ in range(count)), reader.at


def _nullable(reader: KafkaReader) -> bytes | None:
    size = reader.varint()
    if size == -1:
        return None
    if size < 0:
        raise KafkaFault(f"length {size}", reader.at)
    return reader.take(size, "a field")


def _name(reader: KafkaReader) -> bytes:
    name = _nullable(reader)
    if name is None:
        raise KafkaFault("the name of a header is null", reader.at)
    return name


def _damaged(reason: str, at: int) -> OperationFailed:
    return fail(FailureCode.BAD_FORMAT, f"the batch at byte {at}: {reason}")


# ---- headers ---------------------------------------------------------------------------------------------------------


class BatchHeader(NamedTuple):
    """The part of a batch's header that its checksum covers. `last`: offset of the last record, from the base."""

    attributes: int
    last: int
    base_time: int
    newest: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int


def header_of(data: bytes, at: int = 0) -> BatchHeader:
    """Return the header of the whole batch that begins at this place."""
    return BatchHeader._make(_BODY.unpack_from(data, at + _HEAD.size))


def compression_of(data: bytes, at: int = 0) -> int:
    """Return the number of the compression of the whole batch that begins at this place."""
    [attributes] = _ATTRIBUTES.unpack_from(data, at + _HEAD.size)
    compression: int = attributes & _CODEC
    return compression


def count_of(data: bytes, at: int = 0) -> int:
    """Return the number of records that the header of the whole batch at this place tells."""
    [count] = _COUNT.unpack_from(data, at + BATCH_HEADER - _COUNT.size)
    records: int = count
    return records


def numbered(batch: bytes, base_offset: int) -> bytes:
    """Return a batch with another base offset, and without an epoch of its leader."""
    _, length, _, magic, crc = _HEAD.unpack_from(batch)
    return _HEAD.pack(base_offset, length, -1, magic, crc) + batch[_HEAD.size :]


def resealed(batch: bytes, header: BatchHeader) -> bytes:
    """Return a batch with another header, and its checksum."""
    body = _BODY.pack(*header) + batch[BATCH_HEADER:]
    checksum: int = google_crc32c.value(body)
    return batch[: _HEAD.size - 4] + checksum.to_bytes(4, "big") + body


# ---- encoding --------------------------------------------------------------------------------------------------------


def encode_batch(batch: KafkaBatch) -> bytes:
    """Return a batch as bytes. `offsets` rise from the base offset on; `next_offset` may be above the last one's
    successor, and a batch may have no records: then its readers go on behind what is left out."""
    base_offset, base_time = batch.base_offset, batch.timestamps[0] if batch.timestamps else -1
    payload = b"".join(_records(batch, base_offset, base_time))
    attributes = int(batch.compression)
    attributes |= APPEND_TIME * batch.append_time | TRANSACTIONAL * batch.transactional | _CONTROL * batch.control
    body = _BODY.pack(
        attributes,
        max(batch.next_offset, batch.offsets[-1] + 1 if batch.offsets else 0) - base_offset - 1,
        base_time,
        max(batch.timestamps, default=-1),
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(batch),
    ) + compress(batch.compression, payload)
    head = _HEAD.pack(
        base_offset, len(body) + _HEAD.size - _BEFORE_LENGTH, batch.leader_epoch, 2, google_crc32c.value(body)
    )
    return head + body


def _records(batch: KafkaBatch, base_offset: int, base_time: int) -> Iterator[bytes]:
    headers = batch.headers
    columns = zip(batch.keys, batch.values, batch.timestamps, batch.offsets, strict=True)
    for index, (key, value, timestamp, offset) in enumerate(columns):
        if key is None and value is not None and index not in headers:  # most records are so
            head = b"\0%b%b\1%b" % (varint(timestamp - base_time), varint(offset - base_offset), varint(len(value)))
            yield from (varint(len(head) + len(value) + 1), head, value, b"\0")
            continue
        parts = [
            b"\0",
            varint(timestamp - base_time),
            varint(offset - base_offset),
            *_spelled(key),
            *_spelled(value),
            varint(len(some := headers.get(index, ()))),
        ]
        for name, content in some:
            parts += (*_spelled(name), *_spelled(content))
        yield varint(sum(map(len, parts)))
        yield from parts


def _spelled(data: bytes | None) -> tuple[bytes, ...]:
    return (_NULL,) if data is None else (varint(len(data)), data)
