"""Streams that tell a tap what goes by."""

from __future__ import annotations

import os

import trio

from penstock.recorder.tap import Tap
from penstock_codecs.http import Buffer

__all__ = ["TappedStream", "encrypted", "tapped"]


class TappedStream(trio.abc.Stream):
    """A stream with its tap. Whoever reads or writes the socket itself (`penstock.wire`) tells the tap himself."""

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
            raise trio.BusyResourceError("another task sends")
        self._sending = True
        try:
            if self._socket is not None:
                await self._send_directly(self._socket, data)
            else:
                await trio.lowlevel.checkpoint_if_cancelled()  # else it is told and never sent
                self.tap.sent((data,), len(data))
                await self.inner.send_all(data)
        except trio.BrokenResourceError:
            self.tap.broken()
            raise
        finally:
            self._sending = False

    def send_now(self, data: Buffer) -> int:
        """Send what the kernel takes at once; how many bytes that is. 0 also where others send, or TLS must.

        Raises trio.BrokenResourceError, and trio.ClosedResourceError.
        """
        if self._socket is None or self._sending:
            return 0
        if _is_shut(self._socket):
            raise trio.ClosedResourceError
        try:
            size = os.write(self._socket.fileno(), data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.tap.broken()
            raise trio.BrokenResourceError from error
        self.tap.sent((data,), size)
        return size

    async def _send_directly(self, socket: trio.socket.SocketType, data: Buffer) -> None:
        """What trio does, but each part is told at once when the kernel has it: after trio's own call other tasks run
        first, and the answer could be told before the question."""
        if _is_shut(socket):
            raise trio.ClosedResourceError
        await trio.lowlevel.checkpoint_if_cancelled()
        rest = memoryview(data)
        while rest:
            if _is_shut(socket):  # while it was waited for
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
            raise trio.BusyResourceError("another task sends")
        self.tap.finished()
        await self._half_closeable.send_eof()


def _is_shut(socket: trio.socket.SocketType) -> bool:
    return socket.fileno() < 0 or socket.did_shutdown_SHUT_WR


def tapped(stream: trio.abc.Stream, tap: Tap) -> TappedStream:
    """A stream that tells `tap`, and can do what `stream` can."""
    if isinstance(stream, trio.abc.HalfCloseableStream):
        return _TappedHalfCloseable(stream, tap)
    return TappedStream(stream, tap)


def encrypted(stream: trio.abc.Stream) -> trio.SSLStream[trio.abc.Stream] | None:
    """The TLS of a stream, tapped or not; None where there is none."""
    inner = stream.inner if isinstance(stream, TappedStream) else stream
    return inner if isinstance(inner, trio.SSLStream) else None
