"""The transport beneath every link: one stream, read and written as cheaply as trio allows.

`Transport` serves both roles. Reading: the system call is tried first, at most `read_size` bytes at a time, into a
buffer that all connections share. Writing: `put` fills a buffer, `flush` writes what the kernel takes now and leaves
the rest to a task, and senders wait in `room` above their high-water mark. A peer that accepts too little for
`patience` seconds ends that with TooSlow. At the end `linger` sends the end of the stream and reads until the peer
closes, within bounds, so that no reset destroys the last bytes on their way.

`FrontTransport` adds the rules for a client of the gateway: its bytes count against its quota, a message must come at
the least rate (`MessagePace`), and the wait for the next one ends when the client is silent for too long or the gateway
drains. Fronts of HTTP keep these rules for each exchange instead (`penstock.net.http.server`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import trio

from penstock.core.waiters import Waiters
from penstock.model.limits import KIB, MIB
from penstock.net.draining import Draining
from penstock.net.limits import current_quota
from penstock.net.limits.limiter import ConnectionQuota, HeldBytes
from penstock.net.limits.settings import Limits
from penstock.observe.metrics.clients import Pauses
from penstock.observe.metrics.series import Count
from penstock.observe.taps.tap import HttpStart
from penstock.observe.taps.tapped import TappedStream
from penstock.wire.http import Buffer, HttpCodec

__all__ = ["WRITE_ROOM", "FrontTransport", "MessagePace", "SlowSender", "TooSlow", "Transport"]

WRITE_ROOM: Final = 512 * KIB
"""Bytes that wait for the socket, up to which a source is asked for more."""
_JOIN_BELOW: Final = 8 * KIB
"""Parts of a smaller mean size are joined, larger ones are gathered by writev: joining 100 B parts is 2.6 times
cheaper than gathering them, gathering 128 KiB parts is 1.6 times cheaper than joining them."""
_JOIN_TO: Final = 128 * KIB
_GATHER: Final = 512
"""Parts of one writev at most; Linux allows 1024."""
_READS_PER_CHECKPOINT: Final = 8
_LINGER_BYTES: Final = 16 * MIB
"""Bytes that `linger` reads at most: a peer that sends more after the end was announced wants to keep the gateway
busy. A client of a refused body reads the answer only if its system took the body first: some send 10 MiB at once."""

# The codec copies what is read before any other task runs, so one buffer serves all connections of a run, and
# an idle connection holds none. What it would rather keep, large bodies, is read into `bytes` of its own.
_scratch: trio.lowlevel.RunVar[bytearray] = trio.lowlevel.RunVar("penstock.transport.scratch")


class TooSlow(Exception):
    """Raised when the peer accepted too few bytes for too long."""


class SlowSender(Exception):
    """Raised when a client's message did not come in time, nor at the least rate."""


