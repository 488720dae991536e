"""Kafka's records as records of streams, and back; docs/protocols/kafka.md has the mapping.

The value is the body, and headers are headers. Two headers of the gateway's own carry what streams have no place for:

    kafka-key    the key; without it the key is null
    kafka-null   what is null and not empty: "value", or the numbers of headers from 0 on, joined by commas

A record of any other client with such headers has that key, and those nulls, for Kafka's clients. Command records
travel as control records, which Kafka's clients skip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.kafka.batches import KafkaBatch, KafkaHeaders, encode_batch
from penstock_codecs.limits import S2_MAX_BATCH_BYTES, S2_MAX_BATCH_RECORDS, S2_MAX_RECORD, S2_MAX_RECORD_HEADERS
from penstock_codecs.model import Header, Headers, RecordBatch, is_command, metered_size

__all__ = ["KEY", "NULL", "RecordsPart", "encoded_records", "from_headers", "parts_of", "to_headers"]

KEY: Final = b"kafka-key"
NULL: Final = b"kafka-null"
_VALUE: Final = b"value"
_CONTROL_KEY: Final = b"\0\0\xff\xff"
"""The key of a control record: version 0, and the type that stands for unknown ones."""


class RecordsPart(NamedTuple):
    """Consecutive records of a batch that one append takes. `first`: the index of the first one in the batch."""

    first: int
    bodies: list[bytes]
    headers: dict[int, Headers]
    timestamps: list[int | None]
    metered: int


# ---- appended --------------------------------------------------------------------------------------------------------


def parts_of(batch: KafkaBatch, skip: int = 0) -> list[RecordsPart]:
    """Return the records of a batch from index `skip` on, in parts that one append can take.

    Raises NOT_REPRESENTABLE or LIMIT_EXCEEDED for a record that streams cannot carry; `index` in the details.
    """
    headers: dict[int, Headers] = {}
    bodies = [b"" if value is None else value for value in batch.values]
    parts: list[RecordsPart] = []
    first, total = skip, 0
    for index in range(skip, len(batch)):
        size = 8 + len(bodies[index])
        key, value = batch.keys[index], batch.values[index]
        if key is not None or value is None or index in batch.headers:
            headers[index] = some = to_headers(index, key, value, batch.headers.get(index, ()))
            size = metered_size((bodies[index],), {0: some})
            if len(some) > S2_MAX_RECORD_HEADERS:
                raise fail(FailureCode.LIMIT_EXCEEDED, f"record {index} has {len(some)} headers", index=index)
        if size > S2_MAX_RECORD:
            why = f"record {index} has {size} bytes with its headers, at most {S2_MAX_RECORD} are allowed"
            raise fail(FailureCode.LIMIT_EXCEEDED, why, index=index)
        if index - first == S2_MAX_BATCH_RECORDS or total + size > S2_MAX_BATCH_BYTES:
            parts.append(_part(batch, bodies, headers, first, index, total))
            first, total, headers = index, 0, {index: headers[index]} if index in headers else {}
        total += size
    if first < len(batch):
        parts.append(_part(batch, bodies, headers, first, len(batch), total))
    return parts


def _part(
    batch: KafkaBatch, bodies: list[bytes], headers: Mapping[int, Headers], first: int, stop: int, total: int
) -> RecordsPart:
    """Return the records from `first` up to `stop`; `headers` are of no others."""
    return RecordsPart(
        first,
        bodies[first:stop],
        {index - first: some for index, some in headers.items() if index < stop},
        [time if time >= 0 else None for time in batch.timestamps[first:stop]],
        total,
    )


def to_headers(index: int, key: bytes | None, value: bytes | None, headers: KafkaHeaders) -> Headers:
    """Return the headers of the record at `index`. Raises NOT_REPRESENTABLE for headers that a stream cannot carry."""
    nulls = [_VALUE] if value is None else []
    found: list[Header] = []
    for number, (name, content) in enumerate(headers):
        if name in (KEY, NULL):
            raise _refusal(index, f"has a header named {name.decode()}, which stands for its own key or nulls")
        if not name:
            raise _refusal(index, "has a header without a name, which streams keep for commands")
        if content is None:
            nulls.append(b"%d" % number)
        found.append(Header(name, content or b""))
    own = [] if key is None else [Header(KEY, key)]
    if nulls:
        own.append(Header(NULL, b",".join(nulls)))
    return tuple(own + found)


def _refusal(index: int, why: str) -> OperationFailed:
    return fail(FailureCode.NOT_REPRESENTABLE, f"record {index} {why}", index=index)


# ---- read ------------------------------------------------------------------------------------------------------------


def encoded_records(batch: RecordBatch) -> bytes:
    """Return records of a stream as Kafka's batches; offsets are sequence numbers.

    Raises NOT_REPRESENTABLE for a record that Kafka cannot carry; `seq_num` in the details.
    """
    return batch.encoded(__name__, _encode)


def _encode(batch: RecordBatch) -> bytes:
    columns = batch.columns
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
    commands = {index for index, some in columns.headers.items() if is_command(some)}
    runs = groupby(range(batch.count), commands.__contains__)
    return b"".join(_run(batch, list(indices), command) for command, indices in runs)


def _run(batch: RecordBatch, indices: Sequence[int], command: bool) -> bytes:
    """Return a run of records that all are commands, or none of them."""
    columns = batch.columns
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: dict[int, KafkaHeaders] = {}
    for number, index in enumerate(indices):
        some, body = columns.headers.get(index, ()), columns.bodies[index]
        key, value, given = from_headers(columns.seq_nums[index], some, body)
        keys.append(_CONTROL_KEY if command else key)
        values.append(value)
        if given:
            headers[number] = given
    return encode_batch(
        KafkaBatch(
            base_offset=columns.seq_nums[indices[0]],
            control=command,
            keys=keys,
            values=values,
            timestamps=[columns.timestamps[index] for index in indices],
            offsets=[columns.seq_nums[index] for index in indices],
            headers=headers,
        )
    )


def from_headers(number: int, headers: Headers, body: bytes) -> tuple[bytes | None, bytes | None, KafkaHeaders]:
    """Return key, value and headers of a record for Kafka.

    Raises NOT_REPRESENTABLE, naming the record; `number` is `seq_num` in the details.
    """
    if not headers:
        return None, body, ()
    key: bytes | None = None
    nulls: frozenset[bytes] | None = None
    given: list[Header] = []
    for header in headers:
        if header.name == KEY and key is None:
            key = header.value
        elif header.name == NULL and nulls is None:
            nulls = frozenset(header.value.split(b","))
        else:
            given.append(header)
    if not _are_text(given):
        why = f"record {number} has a header whose name is not UTF-8, which Kafka cannot carry"
        raise fail(FailureCode.NOT_REPRESENTABLE, why, seq_num=number)
    if not nulls:
        return key, body, tuple(given)
    value = None if _VALUE in nulls and not body else body
    named = (
        (name, None if b"%d" % number in nulls and not content else content)
        for number, (name, content) in enumerate(given)
    )
    return key, value, tuple(named)


def _are_text(headers: Sequence[Header]) -> bool:
    try:
        for header in headers:
            header.name.decode()
    except UnicodeDecodeError:
        return False
    return True
