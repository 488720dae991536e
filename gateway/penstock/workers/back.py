"""A worker's way to the store, as a `Back`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar

import trio

from penstock.backs.base import AppendSession, ReadSession
from penstock.store.byte_reads import ByteReads
from penstock.store.reader import Reader
from penstock.store.settings import Clock, StoreSettings, wall_clock
from penstock.workers.appends import RemoteAppends
from penstock.workers.calls import Calls
from penstock.workers.channel import Channel
from penstock.workers.messages import Acknowledgements, Done, Failed, Found, Perform, Reconfigured, State
from penstock.workers.reads import RemoteReads
from penstock_codecs.byte_operations import AppendBytes, ReadBytes
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Append, Capability, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["RemoteBack", "open_remote"]

R = TypeVar("R")

_CAPABILITIES: Final = frozenset(Capability)


class RemoteBack:
    """See `Back`. Made by `open_remote`; `receive` is to be given every message that comes."""

    def __init__(self, channel: Channel, settings: StoreSettings, reader: Reader, clock: Clock) -> None:
        self._calls = Calls(channel)
        self._appends = RemoteAppends(channel, self._calls, clock, settings.append_inflight_bytes, settings.envelopes)
        self.reads = RemoteReads(channel, self._calls, reader, settings.read_ahead_batches, settings.tail_cache_bytes)
        byte_reads = ByteReads(self.reads)
        self._here: dict[type[Operation[Any]], Callable[[Any], Awaitable[Any]]] = {
            Append: self._appends.append,
            AppendBytes: self._appends.append,
            ReadBytes: byte_reads.read,
        }
        self._handlers: dict[type, Callable[[Any], object]] = {
            Acknowledgements: self._acknowledged,
            Failed: self._failed,
            Done: self._done,
            State: self.reads.told,
            Reconfigured: self._appends.reconfigured,
        }

    # ---- see Back ----

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Everything."""
        return _CAPABILITIES

    async def perform(self, operation: Operation[R]) -> R:
        """See `Back.perform`."""
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
        """See `Back.append_session`."""
        return self._appends.session(stream, create_config, create_if_missing)

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        """See `Back.read_session`."""
        return self.reads.session(read)

    # ---- what the parent says ----

    def receive(self, message: Any) -> bool:
        """A message has come; gives whether it was for this."""
        handler = self._handlers.get(type(message))
        if handler is None:
            return False
        handler(message)
        return True

    def lose(self) -> None:
        """The parent has gone."""
        self._appends.lose()
        self._calls.lose()

    def _acknowledged(self, message: Acknowledgements) -> None:
        for one in message.some:
            self._appends.acknowledged(one)

    def _failed(self, message: Failed) -> None:
        if not self._appends.failed(message.call, message.failure):
            self._calls.answered(message)

    def _done(self, message: Done) -> None:
        if not self._calls.answered(message) and isinstance(message.result, Found):
            self.reads.given_up(message.result)


@asynccontextmanager
async def open_remote(
    channel: Channel, settings: StoreSettings, clock: Clock = wall_clock
) -> AsyncIterator[RemoteBack]:
    """The way to the store of the process at the other end of `channel`, until the block ends; the channel is to be run
    beside it. `settings`: the store's, but with this worker's share of what is bounded."""
    reader = Reader(settings.directory, settings.reader_threads)
    error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            back = RemoteBack(channel, settings, reader, clock)
            back.reads.nursery = nursery
            try:
                yield back
            except BaseException as raised:
                error = raised  # raised below: in here it would come out wrapped in an exception group
            nursery.cancel_scope.cancel()
    finally:
        reader.close()
    if error is not None:
        raise error
