"""Appends, alone or in sessions, and the writers of streams."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Final

import trio
from msgspec.structs import replace

from penstock.core.back import AppendSession
from penstock.core.clock import Clock
from penstock.core.encryption import EncryptionKey
from penstock.core.identity import CLIENT
from penstock.model.byte_operations import AppendBytes
from penstock.model.commands import trim_points
from penstock.model.failures import Failure, FailureCode, OperationFailed, fail
from penstock.model.operations import Append, Appended
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig, TimestampingMode
from penstock_s2.back.pending import PendingAppend, S2AppendChain
from penstock_s2.back.shared import Shared
from penstock_s2.back.writer import S2Writer
from penstock_s2.codec.validation import validate_append

__all__ = ["S2AppendSession", "S2Appends"]

MAX_UNRECEIVED: Final = 4096
"""Unreceived acknowledgements of one session above which `send` waits."""
_CLOSE_SECONDS: Final = 1.0
"""Seconds for which closing a back waits for its sessions with the server to end normally."""

_Key = tuple[StreamRef, str | None, EncryptionKey | None]


class S2Appends:
    """Appends of one back. Those to one stream with one token, and one encryption key, share a queue and a connection
    (`S2Writer.queue`)."""

    def __init__(self, shared: Shared, clock: Clock) -> None:
        self._shared = shared
        self._clock = clock
        self._writers: dict[_Key, S2Writer] = {}
        self._left = trio.lowlevel.ParkingLot()  # wait here for a writer to end

    async def append(self, append: Append) -> Appended:
        """Perform one append; see `Back.perform`.

        It takes its place in the queue before the first checkpoint, unless it trims, or needs a configuration that is
        not cached: to find that its stream exists or takes exact timestamps.
        """
        append = await self.prepare(append)
        with self.use(append.stream) as writer:
            over = trio.Event()
            pending = PendingAppend(append, S2AppendChain(), writer.queue, over.set)
            writer.queue.hand_over(pending)
            try:
                await over.wait()
            except trio.Cancelled:
                if not pending.settled:
                    writer.queue.withdraw(pending)
                raise
        if pending.failure is not None:
            raise OperationFailed(pending.failure)
        assert pending.result is not None
        return pending.result

    async def prepare(self, append: Append) -> Append:
        """Return the append as it is to be sent. Raises OperationFailed if it cannot be sent.

        Appends that must not create their stream get the gateway's clock if the stream requires timestamps and they
        have none: they come from protocols without timestamps.
        """
        validate_append(append)
        for seq_num in trim_points(append):
            await self._shared.locating.trimming(append.stream, seq_num)
        exact = append.exact_timestamp
        if exact is None and append.create_if_missing:
            return append
        config = await self._shared.configs.get(append.stream)
        if exact is None:
            return self.stamped(append, config)
        if config.timestamping_mode is TimestampingMode.ARRIVAL:
            reason = "the server stamps its records itself (timestamping mode arrival)"
        elif exact > self._clock() and not config.timestamping_uncapped:
            reason = "it is in the future, and the server would cap it (timestamping is not uncapped)"
        else:
            return append
        raise fail(
            FailureCode.NOT_REPRESENTABLE, f"timestamp {exact} is impossible in stream {append.stream}: {reason}"
        )

    def stamped(self, append: Append, config: StreamConfig) -> Append:
        """Return the append with the gateway's clock as its timestamps if it has none and the stream requires them."""
        if append.timestamps is not None or config.timestamping_mode is not TimestampingMode.CLIENT_REQUIRE:
            return append
        return replace(append, timestamps=[self._clock()] * len(append.bodies))

    @asynccontextmanager
    async def session(
        self, stream: StreamRef, create_config: StreamConfig | None, create_if_missing: bool
    ) -> AsyncIterator[S2AppendSession]:
        """Open a session of pipelined appends to one stream; see `Back.append_session`."""
        if not create_if_missing:
            await self._shared.configs.get(stream)
        with self.use(stream) as writer:
            await writer.ready(create_config)
            session = S2AppendSession(self, writer)
            try:
                yield session
            finally:
                session.leave()

    @contextmanager
    def use(self, stream: StreamRef) -> Iterator[S2Writer]:
        """Use the stream's writer for the token and the key of the current task's client, while the block runs."""
        key = stream, self._shared.calls.token(), CLIENT.get().encryption_key
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = S2Writer(self._shared, stream, partial(self._forget, key))
            self._shared.nursery.start_soon(writer.run)
        writer.users += 1
        try:
            yield writer
        finally:
            writer.users -= 1
            writer.queue.wake()

    def _forget(self, key: _Key) -> None:
        del self._writers[key]
        self._left.unpark_all()

    async def finish(self) -> None:
        """End the sessions with the server, idle ones at once; cancel those that take over a second.

        No more appends may be handed over.
        """
        with trio.move_on_after(_CLOSE_SECONDS):
            while self._writers:
                for writer in self._writers.values():
                    writer.queue.stop_lingering()
                await self._left.park()


