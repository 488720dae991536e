"""Appends to streams at another server: of bytes through the stream's lane, of records straight to the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import trio

from penstock.backs.base import AppendSession, Back
from penstock.backs.bytes_on_records.counting import Counter, Replaced
from penstock.backs.bytes_on_records.lanes import Lane
from penstock.backs.bytes_on_records.requests import Request
from penstock.backs.bytes_on_records.resolving import resolve
from penstock.backs.bytes_on_records.sessions import Session
from penstock.backs.bytes_on_records.settings import BytesSettings
from penstock.backs.bytes_on_records.streams import Stream, Streams
from penstock_codecs.byte_operations import AppendBytes
from penstock_codecs.failures import Failure, FailureCode, OperationFailed, fail
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Append, Appended
from penstock_codecs.s2.validation import trims
from penstock_codecs.streams import StreamConfig

__all__ = ["Appends"]


class Appends:
    """Of all streams of one back."""

    def __init__(
        self, records: Back, streams: Streams, counter: Counter, settings: BytesSettings, nursery: trio.Nursery
    ) -> None:
        self._records = records
        self._streams = streams
        self._counter = counter
        self._settings = settings
        self._nursery = nursery

    # ---- bytes -----------------------------------------------------------------------------------------------------

    async def append_bytes(self, append: AppendBytes, pieces: tuple[bytes, ...] = ()) -> Appended:
        """See `AppendBytes`. `pieces`: the bytes in parts that become records each by itself; all in one, else.

        Cancelled while it waits for its turn it is withdrawn; later it may be carried out all the same.
        """
        stream = await self._streams.find(append.stream)
        request = Request(append, pieces=pieces or (append.data,))
        with stream.used():
            lane = await self.hand_over(stream, request)
            try:
                return await request.wait()
            except trio.Cancelled:
                lane.withdraw(request)
                raise

    async def hand_over(self, stream: Stream, request: Request) -> Lane:
        """Give an append its place in the stream's lane."""
        while True:
            lane = self._lane(stream)
            await lane.room(request)
            if not lane.ended:
                lane.submit(request)
                return lane

    async def settle(self, stream: Stream) -> None:
        """Wait until all that was handed over is settled, and known. Raises OperationFailed where it cannot be."""
        lane = stream.lane
        if lane is not None and lane.last is not None:
            await lane.last.wait_settled()
        await resolve(stream, self._counter)

    async def settle_records(self, ref: StreamRef) -> None:
        """Wait until no append of records is under way."""
        while self._streams.direct[ref]:
            await self._streams.settled.park()

    def _lane(self, stream: Stream) -> Lane:
        if stream.lane is None:
            stream.lane = Lane(stream, self._records, self._counter, self._settings)
            self._nursery.start_soon(stream.lane.run)
        return stream.lane

    # ---- records ---------------------------------------------------------------------------------------------------

    async def append(self, append: Append) -> Appended:
        """One append of records: not to a sealed stream, and not into the middle of a large append of bytes."""
        ref = append.stream
        if self._streams.may_be_known(ref):
            await self.admit(append)
        self.begin(ref)
        try:
            return await self._records.perform(append)
        finally:
            self.done(ref, 1)

    async def admit(self, append: Append) -> None:
        """Wait until records may be appended. Raises STREAM_SEALED. Before records go, their bytes are counted."""
        ref = append.stream
        if trims(append) and (stream := await self._streams.known(ref)) is not None:
            with suppress(Replaced):  # whoever asks for its bytes next learns of it
                await self._counter.count_durably(stream)
        while (stream := await self._streams.known(ref)) is not None:
            if stream.sealing:
                raise fail(FailureCode.STREAM_SEALED, f"stream {ref} is sealed")
            large = None if stream.lane is None else stream.lane.large
            if large is None:
                return
            await large.wait_settled()

    def begin(self, ref: StreamRef) -> None:
        """An append of records is on its way to the back."""
        self._streams.direct[ref] += 1

    def done(self, ref: StreamRef, count: int) -> None:
        """So many are over."""
        self._streams.direct[ref] -= count
        if not self._streams.direct[ref]:
            del self._streams.direct[ref]
            self._streams.settled.unpark_all()

    @asynccontextmanager
    async def session(
        self, ref: StreamRef, create_config: StreamConfig | None, create_if_missing: bool
    ) -> AsyncIterator[Session]:
        """See `Back.append_session`. Where it cannot create the stream, and that has been one of bytes before, nothing
        is begun at the back before there are records to be appended: segment clients append none."""
        opening = self._records.append_session(ref, create_config, create_if_missing=create_if_missing)
        if create_if_missing or await self._streams.known(ref) is None:
            async with opening as inner:
                session = Session(self, ref, inner)
                try:
                    yield session
                finally:
                    session.leave()
            return
        later = _Later(opening)
        session = Session(self, ref, None, lambda: self._nursery.start(later.run))
        try:
            yield session
        finally:
            session.leave()
            later.over.set()

    async def find(self, ref: StreamRef) -> Stream:
        """See `Streams.find`."""
        return await self._streams.find(ref)


class _Later:
    """A session at the back that lasts until its user is over with it, in a task of its own."""

    def __init__(self, opening: AbstractAsyncContextManager[AppendSession]) -> None:
        self.over = trio.Event()
        self._opening = opening

    async def run(self, task_status: trio.TaskStatus[AppendSession | Failure]) -> None:
        """Open it, or say why not, and wait for the end."""
        try:
            async with self._opening as inner:
                task_status.started(inner)
                await self.over.wait()
        except OperationFailed as error:
            if not self.over.is_set():
                task_status.started(error.failure)
