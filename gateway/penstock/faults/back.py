"""A back with faults before and behind it, as the clients of one listener see it.

What is done to messages that come in is done here, before the back hears of them. Of those that go out only what
changes or delays the answer itself; the rest is done where the message is spelled (`penstock.faults.messages`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar, cast

import trio

from penstock.backs.base import AppendSession, Back, ReadSession
from penstock.backs.passing import S2SPassage, s2s_passage
from penstock.faults.appending import FaultyAppends
from penstock.faults.arriving import GHOST, arrival, held_back, lost
from penstock.faults.cutting import CUT
from penstock.faults.messages import DUE, Due
from penstock.faults.reading import FaultyReads
from penstock.faults.rule import About, Action, Direction, Kind
from penstock.faults.rules import Faults
from penstock.identity import CLIENT
from penstock.routing.permissions import Permission, require, require_all
from penstock_codecs.byte_operations import AppendBytes, BytesRead, ReadBytes
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Append, Capability, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["FaultyBack", "RouteOf"]

R = TypeVar("R")
RouteOf = Callable[[StreamRef], str]
"""The name of the route that a stream takes, "" for none."""

_KINDS: Final[dict[type, Kind]] = {Append: Kind.APPEND, AppendBytes: Kind.APPEND, ReadBytes: Kind.READ}
_TERMINAL: Final = frozenset({Action.TERMINAL})


class FaultyBack:
    """See the module, and `Back`. Without rules everything is handed on as it is."""

    def __init__(self, inner: Back, faults: Faults, listener: str, route_of: RouteOf = lambda _stream: "") -> None:
        self.inner = inner
        self._faults = faults
        self._listener = listener
        self._route_of = route_of

    @property
    def capabilities(self) -> frozenset[Capability]:
        """See `Back.capabilities`."""
        return self.inner.capabilities

    def perform(self, operation: Operation[R]) -> Coroutine[Any, Any, R]:
        """See `Back.perform`."""
        return self._perform(operation) if self._faults.active and self._wanted else self.inner.perform(operation)

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """See `Back.append_session`."""
        inner = self.inner.append_session(stream, create_config, create_if_missing=create_if_missing)
        return self._append_session(stream, inner) if self._wanted else inner

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        """See `Back.read_session`."""
        return self._read_session(read) if self._wanted else self.inner.read_session(read)

    def s2s_passage(self, stream: StreamRef) -> S2SPassage | None:
        """See `penstock.backs.passing.PassesS2S`. While there are rules sessions are taken apart."""
        return None if self._wanted else s2s_passage(self.inner, stream)

    def require(self, stream: StreamRef, needs: frozenset[Permission]) -> None:
        """See `penstock.routing.permissions.Restricts`."""
        require(self.inner, stream, needs)

    def require_all(self, basin: str, prefix: str) -> None:
        """See `penstock.routing.permissions.Restricts`."""
        require_all(self.inner, basin, prefix)

    @property
    def _wanted(self) -> bool:
        """Whether faults may be injected: for clients, never into what the gateway does for itself."""
        return self._faults.active and CUT.get() is not None

    def _about(self, kind: Kind, stream: StreamRef | None) -> About:
        route = "" if stream is None else self._route_of(stream)
        return About(self._listener, kind, stream, route, CLIENT.get().identity)

    # ---- one operation -------------------------------------------------------------------------------------------

    async def _perform(self, operation: Operation[R]) -> R:
        stream = getattr(operation, "stream", None) or getattr(operation, "target", None)
        about = self._about(_KINDS.get(type(operation), Kind.CONTROL), stream)
        due = Due(self._faults, about)
        DUE.set(due)
        due.only()
        copies = await arrival(self._faults, about, _size(operation))
        if copies == 0:
            due.only(dropped=True)
            return cast(R, _ghost(operation))
        self._check_terminal(about, _records(operation))
        result = await self.inner.perform(operation)
        for _ in range(copies - 1):
            await self._again(operation)
        answer = held_back(self._faults, about, len(result.data) if isinstance(result, BytesRead) else 0)
        await trio.sleep_until(answer.until)
        if answer.failure is not None:
            raise OperationFailed(answer.failure)
        return result

    async def _again(self, operation: Operation[Any]) -> None:
        """What comes twice is done twice, and answered once."""
        try:
            await self.inner.perform(operation)
        except OperationFailed:
            return  # the first was answered already

    def _check_terminal(self, about: About, records: int) -> None:
        """Where a protocol has no sessions, the operation by which there would be too many records fails."""
        for rule in self._faults.concerning(about, Direction.OUT, _TERMINAL) if records else ():
            if not rule.passes(about, records):
                raise OperationFailed(rule.fault.failure)

    # ---- sessions ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _append_session(
        self, stream: StreamRef, entering: AbstractAsyncContextManager[AppendSession]
    ) -> AsyncIterator[AppendSession]:
        about = self._about(Kind.APPEND, stream)
        due = Due(self._faults, about)
        DUE.set(due)
        due.only()  # should it fail
        async with entering as inner:
            due = Due(self._faults, about)
            DUE.set(due)
            yield FaultyAppends(inner, self._faults, about, due)

    @asynccontextmanager
    async def _read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        about = self._about(Kind.READ, read.stream)
        due = Due(self._faults, about)
        DUE.set(due)
        due.only()
        if await arrival(self._faults, about, 0) == 0:
            due.only(dropped=True)
            raise lost()
        async with self.inner.read_session(read) as inner:
            due = Due(self._faults, about)
            if about.protocol != "s2":
                due.owe()  # the one reply, whether there are records or not
            DUE.set(due)
            yield FaultyReads(inner, self._faults, about, due)


def _size(operation: Operation[Any]) -> int:
    """Bytes of its records."""
    if isinstance(operation, Append):
        return operation.metered
    return len(operation.data) if isinstance(operation, AppendBytes) else 0


def _records(operation: Operation[Any]) -> int:
    """How many records it is about; bytes count as one, whatever events are in them."""
    if isinstance(operation, Append):
        return len(operation.bodies)
    return 1 if isinstance(operation, AppendBytes | ReadBytes) else 0


def _ghost(operation: Operation[Any]) -> object:
    """What a front may take for a result of what was never done; it is not sent. Raises OperationFailed where there is
    no such thing, which is not sent either."""
    if isinstance(operation, Append | AppendBytes):
        return GHOST
    if isinstance(operation, ReadBytes):  # each dialect has a word for this, and need not end the connection
        raise lost(FailureCode.STREAM_NOT_FOUND)
    raise lost()
