"""Records out of messages, and what of them can be compared, whichever protocols brought them.

    for record in records_in(heard, action=DELIVERED):
        differences(record, other)

A record went by when its message did: appended ones with what settled them (acknowledgement, refusal, or the end of the
conversation), so the order is that of the acknowledgements. Where a stream's own order is wanted, `position_of` gives
it, for records of one protocol.

What is compared, field by field (`FIELDS`), is the *normal form*:

| field | normal form | compared |
|---|---|---|
| `body`, `headers` | out of an envelope, where the record travelled in one (docs/loss.md) | always |
| `timestamp` | ms | where both say one |
| `seq_num`, `offset` | as they are | where both say one: both S2, both segments |
| `record_id` | as two numbers: leading zeros do not count | where both say one: both S3P |

Streams are no such field: who compares says which belong together, with `plain_stream` for a first guess.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Final, NamedTuple

from penstock_codecs.dialogue.messages import Message, Problem, SeenRecord
from penstock_codecs.envelope import is_marked, unwrap
from penstock_codecs.model import Headers, RecordId
from penstock_codecs.s3p.values import parse_id

__all__ = [
    "FIELDS",
    "NormalRecord",
    "Position",
    "content_key",
    "differences",
    "normal_form",
    "plain_stream",
    "position_of",
    "records_in",
    "same_record",
]

FIELDS: Final = ("body", "headers", "timestamp", "seq_num", "record_id", "offset")
"""What `differences` compares, in the order in which it names them."""
_ALWAYS: Final = frozenset({"body", "headers"})
_KEY_BYTES: Final = 16
_SEGMENT: Final = re.compile(r"/[0-9]+(?:\.#epoch\.[0-9]+)?(?:#transaction\.[0-9a-f]+)?\Z")


class NormalRecord(NamedTuple):
    """A record's fields as they are compared; None: its protocol, or its recording, does not say."""

    body: bytes
    headers: Headers
    timestamp: int | None
    seq_num: int | None
    record_id: RecordId | None
    offset: int | None


class Position(NamedTuple):
    """Where a record stands in its stream. `kind`: `seq_num`, `record_id` or `offset`; only positions of one kind and
    one stream can be compared, and their `value` sorts as the stream does."""

    kind: str
    value: tuple[int, ...]


def records_in(
    heard: Iterable[Message | Problem], *, action: str | None = None, streams: Collection[str] | None = None
) -> Iterator[SeenRecord]:
    """The records that messages make known, one message after the other.

    `action`: only APPENDED or DELIVERED ones. `streams`: only of these, spelled as in the records.
    """
    for each in heard:
        if isinstance(each, Message):
            for record in each.records:
                if (action is None or record.action == action) and (streams is None or record.stream in streams):
                    yield record


def plain_stream(stream: str) -> str:
    """`scope/stream` for a segment's full name, also for one of a transaction; other names as they are.

    A segment's name ends with its number, and mostly an epoch: `scope/stream/0.#epoch.0`. An S2 stream called
    `basin/a/0` looks like one, so this is a guess.
    """
    if stream.count("/") < 2:
        return stream
    return _SEGMENT.sub("", stream)


def normal_form(record: SeenRecord, *, envelopes: bool = True) -> NormalRecord:
    """What of a record is compared. `envelopes` False: bodies that look like one are bodies."""
    headers, body = record.headers, record.body
    if envelopes and not headers and is_marked(body):
        with suppress(ValueError):  # it may only look like one
            headers, body = unwrap(body)
    record_id = None if record.record_id is None else parse_id(record.record_id.encode("utf-8"))
    return NormalRecord(body, tuple(headers), record.timestamp, record.seq_num, record_id, record.offset)


def position_of(record: SeenRecord) -> Position | None:
    """Where it stands in its stream; None where nobody said, as for what was never acknowledged."""
    if record.seq_num is not None:
        return Position("seq_num", (record.seq_num,))
    if record.offset is not None:
        return Position("offset", (record.offset,))
    record_id = normal_form(record, envelopes=False).record_id
    return None if record_id is None else Position("record_id", tuple(record_id))


def content_key(record: SeenRecord, *, envelopes: bool = True) -> bytes:
    """16 bytes that are the same for the same body and headers, and for others only by a chance nobody meets."""
    body, headers, *_ = normal_form(record, envelopes=envelopes)
    digest = blake2b(digest_size=_KEY_BYTES)
    for part in (body, *(part for header in headers for part in header)):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def differences(
    one: SeenRecord, other: SeenRecord, *, ignore: Collection[str] = (), envelopes: bool = True
) -> tuple[str, ...]:
    """The names of the fields that both say differently, in the order of `FIELDS`, those to ignore left out."""
    first, second = normal_form(one, envelopes=envelopes), normal_form(other, envelopes=envelopes)
    found = []
    for name in FIELDS:
        ours, theirs = getattr(first, name), getattr(second, name)
        said = name in _ALWAYS or (ours is not None and theirs is not None)
        if said and ours != theirs and name not in ignore:
            found.append(name)
    return tuple(found)


def same_record(one: SeenRecord, other: SeenRecord, *, ignore: Collection[str] = (), envelopes: bool = True) -> bool:
    """Whether nothing differs of what both say."""
    return not differences(one, other, ignore=ignore, envelopes=envelopes)
