"""A back that injects faults for the clients of one listener: into operations, append sessions and read sessions.

Faults on incoming messages are applied here, before the message reaches the back. Of the faults on outgoing messages,
those that delay or replace an answer, or end a session, are applied here; the others are applied where the message is
encoded (`penstock.routing.faults.messages`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum, auto
from typing import Any, Final, TypeVar, cast

import trio

from penstock.core.back import (
    AppendSession,
    AppendSessionWrapper,
    Back,
    BackWrapper,
    Following,
    ReadSession,
    ReadSessionWrapper,
)
from penstock.core.identity import CLIENT
from penstock.core.passthrough import Passthrough
from penstock.model.byte_operations import AppendAs, AppendBytes, BytesRead, ReadBytes
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.operations import Append, Appended, Operation, Read
from penstock.model.records import U64_MAX, RecordBatch, StreamRef
from penstock.model.streams import StreamConfig
from penstock.net.cutting import CUT_CONNECTION
from penstock.routing.faults.arriving import GHOST, AnswerFault, answer_fault, apply_request_faults, dropped_failure
from penstock.routing.faults.messages import DUE, DueMessages
from penstock.routing.faults.rule import Action, FaultDirection, MessageKind, MessageSubject, Rule
from penstock.routing.faults.rules import Faults

__all__ = ["FaultyAppends", "FaultyBack", "FaultyReads"]

_TERMINAL: Final = frozenset({Action.TERMINAL})
R = TypeVar("R")
_KINDS: Final[dict[type, MessageKind]] = {
    Append: MessageKind.APPEND,
    AppendAs: MessageKind.APPEND,
    AppendBytes: MessageKind.APPEND,
    ReadBytes: MessageKind.READ,
}


class _Terminals:
    """The terminals that may end one session; without sessions, those that an operation's records count towards."""

    def __init__(self, faults: Faults, subject: MessageSubject) -> None:
        rules = tuple(faults.concerning(subject, FaultDirection.OUT, _TERMINAL))
        session = subject.in_sessions
        self._subject = subject
        self._ends = next((rule for rule in rules if session and rule.chooses()), None)
        self._counting: tuple[Rule, ...] = () if session else rules
        self.left = self._ends.fault.records if self._ends is not None else U64_MAX
        """Number of records that the session may still carry."""

    def check_room(self) -> None:
        """Raise OperationFailed if no record may follow."""
        if not self.left:
            self._end()

    def count(self, records: int) -> None:
        """Count records. Raises OperationFailed if a terminal comes before these."""
        _count_records(self._counting, self._subject, records)
        if records > self.left:
            self._end()
        self.left -= records

    def _end(self) -> None:
        assert self._ends is not None
        self._ends.report(self._subject)
        raise OperationFailed(self._ends.fault.failure)


class FaultyReads(ReadSessionWrapper):
    """A `ReadSession` with faults. A batch that is held back survives the cancellation of `next` by a heartbeat."""

    def __init__(self, inner: ReadSession, faults: Faults, subject: MessageSubject, due: DueMessages) -> None:
        super().__init__(inner)
        self._faults = faults
        self._subject = subject
        self._due = due
        self._pending: tuple[RecordBatch, AnswerFault] | None = None
        self._terminals = _Terminals(faults, subject)

    async def next(self) -> RecordBatch | Following | None:
        if self._pending is None:
            batch = await self._fetch()
            if not isinstance(batch, RecordBatch):
                return batch
            self._pending = batch, answer_fault(self._faults, self._subject, 0)
        batch, fault = self._pending
        await trio.sleep_until(fault.until)
        self._pending = None
        self._due.only()
        if fault.failure is not None:
            raise OperationFailed(fault.failure)
        return batch

    async def _fetch(self) -> RecordBatch | Following | None:
        try:
            self._terminals.check_room()
            batch = await self._inner.next()
            if not isinstance(batch, RecordBatch):
                return batch
            batch = batch.part(0, min(batch.count, self._terminals.left))
            self._terminals.count(batch.count)
            return batch
        except OperationFailed:
            self._due.only()
            raise

    def behind(self) -> bool:
        return self._pending is not None or self._inner.behind()


class _Sent(Enum):
    """The fate of one append that a front sent."""

    HANDED_ON = auto()
    DUPLICATE = auto()
    """Handed on once more: its acknowledgement is discarded."""
    DROPPED = auto()