class Transport:
    """One stream with a write buffer. One task may receive, and one may flush or drain, at a time.

    trio's own socket calls cost 6 to 8 us each; trying first and waiting only if the kernel says so costs half. That
    reads and writes the socket behind the stream's back, so this class reports to the stream's tap.

    `patience`: seconds in which the peer must accept `least` bytes, or all that wait if they are fewer.
    """

    __slots__ = (
        "_codec",
        "_fd",
        "_given_up",
        "_least",
        "_lost",
        "_most_to_read",
        "_moved",
        "_nursery",
        "_parts",
        "_patience",
        "_read_size",
        "_reads",
        "_senders",
        "_source",
        "_stream",
        "_tap",
        "_waiting",
        "_writing",
        "pending",
        "written",
    )

    def __init__(self, stream: trio.abc.Stream, read_size: int, patience: float = math.inf, *, least: int = 1) -> None:
        self._stream = stream
        self._codec: HttpCodec | None = None
        self._read_size = read_size
        self._patience = patience
        self._least = least
        inner = stream.inner if isinstance(stream, TappedStream) else stream
        self._fd = inner.socket.fileno() if isinstance(inner, trio.SocketStream) else None
        self._tap = stream.tap if isinstance(stream, TappedStream) else None
        self._waiting = Count() if self._tap is None else self._tap.outflow
        self._parts: list[Buffer] = []  # an empty deque takes 600 bytes
        self._reads = 0
        self._writing = self._given_up = False
        self._senders = Waiters()
        self._nursery: trio.Nursery | None = None
        self._source: Callable[[int], Iterable[Buffer]] | None = None
        self._moved: Callable[[], object] = self._senders.unpark_all
        self._lost: Callable[[Exception], object] | None = None
        self._most_to_read: Callable[[int], int] | None = None
        self.pending = 0
        """Bytes put and not yet written."""
        self.written = 0
        """Bytes written so far."""

    def begin(
        self,
        nursery: trio.Nursery,
        *,
        source: Callable[[int], Iterable[Buffer]] | None = None,
        moved: Callable[[], object] | None = None,
        lost: Callable[[Exception], object] | None = None,
    ) -> None:
        """Let `flush` leave what the kernel does not take to a task in `nursery`. None of the functions may wait.

        `source(room)` returns more to write, about `room` bytes at most. `moved` is called after each attempt to write,
        instead of waking the waiters in `room`. `lost` is called with TooSlow, or the error that broke the
        connection; without it, the error is raised.
        """
        self._nursery = nursery
        self._source = source
        if moved is not None:
            self._moved = moved
        self._lost = lost
        if self.pending:
            self.flush()

    def within(self, quota: ConnectionQuota) -> None:
        """Read no more at once than the quota has room for when there is something to read, which may be long after
        `receive` was called."""
        self._most_to_read = quota.most_to_read

    def speaks(self, codec: HttpCodec) -> None:
        """Set the codec whose bytes are transferred, so that a recording that begins in the middle of the connection
        can start from its state."""
        if self._tap is not None:
            self._codec = codec
            self._tap.place = self._place

    def _place(self) -> HttpStart | None:
        codec = self._codec
        preludes = None if codec is None else codec.preludes()
        if codec is None or preludes is None:
            return None
        return HttpStart(codec.version, preludes, self.written + self.pending)

    # ---- in ------------------------------------------------------------------------------------------------------

    async def receive(self, *, owned: bool = False, later: bool = False) -> Buffer:
        """Return bytes from the peer; b"" at the end. They must be copied before the next await, unless they are
        `owned`: then they are `bytes`, which costs an allocation. `later`: none are expected yet, so that the socket is
        not tried before it is readable.

        Raises trio.BrokenResourceError if the connection is lost.
        """
        if self._fd is None:
            return await self._stream.receive_some(self._size_to_read())
        self._reads += 1
        if later:
            await trio.lowlevel.wait_readable(self._fd)
        elif self._reads % _READS_PER_CHECKPOINT == 0:
            await trio.lowlevel.checkpoint()
        while True:
            data = self._read_now(self._fd, owned)
            if data is not None:
                return data
            await trio.lowlevel.wait_readable(self._fd)

    def _read_now(self, fd: int, owned: bool) -> Buffer | None:
        """Return what has arrived, or None. It is no coroutine, whose frame an exception would make an object of 200
        bytes, which stays while the coroutine waits."""
        try:
            if owned:
                data: Buffer = os.read(fd, self._size_to_read())
            else:
                scratch, most = self._scratch(), self._size_to_read()
                size = os.readv(fd, [scratch if most == len(scratch) else memoryview(scratch)[:most]])
                data = memoryview(scratch)[:size] if size else b""
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._broken() from error
        if self._tap is not None:
            self._tap.received(data)
        return data

    def _size_to_read(self) -> int:
        return self._read_size if self._most_to_read is None else self._most_to_read(self._read_size)

    def _broken(self) -> trio.BrokenResourceError:
        if self._tap is not None:
            self._tap.broken()
        return trio.BrokenResourceError()

    def _scratch(self) -> bytearray:
        try:
            scratch = _scratch.get()
        except LookupError:
            scratch = bytearray()
        if len(scratch) < self._read_size:
            scratch = bytearray(self._read_size)
            _scratch.set(scratch)
        return scratch

    # ---- out -----------------------------------------------------------------------------------------------------

    def put(self, parts: Iterable[Buffer]) -> None:
        """Append parts to the write buffer; they must not change any more."""
        before = self.pending
        for part in parts:
            if part:
                self._parts.append(part)
                self.pending += len(part)
        self._waiting.value += self.pending - before

    def fill(self) -> bool:
        """Move output of the source to the write buffer, as far as there is room. Return whether there may be more."""
        assert self._source is not None, "there is a source"
        before = self.pending
        room = max(0, WRITE_ROOM - before)
        self.put(self._source(room))
        return self.pending - before >= room

    def forget(self) -> None:
        """Drop the write buffer: nothing will be written any more."""
        self._codec = None
        self._parts.clear()
        self._waiting.value -= self.pending
        self.pending = 0

    def flush(self, *, at_once: bool = True) -> None:
        """Write as much as the kernel takes now; a task writes the rest. Before `begin`, nothing is written.

        Unless `at_once`, all is left to the task, which joins the output of several senders in one write.
        """
        if self._nursery is None:
            return
        more = self._source is not None and self.fill()
        if self._writing:
            self._grew()
            return
        if at_once:
            try:
                while self.pending and self.write_now() and more:
                    more = self.fill()
            except trio.BrokenResourceError as error:
                self._fail(error)
                return
        if self.pending:
            self._writing = True
            self._nursery.start_soon(self._write_rest)
        self._moved()

    def write_piece(self, piece: bytes) -> bool:
        """Write a piece at once; nothing else may be pending. Return False if some of it waits for `flush`: of a socket
        that takes no more or is broken, and over TLS."""
        size = 0
        if self._fd is not None:
            with suppress(OSError):
                size = os.write(self._fd, piece)
        self.written += size
        if self._tap is not None and size:
            self._tap.sent((piece,), size)
        if size == len(piece):
            return True
        self.put((memoryview(piece)[size:],))
        return False

    async def _write_rest(self) -> None:
        try:
            while self.pending:
                await self._write()
                if self._source is not None:
                    self.fill()
                self._moved()
        except (trio.BrokenResourceError, trio.ClosedResourceError, TooSlow) as error:
            self._fail(error)
        finally:
            self._writing = False

    def _grew(self) -> None:
        """Record that the buffer grew while a task writes it."""

    def _fail(self, error: Exception) -> None:
        if self._lost is None:
            raise error
        self._lost(error)

    async def drain(self) -> None:
        """Write all of the buffer, in the calling task.

        Raises trio.BrokenResourceError, and TooSlow. After a cancellation nothing may be written any more, as a part
        may have been written in part.
        """
        if not self.write_now():
            while self.pending:
                await self._write()

    async def room(self, most: int = 0) -> None:
        """Wait while more than `most` bytes wait for the socket, until `give_up`. Only for transports without a `moved`
        of their own."""
        while self.pending > most and not self._given_up:
            await self._senders.park()

    def give_up(self) -> None:
        """End all waits in `room`, because the connection ends."""
        self._given_up = True
        self._senders.unpark_all()

    def write_now(self) -> bool:
        """Write as much as the kernel takes without waiting. Return whether that was all; over TLS nothing is written.
        Raises trio.BrokenResourceError."""
        if self._fd is None:
            return not self.pending
        parts = self._parts
        try:
            while self.pending:
                if len(parts) > 1 and self.pending < _JOIN_BELOW * len(parts):
                    self._join(_JOIN_TO)
                size = os.write(self._fd, parts[0]) if len(parts) == 1 else os.writev(self._fd, parts[:_GATHER])
                if self._tap is not None:
                    self._tap.sent(parts, size)
                self._taken(size)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._broken() from error
        return True

    async def _write(self) -> None:
        """Wait until the peer has accepted the least part of the buffer."""
        goal = self.written + min(self._least, self.pending)
        with trio.move_on_after(self._patience):
            while self.pending and self.written < goal:
                if self._fd is None:
                    self._join(_JOIN_TO)
                    piece = bytes(memoryview(self._parts[0])[:_JOIN_TO])
                    await self._stream.send_all(piece)
                    self._taken(len(piece))
                else:
                    await trio.lowlevel.wait_writable(self._fd)
                    self.write_now()
            return
        raise TooSlow

    def _join(self, size: int) -> None:
        """Join the first parts to one of about `size` bytes; a larger first part stays as it is."""
        parts, count, got = self._parts, 0, 0
        if self.pending <= size:
            parts[:] = [b"".join(parts)]
            return
        while count < len(parts) and got < size:
            got += len(parts[count])
            count += 1
        if count > 1:
            parts[:count] = [b"".join(parts[:count])]

    def _taken(self, size: int) -> None:
        parts = self._parts
        self.pending -= size
        self._waiting.value -= size
        self.written += size
        if not self.pending:
            parts.clear()
            return
        count = 0
        for part in parts:
            if size < len(part):
                break
            size -= len(part)
            count += 1
        del parts[:count]
        if size:
            parts[0] = memoryview(parts[0])[size:]

    # ---- the end -------------------------------------------------------------------------------------------------

    @property
    def half_closes(self) -> bool:
        """True if the end of the stream can be sent while the peer still sends: not over TLS."""
        return isinstance(self._stream, trio.abc.HalfCloseableStream)

    async def linger(self, seconds: float) -> None:
        """Send the end of the stream and wait for the peer to close, dropping up to 16 MiB that it still sends."""
        left = _LINGER_BYTES
        with trio.move_on_after(seconds):
            try:
                if isinstance(self._stream, trio.abc.HalfCloseableStream):
                    await self._stream.send_eof()
                while left > 0 and (data := await self.receive()):
                    left -= len(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    async def close(self) -> None:
        """Close the stream. TLS sends its close_notify first, for which the socket has a second."""
        self.forget()
        self._fd = None  # the number may soon be another socket's
        with trio.move_on_after(1):
            await self._stream.aclose()

    async def cut(self) -> None:
        """Close the stream at once."""
        self.forget()
        self._fd = None
        await trio.aclose_forcefully(self._stream)


class MessagePace:
    """The pace of one connection or session: a message that has begun must be complete in time, or keep coming at a
    rate."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun = math.inf

    def deadline(self, held: int, limits: Limits, now: float) -> float:
        """Return when to give up on a message of which `held` bytes have arrived, infinity if none have. Call it before
        each wait.

        Take whole messages out first: bytes held count as a message that has begun.
        """
        if not held:
            self._begun = math.inf
            return math.inf
        self._begun = min(self._begun, now)
        return self._begun + limits.receive_grace_seconds + held / limits.min_receive_rate

    def next(self) -> None:
        """Record that a message is complete: another one may have begun behind it."""
        self._begun = math.inf


class FrontTransport(Transport):
    """The transport of a client of the gateway, within its limits.

    `patience`, `least`: see `Transport`; cutting a client off for them counts under the limit `send_timeout_seconds`.
    `idle`: seconds of silence between messages after which the connection is to end. `finishes`: a drain does not
    interrupt a message that has begun.
    """

    __slots__ = (
        "_draining",
        "_finishes",
        "_listening",
        "_pace",
        "_pauses",
        "_received",
        "_unsent",
        "finished",
        "idle",
        "message_taken",
        "quota",
        "stopped",
    )

    def __init__(
        self,
        stream: trio.abc.Stream,
        read_size: int,
        patience: float,
        *,
        least: int = 1,
        idle: float,
        draining: Draining,
        finishes: bool = False,
    ) -> None:
        super().__init__(stream, read_size, patience, least=least)
        self.idle = idle
        self._draining = draining
        self._finishes = finishes
        self._pace = MessagePace()
        self._pauses = Pauses()
        self._listening: trio.CancelScope | None = None
        self._moved = self._count_unsent
        self.quota = current_quota()
        self.within(self.quota)
        self._received = HeldBytes(self.quota)
        self._unsent = HeldBytes(self.quota)
        self.finished = False
        """True once the client has finished sending."""
        self.stopped = False
        """True once no more messages are to be received."""
        self.message_taken = False
        """To be set when a message is complete: another one may have begun behind it."""

    # ---- in ------------------------------------------------------------------------------------------------------

    def hold(self, size: int) -> None:
        """Charge the client for `size` bytes that were received and are not used yet, instead of those before."""
        self._received.set(size)

    def stop(self) -> None:
        """Receive no more messages; end the wait for one."""
        self.stopped = True
        if self._listening is not None:
            self._listening.cancel()

    async def read_into(
        self, feed: Callable[[Buffer], object], held: int, busy: Callable[[], bool] | None = None
    ) -> int | None:
        """Receive bytes and pass them to `feed`, which copies them. Returns their number, 0 at the end; None if none
        came: the client was silent for too long, the gateway drains, or `stop` was called.

        `held`: bytes of an incomplete message. `busy`: whether requests of the client are in progress, so that its
        silence is no reason to end. Raises SlowSender, Crowded, and trio.BrokenResourceError.
        """
        quota, now = self.quota, trio.current_time()
        self._received.set(held)
        limits = quota.limits
        if not held and (busy is None or not busy()):
            quota.rest(now)
        if self.message_taken:
            self.message_taken = False
            self._pace.next()
        deadline = self._pace.deadline(held, limits, now)
        seconds, limit = self.idle, "idle_timeout_seconds"
        finishes = held > 0 and self._finishes
        if not (quota.authenticated or finishes):
            seconds, limit = min(seconds, limits.first_byte_seconds), "first_byte_seconds"
        seconds = min(seconds, deadline - now)
        size = -1
        # The deadline may have passed: a connection that waits for its turn is not read for long.
        with trio.move_on_at(now + seconds) if finishes else self._draining.interrupts(seconds) as self._listening:
            await quota.room()
            size = self._taken_in(await self.receive(), feed)
        self._listening = None
        if size < 0:
            if trio.current_time() >= deadline:
                quota.limited("min_receive_rate")
                raise SlowSender
            if not (self.stopped or self._draining.begun or (busy is not None and busy())):
                quota.limited(limit)
            return None
        if pause := quota.received(size):
            await trio.sleep(pause)
        return size

    async def take(self, feed: Callable[[Buffer], object]) -> int:
        """Receive bytes and pass them to `feed`, which copies them. Returns their number, 0 at the end."""
        return self._taken_in(await self.receive(), feed)

    def _taken_in(self, data: Buffer, feed: Callable[[Buffer], object]) -> int:
        size = len(data)
        feed(data)
        self.finished = not size
        self.quota.busy = True
        return size

    # ---- out -----------------------------------------------------------------------------------------------------

    def _grew(self) -> None:
        self._unsent.set(self.pending)

    def _count_unsent(self) -> None:
        self._unsent.set(self.pending)
        self._senders.unpark_all()

    def _fail(self, error: Exception) -> None:
        if isinstance(error, TooSlow):
            self.quota.limited("send_timeout_seconds")
        super()._fail(error)

    async def drain(self) -> None:
        """Write all of the buffer, in the calling task. See `Transport.drain`."""
        with self._unsent, self._pauses.writing():
            self._unsent.set(self.pending)
            try:
                await super().drain()
            except TooSlow as error:
                self._fail(error)

    async def room(self, most: int = 0) -> None:
        """Wait while more than `most` bytes wait for the socket."""
        while self.pending > most:
            with self._pauses.writing():
                await self._senders.park()

    def forget(self) -> None:
        """Drop the write buffer, and charge the client for nothing any more."""
        super().forget()
        self._received.set(0)
        self._unsent.set(0)
