"""Doing something again, where it is safe: with growing pauses, a bounded number of times, in a bounded time."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import trio

from penstock.metrics.families import BACK_RETRIES
from penstock_codecs.failures import Failure, OperationFailed

__all__ = ["RetryPolicy", "retry_after", "retrying", "tried_again"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how soon; times in seconds.

    The pause before attempt n+1 is `first_seconds` doubled n-1 times, `most_seconds` at most, of which a random half is
    left out so that many that failed together do not come back together.
    """

    attempts: int = 5
    """In all, the first one included; 1: never again."""
    first_seconds: float = 0.05
    most_seconds: float = 1.0
    total_seconds: float = 5.0
    """No attempt begins later than this after the first. One that runs is not interrupted."""

    def pause(self, failures: int, dice: float) -> float:
        """Seconds to wait after so many failures; `dice` from 0 up to 1."""
        whole = min(self.most_seconds, self.first_seconds * 2.0 ** min(failures - 1, 60))
        return whole * (1 - dice / 2)


_DEFAULT: Final = RetryPolicy()


def retry_after(failure: Failure) -> float:
    """Seconds before that trying again is in vain, as the failure's details say; 0 where they do not."""
    seconds = failure.details.get("retry_after", 0.0)
    return float(seconds) if isinstance(seconds, int | float) else 0.0


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    policy: RetryPolicy = _DEFAULT,
    *,
    idempotent: bool = False,
    back: str = "",
    dice: Callable[[], float] = random.random,
) -> T:
    """What `attempt` gives, which is called again after failures that are retryable and had no side effect.

    With `idempotent` (doing it twice is as good as once) a side effect may have happened. `back`: whose server it is,
    for what is counted. Raises the last failure where it may not be tried again, or not any more.
    """
    until = trio.current_time() + policy.total_seconds
    failures = 0
    while True:
        try:
            return await attempt()
        except OperationFailed as error:
            failures += 1
            failure = error.failure
            if not failure.retryable or (failure.side_effect_possible and not idempotent):
                raise
            pause = max(policy.pause(failures, dice()), retry_after(failure))
            if failures >= policy.attempts or trio.current_time() + pause > until:
                raise
        tried_again(back)
        await trio.sleep(pause)


def tried_again(back: str) -> None:
    """Count that something is, or will be, asked of a server once more."""
    BACK_RETRIES.child(back).value += 1
