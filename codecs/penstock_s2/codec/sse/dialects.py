"""Dialects of the event stream, as data: that of S2 clients, and that of the seed pages.

| | "s2" (S2 fact sheet, section 3) | "seed" (the streaming-read page) |
|---|---|---|
| id | `seq_num,count,bytes`, after `event` | `seq_num:count:bytes`, before `event` |
| ping | JSON data, no id | empty data, id of the last known position |
| end | `data: [DONE]` without a name | event `done` with empty data |
| `s2-format` | `raw` by default | `base64` by default, `utf8` for raw |
| empty `headers`, `body` | omitted | present |
| maximum age | none | 45 s; the body ends without an event, and the client reconnects |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.model.records import U64_MAX
from penstock_s2.codec.formats import S2_FORMATS, BytesFormat, parse_format
from penstock_s2.codec.names import invalid_header

__all__ = ["DIALECTS", "S2", "SEED", "EventId", "SseDialect"]

_NUMBER: Final = re.compile(r"[0-9]{1,20}")


class EventId(msgspec.Struct, frozen=True):
    """The position of a reader: the sequence number of its last record, and how many records and metered bytes it
    got."""

    seq_num: int
    count: int
    bytes: int


class SseDialect(msgspec.Struct, frozen=True):
    """One dialect.

    `id_separator` is between an id's numbers; `id_first`: field `id` comes before `event`. `ping_data`: a ping carries
    time and tail; `ping_id`: it carries the last known position. `done_name` (None: no `event` field) and `done_data`
    are the last event. `formats` and `default_format` apply to header `s2-format`. `omit_empty`: records have no empty
    `headers` and `body`. `max_seconds`: age at which a stream ends if the server has no other bound; None: none.
    `ends_silently`: True if an end without an event makes clients reconnect; S2's take it for the end of their read.
    """

    name: str
    id_separator: str
    id_first: bool
    ping_data: bool
    ping_id: bool
    done_name: str | None
    done_data: bytes
    formats: Mapping[str, BytesFormat]
    default_format: BytesFormat
    omit_empty: bool
    max_seconds: float | None
    ends_silently: bool

    def parse_format(self, value: str | None) -> BytesFormat:
        """Return the format that header `s2-format` names in this dialect. Raises OperationFailed(BAD_HEADER)."""
        return parse_format(value, self.default_format, self.formats)

    def spell_id(self, event_id: EventId) -> str:
        """Return an event's id as text."""
        return self.id_separator.join(map(str, msgspec.structs.astuple(event_id)))

    def read_id(self, text: str) -> EventId | None:
        """Parse the result of `spell_id`; return None for anything else."""
        numbers = text.split(self.id_separator)
        if len(numbers) != 3 or not all(map(_NUMBER.fullmatch, numbers)):
            return None
        values = [int(number) for number in numbers]
        return EventId(*values) if max(values) <= U64_MAX else None

    def parse_id(self, value: str) -> EventId:
        """Parse header `last-event-id`. Raises OperationFailed(BAD_HEADER) if it is malformed."""
        event_id = self.read_id(value)
        if event_id is None:
            wanted = self.id_separator.join(("seq_num", "count", "bytes"))
            raise invalid_header("last-event-id", f"expected `{wanted}`, got {value[:100]!r}")
        return event_id


S2: Final = SseDialect(
    name="s2",
    id_separator=",",
    id_first=False,
    ping_data=True,
    ping_id=False,
    done_name=None,
    done_data=b"[DONE]",
    formats=S2_FORMATS,
    default_format=BytesFormat.RAW,
    omit_empty=True,
    max_seconds=None,
    ends_silently=False,
)

SEED: Final = SseDialect(
    name="seed",
    id_separator=":",
    id_first=True,
    ping_data=False,
    ping_id=True,
    done_name="done",
    done_data=b"",
    formats={**S2_FORMATS, "utf8": BytesFormat.RAW},
    default_format=BytesFormat.BASE64,
    omit_empty=False,
    max_seconds=45.0,
    ends_silently=True,
)

DIALECTS: Final[Mapping[str, SseDialect]] = {dialect.name: dialect for dialect in (S2, SEED)}
