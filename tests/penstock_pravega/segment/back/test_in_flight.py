"""Appends in flight, and where their records are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock_pravega.segment.back import in_flight
from penstock_pravega.segment.back.in_flight import AppendInFlight, UnsettledAppends


def appends(pending: UnsettledAppends, *expected: int | None) -> list[AppendInFlight]:
    found = [AppendInFlight(b"x" * 10, number, 1, condition) for number, condition in enumerate(expected)]
    for slot in found:
        pending.add(slot)
    return found


def sent(pending: UnsettledAppends) -> list[list[int]]:
    return [[slot.number for slot in slots] for slots in pending.unsent()]


def ends(slots: Sequence[AppendInFlight]) -> list[int | None]:
    return [slot.end_offset for slot in slots]


async def test_appends_are_sent_one_by_one_without_waiting() -> None:
    pending = UnsettledAppends()
    slots = appends(pending, None, None, None)
    assert sent(pending) == [[0], [1], [2]]
    pending.acknowledge(2, 130)
    assert ends(slots) == [None, None, 130], "others may have appended in between"


async def test_those_that_wait_share_a_message_and_one_is_in_flight() -> None:
    pending = UnsettledAppends(one_in_flight=True)
    slots = appends(pending, None, None)
    assert sent(pending) == [[0, 1]]
    slots += [AppendInFlight(b"x" * 10, number, 1, None) for number in (2, 3)]
    for slot in slots[2:]:
        pending.add(slot)
    assert sent(pending) == []
    pending.acknowledge(1, 120)
    assert sent(pending) == [[2, 3]]
    pending.acknowledge(3, 220)
    assert ends(slots) == [110, 120, 210, 220]


async def test_a_condition_stands_alone() -> None:
    pending = UnsettledAppends(one_in_flight=True)
    appends(pending, None, 110, None, None)
    for number, end, slots in ((0, 110, [0]), (1, 120, [1]), (3, 140, [2, 3])):
        assert sent(pending) == [slots]
        pending.acknowledge(number, end)


async def test_a_message_is_bounded_and_takes_one_append_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "_TOGETHER", 25)
    pending = UnsettledAppends(one_in_flight=True)
    appends(pending, None, None, None)
    assert sent(pending) == [[0, 1]]
    pending.acknowledge(1, 20)
    assert sent(pending) == [[2]]
    monkeypatch.setattr(in_flight, "_TOGETHER", 5)
    pending = UnsettledAppends(one_in_flight=True)
    appends(pending, None, None)
    assert sent(pending) == [[0]]
