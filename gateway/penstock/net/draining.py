"""Draining: clients are first advised to reconnect; after a grace time their sessions are ended."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final

import trio

from penstock.model.failures import Failure, FailureCode

__all__ = ["SHUTTING_DOWN", "Draining"]

SHUTTING_DOWN: Final = Failure(FailureCode.SERVER_DRAINING, "the gateway is shutting down")
"""The answer to a request that was not begun: the client may retry elsewhere."""


class Draining:
    """The state of a drain, which can interrupt tasks that wait.

    `grace_seconds`: from the advice (a flag on frames) to the end of sessions that are still open; 0 for a protocol
    that cannot advise.
    """

    def __init__(self, grace_seconds: float = 0.0) -> None:
        self.grace_seconds = grace_seconds
        self._ends_at = math.inf
        self._begun = trio.Event()
        self._watchers: set[Callable[[], None]] = set()

    @property
    def begun(self) -> bool:
        """True once the drain has begun, so that clients are advised."""
        return self._ends_at < math.inf

    @property
    def over(self) -> bool:
        """True once the grace time has passed."""
        return self.begun and trio.current_time() >= self._ends_at

    def begin(self) -> None:
        """Begin to drain. Must be called from within trio. Later calls change nothing."""
        if not self.begun:
            self._ends_at = trio.current_time() + self.grace_seconds
            self._begun.set()
            for notify in list(self._watchers):
                notify()

    async def wait_over(self) -> None:
        """Wait until a drain has begun and its grace time has passed."""
        await self._begun.wait()
        await trio.sleep_until(self._ends_at)

    def interrupts(self, seconds: float = math.inf) -> AbstractContextManager[trio.CancelScope]:
        """Run the block in a scope that is cancelled after so many seconds, when the drain begins, or when its grace
        time is over.

        A scope that is opened after the grace time is not interrupted: what is in flight then may finish.
        """
        ends_at = math.inf if self.over else self._ends_at
        return _Interrupted(self._watchers, min(trio.current_time() + seconds, ends_at))

    def watched_by(self, notify: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `notify` when the drain begins while the block runs, at once if it has begun."""
        return _Watched(self, self._watchers, notify)


class _Interrupted:
    """See `Draining.interrupts`. As a generator it would take 250 bytes more, for each task that waits."""

    __slots__ = ("_scope", "_watchers")

    def __init__(self, watchers: set[Callable[[], None]], deadline: float) -> None:
        self._watchers = watchers
        self._scope = trio.CancelScope(deadline=deadline)

    def __call__(self) -> None:
        """Interrupt the block, because the drain begins."""
        self._scope.cancel()

    def __enter__(self) -> trio.CancelScope:
        self._scope.__enter__()
        self._watchers.add(self)
        return self._scope

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._watchers.discard(self)
        return self._scope.__exit__(kind, error, traceback)


class _Watched:
    """See `Draining.watched_by`."""

    __slots__ = ("_draining", "_notify", "_watchers")

    def __init__(self, draining: Draining, watchers: set[Callable[[], None]], notify: Callable[[], None]) -> None:
        self._draining = draining
        self._watchers = watchers
        self._notify = notify

    def __enter__(self) -> None:
        if self._draining.begun:
            self._notify()
        else:
            self._watchers.add(self._notify)

    def __exit__(self, *_: object) -> None:
        self._watchers.discard(self._notify)
