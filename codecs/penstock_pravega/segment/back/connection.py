"""Connections to segment stores, which pass each reply to the listener for its request.

Released replies carry their request's id, so any number of requests share a connection, parked reads too; a real server
answers them in any order. The draft has no ids, so there a connection has one user at a time, who gets every reply.

A server that answers a request with the wrong kind of reply is not trusted with another: the connection is closed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol
from uuid import UUID

import trio

from penstock.model.failures import (
    Failure,
    FailureCode,
    LocalProtocolError,
    OperationFailed,
    RemoteProtocolError,
    fail,
)
from penstock.model.limits import MIB
from penstock.net.transport import TooSlow, Transport
from penstock.net.upstream import Upstream, broke, lost, too_late, unreachable
from penstock.wire.codec import NEED_DATA, PAUSED
from penstock_pravega.codec import BlockData, Dialect, SegmentClient, SegmentMessage, draft, released
from penstock_pravega.codec.limits import SEGMENT_VERSIONS
from penstock_pravega.codec.refusals import REFUSALS
from penstock_pravega.segment.back.settings import SegmentBackSettings

__all__ = ["DRAFT_KEY", "Key", "ReplyReceiver", "StoreConnection", "answers", "open_connection"]

_ANSWERS: Final[Mapping[type, tuple[type, ...]]] = {
    released.SetupAppend: (released.AppendSetup,),
    released.ReadSegment: (released.SegmentRead,),
    released.GetStreamSegmentInfo: (released.StreamSegmentInfo,),
    released.CreateSegment: (released.SegmentCreated,),
    released.DeleteSegment: (released.SegmentDeleted,),
    released.TruncateSegment: (released.SegmentTruncated,),
    released.SealSegment: (released.SegmentSealed,),
    released.GetSegmentAttribute: (released.SegmentAttribute,),
    released.UpdateSegmentAttribute: (released.SegmentAttributeUpdated,),
    released.MergeSegments: (released.SegmentsMerged, released.SegmentAttributeUpdated),
    released.MergeSegmentsBatch: (released.SegmentsBatchMerged,),
    released.CreateTableSegment: (released.SegmentCreated,),
    released.DeleteTableSegment: (released.SegmentDeleted,),
    released.GetTableSegmentInfo: (released.TableSegmentInfo,),
    released.UpdateTableEntries: (released.TableEntriesUpdated,),
    released.RemoveTableKeys: (released.TableKeysRemoved,),
    released.ReadTable: (released.TableRead,),
    released.ReadTableEntries: (released.TableEntriesRead,),
    released.ReadTableEntriesDelta: (released.TableEntriesDeltaRead,),
    draft.SetupAppend: (draft.AppendSetup,),
    draft.ReadSegment: (draft.SegmentRead,),
}
READ_SIZE: Final = 1 * MIB
"""Most bytes read at a time; the buffer is shared by all connections."""
UNSENT: Final = 1 * MIB
"""Unsent bytes above which senders wait in `room`."""
MOST_SETUPS_SHARE: Final = 2
"""A connection gets no new users once it has set up 1/`MOST_SETUPS_SHARE` of the writers that it may have."""
DRAFT_KEY: Final = -1
"""Key of the one listener of a draft connection."""
_LOST: Final = "the connection was lost"
Key = int | UUID
"""A request id, or a writer's id for the one reply that may lack a request id."""
SentMessage = SegmentMessage | BlockData


def answers(request: Any, reply: Any) -> bool:
    """Return whether a reply may answer or refuse a request."""
    return isinstance(reply, (*_ANSWERS[type(request)], *REFUSALS))


class ReplyReceiver(Protocol):
    """Receiver of replies. Neither method blocks."""

    def take(self, reply: Any) -> None:
        """Take a reply."""

    def lost(self, failure: Failure) -> None:
        """Note that the connection is lost: no more replies will come."""


