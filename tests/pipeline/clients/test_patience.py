"""Retries: for how long, and with which pauses."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock_spark.clients import patience as module
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.patience import Patience

GONE = fail(FailureCode.UNAVAILABLE, "gone")
ENDPOINT = Endpoint("h", 1, connect_seconds=3.0, recover_seconds=20.0)


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The pauses that were made; the clock goes on by them alone, and chance leaves nothing out."""
    pauses: list[float] = []
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=pauses.append, monotonic=lambda: 100.0 + sum(pauses)))
    monkeypatch.setattr(module, "random", SimpleNamespace(random=lambda: 0.0))
    yield pauses
    monkeypatch.undo()


def _wait_long(patience: Patience) -> None:
    with pytest.raises(OperationFailed) as raised:
        while True:
            patience.wait(GONE)
    assert raised.value is GONE


def test_a_server_that_never_was_there_is_given_up_sooner(slept: list[float]) -> None:
    _wait_long(Patience(ENDPOINT))
    assert slept == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    slept.clear()
    _wait_long(Patience(ENDPOINT, reached=True))
    assert 19.0 <= sum(slept) <= 20.0


def test_progress_begins_a_new_count(slept: list[float]) -> None:
    patience = Patience(ENDPOINT)
    patience.wait(GONE)
    patience.wait(GONE)
    patience.progress()
    _wait_long(patience)
    assert slept[:3] == [0.05, 0.1, 0.05]
    assert 19.0 <= sum(slept[2:]) <= 20.0


def test_a_server_may_ask_for_longer_pauses_but_not_for_more_patience(slept: list[float]) -> None:
    patience = Patience(ENDPOINT)
    patience.wait(fail(FailureCode.RATE_LIMITED, "slowly", retry_after=2.5))
    with pytest.raises(OperationFailed):
        patience.wait(fail(FailureCode.RATE_LIMITED, "slowly", retry_after=2.5))
    assert slept == [2.5]


def test_what_is_final_is_raised_at_once(slept: list[float]) -> None:
    calls: list[int] = []

    def attempt() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise GONE
        if len(calls) == 3:
            return "there"
        raise fail(FailureCode.AUTHN, "who?")

    assert Patience(ENDPOINT).over(attempt) == "there"
    assert slept == [0.05, 0.1]
    with pytest.raises(OperationFailed, match="who"):
        Patience(ENDPOINT).over(attempt)
    assert len(calls) == 4
