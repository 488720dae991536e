"""Messages in both directions over one Unix socket, between two processes that trust each other.

A message is any object that can be pickled. The socket is inherited, never bound to a name, and both ends run the same
code, so pickle is safe here. Of the standard library it is the cheapest encoding for a mixture of numbers, tuples and
bytes; with protocol 5, large bytes are sent and received without a copy.

Messages posted in one pass of the scheduler form one frame: the number of pieces, the length of each (4 bytes each),
then the pieces: the pickle and its large byte strings. While both processes live, each message arrives exactly once.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import trio

from penstock_codecs.limits import KIB, MIB

__all__ = ["Channel", "uncopied"]

_READ_BYTES: Final = 256 * KIB
_UNCOPIED_FROM: Final = 4 * KIB
"""Size in bytes from which data is not copied into the pickle: below it, a separate piece costs more than the copy."""
_SOCKET_BYTES: Final = 4 * MIB
"""Requested size of the socket buffer of each direction; the system may give less."""
_ROOM_BYTES: Final = 8 * MIB
"""Unsent bytes above which `room` waits."""
_MESSAGES: Final = 1024
"""Most messages in one frame."""
_GATHER: Final = 512
"""Most pieces in one write; Linux allows 1024."""
_HEAD: Final = 4

Piece = bytes | bytearray | memoryview


def uncopied(data: Piece) -> Any:
    """Wrap `data` to send it without a copy if it is large; the peer gets bytes, or a read-only view of its receive
    buffer."""
    return pickle.PickleBuffer(data) if len(data) >= _UNCOPIED_FROM else bytes(data)


class Channel:
    """One end of a channel. `run` sends and receives; `post` never blocks. `before_sending` is called before each send,
    and may post deferred messages."""

    def __init__(self, inherited: socket.socket, before_sending: Callable[[], None] = lambda: None) -> None:
        inherited.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            inherited.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)
        self.before_sending = before_sending
        self._socket = inherited
        self._messages: list[object] = []
        self._wake = trio.Event()
        self._pieces: list[Piece] = []
        self._unsent = 0
        self._room = trio.lowlevel.ParkingLot()

    def post(self, message: object) -> None:
        """Queue a message, to be sent after all that were posted before."""
        self._messages.append(message)
        self._wake.set()

    def wake(self) -> None:
        """Request a call of `before_sending`."""
        self._wake.set()

    async def room(self) -> None:
        """Wait until all posted messages are framed and at most 8 MiB of them are unsent."""
        while self._messages or self._unsent > _ROOM_BYTES:
            await self._room.park()

    async def flushed(self) -> None:
        """Wait until all posted messages are sent."""
        while self._messages or self._unsent:
            await self._room.park()

    async def run(self, receive: Callable[[Any], None]) -> None:
        """Send posted messages and pass received ones to `receive`, in order, until the peer has ended."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, nursery.cancel_scope)
            await self._receive(receive)
            nursery.cancel_scope.cancel()

    def close(self) -> None:
        """Close this end; the peer's `run` returns."""
        self._socket.close()

    # ---- out ----

    async def _send(self, scope: trio.CancelScope) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                self.before_sending()
                while messages := self._messages[:_MESSAGES]:
                    del self._messages[:_MESSAGES]
                    self._frame(messages)
                    await self._write()
                self._room.unpark_all()
        except OSError:  # the peer is gone
            scope.cancel()

    def _frame(self, messages: Sequence[object]) -> None:
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(messages, 5, buffer_callback=buffers.append)
        pieces: list[Piece] = [data, *(buffer.raw() for buffer in buffers)]
        lengths = array("I", [len(pieces), *map(len, pieces)])
        self._pieces = [lengths.tobytes(), *pieces]
        self._unsent = sum(map(len, self._pieces))

    async def _write(self) -> None:
        fd = self._socket.fileno()
        while self._pieces:
            try:
                self._taken(os.writev(fd, self._pieces[:_GATHER]))
            except BlockingIOError:
                await trio.lowlevel.wait_writable(fd)

    def _taken(self, size: int) -> None:
        self._unsent -= size
        gone = 0
        for piece in self._pieces:
            if size < len(piece):
                break
            size -= len(piece)
            gone += 1
        del self._pieces[:gone]
        if size:
            self._pieces[0] = memoryview(self._pieces[0])[size:]

    # ---- in ----

    async def _receive(self, receive: Callable[[Any], None]) -> None:
        incoming = _Incoming()
        fd = self._socket.fileno()
        while True:
            try:
                size = os.readv(fd, incoming.space())
            except BlockingIOError:
                await trio.lowlevel.wait_readable(fd)
                continue
            except OSError:
                return
            if not size:
                return
            for messages in incoming.took(size):
                for message in messages:
                    receive(message)
            await trio.lowlevel.checkpoint()


class _Incoming:
    """Assembles frames from received bytes."""

    def __init__(self) -> None:
        self._scratch = bytearray(_READ_BYTES)
        self._held = 0  # bytes of an incomplete frame in the scratch
        self._frame: memoryview | None = None  # a frame larger than the scratch, received in place
        self._have = 0

    def space(self) -> list[memoryview]:
        """Return the buffers for the next bytes."""
        scratch = memoryview(self._scratch)
        return [scratch[self._held :]] if self._frame is None else [self._frame[self._have :], scratch]

    def took(self, size: int) -> Iterator[list[Any]]:
        """Account for received bytes; yield the messages of each complete frame."""
        if self._frame is not None:
            mine = min(size, len(self._frame) - self._have)
            self._have += mine
            if self._have < len(self._frame):
                return
            yield _messages(self._frame)
            self._frame = None
            self._held = size - mine
        else:
            self._held += size
        at = 0
        view = memoryview(self._scratch)[: self._held]
        while (length := _length(view[at:])) is not None and at + length <= self._held:
            yield _messages(memoryview(bytes(view[at : at + length])))
            at += length
        rest = bytes(view[at:])
        if length is None:
            self._scratch[: len(rest)] = rest
            self._held = len(rest)
        else:
            self._frame = memoryview(bytearray(length))
            self._frame[: len(rest)] = rest
            self._have, self._held = len(rest), 0


def _lengths(view: memoryview) -> array[int] | None:
    if len(view) < _HEAD:
        return None
    end = _HEAD * (1 + int.from_bytes(view[:_HEAD], sys.byteorder))
    return array("I", bytes(view[_HEAD:end])) if len(view) >= end else None


def _length(view: memoryview) -> int | None:
    """Return the length of the frame that begins here, or None if too few bytes are there to tell."""
    lengths = _lengths(view)
    return None if lengths is None else _HEAD * (1 + len(lengths)) + sum(lengths)


def _messages(frame: memoryview) -> list[Any]:
    lengths = _lengths(frame)
    assert lengths is not None
    ends = accumulate(lengths, initial=_HEAD * (1 + len(lengths)))
    data, *buffers = [frame[begin:end].toreadonly() for begin, end in pairwise(ends)]
    found: list[Any] = pickle.loads(data, buffers=buffers)
    return found
