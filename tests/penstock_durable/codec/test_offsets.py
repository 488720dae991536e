"""Offsets and cursors of Durable Streams (protocol, sections 6 and 8.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import FailureCode, OperationFailed
from penstock_durable.codec import FIRST, MOST_AHEAD, Sentinel, next_cursor, parse_offset, spell_offset
from penstock_durable.codec.cursors import EPOCH, INTERVAL_SECONDS, parse_cursor
from penstock_durable.codec.offsets import MOST_RECORDS, is_offset

NUMBERS = st.integers(0, MOST_RECORDS)


def test_vectors() -> None:
    assert FIRST == spell_offset(0) == "0000000000000000_0000000000000000"
    assert spell_offset(7) == "0000000000000007_0000000000000000"
    assert parse_offset("-1") is Sentinel.BEGINNING
    assert parse_offset("now") is Sentinel.NOW
    assert parse_offset("9999999999999999_0000000000000000") == MOST_RECORDS == 9_999_999_999_999_999


@given(NUMBERS)
def test_every_offset_is_read_back(number: int) -> None:
    assert parse_offset(spell_offset(number)) == number


@given(NUMBERS, NUMBERS)
def test_offsets_sort_as_their_records(one: int, other: int) -> None:
    assert (spell_offset(one) < spell_offset(other)) == (one < other)


def test_a_number_without_an_offset() -> None:
    with pytest.raises(ValueError, match="has no offset"):
        spell_offset(MOST_RECORDS + 1)


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "-2", "Now", " now", FIRST[:-1], FIRST + "0", FIRST.replace("_", "-"), f" {FIRST}", f"{FIRST}\n"),
        *("0000000000000000_0000000000000001", "٠" * 16 + "_" + "0" * 16, "9999999999999999_9999999999999999"),
    ],
)
def test_near_misses(text: str) -> None:
    with pytest.raises(OperationFailed, match="is not an offset") as raised:
        parse_offset(text)
    assert raised.value.failure.code is FailureCode.BAD_QUERY


@given(st.text(max_size=40))
def test_any_text_is_an_offset_or_refused(text: str) -> None:
    try:
        found = parse_offset(text)
    except OperationFailed:
        return
    assert isinstance(found, Sentinel) or spell_offset(found) == text


def test_cursors_count_intervals() -> None:
    assert next_cursor(EPOCH, None, 1) == 0
    assert next_cursor(EPOCH + INTERVAL_SECONDS - 0.001, None, 1) == 0
    assert next_cursor(EPOCH + 5 * INTERVAL_SECONDS, None, 1) == 5
    assert next_cursor(EPOCH + 5 * INTERVAL_SECONDS, 4, 1) == 5
    assert (EPOCH, INTERVAL_SECONDS, MOST_AHEAD) == (1_728_432_000, 20, 180)


@given(st.floats(EPOCH, EPOCH + 10**9), st.integers(0, 10**12), st.integers(1, MOST_AHEAD))
def test_a_cursor_is_always_above_the_last(now: float, seen: int, ahead: int) -> None:
    assert next_cursor(now, seen, ahead) > seen


@pytest.mark.parametrize(("text", "cursor"), [(None, None), ("", None), ("0", 0), ("123", 123)])
def test_cursors_of_clients(text: str | None, cursor: int | None) -> None:
    assert parse_cursor(text) == cursor


@pytest.mark.parametrize("text", ["-1", "1.0", "x", "1 ", "9" * 16, "１"])
def test_bad_cursors(text: str) -> None:
    with pytest.raises(OperationFailed, match="cursor"):
        parse_cursor(text)


@pytest.mark.parametrize("text", ["0", "01JQXK5V00", FIRST, "a" * 256, "7,-1", "~!"])
def test_any_servers_offsets_are_taken(text: str) -> None:
    assert is_offset(text)


@pytest.mark.parametrize("text", ["", "-1", "now", "a" * 257, "a b", "ä", "1\n"])
def test_what_is_no_servers_offset(text: str) -> None:
    assert not is_offset(text)
