"""Appends under way, with faults."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Final

import trio

from penstock.backs.base import AppendSession
from penstock.faults.arriving import GHOST, Answer, arrival, held_back
from penstock.faults.messages import Due
from penstock.faults.rule import About, Action, Direction, Rule
from penstock.faults.rules import Faults
from penstock_codecs.byte_operations import AppendBytes
from penstock_codecs.failures import Failure, OperationFailed
from penstock_codecs.operations import Append, Appended

__all__ = ["FaultyAppends"]

_TERMINAL: Final = frozenset({Action.TERMINAL})


class _Sent(Enum):
    """What became of one append that a front handed over."""

    HANDED_ON = auto()
    DUPLICATE = auto()
    """Handed on once more: its acknowledgement is nobody's."""
    DROPPED = auto()


class FaultyAppends:
    """See `AppendSession`. Acknowledgements are given one by one, so that each becomes a message of its own."""

    def __init__(self, inner: AppendSession, faults: Faults, about: About, due: Due) -> None:
        self._inner = inner
        self._faults = faults
        self._about = about
        self._due = due
        self._order: deque[_Sent | Failure] = deque()
        self._acknowledged: deque[tuple[Appended, Answer | None]] = deque()
        self._waiting: trio.CancelScope | None = None
        self._over = False
        session = about.protocol == "s2"
        rules = tuple(faults.concerning(about, Direction.OUT, _TERMINAL))
        self._ends = next((rule for rule in rules if session and rule.chooses()), None)
        self._left = self._ends.fault.records if self._ends is not None else 0
        self._counting: tuple[Rule, ...] = () if session else rules

    # ---- in ------------------------------------------------------------------------------------------------------

    async def send(self, append: Append | AppendBytes) -> None:
        """See `AppendSession.send`."""
        if self._over:
            return
        records, size = (len(append.bodies), append.metered) if isinstance(append, Append) else (1, len(append.data))
        try:
            copies = await arrival(self._faults, self._about, size)
            self._count(records)
        except OperationFailed as error:  # told in its turn, behind what was handed over before
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

    def _count(self, records: int) -> None:
        """Raises OperationFailed for a terminal that comes before these records."""
        for rule in self._counting:
            if not rule.passes(self._about, records):
                raise OperationFailed(rule.fault.failure)
        if self._ends is not None:
            if records > self._left:
                self._ends.tell(self._about)
                raise OperationFailed(self._ends.fault.failure)
            self._left -= records

    def _put(self, what: _Sent | Failure) -> None:
        self._order.append(what)
        if self._waiting is not None:  # for acknowledgements, of which there may be none before this
            self._waiting.cancel()

    def close(self) -> None:
        """See `AppendSession.close`."""
        self._inner.close()

    # ---- out -----------------------------------------------------------------------------------------------------

    async def receive(self) -> list[Appended]:
        """See `AppendSession.receive`."""
        while True:
            first = self._order[0] if self._order else None
            if isinstance(first, Failure):
                self._due.owe()
                raise OperationFailed(first)
            if first is _Sent.DROPPED:
                self._order.popleft()
                self._due.owe(dropped=True)
                return [GHOST]
            if self._acknowledged:
                if first is not _Sent.DUPLICATE:
                    return [await self._next()]
                self._order.popleft()
                self._acknowledged.popleft()
            elif not await self._more():
                return []

    async def _next(self) -> Appended:
        """The first acknowledgement, once it may go."""
        acknowledged, answer = self._acknowledged[0]
        if answer is None:
            answer = held_back(self._faults, self._about, 0)
            self._acknowledged[0] = acknowledged, answer
        await trio.sleep_until(answer.until)
        self._acknowledged.popleft()
        self._order.popleft()
        self._due.owe()
        if answer.failure is not None:
            raise OperationFailed(answer.failure)
        return acknowledged

    async def _more(self) -> bool:
        """Wait for acknowledgements, or for something else to tell; False at the end."""
        try:
            with trio.CancelScope() as self._waiting:
                some = await self._inner.receive()
                self._acknowledged += [(one, None) for one in some]
                return bool(some) or self._tells_next()
        except OperationFailed:
            self._due.owe()
            raise
        finally:
            self._waiting = None
        return True

    def _tells_next(self) -> bool:
        """Whether the next thing to tell is no acknowledgement."""
        return bool(self._order) and self._order[0] not in (_Sent.HANDED_ON, _Sent.DUPLICATE)
