"""One writer of one segment: its appends in order, pipelined, stored exactly once (segment fact sheet, 1.4).

All who append as this writer share it, so their appends keep their order. After a lost connection the writer is set up
on another: the server says up to which number it has stored, and the rest is sent again. Messages that arrive late on
the old connection are refused by the server, since each append is conditional on the number before it.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID, uuid4

import structlog
import trio

from penstock.core.delivery import Delivery
from penstock.model.byte_operations import NO_ATTRIBUTE
from penstock.model.failures import Failure, FailureCode, LocalProtocolError, OperationFailed, fail
from penstock.net.retries import RetryPolicy, retrying, tried_again, worth_retrying
from penstock.net.upstream import too_late
from penstock_pravega.codec import released
from penstock_pravega.segment.back.connection import DRAFT_KEY, ReplyReceiver, StoreConnection
from penstock_pravega.segment.back.dialects import APPEND_DIALECTS, AppendDialect
from penstock_pravega.segment.back.in_flight import AppendInFlight, UnsettledAppends, ends_from
from penstock_pravega.segment.back.pool import ConnectionPool, ConnectionUse
from penstock_pravega.segment.back.stores import SegmentStores

__all__ = ["StoreWriter"]

_log = structlog.get_logger()

_EXPIRED: Final = 1
"""Error code of a delegation token that has expired (1.3)."""
_ATTEMPTS: Final = 1_000_000
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
"""Seconds between attempts to recover a writer; they double."""


class StoreWriter(ReplyReceiver):
    """Writer of one segment. `client_id` identifies a client's writer to the server; None: the gateway's own writer.

    The gateway's own writer takes a new identifier once appends were given up that the server may still receive: their
    numbers would be taken for those of later appends. It requests the segment's length before the first append, so that
    one acknowledgement for several appends tells the end of each.
    """

    def __init__(self, stores: SegmentStores, segment: str, client_id: UUID | None = None) -> None:
        self._stores = stores
        self._settings = stores.settings
        self._dialect: AppendDialect = APPEND_DIALECTS[stores.settings.dialect]
        self._own = client_id is None
        self._id = client_id or uuid4()
        self.segment = segment
        self._pending = UnsettledAppends(one_in_flight=self._own and stores.settings.one_in_flight)
        self._handed: int | None = None  # number of the last append handed over; None: ask the server
        self._refused = NO_ATTRIBUTE  # highest number of an append whose condition failed
        self._connection: StoreConnection | None = None
        self._pool: ConnectionPool | None = None
        self._key = DRAFT_KEY
        self._using = False
        self._fault: Failure | None = None
        self._running = False
        self._entrance = trio.Lock()
        self._given_up: tuple[float, Failure] | None = None  # when it could not be set up, and the failure
        self._idle = trio.lowlevel.ParkingLot()
        self._news = trio.Event()

    # ---- submitting --------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True while appends are in flight or wait to be."""
        return bool(self._pending) or self._running or self._entrance.locked()

    async def ready(self) -> None:
        """Set the writer up at the server if necessary. Raises OperationFailed, such as STREAM_NOT_FOUND."""
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
    ) -> AppendInFlight:
        """Enqueue an append and return it once its place is fixed; `over` is set when it is settled.

        `position`: the writer's number after it; None: the next one. `after`: the number that must be the writer's
        before it. Waits while too much is in flight, first come first served. Raises OperationFailed if it was not
        accepted and nothing was sent, such as STALE_WRITER_POSITION (details: position).
        """
        came = trio.current_time()
        async with self._entrance:
            await self._pending.room(len(data), self._settings.append_inflight_bytes)
            await self._know(came)
            try:
                slot = AppendInFlight(data, self._number(data, count, position, after), count, expected)
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
        handed = self._handed
        assert handed is not None, "a count from 0 would repeat the numbers of stored appends"
        used = max(handed, self._refused)  # numbers rise on a connection, those of refused appends included
        number = self._dialect.next_number(used, len(data), count) if position is None else position
        if number <= handed or (after is not None and after != handed):
            wanted = f"position {number}" + ("" if after is None else f" after {after}")
            raise fail(
                FailureCode.STALE_WRITER_POSITION,
                f"{self._where()}: writer {self._id} is at {handed}, and {wanted} does not follow",
                position=handed,
            )
        self._dialect.check(handed, number, data)
        return number

    async def over_so_far(self) -> None:
        """Wait until the appends handed over so far are settled."""
        if self._pending:
            await self._pending.last.over.wait()

    async def settled(self) -> None:
        """Wait until all appends are settled, those that wait to be handed over too."""
        while self.busy:
            if self._pending or self._running:
                await self._idle.park()
            else:
                async with self._entrance:
                    pass

    def forget(self) -> None:
        """Make the next append ask the server for the writer's number again, unless appends are in flight."""
        if not self._running:
            self._drop_line()
            self._handed = None

    # ---- the connection ----------------------------------------------------------------------------------------------

    async def _know(self, came: float) -> None:
        """Set the writer up if nothing is in flight and its number is unknown.

        It is retried as appends are. A caller that `came` before an attempt failed fails with it, instead of retrying
        for as long again. Raises OperationFailed: nothing was appended.
        """
        if self._handed is not None and (self._running or self._connection is not None):
            return
        if self._given_up is not None and came <= self._given_up[0]:
            raise OperationFailed(self._given_up[1])
        policy = RetryPolicy(attempts=_ATTEMPTS, total_seconds=self._settings.recover_seconds)
        try:
            await retrying(self._begin, policy, idempotent=True, back=self._settings.upstream.name)
        except OperationFailed as error:
            failure = error.failure
            if worth_retrying(failure):
                failure = Failure(FailureCode.HOT_SERVER, failure.message, failure.details)
            self._given_up = trio.current_time(), failure
            raise OperationFailed(failure) from None

    async def _begin(self) -> None:
        try:
            await self._set_up()
            if self._own and self._pending.end is None:
                self._pending.end = await self._stores.length(self.segment)
            if self._handed is None:  # `lost` was called meanwhile
                raise fail(FailureCode.UNAVAILABLE, f"{self._where()}: the connection was lost during the setup")
        except BaseException:
            self._drop_line()
            self._handed = None
            raise

    async def _set_up(self) -> None:
        """Take a connection, set the writer up, and settle appends by the number that the server reports.

        Raises OperationFailed.
        """
        self._drop_line()
        self._fault = None
        token = await self._stores.token(self.segment)
        self._pool = await self._stores.pool(self.segment)
        try:
            self._connection = await self._pool.take(ConnectionUse.APPENDS)
        except OperationFailed:
            self._stores.moved(self.segment)
            raise
        self._using = True
        connection = self._connection
        try:
            connection.set_up()
            seconds = self._pool.upstream.settings.request_seconds
            reply = await connection.ask(lambda key: self._dialect.setup(key, self._id, self.segment, token), seconds)
            failure = self._stores.failure_of(reply, self._pool, self.segment)
            if failure is not None:
                raise OperationFailed(failure)
        except BaseException:
            self._drop_line()
            raise
        self._key = connection.next_id()
        connection.listen(self._key, self)
        if not connection.exclusive:
            connection.listen(self._id, self)
        await self._stand_at(self._dialect.level(reply))

    async def _stand_at(self, level: int) -> None:
        """Settle the appends up to `level`, which the server has stored; the rest is to be sent again."""
        pending = self._pending
        pending.sent = 0
        done = pending.up_to(level)
        pending.settle(done, await self._ends_of(done))
        if not pending:
            pending.end = pending.end if pending.stored == level else None
            self._handed = pending.stored = level
            return
        if not self._dialect.resume(pending.stored, level, pending.first):
            message = f"{self._where()}: writer {self._id} is at {level}, not at {pending.stored}"
            self._fail_all(Failure(FailureCode.STALE_WRITER_POSITION, message, {"position": level}))
            return
        for slot in pending.mismatched():
            self._refuse(slot)

    async def _ends_of(self, done: list[AppendInFlight]) -> list[int | None]:
        """Return the ends of appends that turned out to be stored: known if no other writer appended meanwhile."""
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
        """Let others use the connection, because nothing is in flight.

        The writer stays set up on it, except in the draft.
        """
        connection = self._connection
        if connection is None or self._pool is None or not self._using:
            return
        self._using = False
        if connection.exclusive:
            connection.forget(self._key)
            self._connection = None
        self._pool.leave(connection)

    def _drop_line(self) -> None:
        """Abandon the connection."""
        connection, self._connection = self._connection, None
        if connection is None or self._pool is None:
            return
        connection.forget(self._key)
        connection.forget(self._id)
        if self._using:
            self._using = False
            if connection.exclusive:
                connection.give_up("its writer gave it up")
            self._pool.leave(connection)

    # ---- sending -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Send appends until none is pending."""
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
        return worth_retrying(failure)

    async def _work(self) -> None:
        """Send and wait until nothing is pending. Raises OperationFailed if the connection or the server fails."""
        if self._connection is None:
            await self._set_up()
        elif not self._using:
            assert self._pool is not None, "it has a connection"
            self._connection.users += 1
            self._using = True
        while self._pending:
            self._news = trio.Event()
            if self._fault is not None:
                raise OperationFailed(self._fault)
            self._send_some()
            assert self._connection is not None, "it was set up"
            await self._connection.room()
            await self._wait()

    def _send_some(self) -> None:
        connection = self._connection
        assert connection is not None, "it was set up"
        for slots in self._pending.unsent():
            if self._fault is not None:
                return
            try:
                connection.send(*self._dialect.append(self._id, slots, self._key))
            except LocalProtocolError as error:
                connection.give_up("a message was not complete")
                raise fail(FailureCode.NOT_REPRESENTABLE, f"{self._where()}: {error}") from None

    async def _wait(self) -> None:
        """Wait for something to do. Raises UPSTREAM_TIMEOUT if the oldest append is not acknowledged in time."""
        pending = self._pending
        if self._fault is not None or not pending or pending.next_to_send is not None:
            return
        assert self._pool is not None, "it was set up"
        oldest, settings = pending.first, self._pool.upstream.settings
        with trio.move_on_at(max(oldest.sent_at, pending.moved_at) + settings.request_seconds) as patience:
            await self._news.wait()
        if patience.cancelled_caught and pending and pending.first is oldest:
            self._pool.upstream.breaker.lost("an append was not acknowledged in time")
            if self._connection is not None:
                self._connection.give_up("an append was not acknowledged")
            raise too_late(settings, "acknowledgement", settings.request_seconds)

    # ---- replies -----------------------------------------------------------------------------------------------------

    def take(self, reply: Any) -> None:
        stored = self._dialect.stored(reply)
        if stored is not None:
            self._pending.acknowledge(*stored)
        elif isinstance(reply, released.ConditionalCheckFailed):
            self._check_failed(reply.event_number)
        elif isinstance(reply, released.InvalidEventNumber):
            self._fail_line(fail(FailureCode.UNAVAILABLE, f"{self._where()} has another position of it").failure)
        elif self._pool is not None:
            failure = self._stores.failure_of(reply, self._pool, self.segment)
            if failure is not None:
                expired = isinstance(reply, released.AuthTokenCheckFailed) and reply.error_code == _EXPIRED
                self._fail_line(Failure(FailureCode.HOT_SERVER, failure.message) if expired else failure)
        self._news.set()

    def lost(self, failure: Failure) -> None:
        self._fail_line(failure)
        self._news.set()

    def _fail_line(self, failure: Failure) -> None:
        if self._running:
            self._fault = self._fault or failure
        else:
            self._drop_line()
            self._handed = None

    def _check_failed(self, number: int) -> None:
        """Handle a failed condition: that append alone was not applied.

        If it was sent more than once, an earlier try may itself have moved the end: reconnect to find out.
        """
        slot = self._pending.find(number)
        if slot is None:
            return
        if slot.sends > 1:
            slot.mismatched = True
            self._fail_line(fail(FailureCode.UNAVAILABLE, f"{self._where()}: has the append been stored?").failure)
            return
        self._refuse(slot)

    def _refuse(self, slot: AppendInFlight) -> None:
        """Fail an append whose condition does not hold: the writer is where it was before."""
        message = f"{self._where()} does not end at {slot.expected}"
        self._pending.refuse(slot, Failure(FailureCode.OFFSET_MISMATCH, message))
        self._refused = max(self._refused, slot.number)
        if self._handed == slot.number:
            self._handed = self._pending.last_number

    def _fail_all(self, failure: Failure) -> None:
        renewed = self._own and self._pending.any_sent
        self._pending.fail_all(failure)
        self._drop_line()
        self._handed = None
        if renewed:
            self._id = uuid4()
            self._refused = NO_ATTRIBUTE

    def _where(self) -> str:
        upstream = self._settings.upstream if self._pool is None else self._pool.upstream.settings
        return f"{upstream.where}: segment {self.segment}"
