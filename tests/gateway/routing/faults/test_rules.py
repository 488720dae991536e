"""Moments at which a rule fires: counted and drawn by lot, the same every time."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.app.bootstrap import fault_settings
from penstock.app.config import FaultTable
from penstock.model.records import StreamRef
from penstock.routing.faults.messages import DueMessages
from penstock.routing.faults.rule import Action, Fault, FaultDirection, MessageKind, MessageSubject, Rule
from penstock.routing.faults.rules import Faults

STREAM = StreamRef("penstock", "orders")
ABOUT = MessageSubject("s2.public", MessageKind.APPEND, STREAM, route="main", identity="ann")


def fault(**keys: Any) -> Fault:
    table = {"name": "one", "action": "drop", **keys}
    return fault_settings([FaultTable(**table)])[0]


def fired(one: Fault, messages: int) -> list[int]:
    """The numbers of the messages that have it."""
    rule = Rule(one)
    return [number for number in range(messages) if rule.fires(ABOUT)]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"every": 3}, [2, 5]),
        ({"after": 4}, [4, 5]),
        ({"times": 2}, [0, 1]),
        ({"after": 1, "every": 2, "times": 1}, [2]),
        ({"probability": 0.0}, []),
    ],
)
def test_counting(keys: dict[str, Any], expected: list[int]) -> None:
    assert fired(fault(**keys), 6) == expected


def test_a_rule_cuts_as_many_messages_as_it_has_places() -> None:
    """Or fewer, if it says so."""
    assert fired(fault(action="cut", cut_places=3), 6) == [0, 1, 2]
    assert fired(fault(action="cut", cut_places=3, every=2, times=2), 6) == [1, 3]


def test_each_message_is_cut_at_the_next_place() -> None:
    faults = Faults([fault(action="cut", cut_places=2)])
    due = DueMessages(faults, ABOUT)
    found = []
    for _ in range(3):
        due.owe()
        found.append(due.take())
    assert [None if one is None else one.cut_in(10) for one in found] == [0, 5, None]


def test_lots_are_drawn_by_the_seed_and_the_name() -> None:
    half = {"probability": 0.5}
    first = fired(fault(seed=7, **half), 200)
    assert first == fired(fault(seed=7, **half), 200)
    assert 60 < len(first) < 140
    assert first != fired(fault(seed=8, **half), 200)
    assert first != fired(fault(seed=7, name="other", **half), 200)


def test_delays_are_drawn_too() -> None:
    one = fault(action="delay", delay_ms=50, jitter_ms=100)
    delays = [Rule(one).delay() for _ in range(2)]
    assert delays[0] == delays[1]
    rule = Rule(one)
    several = {rule.delay() for _ in range(20)}
    assert len(several) == 20
    assert all(0.05 <= delay <= 0.15 for delay in several)


@pytest.mark.parametrize(
    ("keys", "concerned"),
    [
        ({}, True),
        ({"listeners": ("s2",)}, True),
        ({"listeners": ("s2.public",)}, True),
        ({"listeners": ("s2.private", "s3p")}, False),
        ({"operations": ("append", "read")}, True),
        ({"operations": ("control",)}, False),
        ({"routes": ("main",)}, True),
        ({"routes": ("other",)}, False),
        ({"identity": ("ann",)}, True),
        ({"identity": ("bob",)}, False),
        ({"stream": "orders"}, True),
        ({"stream": "order"}, False),
        ({"stream": "order", "match": "prefix"}, True),
        ({"basin": "pen*"}, True),
        ({"basin": "other-*", "stream": "orders"}, False),
    ],
)
def test_what_a_rule_concerns(keys: dict[str, Any], concerned: bool) -> None:
    assert fault(**keys).concerns(ABOUT) is concerned


def test_what_is_about_no_stream() -> None:
    about = MessageSubject("s2", MessageKind.CONTROL)
    assert fault().concerns(about)
    assert not fault(stream="orders").concerns(about)


def test_directions_that_are_not_given() -> None:
    actions = [action.value for action in Action if action is not Action.DUPLICATE]
    assert {action: fault(action=action).direction.value for action in actions} == {
        "delay": "in",
        "drop": "out",
        "cut": "out",
        "throttle": "out",
        "error": "in",
        "terminal": "out",
    }
    assert fault(action="error", direction="out").direction is FaultDirection.OUT


def test_a_reload_goes_on_counting_where_nothing_changed() -> None:
    one, two = fault(after=2), fault(name="two")
    faults = Faults([one, two])
    rule = faults.rules[0]
    assert not rule.fires(ABOUT)
    faults.put([two, one])
    assert faults.rules[1] is rule
    faults.put([fault(after=3)])
    assert faults.rules[0] is not rule
    faults.put([])
    assert not faults.active


def test_terminals_without_sessions_count_anew() -> None:
    rule = Rule(fault(action="terminal", records=3))
    assert [rule.passes(ABOUT, 2) for _ in range(4)] == [True, False, True, False]