class _Call:
    """Listener for one reply."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.reply: Any = None
        self.failure: Failure | None = None

    def take(self, reply: Any) -> None:
        self.reply = reply
        self.over.set()

    def lost(self, failure: Failure) -> None:
        self.failure = failure
        self.over.set()


class StoreConnection:
    """Connection to a segment store, made by `open_connection`. `users` is maintained by the pool."""

    def __init__(self, stream: trio.abc.Stream, upstream: Upstream, settings: SegmentBackSettings) -> None:
        self._transport = Transport(stream, READ_SIZE, upstream.settings.request_seconds)
        self._codec = SegmentClient(settings.dialect, settings.limits)
        self._upstream = upstream
        self._settings = settings
        self._listeners: dict[Key, ReplyReceiver] = {}
        self._requests = itertools.count(1)
        self._scope = trio.CancelScope()
        self._heard = trio.current_time()
        self._setups = 0
        self.exclusive = settings.dialect is Dialect.DRAFT
        self.users = 0
        self.failure: Failure | None = None
        """The reason why the connection is lost; None while it is open."""

    # ---- requests ----------------------------------------------------------------------------------------------------

    def next_id(self) -> int:
        """Return a new request id; always `DRAFT_KEY` in the draft."""
        return DRAFT_KEY if self.exclusive else next(self._requests)

    @property
    def worn(self) -> bool:
        """True once another connection should be used: a server never forgets the writers that were set up."""
        return self._setups * MOST_SETUPS_SHARE >= self._settings.limits.max_writers

    def set_up(self) -> None:
        """Count one more writer that is set up here."""
        self._setups += 1

    def listen(self, key: Key, listener: ReplyReceiver) -> None:
        """Pass replies with this key to `listener` until `forget`."""
        self._listeners[key] = listener

    def forget(self, key: Key) -> None:
        """Drop further replies with this key."""
        self._listeners.pop(key, None)

    def send(self, *messages: SentMessage) -> None:
        """Send requests completely, even if the caller is cancelled.

        Raises OperationFailed(HOT_SERVER) if the connection is lost and nothing was sent, and LocalProtocolError for
        what the protocol does not allow.
        """
        if self.failure is not None:
            raise fail(FailureCode.HOT_SERVER, self.failure.message)
        for message in messages:
            self._transport.put(self._codec.send(message))
        self._transport.flush()

    async def room(self) -> None:
        """Wait while more than `UNSENT` bytes are unsent."""
        await self._transport.room(UNSENT)

    async def ask(self, make: Callable[[int], SegmentMessage], seconds: float) -> Any:
        """Send the request that `make` returns for a request id, and return its reply.

        Raises OperationFailed: UNAVAILABLE if the connection is lost, UPSTREAM_TIMEOUT, and LIMIT_EXCEEDED for a
        request that does not fit into a message. A late reply is dropped; a draft connection is closed instead, because
        it could be taken for another reply. A connection that was silent or gave the wrong kind of reply is closed as
        well.
        """
        call = _Call()
        key = self.next_id()
        asked_at, request = trio.current_time(), make(key)
        self.listen(key, call)
        try:
            self.send(request)
            with trio.move_on_after(seconds):
                await call.over.wait()
        except LocalProtocolError as error:
            raise fail(
                FailureCode.LIMIT_EXCEEDED, f"{self._upstream.settings.where} cannot be asked: {error}"
            ) from None
        finally:
            self.forget(key)
            if self.exclusive and not call.over.is_set():
                self.give_up("a request was abandoned")
        if call.failure is not None:
            raise OperationFailed(call.failure)
        if call.reply is None:
            if self._heard <= asked_at:
                reason = f"it sent nothing for {seconds:g} s"
                self._upstream.breaker.lost(reason)
                self.give_up(reason)
            raise too_late(self._upstream.settings, "answer", seconds)
        if not answers(request, call.reply):
            reason = f"it answered {type(request).__name__} with {type(call.reply).__name__}"
            self.give_up(reason)
            raise broke(self._upstream.settings, reason)
        return call.reply

    # ---- the connection ----------------------------------------------------------------------------------------------

    def give_up(self, reason: str) -> None:
        """Close the connection and tell its listeners."""
        self._end(lost(self._upstream.settings, reason).failure)

    def _end(self, failure: Failure) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        listeners, self._listeners = list(self._listeners.values()), {}
        for listener in listeners:
            listener.lost(failure)
        self._transport.give_up()
        self._scope.cancel()

    async def greet(self) -> None:
        """Exchange Hellos with the server. Raises OperationFailed: HOT_SERVER, UPSTREAM_FAULT."""
        if self.exclusive:
            return
        settings = self._upstream.settings
        try:
            self._transport.put(self._codec.send(released.Hello(*SEGMENT_VERSIONS)))
            with trio.fail_after(settings.request_seconds):
                await self._transport.drain()
                while (reply := self._codec.next_event()) is NEED_DATA:
                    self._codec.receive(await self._transport.receive())
        except (trio.TooSlowError, TooSlow):
            raise unreachable(settings, f"no Hello in {settings.request_seconds:g} s") from None
        except trio.BrokenResourceError:
            raise unreachable(settings, _LOST) from None
        except RemoteProtocolError as error:
            told = unreachable if error.failure.code is FailureCode.UNAVAILABLE else broke
            raise told(settings, error.failure.message) from None
        if reply is PAUSED:
            raise unreachable(settings, "it closed the connection instead of sending Hello")

    async def run(self) -> None:
        """Run the connection until it is lost or given up."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._transport.begin(nursery, lost=self._stop_writing)
                    nursery.start_soon(self._watch)
                    await self._read()
        finally:
            self.give_up("the gateway stops")
            with trio.CancelScope(shield=True):
                await self._transport.close()

    async def _read(self) -> None:
        try:
            while True:
                while (reply := self._codec.next_event()) is NEED_DATA:
                    self._codec.receive(await self._transport.receive())
                    self._heard = trio.current_time()
                if reply is PAUSED:
                    self.give_up("it closed the connection")
                    return
                self._upstream.breaker.succeeded()
                self._dispatch(reply)
        except RemoteProtocolError as error:
            self._end(_fault(self._upstream, error))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.give_up(_LOST)

    def _dispatch(self, reply: Any) -> None:
        if self.exclusive:
            listener = None if reply.type_id == released.KeepAlive.type_id else self._listeners.get(DRAFT_KEY)
        else:
            listener = self._listeners.get(getattr(reply, "request_id", DRAFT_KEY))
            if listener is None and hasattr(reply, "writer_id"):
                listener = self._listeners.get(reply.writer_id)
        if listener is not None:
            listener.take(reply)

    def _stop_writing(self, error: Exception) -> None:
        slow = isinstance(error, TooSlow)
        self.give_up(f"it accepted no data for {self._upstream.settings.request_seconds:g} s" if slow else _LOST)

    async def _watch(self) -> None:
        """Watch for a dead or idle connection.

        A silent server is sent a KeepAlive while the connection has users. The connection is closed if the server stays
        silent, or if it has had no users for too long.
        """
        upstream, alive = self._upstream.settings, self._settings.keep_alive_seconds
        idle_since: float | None = None
        while True:
            await trio.sleep(min(alive, upstream.idle_seconds) / 2)
            now = trio.current_time()
            idle_since = None if self.users else idle_since or now
            if idle_since is not None and now - idle_since >= upstream.idle_seconds:
                self.give_up("it was idle")
                return
            if self.users and not self.exclusive and now - self._heard >= alive:
                await self._ask_for_life(upstream.request_seconds)

    async def _ask_for_life(self, seconds: float) -> None:
        before = self._heard
        if self.failure is None:
            self.send(released.KeepAlive())
        await trio.sleep(seconds)
        if self._heard == before:
            self.give_up(f"it sent nothing, not even an answer to a keep-alive, for {seconds:g} s")


def _fault(upstream: Upstream, error: RemoteProtocolError) -> Failure:
    """Return the failure for a server that violates the protocol, or closes in the middle of a message."""
    told = lost if error.failure.code is FailureCode.UNAVAILABLE else broke
    return told(upstream.settings, error.failure.message).failure


async def open_connection(upstream: Upstream, settings: SegmentBackSettings) -> StoreConnection:
    """Open a connection, which is ready for requests once its `run` runs.

    Raises OperationFailed: HOT_SERVER, UPSTREAM_FAULT.
    """
    stream = await upstream.connect()
    connection = StoreConnection(stream, upstream, settings)
    try:
        await connection.greet()
    except BaseException as error:
        if isinstance(error, OperationFailed):
            upstream.breaker.lost(error.failure.message)
        await trio.aclose_forcefully(stream)
        raise
    upstream.breaker.succeeded()
    return connection
