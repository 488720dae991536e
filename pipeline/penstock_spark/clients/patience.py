"""How long a client goes on trying where a server is not there: with growing pauses, only where it can help."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from penstock_codecs.failures import Failure, OperationFailed
from penstock_spark.clients.endpoint import Endpoint

__all__ = ["Patience"]

T = TypeVar("T")

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds between attempts; each pause is twice the one before, less a random half, so that many tasks that failed
together do not come back together."""


class Patience:
    """Counts from the first failure after the last progress: `recover_seconds` of the endpoint; `connect_seconds`,
    where those are fewer, for a server that was never `reached`."""

    def __init__(self, endpoint: Endpoint, *, reached: bool = False) -> None:
        self._recover_seconds = endpoint.recover_seconds
        self._seconds = endpoint.recover_seconds if reached else min(endpoint.connect_seconds, endpoint.recover_seconds)
        self._since: float | None = None
        self._pause = _FIRST_PAUSE

    def progress(self) -> None:
        """The server is there, or was."""
        self._seconds = self._recover_seconds
        self._since = None
        self._pause = _FIRST_PAUSE

    def wait(self, error: OperationFailed) -> None:
        """Wait until it is time to try again, which a server may say (detail `retry_after`, in seconds). Raises the
        error where that cannot help, or the patience is over."""
        now = time.monotonic()
        since = self._since = now if self._since is None else self._since
        pause = max(self._pause * (1 - random.random() / 2), _retry_after(error.failure))
        if not error.failure.retryable or now + pause - since > self._seconds:
            raise error
        time.sleep(pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def over(self, attempt: Callable[[], T]) -> T:
        """What `attempt` gives, which is called again while that can help: doing it twice is as good as once."""
        while True:
            try:
                return attempt()
            except OperationFailed as error:
                self.wait(error)


def _retry_after(failure: Failure) -> float:
    seconds = failure.details.get("retry_after", 0.0)
    return float(seconds) if isinstance(seconds, int | float) else 0.0
