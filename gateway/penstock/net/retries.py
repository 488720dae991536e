"""Retries of operations that may safely be repeated: with growing pauses, bounded in number and in time."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
import trio

from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.net.upstream_settings import is_refused
from penstock.observe.metrics.families import BACK_RETRIES

__all__ = ["RetryPolicy", "retry_after", "retrying", "tried_again", "worth_retrying"]

T = TypeVar("T")


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The number and timing of retries; times in seconds.

    The pause before attempt n+1 is `first_seconds` doubled n-1 times, `most_seconds` at most, shortened at random by up
    to half so that clients that failed together do not retry together.
    """

    attempts: int = 5
    """Attempts in all, including the first; 1: no retries."""
    first_seconds: float = 0.05
    most_seconds: float = 1.0
    total_seconds: float = 5.0
    """Time after the first failure in which attempts may begin. One that runs is not interrupted."""

    def pause(self, failures: int, dice: float) -> float:
        """Return the seconds to wait after so many failures; `dice` is random, in [0, 1)."""
        whole = min(self.most_seconds, self.first_seconds * 2.0 ** min(failures - 1, 60))
        return whole * (1 - dice / 2)


_DEFAULT: Final = RetryPolicy()


def worth_retrying(failure: Failure) -> bool:
    """Return whether the gateway repeats the request. An UPSTREAM_FAULT is passed to the client at once, which may
    retry itself."""
    return failure.retryable and failure.code is not FailureCode.UPSTREAM_FAULT


def retry_after(failure: Failure) -> float:
    """Return the seconds during which a retry is futile, from the failure's details; 0 if they have none."""
    seconds = failure.details.get("retry_after", 0.0)
    return float(seconds) if isinstance(seconds, int | float) else 0.0


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    policy: RetryPolicy = _DEFAULT,
    *,
    idempotent: bool = False,
    patient: bool = False,
    end_by: float = math.inf,
    back: str = "",
    dice: Callable[[], float] = random.random,
) -> T:
    """Return the result of `attempt`, calling it again after failures that are worth a retry and had no side effect.

    With `idempotent` (doing it twice is as good as once) a side effect may have happened. A circuit that is not closed
    ends the retries at once, unless `patient`: for operations that were in flight before the server was lost.
    `end_by`: a time by trio's clock; an attempt is not begun if it would end later, taking as long as the one before:
    for attempts that retry on their own. `back`: name of the server's back, for metrics. Raises the last failure when
    no further attempt is allowed.
    """
    until = math.inf
    failures = 0
    while True:
        begun = trio.current_time()
        try:
            return await attempt()
        except OperationFailed as error:
            failures += 1
            failure = error.failure
            if not worth_retrying(failure) or (failure.side_effect_possible and not idempotent):
                raise
            if is_refused(failure) and not patient:
                raise
            now = trio.current_time()
            until = min(until, now + policy.total_seconds)
            pause = max(policy.pause(failures, dice()), retry_after(failure))
            if failures >= policy.attempts or now + pause > until or now + pause + (now - begun) > end_by:
                raise
        tried_again(back)
        await trio.sleep(pause)


def tried_again(back: str) -> None:
    """Count a retry of a request to a back's server; nothing if `back` is ""."""
    if back:
        BACK_RETRIES.child(back).value += 1
