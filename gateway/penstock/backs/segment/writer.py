"""One writer of one segment: its appends in order, pipelined, stored exactly once (segment fact sheet, 1.4).

All who append as this writer share it, so that what they hand over keeps its order. Where the connection is lost the
writer is set up on another: the server says up to which number it has stored, and the rest is sent again. What comes
late on the old connection is refused by the server, since each append stands on the number before it.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import structlog
import trio

from penstock.backs.delivery import Delivery
from penstock.backs.retries import RetryPolicy, retrying, tried_again
from penstock.backs.segment.dialects import APPENDING, Appending
from penstock.backs.segment.line import EVERYTHING, Line
from penstock.backs.segment.lines import Kind, Lines
from penstock.backs.segment.slots import Pending, Slot, ends_from
from penstock.backs.segment.stores import Stores
from penstock.backs.upstream import too_late
from penstock_codecs.byte_operations import NO_ATTRIBUTE
from penstock_codecs.failures import Failure, FailureCode, LocalProtocolError, OperationFailed, fail
from penstock_codecs.segment import released

__all__ = ["Writer"]

_log = structlog.get_logger()

_EXPIRED: Final = 1
"""The delegation token was good once (1.3)."""
_ATTEMPTS: Final = 1_000_000
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds between attempts to get a lost writer going again; they double."""


