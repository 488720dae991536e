"""Termination of open sessions when the token that they began with is revoked or expires."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog
import trio

from penstock.core.grants import Grant
from penstock.model.failures import Failure, OperationFailed

__all__ = ["LAPSE_SECONDS", "RevocationMonitor", "Watched"]

log = structlog.get_logger()

LAPSE_SECONDS: Final = 1.0
"""Seconds between checks: a session ends at most this long after its token was revoked or has expired. A check takes
some microseconds for each token with open sessions."""


class Watched:
    """A watched session. `failure`: the reason it has to end, None while it may go on."""

    def __init__(self) -> None:
        self.failure: Failure | None = None
        self._waiting: set[trio.CancelScope] = set()

    @contextmanager
    def waiting(self) -> Iterator[trio.CancelScope]:
        """Cancel the block when the session has to end; `failure` then holds the reason."""
        with trio.CancelScope() as scope:
            if self.failure is not None:
                scope.cancel()
            self._waiting.add(scope)
            try:
                yield scope
            finally:
                self._waiting.discard(scope)

    def end(self, failure: Failure) -> None:
        """End the session: set `failure` and cancel all blocks in `waiting`."""
        self.failure = failure
        for scope in list(self._waiting):
            scope.cancel()


class RevocationMonitor:
    """Monitor of the sessions of clients with tokens. While there are any, a system task checks their grants."""

    def __init__(self, lapsed: Callable[[Grant], Failure | None]) -> None:
        """`lapsed` returns why a grant is no longer valid, or None if it still is."""
        self._lapsed = lapsed
        self._sessions: dict[Grant, set[Watched]] = {}
        self._looking = False

    @contextmanager
    def watch(self, grant: Grant) -> Iterator[Watched]:
        """Watch a session for as long as the block lasts."""
        watched = Watched()
        sessions = self._sessions.setdefault(grant, set())
        sessions.add(watched)
        if not self._looking:
            self._looking = True
            trio.lowlevel.spawn_system_task(self._look)
        try:
            yield watched
        finally:
            sessions.discard(watched)
            if not sessions:
                self._sessions.pop(grant, None)

    def check(self, grant: Grant) -> None:
        """Check that a grant is still valid: its request may have taken long to arrive. Raises OperationFailed if it is
        not."""
        failure = self._lapsed(grant)
        if failure is not None:
            raise OperationFailed(failure)

    async def _look(self) -> None:
        try:
            while self._sessions:
                await trio.sleep(LAPSE_SECONDS)
                for grant, sessions in list(self._sessions.items()):
                    self._look_at(grant, sessions)
        finally:
            self._looking = False

    def _look_at(self, grant: Grant, sessions: set[Watched]) -> None:
        try:
            failure = self._lapsed(grant)
        except Exception:  # a file that cannot be read now says nothing about the token
            log.exception("access_tokens_unreadable")
            return
        ending = [] if failure is None else [watched for watched in sessions if watched.failure is None]
        if failure is not None and ending:
            log.info("sessions_ended", token=grant.info.id, sessions=len(ending), reason=failure.message)
            for watched in ending:
                watched.end(failure)
