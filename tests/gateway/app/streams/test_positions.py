"""Positions as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.app.streams.positions import FORMS, BadPosition, is_before, parse_position, seconds_in
from penstock.model.operations import FromRecordId, FromSeqNum, FromTailOffset, FromTimestamp, Start
from penstock.model.records import U64_MAX, Record, RecordId

NOW = 1_700_000_000.5


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("start", FromSeqNum(0)),
        ("tail", FromTailOffset(0)),
        ("0", FromSeqNum(0)),
        (str(U64_MAX), FromSeqNum(U64_MAX)),
        ("-10", FromTailOffset(10)),
        ("1700000000000-3", FromRecordId(RecordId(1_700_000_000_000, 3))),
        ("500ms", FromTimestamp(1_700_000_000_000)),
        ("10m", FromTimestamp(1_699_999_400_500)),
        ("100000w", FromTimestamp(0)),
        ("2023-11-14T22:13:20Z", FromTimestamp(1_700_000_000_000)),
        ("2023-11-14 22:13:20.25", FromTimestamp(1_700_000_000_250)),
        ("2023-11-14T23:13:20+01:00", FromTimestamp(1_700_000_000_000)),
        ("2023-11-14", FromTimestamp(1_699_920_000_000)),
    ],
)
def test_forms(text: str, start: Start) -> None:
    assert parse_position(text, NOW) == start


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", FORMS),
        ("yesterday", FORMS),
        ("1.5h", FORMS),
        ("--1", FORMS),
        (str(U64_MAX + 1), "64 bits"),
        (f"1-{U64_MAX + 1}", "64 bits"),
        ("1969-12-31T00:00:00Z", "before 1970"),
    ],
)
def test_refused(text: str, why: str) -> None:
    with pytest.raises(BadPosition, match=why):
        parse_position(text, NOW)


@given(st.text(max_size=30))
def test_any_text_is_a_position_or_refused_as_one(text: str) -> None:
    try:
        parse_position(text, NOW)
    except BadPosition as error:
        assert str(error)


def test_durations() -> None:
    assert [seconds_in(text) for text in ("7d", "1500ms", "2w", "forever", "7")] == [
        604_800,
        1.5,
        1_209_600,
        None,
        None,
    ]


def test_ends() -> None:
    record = Record(5, 1000, (), b"")
    assert is_before(record, FromSeqNum(6)) and not is_before(record, FromSeqNum(5))
    assert is_before(record, FromTimestamp(1001)) and not is_before(record, FromTimestamp(1000))