class FaultyAppends(AppendSessionWrapper):
    """An `AppendSession` with faults. It returns acknowledgements one at a time, so that each becomes one message."""

    def __init__(self, inner: AppendSession, faults: Faults, subject: MessageSubject, due: DueMessages) -> None:
        super().__init__(inner)
        self._faults = faults
        self._subject = subject
        self._due = due
        self._order: deque[_Sent | Failure] = deque()
        self._acks: deque[tuple[Appended, AnswerFault | None]] = deque()
        self._waiting: trio.CancelScope | None = None
        self._over = False
        self._terminals = _Terminals(faults, subject)

    # ---- in ------------------------------------------------------------------------------------------------------

    async def send(self, append: Append | AppendBytes) -> None:
        if self._over:
            return
        records, size = (len(append.bodies), append.metered) if isinstance(append, Append) else (1, len(append.data))
        try:
            copies = await apply_request_faults(self._faults, self._subject, size)
            self._terminals.count(records)
        except OperationFailed as error:  # reported in order, after the appends sent before
            self._over = True
            self._put(error.failure)
            self._inner.close()
            return
        if not copies:
            self._put(_Sent.DROPPED)
        for copy in range(copies):
            self._order.append(_Sent.DUPLICATE if copy else _Sent.HANDED_ON)
            try:
                await self._inner.send(append)
            except BaseException:
                self._order.pop()
                raise

    def _put(self, outcome: _Sent | Failure) -> None:
        self._order.append(outcome)
        if self._waiting is not None:  # it waits for acknowledgements, and none may come before this
            self._waiting.cancel()

    # ---- out -----------------------------------------------------------------------------------------------------

    async def receive(self) -> list[Appended]:
        while True:
            first = self._order[0] if self._order else None
            if isinstance(first, Failure):
                self._due.owe()
                raise OperationFailed(first)
            if first is _Sent.DROPPED:
                self._order.popleft()
                self._due.owe(dropped=True)
                return [GHOST]
            if self._acks:
                if first is not _Sent.DUPLICATE:
                    return [await self._next()]
                self._order.popleft()
                self._acks.popleft()
            elif not await self._more():
                return []

    async def _next(self) -> Appended:
        """Wait until the first acknowledgement may be sent, and return it."""
        ack, fault = self._acks[0]
        if fault is None:
            fault = answer_fault(self._faults, self._subject, 0)
            self._acks[0] = ack, fault
        await trio.sleep_until(fault.until)
        self._acks.popleft()
        self._order.popleft()
        self._due.owe()
        if fault.failure is not None:
            raise OperationFailed(fault.failure)
        return ack

    async def _more(self) -> bool:
        """Wait for acknowledgements, or for something else to report. Return False at the end of the session."""
        try:
            with trio.CancelScope() as self._waiting:
                acks = await self._inner.receive()
                self._acks += [(ack, None) for ack in acks]
                return bool(acks) or self._next_is_reportable()
        except OperationFailed:
            self._due.owe()
            raise
        finally:
            self._waiting = None
        return True

    def _next_is_reportable(self) -> bool:
        """Return whether the next thing to report is something other than an acknowledgement."""
        return bool(self._order) and self._order[0] not in (_Sent.HANDED_ON, _Sent.DUPLICATE)


