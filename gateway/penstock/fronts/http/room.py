"""How much of its answers one connection may hold, and who may add to that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import trio

from penstock_codecs.http import HttpCodec
from penstock_codecs.limits import MIB

__all__ = ["SendRoom"]

_PIECE: Final = 1 * MIB
"""What is set aside for one who goes to fetch: the largest batch that S2 reads give."""
_LOOK_SECONDS: Final = 5.0


class SendRoom:
    """The room, `limit` bytes, for what is said on one connection and waits for window.

    Streams that have window come first. The others may fill half of the room only: most of what they are given stays
    in it. Where those that have window find no room all the same, streams that hold some of it and did not move
    for 5 to 10 s are given up, the oldest first, until half of the room is free. So is one that waits for room, and
    has no window, for `patience` seconds.

    `streams` are those of the connection. `give_up(stream_id, reason)` resets one.
    """

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
        self._kept: set[int] = set()
        self._waiting: dict[int, trio.Event] = {}
        self._look_at = 0.0
        self._shut: dict[int, float] = {}  # who waits without window, since when
        self._stuck: dict[int, int] = {}  # who held how much, without window, when it was last looked

    async def wait(self, stream_id: int) -> None:
        """Wait for room, in turn; a piece's worth of it belongs to the stream until it leaves."""
        self.leave(stream_id)
        if not self._fits(stream_id):
            await self._queue(stream_id)
        self._kept.add(stream_id)

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
        """What was kept for the stream is used, or not wanted."""
        if stream_id in self._kept:
            self._kept.discard(stream_id)
            self.review()

    def review(self) -> None:
        """Let in those who fit now. To be called whenever something was sent or dropped, or a window was opened."""
        if not self._waiting or self._is_full():
            return
        for stream_id in list(self._waiting):
            if self._fits(stream_id):
                self._kept.add(stream_id)  # nobody else may have it until its task runs
                self._waiting.pop(stream_id).set()
                if self._is_full():
                    return

    @property
    def _used(self) -> int:
        return self._codec.held + _PIECE * len(self._kept)

    def _is_full(self) -> bool:
        used = self._used
        return used > 0 and used + _PIECE > self._limit

    def _half_is_free(self) -> bool:
        used = self._used
        return not used or used + _PIECE <= self._limit // 2

    def _fits(self, stream_id: int) -> bool:
        return self._half_is_free() or (not self._is_full() and self._codec.window(stream_id) > 0)

    def _look(self) -> None:
        """See who stands in the way, now and then while somebody waits."""
        now = trio.current_time()
        self._look_at = now + min(_LOOK_SECONDS, self._patience)
        shut = [stream_id for stream_id in self._waiting if not self._codec.window(stream_id)]
        self._shut = {stream_id: self._shut.get(stream_id, now) for stream_id in shut}
        for stream_id, since in self._shut.items():
            if now - since >= self._patience:
                self._give_up(stream_id, "client gives no window")
        before, self._stuck = self._stuck, {}
        if len(shut) < len(self._waiting):
            held = {stream_id: self._codec.unsent(stream_id) for stream_id in self._streams}
            self._stuck = {each: size for each, size in held.items() if size and not self._codec.window(each)}
        for stream_id, size in self._stuck.items():
            if before.get(stream_id) == size and not self._half_is_free():
                self._give_up(stream_id, "others wait for the room that it takes")
        self.review()
