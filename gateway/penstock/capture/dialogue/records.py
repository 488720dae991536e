"""Get records out of messages, and compare records of any protocols.

    for record in records_in(items, action=DELIVERED):
        differences(record, other)

A record comes with its message: an appended one with the message that settled it (acknowledgement, refusal, or the end
of the conversation), so the order is that of the acknowledgements. For the stream's own order use `position_of`, on
records of one protocol.

Fields (`FIELDS`) are compared in their *normal form*:

| field | normal form | compared |
|---|---|---|
| `body`, `headers` | out of an envelope, if the record was sent in one (docs/loss.md) | always |
| `timestamp` | ms | if both have one |
| `seq_num`, `offset` | unchanged | if both have one: both S2, both segments |
| `record_id` | as two numbers: leading zeros do not count | if both have one: both S3P |

Streams are not compared: the caller decides which belong together, with `plain_stream` for a first guess.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.capture.dialogue.messages import Message, Problem, SeenRecord
from penstock.capture.plugin import plugins
from penstock.model.envelope import is_marked, unwrap
from penstock.model.records import Headers, RecordId

__all__ = [
    "FIELDS",
    "NormalRecord",
    "RecordPosition",
    "differences",
    "normal_form",
    "plain_stream",
    "position_of",
    "records_in",
]

FIELDS: Final = ("body", "headers", "timestamp", "seq_num", "record_id", "offset")
"""Fields that `differences` compares, in the order of its result."""
_ALWAYS: Final = frozenset({"body", "headers"})


class NormalRecord(NamedTuple):
    """A record's fields as they are compared; None: its protocol or its recording does not have the field."""

    body: bytes
    headers: Headers
    timestamp: int | None
    seq_num: int | None
    record_id: RecordId | None
    offset: int | None


class RecordPosition(NamedTuple):
    """A record's place in its stream. `kind`: `seq_num`, `record_id` or `offset`; only positions of one kind and one
    stream can be compared, and their `value` sorts as the stream does."""

    kind: str
    value: tuple[int, ...]


def records_in(
    items: Iterable[Message | Problem], *, action: str | None = None, streams: Collection[str] | None = None
) -> Iterator[SeenRecord]:
    """Yield the records of messages, one message after the other.

    `action`: only APPENDED or DELIVERED ones. `streams`: only of these, spelled as in the records.
    """
    for each in items:
        if isinstance(each, Message):
            for record in each.records:
                if (action is None or record.action == action) and (streams is None or record.stream in streams):
                    yield record


def plain_stream(stream: str) -> str:
    """Return the stream of which a name in a record names a part, such as a segment; other names unchanged."""
    for plugin in plugins().values():
        if plugin.stream_of is not None:
            stream = plugin.stream_of(stream)
    return stream


def normal_form(record: SeenRecord, *, envelopes: bool = True) -> NormalRecord:
    """Return the fields of a record that are compared. `envelopes` False: do not unwrap bodies that look like an
    envelope."""
    headers, body = record.headers, record.body
    if envelopes and not headers and is_marked(body):
        with suppress(ValueError):  # it may only look like one
            headers, body = unwrap(body)
    record_id = None if record.record_id is None else RecordId.parse(record.record_id.encode())
    return NormalRecord(body, tuple(headers), record.timestamp, record.seq_num, record_id, record.offset)


def position_of(record: SeenRecord) -> RecordPosition | None:
    """Return a record's place in its stream, or None if it is unknown, as for records never acknowledged."""
    if record.seq_num is not None:
        return RecordPosition("seq_num", (record.seq_num,))
    if record.offset is not None:
        return RecordPosition("offset", (record.offset,))
    record_id = normal_form(record, envelopes=False).record_id
    return None if record_id is None else RecordPosition("record_id", tuple(record_id))


def differences(
    one: SeenRecord, other: SeenRecord, *, ignore: Collection[str] = (), envelopes: bool = True
) -> tuple[str, ...]:
    """Return the names of the fields that both have and that differ, in the order of `FIELDS`, without `ignore`."""
    first, second = normal_form(one, envelopes=envelopes), normal_form(other, envelopes=envelopes)
    names = []
    for name in FIELDS:
        ours, theirs = getattr(first, name), getattr(second, name)
        is_comparable = name in _ALWAYS or (ours is not None and theirs is not None)
        if is_comparable and ours != theirs and name not in ignore:
            names.append(name)
    return tuple(names)
