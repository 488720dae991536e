"""Reads under way, with faults."""

from __future__ import annotations

from typing import Final

import trio

from penstock.backs.base import Following, ReadSession
from penstock.faults.arriving import Answer, held_back
from penstock.faults.messages import Due
from penstock.faults.rule import About, Action, Direction, Rule
from penstock.faults.rules import Faults
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import RecordBatch, StreamPosition

__all__ = ["FaultyReads"]

_TERMINAL: Final = frozenset({Action.TERMINAL})


class FaultyReads:
    """See `ReadSession`. `next` may be cancelled by a heartbeat while a batch is held back."""

    def __init__(self, inner: ReadSession, faults: Faults, about: About, due: Due) -> None:
        self._inner = inner
        self._faults = faults
        self._about = about
        self._due = due
        self._held: tuple[RecordBatch, Answer] | None = None
        session = about.protocol == "s2"
        rules = tuple(faults.concerning(about, Direction.OUT, _TERMINAL))
        self._ends = next((rule for rule in rules if session and rule.chooses()), None)
        self._left = self._ends.fault.records if self._ends is not None else 0
        self._counting: tuple[Rule, ...] = () if session else rules

    async def next(self) -> RecordBatch | Following | None:
        """See `ReadSession.next`."""
        if self._held is None:
            got = await self._fetch()
            if not isinstance(got, RecordBatch):
                return got
            self._held = got, held_back(self._faults, self._about, 0)
        batch, answer = self._held
        await trio.sleep_until(answer.until)
        self._held = None
        self._due.only()
        if answer.failure is not None:
            raise OperationFailed(answer.failure)
        return batch

    async def _fetch(self) -> RecordBatch | Following | None:
        if self._ends is not None and not self._left:
            self._ends.tell(self._about)
            self._due.only()
            raise OperationFailed(self._ends.fault.failure)
        try:
            got = await self._inner.next()
            return self._counted(got) if isinstance(got, RecordBatch) else got
        except OperationFailed:
            self._due.only()
            raise

    def _counted(self, batch: RecordBatch) -> RecordBatch:
        for rule in self._counting:
            if not rule.passes(self._about, batch.count):
                raise OperationFailed(rule.fault.failure)
        if self._ends is None:
            return batch
        batch = batch.part(0, min(batch.count, self._left))
        self._left -= batch.count
        return batch

    def behind(self) -> bool:
        """See `ReadSession.behind`."""
        return self._held is not None or self._inner.behind()

    def tail(self) -> StreamPosition:
        """See `ReadSession.tail`."""
        return self._inner.tail()
