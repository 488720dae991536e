"""The checker, held against histories that are known to be right or wrong."""

from __future__ import annotations

import pytest
from simulation.checker import COMMAND, EMPTY, Call, Done, Log, Lost, NotLinearizable, Refused, outcomes

A, B, C = (b"a",), (b"b",), (b"c",)


def append(begun: float, ended: float, bodies: tuple[bytes, ...], answer: object, **more: object) -> Call:
    return Call("append", begun, ended, answer, bodies, **more)  # type: ignore[arg-type]


def read(begun: float, ended: float, *bodies: bytes, first: int = 0) -> Call:
    return Call("read", begun, ended, tuple(enumerate(bodies, first)))


RIGHT = {
    "nothing": [],
    "one after the other": [append(0, 1, A, 0), append(2, 3, B, 1), read(4, 5, b"a", b"b")],
    "at once, the later one first": [append(0, 9, A, 1), append(1, 8, B, 0), read(10, 11, b"b", b"a")],
    "a read that begins before an append and sees it": [append(1, 5, A, 0), read(0, 6, b"a")],
    "a read beside an append that does not see it": [append(1, 5, A, 0), read(2, 3)],
    "a lost append that is there": [append(0, 1, A, Lost), append(2, 3, B, 1), read(4, 5, b"a", b"b")],
    "a lost append that is not there": [append(0, 1, A, Lost), append(2, 3, B, 0), read(4, 5, b"b")],
    "a lost append that comes late": [append(0, 1, A, Lost), read(2, 3), read(4, 5, b"a")],
    "a condition of two that one can meet": [
        append(0, 9, A, 0, match=0),
        append(1, 8, B, Refused("match"), match=0),
        read(10, 11, b"a"),
    ],
    "fenced": [
        Call("fence", 0, 1, 0, (b"t",), new_token="t"),
        append(2, 3, A, Refused("token"), token=""),
        append(2, 3, B, 1, token="t"),
        append(4, 5, C, 2),
    ],
    "sealed": [append(0, 1, A, 0), Call("seal", 2, 3, None), append(4, 5, B, Refused("sealed")), read(6, 7, b"a")],
    "trimmed": [append(0, 1, (*A, *B), 0), Call("trim", 2, 3, 1, to=1), read(4, 5, b"b", first=1)],
    "a truncation at an offset where a command lies": [
        Call("fence", 0, 1, 0, (COMMAND + b"t",), new_token="t"),
        append(2, 3, A, 1),
        Call("trim", 4, 5, Done, A, view="bytes"),
        Call("trim", 6, 7, 0, to=0),
    ],
    "a truncation that removes bytes, and a command behind them": [
        append(0, 1, A, 0),
        Call("fence", 2, 3, 1, (COMMAND + b"t",), new_token="t"),
        append(4, 5, B, 2),
        Call("trim", 6, 7, Done, B, view="bytes"),
        Call("trim", 8, 9, 2, to=0),
    ],
    "a read across a trim": [append(0, 1, (*A, *B), 0), Call("trim", 2, 4, 1, to=1), read(3, 5, b"a", b"b")],
    "a read across a trim of what it has not read yet": [
        append(0, 1, (*A, *B, *C), 0),
        Call("trim", 2, 4, 2, to=2),
        Call("read", 3, 5, ((0, b"a"), (2, b"c"))),
    ],
    "a transaction": [Call("merge", 0, 1, None, (*A, *B)), Call("tail", 2, 3, 2)],
}
WRONG = {
    "an acknowledged append that is not there": [append(0, 1, A, 0), read(2, 3)],
    "an append at another place": [append(0, 1, A, 0), append(2, 3, B, 0)],
    "in the wrong order": [append(0, 1, A, 0), append(2, 3, B, 1), read(4, 5, b"b", b"a")],
    "half an append": [append(0, 9, (*A, *B), Lost), read(2, 3, b"a")],
    "a record that vanishes again": [append(0, 9, A, Lost), read(1, 2, b"a"), read(3, 4)],
    "twice": [append(0, 1, A, 0), read(2, 3, b"a", b"a")],
    "a tail that goes back": [append(0, 9, A, Lost), Call("tail", 1, 2, 1), Call("tail", 3, 4, 0)],
    "a stale read": [append(0, 1, A, 0), append(2, 3, B, 1), read(4, 5, b"a")],
    "both conditions met": [append(0, 9, A, 0, match=0), append(1, 8, B, 0, match=0)],
    "a condition that was met is refused": [append(0, 1, A, Refused("match"), match=0)],
    "a fence that does not hold": [
        Call("fence", 0, 1, 0, (b"t",), new_token="t"),
        append(2, 3, A, 1, token=""),
    ],
    "an append after the seal": [Call("seal", 0, 1, None), append(2, 3, A, 0)],
    "a trimmed record that is back": [
        append(0, 1, (*A, *B), 0),
        Call("trim", 2, 3, 1, to=1),
        append(4, 5, C, 2),
        read(6, 7, b"b", first=1),
    ],
    "a read with a gap that no trim explains": [
        append(0, 1, (*A, *B, *C), 0),
        Call("read", 3, 5, ((0, b"a"), (2, b"c"))),
    ],
    "half a transaction": [Call("merge", 0, 1, None, (*A, *B)), Call("tail", 2, 3, 1)],
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_histories(name: str) -> None:
    assert outcomes(RIGHT[name], [EMPTY])


@pytest.mark.parametrize("name", WRONG)
def test_wrong_histories(name: str) -> None:
    with pytest.raises(NotLinearizable, match="no order explains"):
        outcomes(WRONG[name], [EMPTY])


def test_a_lost_append_leaves_two_logs() -> None:
    assert outcomes([append(0, 1, A, Lost)], [EMPTY]) == {EMPTY, Log(A)}


def test_logs_from_before_go_on() -> None:
    assert outcomes([read(0, 1, b"a")], [EMPTY, Log(A)]) == {Log(A)}
