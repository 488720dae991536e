"""One connection to a segment store: requests go out as they are said, each reply goes to whoever waits for it.

Released replies carry the id of their request, so any number of requests share a line, parked reads too; a real server
answers them as they are ready. The draft has no ids: there a line has one user at a time, who gets every reply.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final, Protocol
from uuid import UUID

import trio

from penstock.backs.segment.answers import answers
from penstock.backs.segment.settings import SegmentBackSettings
from penstock.backs.upstream import Upstream, lost, too_late, unreachable
from penstock.wire import TooSlow, Wire
from penstock_codecs.codec import NEED_DATA, PAUSED
from penstock_codecs.failures import (
    Failure,
    FailureCode,
    LocalProtocolError,
    OperationFailed,
    RemoteProtocolError,
    fail,
)
from penstock_codecs.limits import MIB, SEGMENT_VERSIONS
from penstock_codecs.segment import BlockData, Dialect, Message, SegmentClient, released

__all__ = ["EVERYTHING", "Key", "Line", "Listener", "open_line"]

READ_SIZE: Final = 1 * MIB
"""Most that is read at a time; the buffer is shared by all connections."""
UNSENT: Final = 1 * MIB
"""While more than this waits for the server, whoever has something for it waits too."""
MOST_SETUPS_SHARE: Final = 2
"""A line is given no new users once it has set up this part of the writers that it may have."""

EVERYTHING: Final = -1
"""The key of a draft line's one listener."""
Key = int | UUID
"""A request id, or a writer's id for the one reply that may come without."""
Said = Message | BlockData


class Listener(Protocol):
    """Whoever waits for replies. Neither method waits."""

    def take(self, reply: Any) -> None:
        """A reply."""

    def lost(self, failure: Failure) -> None:
        """There will be no more replies."""


class _Call:
    """Waits for one reply."""

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


