"""Bytes in and out of one trio stream, at the least cost for sockets and correctly for any other stream."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

import trio

from penstock.metrics.series import Count
from penstock.recorder.tapped import TappedStream
from penstock_codecs.http import Buffer

__all__ = ["TooSlow", "Wire"]

_JOIN_BELOW: Final = 8 * 1024
"""Parts of a smaller mean size are joined, larger ones are gathered by writev: joining 100 B parts is 2.6 times
cheaper than gathering them, gathering 128 KiB parts is 1.6 times cheaper than joining them."""
_JOIN_TO: Final = 128 * 1024
_GATHER: Final = 512
"""Most parts of one writev; Linux allows 1024."""
_READS_PER_CHECKPOINT: Final = 8
_LINGER_BYTES: Final = 1024 * 1024
"""Whoever sends more than this when he has been told that nothing more is read wants to keep us busy."""

# What is read is copied by the codec before anything else runs, so one buffer serves all connections of a run and
# an idle connection holds none.
_scratch: trio.lowlevel.RunVar[bytearray] = trio.lowlevel.RunVar("penstock.wire.scratch")


class TooSlow(Exception):
    """The peer took nothing for too long."""


class Wire:
    """The two directions of one stream. One task may receive, and one may flush, at a time.

    trio's own socket calls cost 6 to 8 us each; trying first and waiting only where the kernel says so costs half.
    A socket is read and written past its stream, so the stream's tap is told here.
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

    @property
    def direct(self) -> bool:
        """Whether `write_now` may get somewhere."""
        return self._fd is not None

    async def receive(self) -> Buffer:
        """Bytes from the peer, to be copied before the next await; b"" at the end.

        Raises trio.BrokenResourceError where the connection is lost.
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
        """Add parts to what is to be written; they must not change any more."""
        before = self.pending
        for part in parts:
            if part:
                self._parts.append(part)
                self.pending += len(part)
        self._waiting.value += self.pending - before

    def forget(self) -> None:
        """Drop what is pending: nothing will be written any more."""
        self._parts.clear()
        self._waiting.value -= self.pending
        self.pending = 0

    def write_now(self) -> bool:
        """Write what the kernel takes without waiting; whether it took all. Raises trio.BrokenResourceError."""
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
        """Write some of what is pending, waiting for the peer.

        Raises trio.BrokenResourceError, and TooSlow where it took nothing for `patience` seconds. When cancelled,
        a part may have been written by halves: nothing may be written after that.
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
        """Make the first parts one of about `size` bytes; a larger first part stays as it is."""
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
        """Say that no more will come, and wait for the peer to close, dropping what it still sends, up to 1 MiB."""
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
        """Close the stream; TLS says goodbye first, if the socket takes it at once or nearly so."""
        self.forget()
        with trio.move_on_after(1):
            await self._stream.aclose()
