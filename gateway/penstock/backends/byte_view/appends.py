"""Appends to streams at another server: bytes go through the stream's lane, records straight to the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import trio

from penstock.backends.byte_view.requests import ByteAppend
from penstock.backends.byte_view.sessions import ByteViewSession, sealed_before
from penstock.backends.byte_view.settings import BytesSettings
from penstock.backends.byte_view.streams import ByteStream, ByteStreams, Lane, OffsetCounter, Replaced, resolve_intents
from penstock.core.back import AppendSession, Back
from penstock.model.byte_operations import AppendBytes
from penstock.model.commands import trim_points
from penstock.model.failures import Failure, OperationFailed
from penstock.model.operations import Append, Appended
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig

__all__ = ["ByteViewAppends"]


class ByteViewAppends:
    """Carries out appends to all streams of one back."""

    def __init__(
        self,
        records: Back,
        streams: ByteStreams,
        counter: OffsetCounter,
        settings: BytesSettings,
        nursery: trio.Nursery,
    ) -> None:
        self._records = records
        self._streams = streams
        self._counter = counter
        self._settings = settings
        self._nursery = nursery

    # ---- bytes -----------------------------------------------------------------------------------------------------

    async def append_bytes(self, append: AppendBytes, pieces: tuple[bytes, ...] = ()) -> Appended:
        """Carry out `AppendBytes`. `pieces`: the bytes in parts that become records of their own; default: one part.

        Cancelling withdraws an append that still waits for its turn; a later one may still be executed.
        """
        stream = await self._streams.find(append.stream)
        request = ByteAppend(append, pieces=pieces or (append.data,))
        with stream.used():
            lane = await self.hand_over(stream, request)
            try:
                return await request.wait()
            except trio.Cancelled:
                lane.withdraw(request)
                raise

    async def hand_over(self, stream: ByteStream, request: ByteAppend) -> Lane:
        """Wait for room in the stream's lane, queue the append there, and return the lane."""
        while True:
            lane = self._lane(stream)
            await lane.room(request)
            if not lane.ended:
                lane.submit(request)
                return lane

    async def settle(self, stream: ByteStream) -> None:
        """Wait until all queued byte appends are settled, and find out which of the unacknowledged ones the back has.

        Raises OperationFailed if the back cannot be asked.
        """
        lane = stream.lane
        if lane is not None and lane.last is not None:
            await lane.last.wait_settled()
        await resolve_intents(stream, self._counter)

    async def settle_records(self, ref: StreamRef) -> None:
        """Wait until no append of records is in flight."""
        while self._streams.direct[ref]:
            await self._streams.settled.park()

    def _lane(self, stream: ByteStream) -> Lane:
        if stream.lane is None:
            stream.lane = Lane(stream, self._records, self._counter, self._settings)
            self._nursery.start_soon(stream.lane.run)
        return stream.lane

    # ---- records ---------------------------------------------------------------------------------------------------

    async def append(self, append: Append) -> Appended:
        """Carry out one append of records: not to a sealed stream, and not in the middle of a large append of bytes."""
        ref = append.stream
        if self._streams.several or self._streams.may_be_known(ref):
            await self.admit(append)
        self.begin(ref)
        try:
            appended = await self._records.perform(append)
        finally:
            self.done(ref, 1)
        if not await self.confirm(ref, [appended]):
            raise sealed_before(ref)
        return appended

    async def admit(self, append: Append) -> None:
        """Wait until records may be appended. Counts the bytes of records before an append that trims them.

        Raises STREAM_SEALED.
        """
        ref = append.stream
        if trim_points(append) and (stream := await self._streams.known(ref)) is not None:
            with suppress(Replaced):  # the next byte operation raises it again
                await self._counter.count_durably(stream)
        while (stream := await self._streams.for_records(ref)) is not None:
            large = None if stream.lane is None else stream.lane.large
            if large is None:
                return
            await large.wait_settled()

    async def confirm(self, ref: StreamRef, acknowledged: Sequence[Appended]) -> int:
        """Return how many of these appends of records came before any seal of another gateway."""
        end = await self._streams.sealed_end(ref)
        return len(acknowledged) if end is None else sum(appended.end.seq_num <= end for appended in acknowledged)

    def begin(self, ref: StreamRef) -> None:
        """Count an append of records as in flight to the back."""
        self._streams.direct[ref] += 1

    def done(self, ref: StreamRef, count: int) -> None:
        """Count `count` appends of records as no longer in flight."""
        self._streams.direct[ref] -= count
        if not self._streams.direct[ref]:
            del self._streams.direct[ref]
            self._streams.settled.unpark_all()

    @asynccontextmanager
    async def session(
        self, ref: StreamRef, create_config: StreamConfig | None, create_if_missing: bool
    ) -> AsyncIterator[ByteViewSession]:
        """Open an append session as `Back.append_session` does.

        If it may not create the stream, and the stream had a byte operation before, the session at the back is opened
        with the first append of records: clients that append bytes append none.
        """
        opening = self._records.append_session(ref, create_config, create_if_missing=create_if_missing)
        if create_if_missing or not await self._streams.has(ref):
            async with opening as inner:
                session = ByteViewSession(self, ref, inner)
                try:
                    yield session
                finally:
                    session.leave()
            return
        later = _Later(opening)
        session = ByteViewSession(self, ref, None, lambda: self._nursery.start(later.run))
        try:
            yield session
        finally:
            session.leave()
            later.over.set()

    async def find(self, ref: StreamRef) -> ByteStream:
        """Return the stream as `ByteStreams.find` does."""
        return await self._streams.find(ref)


class _Later:
    """A session at the back that is opened later, in a task of its own, and lasts until `over` is set."""

    def __init__(self, opening: AbstractAsyncContextManager[AppendSession]) -> None:
        self.over = trio.Event()
        self._opening = opening

    async def run(self, task_status: trio.TaskStatus[AppendSession | Failure]) -> None:
        """Open the session, report it or its failure, and keep it open until `over` is set."""
        try:
            async with self._opening as inner:
                task_status.started(inner)
                await self.over.wait()
        except OperationFailed as error:
            if not self.over.is_set():
                task_status.started(error.failure)
