"""Retries: which failures, when, and how often."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.net.retries import RetryPolicy, retry_after, retrying

POLICY = RetryPolicy(attempts=4, first_seconds=1.0, most_seconds=3.0, total_seconds=100.0)
Attempt = Callable[[], Awaitable[str]]


class Flaky:
    """Fails with these, in turn, then succeeds; remembers when it was called."""

    def __init__(self, *failures: OperationFailed) -> None:
        self.failures = list(failures)
        self.times: list[float] = []

    async def __call__(self) -> str:
        start = trio.current_time()
        self.times.append(start)
        await trio.lowlevel.checkpoint()
        if self.failures:
            raise self.failures.pop(0)
        return "done"

    @property
    def pauses(self) -> list[float]:
        return [round(after - before, 6) for before, after in zip(self.times, self.times[1:], strict=False)]


def hot(**details: object) -> OperationFailed:
    return fail(FailureCode.HOT_SERVER, "busy", **details)


async def test_what_had_no_side_effect_is_done_again_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    flaky = Flaky(hot(), hot(), hot())
    assert await retrying(flaky, POLICY, dice=lambda: 0.0) == "done"
    assert flaky.pauses == [1.0, 2.0, 3.0]


async def test_up_to_half_of_a_pause_is_left_out_by_chance(autojump_clock: trio.testing.MockClock) -> None:
    flaky = Flaky(hot(), hot())
    dice = iter([0.5, 1.0])
    await retrying(flaky, POLICY, dice=lambda: next(dice))
    assert flaky.pauses == [0.75, 1.0]


@pytest.mark.parametrize("code", [FailureCode.UNAVAILABLE, FailureCode.UPSTREAM_TIMEOUT, FailureCode.STORAGE])
async def test_what_may_have_had_one_is_done_again_only_if_idempotent(
    code: FailureCode, autojump_clock: trio.testing.MockClock
) -> None:
    flaky = Flaky(fail(code, "lost"))
    with pytest.raises(OperationFailed, match="lost"):
        await retrying(flaky, POLICY)
    assert len(flaky.times) == 1
    assert await retrying(Flaky(fail(code, "lost")), POLICY, idempotent=True) == "done"


async def test_what_can_never_succeed_is_not_tried_again() -> None:
    flaky = Flaky(fail(FailureCode.STREAM_NOT_FOUND, "no such stream"))
    with pytest.raises(OperationFailed, match="no such stream"):
        await retrying(flaky, POLICY, idempotent=True)
    assert len(flaky.times) == 1


async def test_attempts_are_bounded_and_the_last_failure_is_told(autojump_clock: trio.testing.MockClock) -> None:
    flaky = Flaky(*(fail(FailureCode.HOT_SERVER, f"failure {number}") for number in range(1, 9)))
    with pytest.raises(OperationFailed, match="failure 4"):
        await retrying(flaky, POLICY)
    assert len(flaky.times) == 4


async def test_time_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    policy = RetryPolicy(attempts=100, first_seconds=1.0, most_seconds=1.0, total_seconds=3.5)
    flaky = Flaky(*(hot() for _ in range(50)))
    start = trio.current_time()
    with pytest.raises(OperationFailed):
        await retrying(flaky, policy, dice=lambda: 0.0)
    assert trio.current_time() - start == 3.0
    assert len(flaky.times) == 4


async def test_a_hint_makes_a_pause_longer(autojump_clock: trio.testing.MockClock) -> None:
    flaky = Flaky(hot(retry_after=7), hot(retry_after=0.1))
    await retrying(flaky, POLICY, dice=lambda: 0.0)
    assert flaky.pauses == [7.0, 2.0]


async def test_a_circuit_that_is_not_closed_ends_it_unless_it_is_patient(
    autojump_clock: trio.testing.MockClock,
) -> None:
    refusal = hot(circuit="open", retry_after=2)
    flaky = Flaky(hot(), refusal, hot())
    with pytest.raises(OperationFailed) as caught:
        await retrying(flaky, POLICY, idempotent=True)
    assert (caught.value, len(flaky.times)) == (refusal, 2)
    flaky = Flaky(hot(), refusal, hot())
    assert await retrying(flaky, POLICY, dice=lambda: 0.0, patient=True) == "done"
    assert flaky.pauses == [1.0, 2.0, 3.0]


async def test_time_counts_from_the_first_failure(autojump_clock: trio.testing.MockClock) -> None:
    """An operation that waits for long, as a read at a tail does, is retried all the same."""
    flaky = Flaky(hot())

    async def slow() -> str:
        await trio.sleep(1000)
        return await flaky()

    assert await retrying(slow, POLICY) == "done"


async def test_a_hint_beyond_the_time_ends_it_at_once(autojump_clock: trio.testing.MockClock) -> None:
    flaky = Flaky(hot(retry_after=1000))
    start = trio.current_time()
    with pytest.raises(OperationFailed):
        await retrying(flaky, POLICY)
    assert trio.current_time() == start


@pytest.mark.parametrize("value, seconds", [(3, 3.0), (0.5, 0.5), ("soon", 0.0), (None, 0.0)])
def test_a_hint_that_is_no_number_is_none(value: object, seconds: float) -> None:
    assert retry_after(Failure(FailureCode.HOT_SERVER, "", {"retry_after": value})) == seconds
