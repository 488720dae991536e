"""A clock that jumps: what lasts for seconds is not followed, what lasts is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.core.clock import JUMP_SECONDS, TRUST_SECONDS, SteadyClock

NOW = 1_700_000_000_000
YEAR = 365 * 24 * 3600 * 1000
SECOND = 1000

Set = Callable[[int, int], int]


@pytest.fixture
def clock() -> tuple[SteadyClock, Set]:
    """A clock, and a function that sets the system's time, and the ms since the start, and returns what the clock
    says."""
    state = [NOW, 0]
    steady = SteadyClock(lambda: state[0], lambda: 7 * SECOND + state[1])

    def at(system: int, passed: int) -> int:
        state[:] = system, passed
        return steady()

    return steady, at


@pytest.mark.parametrize("jump", [YEAR, -YEAR, (JUMP_SECONDS + 1) * SECOND])
def test_a_jump_for_seconds_is_not_followed(clock: tuple[SteadyClock, Set], jump: int) -> None:
    steady, at = clock
    for passed in (SECOND, 2 * SECOND, (TRUST_SECONDS - 1) * SECOND):
        assert at(NOW + jump + passed, passed) == NOW + passed
    assert f"jumped by {jump // SECOND} s" in (steady.trouble() or "")
    assert at(NOW + TRUST_SECONDS * SECOND, TRUST_SECONDS * SECOND) == NOW + TRUST_SECONDS * SECOND
    assert steady.trouble() is None
    later = 10 * TRUST_SECONDS * SECOND
    assert at(NOW + jump + later, later) == NOW + later, "another jump begins anew"


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
def test_a_jump_that_lasts_is_followed(clock: tuple[SteadyClock, Set], jump: int) -> None:
    steady, at = clock
    assert at(NOW + jump + SECOND, SECOND) == NOW + SECOND
    assert at(NOW + jump // 2 + 2 * SECOND, 2 * SECOND) == NOW + 2 * SECOND, "it jumps again"
    passed = (TRUST_SECONDS + 1) * SECOND
    assert at(NOW + jump // 2 + passed, passed) == NOW + passed
    assert at(NOW + jump // 2 + passed + SECOND, passed + SECOND) == NOW + jump // 2 + passed + SECOND
    assert steady.trouble() is None


def test_corrections_and_drift_are_followed_at_once(clock: tuple[SteadyClock, Set]) -> None:
    steady, at = clock
    drift = 0
    for minute in range(1, 100):
        drift += (30 if minute < 60 else -50) * SECOND
        assert at(NOW + 60_000 * minute + drift, 60_000 * minute) == NOW + 60_000 * minute + drift
    assert steady.trouble() is None
