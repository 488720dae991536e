"""Retries of a server that cannot be reached: with growing pauses, and only for errors that a retry can mend."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from penstock.model.failures import Failure, OperationFailed
from penstock_spark.clients.endpoint import Endpoint

__all__ = ["Patience"]

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds between attempts; each pause is twice the one before, less a random half, so that many tasks that failed
together do not come back together."""


class Patience:
    """A retry budget, counted from the first failure after the last progress: the endpoint's `recover_seconds`, or
    `connect_seconds` if shorter and the server was never `reached`."""

    def __init__(self, endpoint: Endpoint, *, reached: bool = False) -> None:
        self._recover_seconds = endpoint.recover_seconds
        self._seconds = endpoint.recover_seconds if reached else min(endpoint.connect_seconds, endpoint.recover_seconds)
        self._since: float | None = None
        self._pause = _FIRST_PAUSE

    def progress(self) -> None:
        """Reset the budget: the server has answered."""
        self._seconds = self._recover_seconds
        self._since = None
        self._pause = _FIRST_PAUSE

    def wait(self, error: OperationFailed) -> None:
        """Sleep until the next attempt is due; a server may delay it (detail `retry_after`, in seconds). Raises the
        error if a retry cannot help or the budget is spent."""
        now = time.monotonic()
        since = self._since = now if self._since is None else self._since
        pause = max(self._pause * (1 - random.random() / 2), _retry_after(error.failure))
        if not error.failure.retryable or now + pause - since > self._seconds:
            raise error
        time.sleep(pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def over(self, attempt: Callable[[], T]) -> T:
        """Return the result of `attempt`, calling it again while a retry can help. `attempt` must be idempotent."""
        while True:
            try:
                return attempt()
            except OperationFailed as error:
                self.wait(error)


def _retry_after(failure: Failure) -> float:
    seconds = failure.details.get("retry_after", 0.0)
    return float(seconds) if isinstance(seconds, int | float) else 0.0