class Line:
    """See the module. Made by `open_line`; `users` is kept by whoever gives lines out."""

    def __init__(self, stream: trio.abc.Stream, upstream: Upstream, settings: SegmentBackSettings) -> None:
        self._wire = Wire(stream, READ_SIZE)
        self._codec = SegmentClient(settings.dialect, settings.limits)
        self._upstream = upstream
        self._settings = settings
        self._listeners: dict[Key, Listener] = {}
        self._requests = itertools.count(1)
        self._unsent = trio.lowlevel.ParkingLot()  # the writer waits here for something to write,
        self._sent = trio.lowlevel.ParkingLot()  # and others here until it has written some
        self._writing = False
        self._scope = trio.CancelScope()
        self._heard = trio.current_time()
        self._setups = 0
        self.exclusive = settings.dialect is Dialect.DRAFT
        self.users = 0
        self.failure: Failure | None = None
        """Why the line is lost; None while it is not."""

    # ---- requests ----------------------------------------------------------------------------------------------------

    def next_id(self) -> int:
        """A request id that was not used on this line."""
        return EVERYTHING if self.exclusive else next(self._requests)

    @property
    def worn(self) -> bool:
        """Whether it is time for another line: writers that were set up are never forgotten by the server."""
        return self._setups * MOST_SETUPS_SHARE >= self._settings.limits.max_writers

    def set_up(self) -> None:
        """One more writer is set up here."""
        self._setups += 1

    def listen(self, key: Key, listener: Listener) -> None:
        """Replies with this key go to `listener` until `forget`."""
        self._listeners[key] = listener

    def forget(self, key: Key) -> None:
        """Nobody waits for these replies; those that come are dropped."""
        self._listeners.pop(key, None)

    def say(self, *messages: Said) -> None:
        """Send requests; they go out whole, also where the caller is cancelled.

        Raises OperationFailed(HOT_SERVER) where the line is lost: nothing was sent. Raises LocalProtocolError for what
        the protocol does not allow.
        """
        if self.failure is not None:
            raise fail(FailureCode.HOT_SERVER, self.failure.message)
        for message in messages:
            self._wire.put(self._codec.send(message))
        if self._writing:
            return
        try:
            if not self._wire.write_now():
                self._unsent.unpark()
        except trio.BrokenResourceError:
            self.give_up("the connection was lost")

    async def room(self) -> None:
        """Wait while too much waits for the server."""
        while self._wire.pending > UNSENT and self.failure is None:
            await self._sent.park()

    async def ask(self, make: Callable[[int], Message], seconds: float) -> Any:
        """The reply to the request that `make` gives for a request id.

        Raises OperationFailed: UNAVAILABLE where the line is lost, UPSTREAM_TIMEOUT. A reply that comes later is
        dropped; a draft line, where it could be taken for another, is given up, and so is one that is silent, or that
        answers what was not asked. Raises LIMIT_EXCEEDED for a request that does not fit into a message.
        """
        call = _Call()
        key = self.next_id()
        asked, request = trio.current_time(), make(key)
        self.listen(key, call)
        try:
            self.say(request)
            with trio.move_on_after(seconds):
                await call.over.wait()
        except LocalProtocolError as error:
            raise fail(
                FailureCode.LIMIT_EXCEEDED, f"{self._upstream.settings.where} cannot be asked: {error}"
            ) from None
        finally:
            self.forget(key)
            if self.exclusive and not call.over.is_set():
                self.give_up("a request was given up")
        if call.failure is not None:
            raise OperationFailed(call.failure)
        if call.reply is None:
            if self._heard <= asked:
                why = f"it said nothing for {seconds:g} s"
                self._upstream.breaker.lost(why)
                self.give_up(why)
            raise too_late(self._upstream.settings, "answer", seconds)
        if not answers(request, call.reply):
            why = f"it answered {type(request).__name__} with {type(call.reply).__name__}"
            self.give_up(why)
            raise lost(self._upstream.settings, why)
        return call.reply

    # ---- the connection ----------------------------------------------------------------------------------------------

    def give_up(self, why: str) -> None:
        """Close the line: whoever listens is told."""
        self._end(lost(self._upstream.settings, why).failure)

    def _end(self, failure: Failure) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        listeners, self._listeners = list(self._listeners.values()), {}
        for listener in listeners:
            listener.lost(failure)
        self._sent.unpark_all()
        self._scope.cancel()

    async def greet(self) -> None:
        """Say Hello and wait for the server's. Raises OperationFailed(HOT_SERVER)."""
        if self.exclusive:
            return
        settings = self._upstream.settings
        try:
            self._wire.put(self._codec.send(released.Hello(*SEGMENT_VERSIONS)))
            with trio.fail_after(settings.request_seconds):
                while self._wire.pending:
                    await self._wire.write(settings.request_seconds)
                while (reply := self._codec.next_event()) is NEED_DATA:
                    self._codec.receive(await self._wire.receive())
        except (trio.TooSlowError, TooSlow):
            raise unreachable(settings, f"no Hello in {settings.request_seconds:g} s") from None
        except (trio.BrokenResourceError, RemoteProtocolError) as error:
            raise unreachable(settings, _spoken(error)) from None
        if reply is PAUSED:
            raise unreachable(settings, "it closed the connection instead of saying Hello")

    async def run(self) -> None:
        """Read, write and watch until the line is lost or given up."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    nursery.start_soon(self._watch)
                    await self._read()
        finally:
            self.give_up("the gateway stops")
            with trio.CancelScope(shield=True):
                await self._wire.close()
            self._wire.forget()

    async def _read(self) -> None:
        try:
            while True:
                while (reply := self._codec.next_event()) is NEED_DATA:
                    self._codec.receive(await self._wire.receive())
                    self._heard = trio.current_time()
                if reply is PAUSED:
                    self.give_up("it closed the connection")
                    return
                self._upstream.breaker.succeeded()
                self._dispatch(reply)
        except (trio.BrokenResourceError, trio.ClosedResourceError, RemoteProtocolError) as error:
            self.give_up(_spoken(error))

    def _dispatch(self, reply: Any) -> None:
        if self.exclusive:
            listener = None if reply.type_id == released.KeepAlive.type_id else self._listeners.get(EVERYTHING)
        else:
            listener = self._listeners.get(getattr(reply, "request_id", EVERYTHING))
            if listener is None and hasattr(reply, "writer_id"):
                listener = self._listeners.get(reply.writer_id)
        if listener is not None:
            listener.take(reply)

    async def _write(self) -> None:
        try:
            while True:
                while self._wire.pending:
                    self._writing = True
                    await self._wire.write(self._upstream.settings.request_seconds)
                    self._sent.unpark_all()
                self._writing = False
                await self._unsent.park()
        except TooSlow:
            self.give_up(f"it took nothing for {self._upstream.settings.request_seconds:g} s")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.give_up("the connection was lost")

    async def _watch(self) -> None:
        """Ask a silent server for a sign of life while somebody waits for it; else close after a while."""
        upstream, alive = self._upstream.settings, self._settings.keep_alive_seconds
        idle_since: float | None = None
        while True:
            await trio.sleep(min(alive, upstream.idle_seconds) / 2)
            now = trio.current_time()
            idle_since = None if self.users else idle_since or now
            if idle_since is not None and now - idle_since >= upstream.idle_seconds:
                self.give_up("nobody used it")
                return
            if self.users and not self.exclusive and now - self._heard >= alive:
                await self._ask_for_life(upstream.request_seconds)

    async def _ask_for_life(self, seconds: float) -> None:
        before = self._heard
        if self.failure is None:
            self.say(released.KeepAlive())
        await trio.sleep(seconds)
        if self._heard == before:
            self.give_up(f"it is silent, also when asked for a sign of life for {seconds:g} s")


def _spoken(error: Exception) -> str:
    """Why a connection ended."""
    return error.failure.message if isinstance(error, RemoteProtocolError) else "the connection was lost"


async def open_line(upstream: Upstream, settings: SegmentBackSettings) -> Line:
    """A line that is ready for requests, once its `run` runs. Raises OperationFailed(HOT_SERVER)."""
    stream = await upstream.connect()
    line = Line(stream, upstream, settings)
    try:
        await line.greet()
    except BaseException as error:
        if isinstance(error, OperationFailed):
            upstream.breaker.lost(error.failure.message)
        await trio.aclose_forcefully(stream)
        raise
    upstream.breaker.succeeded()
    return line