class Writer:
    """See the module. `writer_id` is the server's name for this writer. `knows_ends`: where the segment ends is asked
    before the first append, so that one acknowledgement for several tells where each of them is."""

    def __init__(self, stores: Stores, segment: str, writer_id: UUID, *, knows_ends: bool = False) -> None:
        self._stores = stores
        self._settings = stores.settings
        self._dialect: Appending = APPENDING[stores.settings.dialect]
        self._knows_ends = knows_ends
        self.segment = segment
        self.id = writer_id
        self._pending = Pending()
        self._handed: int | None = None  # number of the last that was handed over; None: the server is to be asked
        self._line: Line | None = None
        self._lines: Lines | None = None
        self._key = EVERYTHING
        self._using = False
        self._fault: Failure | None = None
        self._running = False
        self._entrance = trio.Lock()
        self._given_up: tuple[float, Failure] | None = None  # when it could not be set up, and why
        self._idle = trio.lowlevel.ParkingLot()
        self._news = trio.Event()
        self.spoiled = False
        """Appends were given up that the server may still get: their numbers must not be used again."""

    # ---- handing over ------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether somebody appends, or waits to."""
        return bool(self._pending) or self._running or self._entrance.locked()

    async def ready(self) -> None:
        """Have the server know the writer, if it does not yet. Raises OperationFailed, STREAM_NOT_FOUND for one."""
        came = trio.current_time()
        async with self._entrance:
            await self._know(came)
            if not self._running:
                self._release()

    async def submit(
        self,
        data: bytes,
        count: int,
        *,
        position: int | None = None,
        after: int | None = None,
        expected: int | None = None,
    ) -> Slot:
        """Hand an append over; returns when it has its place. Wait for the slot to be over.

        `position`: the writer's number after it; None: as many higher as the append needs. `after`: which it must be
        before. Waits while too much is in flight, first come first served. Raises OperationFailed where it was not
        taken: nothing was sent. STALE_WRITER_POSITION (details: position).
        """
        came = trio.current_time()
        async with self._entrance:
            await self._pending.room(len(data), self._settings.append_inflight_bytes)
            await self._know(came)
            try:
                slot = Slot(data, self._number(data, count, position, after), count, expected)
            except OperationFailed:
                if not self._running:
                    self._release()
                raise
            self._handed = slot.number
            self._pending.add(slot)
            if not self._running:
                self._running = True
                self._stores.nursery.start_soon(self._run)
            self._news.set()
            return slot

    def _number(self, data: bytes, count: int, position: int | None, after: int | None) -> int:
        handed = NO_ATTRIBUTE if self._handed is None else self._handed
        number = self._dialect.next_number(handed, len(data), count) if position is None else position
        if number <= handed or (after is not None and after != handed):
            wanted = f"position {number}" + ("" if after is None else f" after {after}")
            raise fail(
                FailureCode.STALE_WRITER_POSITION,
                f"{self._where()}: writer {self.id} is at {handed}, {wanted} does not follow",
                position=handed,
            )
        self._dialect.check(handed, number, data)
        return number

    async def over_so_far(self) -> None:
        """Wait until what was handed over before is over."""
        if self._pending:
            await self._pending.last.over.wait()

    async def settled(self) -> None:
        """Wait until all that was handed over is over, and what waits to be."""
        while self.busy:
            if self._pending or self._running:
                await self._idle.park()
            else:
                async with self._entrance:
                    pass

    def forget(self) -> None:
        """The next append asks the server again where this writer is, unless appends are under way."""
        if not self._running:
            self._drop_line()
            self._handed = None

    # ---- the line ----------------------------------------------------------------------------------------------------

    async def _know(self, came: float) -> None:
        """Set the writer up, with nothing in flight; where something is, it is known.

        It is tried again as appends are. Who `came` before that was given up fails with it, and does not try for as
        long once more. Raises OperationFailed: nothing was appended.
        """
        if self._handed is not None and (self._running or self._line is not None):
            return
        if self._given_up is not None and came <= self._given_up[0]:
            raise OperationFailed(self._given_up[1])
        policy = RetryPolicy(attempts=_ATTEMPTS, total_seconds=self._settings.recover_seconds)
        try:
            await retrying(self._begin, policy, idempotent=True, back=self._settings.upstream.name)
        except OperationFailed as error:
            failure = error.failure
            if failure.retryable:
                failure = Failure(FailureCode.HOT_SERVER, failure.message)
            self._given_up = trio.current_time(), failure
            raise OperationFailed(failure) from None

    async def _begin(self) -> None:
        try:
            await self._set_up()
            if self._knows_ends and self._pending.end is None:
                self._pending.end = await self._stores.length(self.segment)
        except BaseException:
            self._drop_line()
            self._handed = None
            raise

    async def _set_up(self) -> None:
        """Take a line, and hear where the writer is. Settles what is pending by that. Raises OperationFailed."""
        self._drop_line()
        self._fault = None
        token = await self._stores.token(self.segment)
        self._lines = await self._stores.lines(self.segment)
        try:
            self._line = await self._lines.take(Kind.APPENDS)
        except OperationFailed:
            self._stores.moved(self.segment)
            raise
        self._using = True
        line = self._line
        try:
            line.set_up()
            seconds = self._lines.upstream.settings.request_seconds
            reply = await line.ask(lambda key: self._dialect.setup(key, self.id, self.segment, token), seconds)
            failure = self._stores.failure_of(reply, self._lines, self.segment)
            if failure is not None:
                raise OperationFailed(failure)
        except BaseException:
            self._drop_line()
            raise
        self._key = line.next_id()
        line.listen(self._key, self)
        if not line.exclusive:
            line.listen(self.id, self)
        await self._stand_at(self._dialect.level(reply))

    async def _stand_at(self, level: int) -> None:
        """The server has stored everything up to `level`: what of that is pending is done, the rest is to be sent."""
        pending = self._pending
        pending.sent = 0
        done = pending.up_to(level)
        pending.settle(done, await self._ends_of(done))
        if not pending:
            pending.end = pending.end if pending.stored == level else None
            self._handed = pending.stored = level
            return
        if not self._dialect.resume(pending.stored, level, pending.first):
            message = f"{self._where()}: writer {self.id} is at {level}, not at {pending.stored}"
            self._fail_all(Failure(FailureCode.STALE_WRITER_POSITION, message, {"position": level}))
            return
        for slot in pending.mismatched():
            self._refuse(slot)

    async def _ends_of(self, done: list[Slot]) -> list[int | None]:
        """Where the bytes of appends end that turned out to be stored: known where nobody else appended meanwhile."""
        end = self._pending.end
        if any(slot.expected is not None for slot in done):
            return [None if slot.expected is None else slot.expected + len(slot.data) for slot in done]
        if (
            done
            and end is not None
            and await self._stores.length(self.segment) - end == sum(len(slot.data) for slot in done)
        ):
            return ends_from(end, done)
        return [None] * len(done)

    def _release(self) -> None:
        """Nothing is in flight: others may use the line. A released writer stays set up on it."""
        line = self._line
        if line is None or self._lines is None or not self._using:
            return
        self._using = False
        if line.exclusive:
            line.forget(self._key)
            self._line = None
        self._lines.leave(line)

    def _drop_line(self) -> None:
        """The line is of no use to this writer any more."""
        line, self._line = self._line, None
        if line is None or self._lines is None:
            return
        line.forget(self._key)
        line.forget(self.id)
        if self._using:
            self._using = False
            if line.exclusive:
                line.give_up("its writer gave it up")
            self._lines.leave(line)

    # ---- sending -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Until nothing is pending."""
        try:
            await self._run_until_idle()
        finally:
            self._running = False
            self._idle.unpark_all()

    async def _run_until_idle(self) -> None:
        since: float | None = None
        pause = _FIRST_PAUSE
        while self._pending:
            progress = self._pending.stored
            try:
                await self._work()
                continue
            except OperationFailed as error:
                failure = error.failure
            self._drop_line()
            now = trio.current_time()
            if self._pending.stored != progress or since is None:
                since, pause = now, _FIRST_PAUSE
            if not self._is_worth_trying(failure) or now + pause - since > self._settings.recover_seconds:
                self._fail_all(failure)
                return
            tried_again(self._settings.upstream.name)
            _log.info("writer_recovers", segment=self.segment, reason=failure.message, appends=len(self._pending))
            await trio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._release()

    def _is_worth_trying(self, failure: Failure) -> bool:
        if self._settings.delivery is Delivery.REFUSE and self._pending.any_sent:
            return False
        return failure.retryable

    async def _work(self) -> None:
        """Send and wait until nothing is pending. Raises OperationFailed where the line, or the server, fails."""
        if self._line is None:
            await self._set_up()
        elif not self._using:
            assert self._lines is not None, "it has a line"
            self._line.users += 1
            self._using = True
        while self._pending:
            self._news = trio.Event()
            if self._fault is not None:
                raise OperationFailed(self._fault)
            self._send_some()
            assert self._line is not None, "it was set up"
            await self._line.room()
            await self._wait()

    def _send_some(self) -> None:
        line = self._line
        assert line is not None, "it was set up"
        for slot in self._pending.unsent():
            if self._fault is not None:
                return
            try:
                line.say(*self._dialect.append(self.id, slot, self._key))
            except LocalProtocolError as error:
                line.give_up("a message was not complete")
                raise fail(FailureCode.NOT_REPRESENTABLE, f"{self._where()}: {error}") from None

    async def _wait(self) -> None:
        """For something to do. Raises UPSTREAM_TIMEOUT where the oldest append is not acknowledged in time."""
        pending = self._pending
        if self._fault is not None or not pending or pending.sent < len(pending):
            return
        assert self._lines is not None, "it was set up"
        oldest, settings = pending.first, self._lines.upstream.settings
        with trio.move_on_at(max(oldest.sent_at, pending.moved_at) + settings.request_seconds) as patience:
            await self._news.wait()
        if patience.cancelled_caught and pending and pending.first is oldest:
            failure = too_late(settings, "acknowledgement", settings.request_seconds)
            if self._line is not None:
                self._line.give_up("an append was not acknowledged")
            raise failure

    # ---- replies -----------------------------------------------------------------------------------------------------

    def take(self, reply: Any) -> None:
        """See `Listener`."""
        stored = self._dialect.stored(reply)
        if stored is not None:
            self._pending.acknowledge(*stored)
        elif isinstance(reply, released.ConditionalCheckFailed):
            self._check_failed(reply.event_number)
        elif isinstance(reply, released.InvalidEventNumber):
            self._fail_line(fail(FailureCode.UNAVAILABLE, f"{self._where()} has another number of the writer").failure)
        elif self._lines is not None:
            failure = self._stores.failure_of(reply, self._lines, self.segment)
            if failure is not None:
                expired = isinstance(reply, released.AuthTokenCheckFailed) and reply.error_code == _EXPIRED
                self._fail_line(Failure(FailureCode.HOT_SERVER, failure.message) if expired else failure)
        self._news.set()

    def lost(self, failure: Failure) -> None:
        """See `Listener`."""
        self._fail_line(failure)
        self._news.set()

    def _fail_line(self, failure: Failure) -> None:
        if self._running:
            self._fault = self._fault or failure
        else:
            self._drop_line()
            self._handed = None

    def _check_failed(self, number: int) -> None:
        """That append alone was not applied. Had it been sent before, it may be what moved the end: ask."""
        slot = self._pending.find(number)
        if slot is None:
            return
        if slot.sends > 1:
            slot.mismatched = True
            self._fail_line(fail(FailureCode.UNAVAILABLE, f"{self._where()}: has the append been stored?").failure)
            return
        self._refuse(slot)

    def _refuse(self, slot: Slot) -> None:
        """The number of an append that was not applied is free again."""
        message = f"{self._where()} does not end at {slot.expected}"
        self._pending.refuse(slot, Failure(FailureCode.OFFSET_MISMATCH, message))
        if self._handed == slot.number:
            self._handed = self._pending.last_number

    def _fail_all(self, failure: Failure) -> None:
        self.spoiled = self.spoiled or self._pending.any_sent
        self._pending.fail_all(failure)
        self._drop_line()
        self._handed = None

    def _where(self) -> str:
        upstream = self._settings.upstream if self._lines is None else self._lines.upstream.settings
        return f"{upstream.where}: segment {self.segment}"
