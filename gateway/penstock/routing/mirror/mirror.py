"""The mirror of one route: copies its streams from the primary to the secondary, and compares them.

A bounded number of tasks take streams from a queue, each for one turn (`turn`). Clients never wait for the mirror.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
import trio
from msgspec.structs import replace

from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import ListBasins, ListStreams
from penstock.model.records import StreamRef
from penstock.routing.mirror.attributes import Attributes
from penstock.routing.mirror.hashing import HashedParts
from penstock.routing.mirror.queue import Queue
from penstock.routing.mirror.settings import MirrorSettings
from penstock.routing.mirror.sides import Sides, kept_parts
from penstock.routing.mirror.state import CAUSES, MirroredStream, StateTable
from penstock.routing.mirror.tap import ReportingBack
from penstock.routing.mirror.turn import MOVED, Turn
from penstock.routing.target import Target

__all__ = ["Mirror", "Totals", "visit_streams"]

log = structlog.get_logger()

Visit = Callable[[StreamRef], Awaitable[None]]
_DOUBLINGS: Final = 16


class Totals:
    """Sums over the states of all streams of a mirror."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()

    def change(self, before: MirroredStream | None, after: MirroredStream | None) -> None:
        """Update the sums for a stream whose state has changed; None stands for an unknown stream."""
        if before is not None:
            self._sums.subtract(_counts(before))
        if after is not None:
            self._sums.update(_counts(after))

    def shown(self) -> dict[str, Any]:
        """Return the sums as JSON values, for the management listener."""
        return {
            "streams": self._sums["streams"],
            "streams_stopped": self._sums["stopped"],
            "streams_differing": self._sums["differing"],
            "records_compared": self._sums["records"],
            "records_uncompared": self._sums["uncompared"],
            "differences": {cause: self._sums[cause] for cause in CAUSES},
        }


def _counts(state: MirroredStream) -> Counter[str]:
    counts = Counter(state.differences)
    counts["streams"] = 1
    counts["records"] = state.hashed
    counts["uncompared"] = state.uncompared
    counts["stopped"] = int(bool(state.stopped))
    counts["differing"] = int(bool(state.faults))
    return counts


async def visit_streams(primary: Back, states: StateTable, belongs: Callable[[StreamRef], bool], visit: Visit) -> None:
    """Call `visit` for the streams that were mirrored before, and for those listed by the primary that belong to the
    route. Streams of both kinds are visited twice; a primary without listings is not asked.

    Raises OperationFailed if the primary cannot be listed just now.
    """

    async def visit_known(stream: StreamRef, _state: MirroredStream) -> None:
        await visit(stream)

    async def visit_listed(stream: StreamRef) -> None:
        if belongs(stream):
            await visit(stream)

    await states.visit(visit_known)
    try:
        await _visit_basins(primary, visit_listed)
    except OperationFailed as error:
        if error.failure.code is not FailureCode.NOT_IMPLEMENTED:
            raise


async def _visit_basins(back: Back, visit: Visit) -> None:
    after, more = "", True
    while more:
        page = await back.perform(ListBasins(start_after=after))
        for basin in page.items:
            after = basin.name
            await _visit_basin(back, basin.name, visit)
        more = page.has_more and bool(page.items)


async def _visit_basin(back: Back, basin: str, visit: Visit) -> None:
    after, more = "", True
    while more:
        try:
            page = await back.perform(ListStreams(basin, start_after=after))
        except OperationFailed as error:
            if error.failure.code is FailureCode.BASIN_NOT_FOUND:  # deleted meanwhile
                return
            raise
        for stream in page.items:
            after = stream.name
            await visit(StreamRef(basin, stream.name))
        more = page.has_more and bool(page.items)


