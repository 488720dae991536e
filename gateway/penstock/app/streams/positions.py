"""Positions in a stream as a command is given them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from penstock.model.operations import FromRecordId, FromSeqNum, FromTailOffset, FromTimestamp, Start
from penstock.model.records import U64_MAX, Record, RecordId

__all__ = ["FORMS", "BadPosition", "is_before", "parse_position", "seconds_in"]

FORMS: Final = "start, tail, N, -N, MS-SEQ, 10m or 2026-01-31T12:00:00Z"
"""The forms of a position, for help and errors."""
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"([0-9]{1,15})(ms|[smhdw])")
_NUMBER: Final = re.compile(r"-?[0-9]{1,20}")
_RECORD_ID: Final = re.compile(r"[0-9]+-[0-9]+")


class BadPosition(ValueError):
    """Raised for text that is no position; the message says what one looks like."""


def parse_position(text: str, now: float) -> Start:
    """Parse a position. `now`: seconds since the Unix epoch, for times before it. Raises BadPosition.

    | text | position |
    |---|---|
    | `start` | the first record that the stream keeps |
    | `tail` | behind the last record |
    | `42` | sequence number 42 |
    | `-10` | ten records before the tail |
    | `1700000000000-3` | the first record at or after this S3P identifier |
    | `10m` | the first record stamped in the last ten minutes; also `ms`, `s`, `h`, `d`, `w` |
    | `2026-01-31T12:00:00Z` | the first record stamped at or after this time (RFC 3339; without an offset in UTC) |
    """
    if text == "start":
        return FromSeqNum(0)
    if text == "tail":
        return FromTailOffset(0)
    if _NUMBER.fullmatch(text):
        number = int(text)
        if abs(number) > U64_MAX:
            raise BadPosition(f"{text!r} does not fit into 64 bits")
        return FromTailOffset(-number) if number < 0 else FromSeqNum(number)
    if _RECORD_ID.fullmatch(text):
        record_id = RecordId.parse(text.encode())
        if record_id is None:
            raise BadPosition(f"{text!r} is no S3P identifier: its parts have at most 64 bits")
        return FromRecordId(record_id)
    if (ago := seconds_in(text)) is not None:
        return FromTimestamp(max(0, int((now - ago) * 1000)))
    return FromTimestamp(_timestamp(text))


def seconds_in(text: str) -> float | None:
    """Return the length of a duration such as `10m`, in seconds; None for any other text."""
    match = _DURATION.fullmatch(text)
    return None if match is None else int(match[1]) * _SECONDS[match[2]]


def is_before(record: Record, end: FromSeqNum | FromTimestamp) -> bool:
    """Return whether a record is before the end of a read."""
    return record.timestamp < end.timestamp if isinstance(end, FromTimestamp) else record.seq_num < end.seq_num


def _timestamp(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadPosition(f"{text!r} is no position: expected {FORMS}") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    ms = int(time.timestamp() * 1000)
    if ms < 0:
        raise BadPosition(f"{text!r} is before 1970")
    return ms
