"""What goes on for long, sessions, is watched: when the token that it began with is revoked or expires, it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog
import trio

from penstock.access.grants import Grant
from penstock_codecs.failures import Failure, OperationFailed

__all__ = ["LAPSE_SECONDS", "Vigil", "Watched"]

log = structlog.get_logger()

LAPSE_SECONDS: Final = 1.0
"""A session ends at most this long after its token was revoked or has expired. Each look at the file takes some
microseconds for each token whose sessions are open."""


class Watched:
    """One session. `failure`: why it has to end; None as long as it may go on."""

    def __init__(self) -> None:
        self.failure: Failure | None = None
        self._waiting: set[trio.CancelScope] = set()

    @contextmanager
    def waiting(self) -> Iterator[trio.CancelScope]:
        """What waits in the block is cancelled when the session has to end; then `failure` says why."""
        with trio.CancelScope() as scope:
            if self.failure is not None:
                scope.cancel()
            self._waiting.add(scope)
            try:
                yield scope
            finally:
                self._waiting.discard(scope)

    def end(self, failure: Failure) -> None:
        """The session has to end."""
        self.failure = failure
        for scope in list(self._waiting):
            scope.cancel()


class Vigil:
    """The sessions of clients with tokens. While there are any, a task of its own looks after them."""

    def __init__(self, lapsed: Callable[[Grant], Failure | None]) -> None:
        """`lapsed`: why a grant does not hold any more; None where it does."""
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
        """Raises OperationFailed where it does not hold any more: its request may have taken long to come."""
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