class S2AppendSession(AppendSession):
    """An append session with an S2 server, over the queue of its stream."""

    def __init__(self, appending: S2Appends, writer: S2Writer) -> None:
        self._appending = appending
        self._queue = writer.queue
        self._chain = S2AppendChain()
        self._pending: deque[PendingAppend] = deque()
        self._settled = trio.lowlevel.ParkingLot()  # woken when an append is settled, or at the end
        self._received = trio.lowlevel.ParkingLot()  # woken when acknowledgements are received
        self._failure: Failure | None = None
        self._closed = False

    async def send(self, append: Append | AppendBytes) -> None:
        if isinstance(append, AppendBytes):
            raise fail(FailureCode.NOT_IMPLEMENTED, "an S2 server has no bytes outside records")
        while len(self._pending) >= MAX_UNRECEIVED and not self._broken:
            await self._received.park()
        if self._broken:
            await trio.lowlevel.checkpoint()
            return
        pending = PendingAppend(append, self._chain, self._queue, self._settled.unpark_all)
        self._pending.append(pending)
        try:
            pending.append = await self._appending.prepare(append)
        except OperationFailed as error:
            pending.fail(error.failure)
            return
        except trio.Cancelled:
            self._pending.remove(pending)
            raise
        self._queue.hand_over(pending)
        if pending.started:
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        try:
            await pending.wait_started()
        except trio.Cancelled:
            if self._queue.withdraw(pending) and self._failure is None:
                self._pending.remove(pending)
                self._settled.unpark_all()
            raise

    @property
    def _broken(self) -> bool:
        return self._chain.broken_at is not None

    def close(self) -> None:
        self._closed = True
        self._settled.unpark_all()

    def leave(self) -> None:
        """Withdraw the appends that were not sent yet: the client is gone."""
        for pending in self._pending:
            if not pending.settled:
                self._queue.withdraw(pending)

    async def receive(self) -> list[Appended]:
        await trio.lowlevel.checkpoint_if_cancelled()  # before they are taken: later they would be lost
        while True:
            if acknowledged := self._take_acknowledged():
                return acknowledged
            if self._pending and (failure := self._pending[0].failure) is not None:
                self._failure = failure
                self._pending.clear()
                self._received.unpark_all()
            if self._failure is not None:
                await trio.lowlevel.checkpoint()
                raise OperationFailed(self._failure)
            if self._closed and not self._pending:
                await trio.lowlevel.checkpoint()
                return []
            await self._settled.park()

    def _take_acknowledged(self) -> list[Appended]:
        acknowledged = []
        while self._pending and (appended := self._pending[0].result) is not None:
            acknowledged.append(appended)
            self._pending.popleft()
        if acknowledged:
            self._received.unpark_all()
        return acknowledged
