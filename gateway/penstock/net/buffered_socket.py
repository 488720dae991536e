"""Buffered reads and writes of one trio stream, with direct system calls if it is a socket."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Final

import trio

from penstock.observe.metrics.series import Count
from penstock.observe.taps.tap import Place
from penstock.observe.taps.tapped import TappedStream
from penstock_codecs.http import Buffer, HttpCodec

__all__ = ["BufferedSocket", "TooSlow"]

_JOIN_BELOW: Final = 8 * 1024
"""Parts of a smaller mean size are joined, larger ones are gathered by writev: joining 100 B parts is 2.6 times
cheaper than gathering them, gathering 128 KiB parts is 1.6 times cheaper than joining them."""
_JOIN_TO: Final = 128 * 1024
_GATHER: Final = 512
"""Parts of one writev at most; Linux allows 1024."""
_READS_PER_CHECKPOINT: Final = 8
_LINGER_BYTES: Final = 1024 * 1024
"""Bytes that `linger` reads at most: a peer that sends more after the end was announced wants to keep the gateway
busy."""

# The codec copies what is read before any other task runs, so one buffer serves all connections of a run, and
# an idle connection holds none.
_scratch: trio.lowlevel.RunVar[bytearray] = trio.lowlevel.RunVar("penstock.wire.scratch")


class TooSlow(Exception):
    """Raised when the peer accepted no bytes for too long."""


class BufferedSocket:
    """One stream with a write buffer. One task may receive, and one may flush, at a time.

    trio's own socket calls cost 6 to 8 us each; trying first and waiting only if the kernel says so costs half. That
    reads and writes the socket behind the stream's back, so this class reports to the stream's tap.
    """

    def __init__(self, stream: trio.abc.Stream, read_size: int) -> None:
        self._stream = stream
        self._read_size = read_size
        inner = stream.inner if isinstance(stream, TappedStream) else stream
        self._fd = inner.socket.fileno() if isinstance(inner, trio.SocketStream) else None
        self._tap = stream.tap if isinstance(stream, TappedStream) else None
        self._waiting = Count() if self._tap is None else self._tap.outflow
        self._parts: deque[Buffer] = deque()
        self._reads = 0
        self.pending = 0
        """Bytes put and not yet written."""
        self.written = 0
        """Bytes written so far."""

    def speaks(self, codec: HttpCodec) -> None:
        """Set the codec whose bytes are transferred, so that a recording that begins in the middle of the connection
        can start from its state."""
        if self._tap is not None:
            self._tap.place = partial(self._place, codec)

    def _place(self, codec: HttpCodec) -> Place | None:
        preludes = codec.preludes()
        return None if preludes is None else Place(codec.version, preludes, self.written + self.pending)

    @property
    def direct(self) -> bool:
        """True if `write_now` can write: the stream is a socket without TLS."""
        return self._fd is not None

    async def receive(self) -> Buffer:
        """Return bytes from the peer, to be copied before the next await; b"" at the end.

        Raises trio.BrokenResourceError if the connection is lost.
        """
        if self._fd is None:
            return await self._stream.receive_some(self._read_size)
        scratch = self._scratch()
        self._reads += 1
        if self._reads % _READS_PER_CHECKPOINT == 0:
            await trio.lowlevel.checkpoint()
        while True:
            try:
                size = os.readv(self._fd, [scratch])
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._fd)
            except OSError as error:
                raise self._broken() from error
            else:
                data = memoryview(scratch)[:size] if size else b""
                if self._tap is not None:
                    self._tap.received(data)
                return data

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

    def put(self, parts: Iterable[Buffer]) -> None:
        """Append parts to the write buffer; they must not change any more."""
        before = self.pending
        for part in parts:
            if part:
                self._parts.append(part)
                self.pending += len(part)
        self._waiting.value += self.pending - before

    def forget(self) -> None:
        """Drop the write buffer: nothing will be written any more."""
        self._parts.clear()
        self._waiting.value -= self.pending
        self.pending = 0

    def write_now(self) -> bool:
        """Write as much as the kernel takes without waiting. Return whether that was all. Raises
        trio.BrokenResourceError."""
        if self._fd is None:
            return False
        try:
            while self.pending:
                size = self._write_some(self._fd)
                if self._tap is not None:
                    self._tap.sent(self._parts, size)
                self._taken(size)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._broken() from error
        return True

    async def write(self, patience: float) -> None:
        """Wait until the peer accepts bytes, and write some of the buffer.

        Raises trio.BrokenResourceError, and TooSlow if the peer accepted nothing for `patience` seconds. After a
        cancellation nothing may be written any more, as a part may have been written in part.
        """
        with trio.move_on_after(patience):
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

    def _write_some(self, fd: int) -> int:
        parts = self._parts
        if len(parts) > 1 and self.pending < _JOIN_BELOW * len(parts):
            self._join(_JOIN_TO)
        if len(parts) == 1:
            return os.write(fd, parts[0])
        return os.writev(fd, list(islice(parts, _GATHER)))

    def _join(self, size: int) -> None:
        """Join the first parts to one of about `size` bytes; a larger first part stays as it is."""
        parts, taken, got = self._parts, [], 0
        while parts and got < size:
            taken.append(parts.popleft())
            got += len(taken[-1])
        parts.appendleft(taken[0] if len(taken) == 1 else b"".join(taken))

    def _taken(self, size: int) -> None:
        parts = self._parts
        self.pending -= size
        self._waiting.value -= size
        self.written += size
        while size:
            first = parts.popleft()
            if size < len(first):
                parts.appendleft(memoryview(first)[size:])
                return
            size -= len(first)

    async def linger(self, seconds: float) -> None:
        """Send the end of the stream and wait for the peer to close, dropping up to 1 MiB that it still sends."""
        left = _LINGER_BYTES
        with trio.move_on_after(seconds):
            try:
                if isinstance(self._stream, trio.abc.HalfCloseableStream) and self._fd is not None:
                    await self._stream.send_eof()
                while left > 0 and (data := await self.receive()):
                    left -= len(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    async def close(self) -> None:
        """Close the stream. TLS sends its close_notify first, for which the socket has a second."""
        self.forget()
        with trio.move_on_after(1):
            await self._stream.aclose()
