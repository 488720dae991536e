"""Admission of responses to the bounded output buffer of one HTTP connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from zlib import crc32

import trio

from penstock.model.limits import KIB, MIB
from penstock.wire.http import Buffer, HttpCodec

__all__ = ["AHEAD", "Remainder", "SendRoom"]

_PIECE: Final = 1 * MIB
"""Bytes reserved for an exchange that fetches more to send: the largest batch of a read."""
AHEAD: Final = 4 * KIB
"""Bytes that a stream may have unsent beyond its flow-control window when the rest can be fetched again, so that
something is sent as soon as the window opens. A thousand streams without window hold half of the room."""
_LOOK_SECONDS: Final = 5.0
_NONE: Final[Mapping[int, int]] = {}
"""An empty dictionary takes 64 bytes of each connection."""


class Remainder:
    """The part of a body that waits for flow-control window outside the codec: in memory, or dropped and to be fetched
    again."""

    __slots__ = ("_checksum", "_pieces", "size")

    def __init__(self, pieces: list[Buffer]) -> None:
        """Move all of `pieces` here: the list is emptied."""
        self._pieces: list[Buffer] | None = pieces.copy()
        self._checksum = 0
        self.size = sum(map(len, pieces))
        """Bytes that were not taken."""
        pieces.clear()

    @property
    def in_memory(self) -> bool:
        """True unless it was dropped."""
        return self._pieces is not None

    def take(self, most: int) -> list[Buffer]:
        """Remove and return the first bytes, at most `most`; copies, unless that is all, since a part of a large piece
        keeps all of it in memory."""
        assert self._pieces is not None, "it is in memory"
        if most >= self.size:
            taken, self._pieces, self.size = self._pieces, [], 0
            return taken
        head: list[Buffer] = []
        self.size -= most
        while most:
            piece = memoryview(self._pieces[0])
            head.append(piece[:most])
            if len(piece) > most:
                self._pieces[0] = piece[most:]
            else:
                del self._pieces[0]
            most -= len(head[-1])
        return [b"".join(head)]

    def drop(self) -> None:
        """Drop the bytes."""
        assert self._pieces is not None, "it is in memory"
        self._checksum = _checksum(self._pieces)
        self._pieces = None

    def restore(self, pieces: Sequence[Buffer]) -> bool:
        """Keep the end of `pieces`, which are all that the body had when this was made. Return False if the end differs
        from what was dropped."""
        skipped, tail = sum(map(len, pieces)) - self.size, []
        if skipped < 0:
            return False
        for piece in pieces:
            tail.append(memoryview(piece)[skipped:])
            skipped = max(0, skipped - len(piece))
        self._pieces = [piece for piece in tail if piece]
        return _checksum(self._pieces) == self._checksum


def _checksum(pieces: Sequence[Buffer]) -> int:
    checksum = 0
    for piece in pieces:
        checksum = crc32(piece, checksum)
    return checksum


class SendRoom:
    """The room, `limit` bytes, for output of one connection that waits for flow-control window.

    Streams whose window is open go first. The others may fill only half of the room, as most of what they add stays in
    it. If a stream finds no room, what others keep outside the codec (`park`) for a closed window is dropped, the
    oldest first. If streams with an open window still find none, streams that hold some of it and made no progress for
    5 to 10 s are reset, the oldest first, until half of the room is free. A stream that waits for room with a closed
    window for `patience` seconds is reset too.

    `streams`: those of the connection. `give_up(stream_id, reason)` resets one.
    """

    __slots__ = (
        "_codec",
        "_give_up",
        "_kept",
        "_limit",
        "_look_at",
        "_parked",
        "_patience",
        "_shut",
        "_streams",
        "_stuck",
        "_waiting",
        "parked",
    )

    def __init__(
        self,
        codec: HttpCodec,
        streams: Mapping[int, object],
        limit: int,
        patience: float,
        give_up: Callable[[int, str], None],
    ) -> None:
        self._codec = codec
        self._streams = streams
        self._limit = limit
        self._patience = patience
        self._give_up = give_up
        self._kept: dict[int, None] = {}  # an empty set takes 150 bytes more
        self._parked: dict[int, Remainder] = {}  # those in memory
        self.parked = 0
        """Bytes of parked remainders in memory."""
        self._waiting: dict[int, trio.Event] = {}
        self._look_at = 0.0
        self._shut: Mapping[int, float] = _NONE  # when each waiting stream was first seen with its window closed
        self._stuck: Mapping[int, int] = _NONE  # bytes held by each stream with a closed window, at the last check

    async def wait(self, stream_id: int) -> None:
        """Wait for room, in turn, and reserve a piece's worth of it for the stream until `leave`."""
        self.leave(stream_id)
        if not self._fits(stream_id):
            self._drop_parked()
            if not self._fits(stream_id):
                await self._queue(stream_id)
        self._kept[stream_id] = None

    def park(self, stream_id: int, remainder: Remainder) -> None:
        """Count a stream's remainder, and drop it when another stream needs the memory and the stream's window is
        closed; until `unpark`."""
        self._parked[stream_id] = remainder
        self.parked += remainder.size
        self.review()

    def unpark(self, stream_id: int) -> None:
        """Neither count nor drop the stream's remainder any more."""
        if (remainder := self._parked.pop(stream_id, None)) is not None:
            self.parked -= remainder.size
            self._parked = self._parked or {}  # as for `_kept`

    def _drop_parked(self) -> None:
        """Drop remainders of streams with a closed window, the oldest first, until half of the room is free."""
        for stream_id, remainder in list(self._parked.items()):
            if self._half_is_free():
                return
            if not self._codec.window(stream_id):
                self.unpark(stream_id)
                remainder.drop()

    async def _queue(self, stream_id: int) -> None:
        if not self._waiting:
            self._look_at = trio.current_time() + min(_LOOK_SECONDS, self._patience)
            self._shut, self._stuck = {}, {}
        event = self._waiting[stream_id] = trio.Event()
        try:
            while not event.is_set():
                with trio.move_on_at(self._look_at):
                    await event.wait()
                if trio.current_time() >= self._look_at:
                    self._look()
        except trio.Cancelled:
            self._waiting.pop(stream_id, None)
            self.leave(stream_id)
            raise

    def leave(self, stream_id: int) -> None:
        """Release the stream's reservation, if any."""
        if stream_id in self._kept:
            del self._kept[stream_id]
            if not self._kept:
                self._kept = {}  # one that had members keeps their places
            self.review()

    def spare(self) -> int:
        """Return how many bytes are free in the half of the room that all streams may fill; 0 while any waits."""
        return 0 if self._waiting else max(self._limit // 2 - self._used, 0)

    def review(self) -> None:
        """Admit waiting streams that fit now. To be called whenever output was sent or dropped, or a window was
        opened."""
        if not self._waiting:
            return
        if self._parked and not self._half_is_free():
            self._drop_parked()
        if self._is_full():
            return
        for stream_id in list(self._waiting):
            if self._fits(stream_id):
                self._kept[stream_id] = None  # reserved until its task runs
                self._waiting.pop(stream_id).set()
                if self._is_full():
                    return

    @property
    def _used(self) -> int:
        return self._codec.held + self.parked + _PIECE * len(self._kept)

    def _is_full(self) -> bool:
        used = self._used
        return used > 0 and used + _PIECE > self._limit

    def _half_is_free(self) -> bool:
        used = self._used
        return not used or used + _PIECE <= self._limit // 2

    def _fits(self, stream_id: int) -> bool:
        return self._half_is_free() or (not self._is_full() and self._codec.window(stream_id) > 0)

    def _look(self) -> None:
        """Reset streams that block others; called every few seconds while any stream waits."""
        now = trio.current_time()
        self._look_at = now + min(_LOOK_SECONDS, self._patience)
        shut = [stream_id for stream_id in self._waiting if not self._codec.window(stream_id)]
        self._shut = {stream_id: self._shut.get(stream_id, now) for stream_id in shut}
        for stream_id, since in self._shut.items():
            if now - since >= self._patience:
                self._give_up(stream_id, "the client gives no flow-control window")
        before, self._stuck = self._stuck, {}
        if len(shut) < len(self._waiting):
            held = {stream_id: self._codec.unsent(stream_id) for stream_id in self._streams}
            self._stuck = {each: size for each, size in held.items() if size and not self._codec.window(each)}
        for stream_id, size in self._stuck.items():
            if before.get(stream_id) == size and not self._half_is_free():
                self._give_up(stream_id, "other requests wait for its memory")
        self.review()
