"""Streams that report their traffic to a tap."""

from __future__ import annotations

import os

import trio

from penstock.observe.taps.tap import Tap
from penstock.wire.http import Buffer

__all__ = ["TappedStream", "encrypted", "tapped"]


class TappedStream(trio.abc.Stream):
    """A stream with its tap. Code that reads or writes the socket directly (`penstock.net.transport`) must report
    to the tap itself."""

    def __init__(self, inner: trio.abc.Stream, tap: Tap) -> None:
        self.inner = inner
        self.tap = tap
        self._socket = inner.socket if isinstance(inner, trio.SocketStream) else None
        self._sending = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """See `trio.abc.ReceiveStream`."""
        try:
            data = await self.inner.receive_some(max_bytes)
        except trio.BrokenResourceError:
            self.tap.broken()
            raise
        self.tap.received(data)
        return data

    async def send_all(self, data: Buffer) -> None:
        """See `trio.abc.SendStream`."""
        if self._sending:
            raise trio.BusyResourceError("another task is already sending")
        self._sending = True
        try:
            if self._socket is not None:
                await self._send_directly(self._socket, data)
            else:
                await trio.lowlevel.checkpoint_if_cancelled()  # otherwise data might be reported and never sent
                self.tap.sent((data,), len(data))
                await self.inner.send_all(data)
        except trio.BrokenResourceError:
            self.tap.broken()
            raise
        finally:
            self._sending = False

    async def _send_directly(self, socket: trio.socket.SocketType, data: Buffer) -> None:
        """Send as trio does, but report each part as soon as the kernel has it: after trio's own call other tasks run
        first, and the answer could be reported before the question."""
        if _is_shut(socket):
            raise trio.ClosedResourceError
        await trio.lowlevel.checkpoint_if_cancelled()
        rest = memoryview(data)
        while rest:
            if _is_shut(socket):  # it may have been closed while waiting
                raise trio.ClosedResourceError
            try:
                size = os.write(socket.fileno(), rest)
            except BlockingIOError:
                await trio.lowlevel.wait_writable(socket)
            except OSError as error:
                raise trio.BrokenResourceError from error
            else:
                self.tap.sent((rest,), size)
                rest = rest[size:]
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        """See `trio.abc.SendStream`."""
        await self.inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """See `trio.abc.AsyncResource`."""
        self.tap.end()
        await self.inner.aclose()


class _TappedHalfCloseable(TappedStream, trio.abc.HalfCloseableStream):
    def __init__(self, inner: trio.abc.HalfCloseableStream, tap: Tap) -> None:
        super().__init__(inner, tap)
        self._half_closeable = inner

    async def send_eof(self) -> None:
        """See `trio.abc.HalfCloseableStream`."""
        if self._sending:
            raise trio.BusyResourceError("another task is already sending")
        self.tap.finished()
        await self._half_closeable.send_eof()


def _is_shut(socket: trio.socket.SocketType) -> bool:
    return socket.fileno() < 0 or socket.did_shutdown_SHUT_WR


def tapped(stream: trio.abc.Stream, tap: Tap) -> TappedStream:
    """Return a stream that reports to `tap`, and is half-closeable if `stream` is."""
    if isinstance(stream, trio.abc.HalfCloseableStream):
        return _TappedHalfCloseable(stream, tap)
    return TappedStream(stream, tap)


def encrypted(stream: trio.abc.Stream) -> trio.SSLStream[trio.abc.Stream] | None:
    """Return the TLS stream of a stream, tapped or not, or None if it has none."""
    inner = stream.inner if isinstance(stream, TappedStream) else stream
    return inner if isinstance(inner, trio.SSLStream) else None
