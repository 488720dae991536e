"""A worker's client of the store in its parent, as a `Back`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar

import trio

from penstock.app.workers.appends import RemoteAppends
from penstock.app.workers.calls import PendingCalls
from penstock.app.workers.channel import Channel
from penstock.app.workers.messages import (
    Acknowledgements,
    CallFailed,
    CallResult,
    Perform,
    Reconfigured,
    StreamFound,
    StreamUpdate,
)
from penstock.app.workers.reads import RemoteReads
from penstock.core.back import AppendSession, Back, ReadSession
from penstock.store.byte_reads import ByteReads
from penstock.store.reader import ReaderThreads
from penstock.store.settings import Clock, StoreSettings, wall_clock
from penstock_codecs.byte_operations import AppendBytes, ReadBytes
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Append, Capability, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["RemoteBack", "open_remote"]

R = TypeVar("R")

_CAPABILITIES: Final = frozenset(Capability)


class RemoteBack(Back):
    """A back over the store in the parent. Made by `open_remote`; pass every received message to `receive`."""

    def __init__(self, channel: Channel, settings: StoreSettings, reader: ReaderThreads, clock: Clock) -> None:
        self._calls = PendingCalls(channel)
        self._appends = RemoteAppends(channel, self._calls, clock, settings.append_inflight_bytes, settings.envelopes)
        self.reads = RemoteReads(
            channel, self._calls, reader, settings.read_ahead_batches, settings.tail_cache_bytes, clock
        )
        byte_reads = ByteReads(self.reads)
        self._here: dict[type[Operation[Any]], Callable[[Any], Awaitable[Any]]] = {
            Append: self._appends.append,
            AppendBytes: self._appends.append,
            ReadBytes: byte_reads.read,
        }
        self._handlers: dict[type, Callable[[Any], object]] = {
            Acknowledgements: self._acknowledged,
            CallFailed: self._failed,
            CallResult: self._done,
            StreamUpdate: self.reads.update,
            Reconfigured: self._appends.reconfigured,
        }

    # ---- Back ----

    @property
    def capabilities(self) -> frozenset[Capability]:
        """All capabilities."""
        return _CAPABILITIES

    async def perform(self, operation: Operation[R]) -> R:
        here = self._here.get(type(operation))
        result: R
        if here is not None:
            result = await here(operation)
        else:
            result = await self._calls.call(lambda call: Perform(call, operation))
        return result

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        return self._appends.session(stream, create_config, create_if_missing)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        return self.reads.session(read)

    # ---- messages from the parent ----

    def receive(self, message: Any) -> bool:
        """Handle a message from the parent. Return whether it was for this back."""
        handler = self._handlers.get(type(message))
        if handler is None:
            return False
        handler(message)
        return True

    def lose(self) -> None:
        """Fail all calls and appends: the parent is gone."""
        self._appends.lose()
        self._calls.lose()

    def _acknowledged(self, message: Acknowledgements) -> None:
        for one in message.some:
            self._appends.acknowledged(one)

    def _failed(self, message: CallFailed) -> None:
        if not self._appends.failed(message.call, message.failure):
            self._calls.answered(message)

    def _done(self, message: CallResult) -> None:
        if not self._calls.answered(message) and isinstance(message.result, StreamFound):
            self.reads.given_up(message.result)


@asynccontextmanager
async def open_remote(
    channel: Channel, settings: StoreSettings, clock: Clock = wall_clock
) -> AsyncIterator[RemoteBack]:
    """Open a client of the store in the process at the other end of `channel`, until the block ends; run the channel
    beside it. `settings`: the store's, but with this worker's share of its bounds."""
    reader = ReaderThreads(settings.directory, settings.reader_threads)
    error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            back = RemoteBack(channel, settings, reader, clock)
            back.reads.nursery = nursery
            nursery.start_soon(back.reads.report_usage)
            try:
                yield back
            except BaseException as raised:
                error = raised  # raised below: here the nursery would wrap it in an exception group
            nursery.cancel_scope.cancel()
    finally:
        reader.close()
    if error is not None:
        raise error