class FaultyBack(BackWrapper):
    """A listener's back that injects faults. Without rules it hands everything on unchanged.

    `in_sessions` and `throttled_whole`: see `MessageSubject`.
    """

    def __init__(
        self,
        inner: Back,
        faults: Faults,
        listener: str,
        *,
        in_sessions: bool = False,
        throttled_whole: bool = False,
    ) -> None:
        super().__init__(inner)
        self._faults = faults
        self._listener = listener
        self._in_sessions = in_sessions
        self._throttled_whole = throttled_whole

    def perform(self, operation: Operation[R]) -> Coroutine[Any, Any, R]:
        return self._perform(operation) if self._faults.active and self._injects else self._inner.perform(operation)

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        inner = self._inner.append_session(stream, create_config, create_if_missing=create_if_missing)
        return self._append_session(stream, inner) if self._injects else inner

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        return self._read_session(read) if self._injects else self._inner.read_session(read)

    def passthrough(self, protocol: str, stream: StreamRef) -> Passthrough | None:
        """Return None while there are rules: faults need decoded sessions."""
        return None if self._injects else self._inner.passthrough(protocol, stream)

    @property
    def _injects(self) -> bool:
        """True if faults may be injected: into clients' operations, never into the gateway's own."""
        return self._faults.active and CUT_CONNECTION.get() is not None

    def _subject_of(self, kind: MessageKind, stream: StreamRef | None) -> MessageSubject:
        route, identity = self._route_of(stream), CLIENT.get().identity
        traits = self._in_sessions, self._throttled_whole
        return MessageSubject(self._listener, kind, stream, route, identity, *traits)

    def _route_of(self, stream: StreamRef | None) -> str:
        """Return the name of the stream's route, "" if it has none."""
        if stream is None:
            return ""
        try:
            return self._inner.destination(stream).route
        except OperationFailed:  # the operation itself reports this to the client
            return ""

    # ---- one operation -------------------------------------------------------------------------------------------

    async def _perform(self, operation: Operation[R]) -> R:
        stream = operation.about
        subject = self._subject_of(_KINDS.get(type(operation), MessageKind.CONTROL), stream)
        due = DUE.get()  # if a front asks for more before it answers an append, the answer remains that to the append
        if due is None or subject.kind is not MessageKind.CONTROL or not due.owes_records:
            due = DueMessages(self._faults, subject)
            DUE.set(due)
            due.only()
        copies = await apply_request_faults(self._faults, subject, _size(operation))
        if copies == 0:
            due.only(dropped=True)
            return cast(R, _ghost(operation))
        if records := _records(operation):
            _count_records(self._faults.concerning(subject, FaultDirection.OUT, _TERMINAL), subject, records)
        result = await self._inner.perform(operation)
        for _ in range(copies - 1):
            await self._again(operation)
        fault = answer_fault(self._faults, subject, len(result.data) if isinstance(result, BytesRead) else 0)
        await trio.sleep_until(fault.until)
        if fault.failure is not None:
            raise OperationFailed(fault.failure)
        return result

    async def _again(self, operation: Operation[Any]) -> None:
        """Perform a duplicated operation once more; only the first one is answered."""
        try:
            await self._inner.perform(operation)
        except OperationFailed:
            return  # the first was answered already

    # ---- sessions ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _append_session(
        self, stream: StreamRef, entering: AbstractAsyncContextManager[AppendSession]
    ) -> AsyncIterator[AppendSession]:
        subject = self._subject_of(MessageKind.APPEND, stream)
        due = DueMessages(self._faults, subject)
        DUE.set(due)
        due.only()  # the answer if opening the session fails
        async with entering as inner:
            due = DueMessages(self._faults, subject)
            DUE.set(due)
            yield FaultyAppends(inner, self._faults, subject, due)

    @asynccontextmanager
    async def _read_session(self, read: Read) -> AsyncIterator[ReadSession]:
        subject = self._subject_of(MessageKind.READ, read.stream)
        due = DueMessages(self._faults, subject)
        DUE.set(due)
        due.only()
        if await apply_request_faults(self._faults, subject, 0) == 0:
            due.only(dropped=True)
            raise dropped_failure()
        async with self._inner.read_session(read) as inner:
            due = DueMessages(self._faults, subject)
            if not subject.in_sessions:
                due.owe()  # the only reply, with records or without
            DUE.set(due)
            yield FaultyReads(inner, self._faults, subject, due)


def _size(operation: Operation[Any]) -> int:
    """Return the size of the operation's records, in bytes."""
    if isinstance(operation, Append):
        return operation.metered
    return len(operation.data) if isinstance(operation, AppendBytes) else 0


def _records(operation: Operation[Any]) -> int:
    """Return the number of records that an operation appends or reads. An operation on bytes counts as one, however
    many events it holds."""
    if isinstance(operation, Append):
        return len(operation.bodies)
    return 1 if isinstance(operation, AppendBytes | ReadBytes) else 0


def _count_records(terminals: Iterable[Rule], subject: MessageSubject, records: int) -> None:
    """Count records towards terminals, for protocols without sessions. Raises OperationFailed for the operation that
    exceeds one."""
    for rule in terminals:
        if not rule.passes(subject, records):
            raise OperationFailed(rule.fault.failure)


def _ghost(operation: Operation[Any]) -> object:
    """Return a stand-in for the result of a dropped operation; it is not sent. Raises OperationFailed, which is not
    sent either, for operations that have no stand-in."""
    if isinstance(operation, Append | AppendBytes):
        return GHOST
    if isinstance(operation, ReadBytes):
        # Both dialects have a reply for this that keeps the connection open, and the front asks the back nothing more.
        raise dropped_failure(FailureCode.STREAM_SEALED)
    raise dropped_failure()
