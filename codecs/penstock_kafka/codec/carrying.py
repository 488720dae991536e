"""Kafka's records as records of streams, and back; docs/protocols/kafka.md has the mapping.

The value is the body, and headers are headers. Headers of the gateway's own carry what streams have no place for:

    kafka-key             the key; without it the key is null
    kafka-null            what is null and not empty: "value", or the numbers of headers from 0 on, joined by commas
    penstock-event-time   the timestamp (CreateTime), where that of the stream, which never falls, differs from it

A record of any other client with such headers has that key, those nulls and that timestamp for Kafka's clients.
Command records travel as control records, which Kafka's clients skip.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MAX_BATCH_BYTES, MAX_BATCH_RECORDS, MAX_RECORD_BYTES, MAX_RECORD_HEADERS
from penstock.model.records import (
    EVENT_TIME,
    Columns,
    Header,
    Headers,
    RecordBatch,
    WireBytes,
    add_event_times,
    event_time_of,
    is_command,
    metered_size,
    parts_within,
)
from penstock.wire.codec import RecordEncoding
from penstock_kafka.codec.batches import LARGEST, KafkaBatch, KafkaHeaders, encode_batch, read_batches
from penstock_kafka.codec.kept import KAFKA_BATCHES, MOST_KEPT, keep, place, timestamps_of

__all__ = [
    "ENCODING",
    "KEY",
    "NULL",
    "RecordsPart",
    "check_names",
    "encoded_records",
    "from_headers",
    "parts_of",
    "to_headers",
]

KEY: Final = b"kafka-key"
NULL: Final = b"kafka-null"
_VALUE: Final = b"value"
_CONTROL_KEY: Final = b"\0\0\xff\xff"
"""The key of a control record: version 0, and the type that stands for unknown ones."""


class RecordsPart(NamedTuple):
    """Consecutive records of a batch that one append takes. `first`: the index of the first one in the batch. `wire`:
    the batch itself, if the part is all of it and it can be kept."""

    first: int
    bodies: list[bytes]
    headers: Mapping[int, Headers]
    timestamps: Sequence[int | None]
    metered: int
    wire: WireBytes | None = None


# ---- appended --------------------------------------------------------------------------------------------------------


def parts_of(batch: KafkaBatch, skip: int = 0, *, whole: bool = False) -> list[RecordsPart]:
    """Return the records of a batch from index `skip` on, in parts that one append can take; `whole`: in one part.

    Raises NOT_REPRESENTABLE or LIMIT_EXCEEDED for a record that streams cannot carry; `index` in the details.
    """
    records = _carried(batch, skip)
    if not records.bodies:
        return []
    if not whole and (len(records.bodies) > MAX_BATCH_RECORDS or records.metered > MAX_BATCH_BYTES):
        parts = parts_within(records.bodies, records.headers, MAX_BATCH_RECORDS, MAX_BATCH_BYTES)
        return [_part(records, *part) for part in parts]
    return [records if skip or not batch.data else records._replace(wire=keep(batch))]


def _carried(batch: KafkaBatch, skip: int) -> RecordsPart:
    """Return the records from index `skip` on, in one part."""
    values = batch.values[skip:]
    keys = batch.keys[skip:]
    bodies = [value or b"" for value in values]
    headers: dict[int, Headers] = {}
    if batch.headers or keys.count(None) < len(keys) or None in values:
        for index, (key, value) in enumerate(zip(keys, values, strict=True)):
            headers_given = batch.headers.get(skip + index, ())
            if key is not None and value is not None and not headers_given:  # as most records with a key
                headers[index] = (Header(KEY, key),)
            elif key is not None or value is None or headers_given:
                headers[index] = record_headers = to_headers(skip + index, key, value, headers_given)
                if len(record_headers) > MAX_RECORD_HEADERS:
                    reason = f"record {skip + index} has {len(record_headers)} headers"
                    raise fail(FailureCode.LIMIT_EXCEEDED, reason, index=skip + index)
    metered = metered_size(bodies, headers)
    if metered > MAX_RECORD_BYTES:
        _check_sizes(bodies, headers, skip)
    timestamps: Sequence[int | None] = batch.timestamps[skip:]
    if min(batch.timestamps, default=0) < 0:
        timestamps = [None if time is None or time < 0 else time for time in timestamps]
    return RecordsPart(skip, bodies, headers, timestamps, metered)


def _check_sizes(bodies: Sequence[bytes], headers: Mapping[int, Headers], skip: int) -> None:
    for index, body in enumerate(bodies):
        if len(body) + 8 > MAX_RECORD_BYTES or index in headers:
            size = metered_size((body,), {0: headers.get(index, ())})
            if size > MAX_RECORD_BYTES:
                at = skip + index
                reason = f"record {at} has {size} bytes with its headers, at most {MAX_RECORD_BYTES} are allowed"
                raise fail(FailureCode.LIMIT_EXCEEDED, reason, index=at)


def _part(records: RecordsPart, first: int, stop: int, metered: int) -> RecordsPart:
    bodies = records.bodies[first:stop]
    headers = {
        index - first: record_headers for index, record_headers in records.headers.items() if first <= index < stop
    }
    timestamps = records.timestamps[first:stop]
    return RecordsPart(records.first + first, bodies, headers, timestamps, metered)


def to_headers(index: int, key: bytes | None, value: bytes | None, headers: KafkaHeaders) -> Headers:
    """Return the headers of the record at `index`. Raises NOT_REPRESENTABLE for headers that a stream cannot carry."""
    check_names(index, headers)
    own = [] if key is None else [Header(KEY, key)]
    if nulls := _nulls(value, headers):
        own.append(Header(NULL, nulls))
    return (*own, *(Header(name, content or b"") for name, content in headers))


def check_names(index: int, headers: KafkaHeaders) -> None:
    """Check names of headers that the record at `index` has in Kafka. Raises NOT_REPRESENTABLE for those that mean
    something else in a stream."""
    for name, _ in headers:
        if name in (KEY, NULL, EVENT_TIME):
            raise _refusal(index, f"has a header named {name.decode()}, which stands for its own key, nulls or time")
        if not name:
            raise _refusal(index, "has a header without a name, which streams keep for commands")


def _nulls(value: bytes | None, headers: KafkaHeaders) -> bytes:
    """Return the value of the header that names what is null; empty if nothing is."""
    nulls = [b"%d" % number for number, (_, content) in enumerate(headers) if content is None]
    return b",".join([_VALUE, *nulls] if value is None else nulls)


def _refusal(index: int, reason: str) -> OperationFailed:
    return fail(FailureCode.NOT_REPRESENTABLE, f"record {index} {reason}", index=index)


# ---- kept ------------------------------------------------------------------------------------------------------------


def _decode(payload: bytes, first_timestamp: int) -> Columns:
    """Return the records of kept batches; see `RecordEncoding`."""
    first: int | None = None
    size, newest = 0, first_timestamp
    bodies: list[bytes] = []
    timestamps: list[int] = []
    headers: dict[int, Headers] = {}
    for batch in read_batches(payload, max_bytes=MOST_KEPT):
        records = _carried(batch, 0)
        risen, own = timestamps_of(batch, newest), records.headers
        if risen is not batch.timestamps:
            own = add_event_times(records.bodies, own, risen, batch.timestamps)
        headers.update((len(bodies) + index, record_headers) for index, record_headers in own.items())
        bodies += records.bodies
        timestamps += risen
        newest = timestamps[-1] if timestamps else newest
        first = batch.base_offset if first is None else first
        size += batch.size
    if first is None or size != len(payload):
        raise fail(FailureCode.BAD_FORMAT, f"{len(payload)} bytes hold {size} bytes of whole batches")
    return Columns(range(first, first + len(bodies)), timestamps, bodies, headers)


ENCODING: Final = RecordEncoding(KAFKA_BATCHES, place, _decode)


# ---- read ------------------------------------------------------------------------------------------------------------


def encoded_records(batch: RecordBatch) -> bytes:
    """Return records of a stream as Kafka's batches; offsets are sequence numbers.

    Raises NOT_REPRESENTABLE for a record that Kafka cannot carry; `seq_num` in the details.
    """
    return batch.encoded(__name__, _encode)


def _encode(batch: RecordBatch) -> bytes:
    columns = batch.columns
    if columns.timestamps[-1] > LARGEST:  # they never fall
        number = columns.seq_nums[bisect_right(columns.timestamps, LARGEST)]
        reason = f"record {number} has a timestamp of more than 63 bits, which Kafka cannot carry"
        raise fail(FailureCode.NOT_REPRESENTABLE, reason, seq_num=number)
    if not columns.headers:
        return encode_batch(
            KafkaBatch(
                base_offset=batch.first_seq_num,
                keys=[None] * batch.count,
                values=columns.bodies,
                timestamps=columns.timestamps,
                offsets=columns.seq_nums,
            )
        )
    commands = {index for index, record_headers in columns.headers.items() if is_command(record_headers)}
    runs = groupby(range(batch.count), commands.__contains__)
    return b"".join(_run(batch, list(indices), command) for command, indices in runs)


def _run(batch: RecordBatch, indices: Sequence[int], command: bool) -> bytes:
    """Return a run of records that all are commands, or none of them."""
    columns = batch.columns
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    timestamps: list[int] = []
    headers: dict[int, KafkaHeaders] = {}
    for number, index in enumerate(indices):
        record_headers, body = columns.headers.get(index, ()), columns.bodies[index]
        key, value, headers_given, event_time = from_headers(columns.seq_nums[index], record_headers, body)
        keys.append(_CONTROL_KEY if command else key)
        values.append(value)
        timestamps.append(columns.timestamps[index] if event_time is None else event_time)
        if headers_given:
            headers[number] = headers_given
    return encode_batch(
        KafkaBatch(
            base_offset=columns.seq_nums[indices[0]],
            control=command,
            keys=keys,
            values=values,
            timestamps=timestamps,
            offsets=[columns.seq_nums[index] for index in indices],
            headers=headers,
        )
    )


def from_headers(
    number: int, headers: Headers, body: bytes
) -> tuple[bytes | None, bytes | None, KafkaHeaders, int | None]:
    """Return key, value, headers and event time in ms (None: the timestamp) of a record for Kafka.

    A second header of the gateway's own, and one that does not name exactly what is empty, are headers like others.
    Raises NOT_REPRESENTABLE, naming the record; `number` is `seq_num` in the details.
    """
    if not headers:
        return None, body, (), None
    remaining = list(headers)
    key = _take(remaining, KEY)
    event_time = event_time_of(headers)
    if event_time is not None and event_time > LARGEST:
        event_time = None
    if event_time is not None:
        _take(remaining, EVENT_TIME)
    if not _are_text(remaining):
        reason = f"record {number} has a header whose name is not UTF-8, which Kafka cannot carry"
        raise fail(FailureCode.NOT_REPRESENTABLE, reason, seq_num=number)
    others = list(remaining)
    if not (named := _take(others, NULL)):
        return key, body, tuple(remaining), event_time
    nulls = named.split(b",")
    value = None if _VALUE in nulls and not body else body
    record_headers = tuple(
        (name, content or (None if b"%d" % at in nulls else b"")) for at, (name, content) in enumerate(others)
    )
    return (
        (key, value, record_headers, event_time)
        if _nulls(value, record_headers) == named
        else (key, body, tuple(remaining), event_time)
    )


def _take(headers: list[Header], name: bytes) -> bytes | None:
    """Remove the first header of this name and return its value; None if there is none."""
    for index, header in enumerate(headers):
        if header.name == name:
            return headers.pop(index).value
    return None


def _are_text(headers: Sequence[Header]) -> bool:
    try:
        for header in headers:
            header.name.decode()
    except UnicodeDecodeError:
        return False
    return True
