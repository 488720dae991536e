"""The parent's side of one worker: performs its operations in the store, and sends it news of the streams that it
reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from penstock.app.workers.channel import Channel
from penstock.app.workers.messages import (
    Acknowledged,
    Acknowledgements,
    CallFailed,
    CallResult,
    Cancel,
    Close,
    Find,
    HandOver,
    Leave,
    Open,
    Perform,
    Reconfigured,
    SessionOpened,
    StreamFound,
    Used,
)
from penstock.app.workers.stream_feeds import StreamFeeds
from penstock.backends.embedded import EmbeddedBack
from penstock.store.append_sessions import AppendChain, KeyedAppend
from penstock.store.committer import Ticket
from penstock.store.heads import StoredStream
from penstock.store.optimistic import PreparedAppend
from penstock.store.store import Store
from penstock_codecs.byte_operations import AppendBytes
from penstock_codecs.failures import Failure, OperationFailed
from penstock_codecs.operations import Append, Appended
from penstock_codecs.streams import StreamConfig

__all__ = ["Hub"]


class _StoreSession:
    """One append session of the worker, on one stream."""

    def __init__(self, stream: StoredStream) -> None:
        self.stream = stream
        self.config: StreamConfig = stream.config
        self.chain = AppendChain()
        self.closed = trio.Event()


class _Receipt(Ticket[Appended]):
    """Sends the outcome of an append to the worker."""

    __slots__ = ("_call", "_hub")

    def __init__(self, hub: Hub, call: int) -> None:
        super().__init__()
        self._hub = hub
        self._call = call

    def resolve(self, result: Appended) -> None:
        self._hub.acknowledge(self._call, result)

    def fail(self, failure: Failure) -> None:
        self._hub.post(CallFailed(self._call, failure))


class Hub:
    """Serves one worker, from `run` until its channel ends."""

    def __init__(self, channel: Channel, back: EmbeddedBack) -> None:
        self.channel = channel
        self._back = back
        self._store: Store = back.store
        self._nursery: trio.Nursery
        self._feeds: StreamFeeds
        self._calls: dict[int, trio.CancelScope] = {}
        self._sessions: dict[int, _StoreSession] = {}
        self._acknowledged: list[Acknowledged] = []
        channel.before_sending = self._send_acknowledgements
        self._handlers: dict[type, Callable[[Any], None]] = {
            tuple: self._prepared,
            HandOver: self._hand_over,
            Perform: self._perform,
            Open: self._open,
            Close: self._close,
            Find: self._find,
            Leave: self._leave,
            Cancel: self._cancel,
            Used: self._used,
        }

    async def run(self, otherwise: Callable[[Any], None]) -> None:
        """Serve until the worker ends or this is cancelled. Messages that do not concern the store go to
        `otherwise`."""

        def receive(message: Any) -> None:
            self._handlers.get(type(message), otherwise)(message)

        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._feeds = StreamFeeds(self.channel, nursery)
            try:
                await self.channel.run(receive)
            finally:
                self._feeds.close()
                nursery.cancel_scope.cancel()

    def post(self, message: object) -> None:
        """Send a message to the worker, after all earlier acknowledgements."""
        self._send_acknowledgements()
        self.channel.post(message)

    # ---- appends ----

    def _prepared(self, message: tuple[Any, ...]) -> None:
        self._enter(message[0], message[1], PreparedAppend._make(message[2:]))

    def _hand_over(self, message: HandOver) -> None:
        self._enter(*message)

    def _enter(self, call: int, number: int, append: Append | AppendBytes | KeyedAppend | PreparedAppend) -> None:
        appends, receipt = self._store.appends, _Receipt(self, call)
        if not number:
            appends.admission.enter(appends.requested(append, None, AppendChain(), receipt))
            return
        session = self._sessions[number]
        if session.stream.config is not session.config:
            session.config = session.stream.config
            self.post(Reconfigured(number, session.config))
        appends.admission.enter(appends.requested(append, session.stream, session.chain, receipt))

    def acknowledge(self, call: int, appended: Appended) -> None:
        """Acknowledge a durable append to the worker, batched with others."""
        first, end, tail = appended.start, appended.end, appended.tail
        last_id, offset = appended.last_id, appended.offset
        assert last_id is not None and offset is not None
        if not self._acknowledged:
            self.channel.wake()
        self._acknowledged.append((call, *first, *end, last_id.seq, offset, *tail))

    def _send_acknowledgements(self) -> None:
        if self._acknowledged:
            self.channel.post(Acknowledgements(self._acknowledged))
            self._acknowledged = []

    def _open(self, message: Open) -> None:
        self._calls[message.call] = scope = trio.CancelScope()
        self._nursery.start_soon(self._session, message, scope)

    async def _session(self, message: Open, scope: trio.CancelScope) -> None:
        """Hold an append session open from `Open` to `Close`, or until a `Cancel` that comes before it is open."""
        appends = self._store.appends
        with scope:
            try:
                async with appends.place(
                    message.stream, message.create_config, message.create_if_missing, message.key
                ) as stream:
                    session = self._sessions[message.session] = _StoreSession(stream)
                    del self._calls[message.call]
                    self.post(CallResult(message.call, SessionOpened(stream.id, stream.head, session.config)))
                    await session.closed.wait()
            except OperationFailed as error:
                self.post(CallFailed(message.call, error.failure))
            finally:
                self._calls.pop(message.call, None)
                self._sessions.pop(message.session, None)

    def _close(self, message: Close) -> None:
        session = self._sessions.get(message.session)
        if session is not None:
            session.closed.set()

    # ---- other operations ----

    def _perform(self, message: Perform) -> None:
        self._start(message.call, self._back.perform, message.operation)

    def _find(self, message: Find) -> None:
        stream = self._store.reads.there(message.stream)
        if stream is None:
            self._start(message.call, self._begin_feed, message)
            return
        self._feeds.refresh(message.stream)  # the usual case, which needs no task
        self._feeds.add(stream)
        self.post(CallResult(message.call, StreamFound(stream.id)))

    async def _begin_feed(self, message: Find) -> StreamFound:
        try:
            stream = await self._store.reads.find_stream(
                message.stream, message.create_if_missing, message.create_config
            )
        finally:
            self._feeds.refresh(message.stream)
        self._feeds.add(stream)
        return StreamFound(stream.id)

    def _used(self, message: Used) -> None:
        self._store.usage.put_back(message.sums)

    def _leave(self, message: Leave) -> None:
        self._feeds.leave(message.stream)

    def _start(self, call: int, function: Callable[[Any], Awaitable[Any]], argument: Any) -> None:
        self._calls[call] = scope = trio.CancelScope()
        self._nursery.start_soon(self._answer, call, scope, function, argument)

    async def _answer(
        self, call: int, scope: trio.CancelScope, function: Callable[[Any], Awaitable[Any]], argument: Any
    ) -> None:
        with scope:
            try:
                self.post(CallResult(call, await function(argument)))
            except OperationFailed as error:
                self.post(CallFailed(call, error.failure))
            finally:
                del self._calls[call]

    def _cancel(self, message: Cancel) -> None:
        scope = self._calls.get(message.call)
        if scope is not None:
            scope.cancel()