class Mirror:
    """The mirror of one route in one direction. `states` and `attributes` are the route's; `belongs` returns whether a
    listed stream is one of the route's."""

    def __init__(
        self,
        route: str,
        primary: Target,
        secondary: Target,
        states: StateTable,
        settings: MirrorSettings,
        belongs: Callable[[StreamRef], bool],
        attributes: Attributes | None = None,
    ) -> None:
        self.tap: Back = ReportingBack(primary.back, self._touched, attributes or Attributes())
        """The back for the route's clients: the primary, with changes reported to the mirror."""
        self._totals = Totals()
        self._route = route
        self._primary = primary
        self._secondary = secondary
        self._states = states
        self._settings = settings
        self._belongs = belongs
        self._queue = Queue(settings.most_waiting)
        self._turns: dict[StreamRef, Turn] = {}
        self._by_bytes: set[StreamRef] = set()  # appended to as bytes since their last turn
        self._hurry = False
        self._listing = False
        self._failures = 0
        self._resume_at = -math.inf
        self._resumed = trio.Event()
        self.last_failure = ""
        """The message of the last failure, "" after a success."""

    async def run(self) -> None:
        """Copy and compare forever, beginning with all existing streams. May be run again after a failure."""
        self._totals = Totals()
        self._turns.clear()
        self._queue.put_back()
        await self._count()
        async with trio.open_nursery() as nursery:
            for _ in range(self._settings.streams_at_once):
                nursery.start_soon(self._work)
            nursery.start_soon(self._list_when_needed)

    def status(self) -> dict[str, Any]:
        """Return the mirror's state and counts as JSON values, for the management listener."""
        lag, shown = self._queue.lag(), self._totals.shown()
        if shown["streams_differing"]:
            state = "differing"
        elif self.last_failure:
            state = "interrupted"
        else:
            state = "copying" if lag.seconds or self._queue.waiting else "equal"
        return {
            "primary": self._primary.name,
            "secondary": self._secondary.name,
            "state": state,
            **shown,
            "lag_records": lag.records,
            "lag_ms": round(lag.seconds * 1000),
            "streams_waiting": self._queue.waiting + self._queue.postponed,
            "streams_followed": len(self._turns),
            "last_failure": self.last_failure,
        }

    def state_now(self, stream: StreamRef) -> MirroredStream | None:
        """Return the current state of a stream during its turn, which may not be saved yet, or None outside of one."""
        turn = self._turns.get(stream)
        return None if turn is None else turn.state

    async def settle(self, *, nearly: bool = False) -> None:
        """Wait until all streams that were touched or listed are copied and compared to their ends, or have stopped.
        `nearly`: only to their ends at the time of the call. Callers must bound the time."""
        self._hurry = True
        try:
            self._resume()
            self._queue.hurry()
            self._queue.mark()
            for turn in self._turns.values():
                turn.make_room()
            while not (self._settled or (nearly and not self._queue.marked)):
                await self._queue.changed()
        finally:
            self._hurry = False

    @property
    def _settled(self) -> bool:
        return self._queue.settled and not (self._queue.overflowed or self._listing)

    async def list_all(self) -> None:
        """Add all streams of the route to the queue: those that the primary lists and those that were mirrored before.
        Waits while the queue is half full.

        Raises OperationFailed if the primary cannot be listed.
        """

        async def add(stream: StreamRef) -> None:
            while not self._queue.room:
                await self._queue.changed()
            self._touched(stream, None, False)

        await visit_streams(self._primary.back, self._states, self._belongs, add)

    # ---- which streams -------------------------------------------------------------------------------------------

    def _touched(self, stream: StreamRef, tail: int | None, by_bytes: bool) -> None:
        self._queue.add(stream, tail)
        if by_bytes and len(self._by_bytes) < self._settings.most_waiting:
            self._by_bytes.add(stream)
        if self._queue.waiting and len(self._turns) >= self._settings.streams_at_once:
            for turn in self._turns.values():
                turn.make_room()

    async def _count(self) -> None:
        """Add up the saved states of earlier runs."""

        async def count(_stream: StreamRef, state: MirroredStream) -> None:
            self._totals.change(None, self._of_sides(state))

        await self._states.visit(count)

    async def _list_when_needed(self) -> None:
        """List all streams at the beginning, and again whenever the queue has overflowed."""
        needed = True
        while True:
            if needed:
                self._queue.overflowed, self._listing = False, True
                try:
                    await self.list_all()
                except OperationFailed as error:
                    self._failed(error)
                    await trio.sleep(self._pause())
                    continue
                self._listing = False
                self._queue.look_again()
            await self._queue.changed()
            needed = self._queue.overflowed and self._queue.room

    # ---- turns ---------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            stream = self._queue.begin()
            if stream is None:
                await self._queue.changed_or_due()
                continue
            await self._pause_is_over()
            try:
                turn = await self._turn(stream)
            except OperationFailed as error:
                if error.failure.code not in MOVED:
                    self._failed(error)
                self._queue.postpone(stream, self._pause(), stopped=False)
            except Exception as error:
                log.exception("mirror_failed", route=self._route, stream=str(stream))
                self.last_failure = repr(error)
                self._queue.postpone(stream, self._settings.most_retry_seconds, stopped=True)
            else:
                self._succeeded()
                if turn.state.stopped and not turn.gone:
                    self._queue.postpone(stream, self._settings.most_retry_seconds, stopped=True)
                else:
                    self._queue.done(stream, again=not (turn.gone or turn.caught_up))

    async def _turn(self, stream: StreamRef) -> Turn:
        primary, secondary = self._primary, self._secondary
        sides = Sides(stream, primary.back, secondary.back)
        written = await self._states.load(stream)
        counted = None if written is None else self._of_sides(written)

        def compared(state: MirroredStream) -> None:
            nonlocal counted
            self._totals.change(counted, state)
            counted = state
            self._queue.progress(stream, state.compared)

        async def save(state: MirroredStream) -> None:
            compared(state)
            await self._states.save(stream, state)

        fresh = MirroredStream.fresh(primary.name, secondary.name, self._parts)
        state = counted or fresh
        if stream in self._by_bytes:
            self._by_bytes.discard(stream)
            state = replace(state, by_bytes=True)
        turn = self._turns[stream] = Turn(sides, state, self._settings, save, compared)
        if self._hurry or self._queue.waiting:
            turn.make_room()
        try:
            await turn.run()
        finally:
            del self._turns[stream]
        if turn.gone:
            self._totals.change(counted, None)
            await self._states.forget(stream)
        return turn

    @property
    def _parts(self) -> HashedParts:
        return kept_parts(self._primary.back, self._secondary.back)

    def _of_sides(self, state: MirroredStream) -> MirroredStream:
        return state.of_sides(self._primary.name, self._secondary.name, self._parts)

    # ---- failures of a back --------------------------------------------------------------------------------------

    def _failed(self, error: OperationFailed) -> None:
        if not self._failures:
            log.warning("mirror_interrupted", route=self._route, reason=error.failure.message)
        self.last_failure = error.failure.message
        if trio.current_time() >= self._resume_at:  # otherwise another stream had the same failure
            self._failures = min(self._failures + 1, _DOUBLINGS)
            self._resume_at = trio.current_time() + self._pause()

    def _resume(self) -> None:
        """End the pause after failures, and shorten the next ones: a caller is waiting for the mirror."""
        self._failures = min(self._failures, 1)
        self._resume_at = -math.inf
        self._resumed.set()
        self._resumed = trio.Event()

    async def _pause_is_over(self) -> None:
        with trio.move_on_at(self._resume_at):
            await self._resumed.wait()

    def _pause(self) -> float:
        doubled: float = self._settings.retry_seconds * 2 ** max(self._failures - 1, 0)
        return min(doubled, self._settings.most_retry_seconds)

    def _succeeded(self) -> None:
        if self._failures:
            log.info("mirror_resumed", route=self._route)
        self._failures = 0
        self.last_failure = ""
