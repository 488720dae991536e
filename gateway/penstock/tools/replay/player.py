"""The player of one recorded conversation, and the order, pace and memory that all players share.

There is no deadlock: an item waits only for items before it in the capture, which were read before, and the first
unplayed item waits only for the server, with a deadline. So the reader may simply wait when it is too far ahead.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from penstock.model.failures import OperationFailed
from penstock.model.limits import KIB, MIB
from penstock.tools.replay import PATIENCE_SECONDS
from penstock.tools.replay.items import ClientSent, Finish, Item, Over, ServerGave
from penstock.tools.replay.live import Live
from penstock.tools.replay.report import ReplayTally, Report
from penstock.wire.http import Reset

__all__ = [
    "CONVERSATION_BYTES",
    "READ_AHEAD_BYTES",
    "PlaybackBuffer",
    "Player",
    "ReplayPace",
    "ReplayState",
    "RequestsInFlight",
    "Turns",
]

READ_AHEAD_BYTES: Final = 32 * MIB
"""Bytes of a capture, of all conversations, that may wait to be played. A larger message is read alone."""
MAX_IN_FLIGHT: Final = 10_000
"""Most recorded requests without an answer that are remembered."""
CONVERSATION_BYTES: Final = 32 * KIB
"""Estimated memory of a conversation with its dialogues before its first item is played. Measured: 15 KiB over S3P."""
_NANOSECONDS: Final = 1_000_000_000


class Turns:
    """Turns of items, which are numbered in the order of the capture: an item has its turn when all before it are done.

    With `together` False every item has its turn at once: a conversation then waits only for its own server.
    """

    def __init__(self, together: bool = True) -> None:
        self._together = together
        self._next = 0
        self._first = 0  # the first one that is not done
        self._done: set[int] = set()  # those after the first
        self._waiting: dict[int, trio.Event] = {}

    def take(self) -> int:
        """Return the number of the next item."""
        self._next += 1
        return self._next - 1

    async def wait(self, place: int) -> None:
        """Wait until this item has its turn."""
        if self._together and place > self._first:
            await self._waiting.setdefault(place, trio.Event()).wait()

    def done(self, place: int) -> None:
        """Mark an item as done, whether or not it was played."""
        if not self._together:
            return
        self._done.add(place)
        while self._first in self._done:
            self._done.discard(self._first)
            self._first += 1
            event = self._waiting.pop(self._first, None)
            if event is not None:
                event.set()


class RequestsInFlight:
    """The recorded requests that wait for an answer, of all conversations, and which of them were alone from their
    beginning to their answer: the answer to a read depends on an append that was in flight at the same time. Of more
    than MAX_IN_FLIGHT the oldest are forgotten."""

    def __init__(self) -> None:
        self._begun = 0
        self._open: dict[tuple[object, int], tuple[int, bool]] = {}  # how many had begun, and whether none was open

    def begin(self, conversation: object, exchange: int) -> None:
        """Note a request."""
        self._begun += 1
        self._open[conversation, exchange] = self._begun, not self._open
        if len(self._open) > MAX_IN_FLIGHT:
            del self._open[next(iter(self._open))]

    def is_alone(self, conversation: object, exchange: int | None) -> bool:
        """Return whether a request has been alone until now."""
        begun, alone = (0, False) if exchange is None else self._open.get((conversation, exchange), (0, False))
        return alone and begun == self._begun

    def end(self, conversation: object, exchange: int | None) -> None:
        """Note that a request is answered; None: all requests of the conversation."""
        if exchange is not None:
            self._open.pop((conversation, exchange), None)
            return
        for key in [key for key in self._open if key[0] is conversation]:
            del self._open[key]


class PlaybackBuffer:
    """The bytes that were read and not yet played, bounded."""

    def __init__(self, most: int = READ_AHEAD_BYTES) -> None:
        self._most = most
        self._held = 0
        self._room = trio.lowlevel.ParkingLot()

    async def take(self, size: int) -> None:
        """Wait until there is room for `size` more bytes, and take it."""
        while self._held and self._held + size > self._most:
            await self._room.park()
        self._held += size

    def give_back(self, size: int) -> None:
        """Release `size` bytes that were played."""
        self._held -= size
        self._room.unpark_all()


class ReplayPace:
    """The clock of one run through a capture.

    `speed`: 1.0 as recorded, 10.0 ten times as fast, inf without delays. `rate`: records a second instead, counted as
    they were acknowledged and delivered in the recording; None: by time.
    """

    def __init__(self, speed: float = 1.0, rate: float | None = None) -> None:
        self._speed = speed
        self._rate = rate
        self._began_at: float | None = None
        self._began_ns = 0
        self._began_records = 0
        self.latest = 0.0
        """The largest delay behind the pace, in seconds."""

    async def wait(self, time_ns: int, records: int) -> None:
        """Wait until a message is due that was sent at `time_ns`, after `records` records. The clock starts with the
        first one.

        A message that is late is sent at once: a replay that was held up catches up.
        """
        if self._began_at is None:
            self._began_at = trio.current_time()
            self._began_ns = time_ns
            self._began_records = records
        due = self._began_at + self._after(time_ns, records)
        late = trio.current_time() - due
        if late >= 0:
            if self._rate is None and self._speed < math.inf:
                self.latest = max(self.latest, late)
            return
        await trio.sleep_until(due)

    def _after(self, time_ns: int, records: int) -> float:
        if self._rate is not None:
            return (records - self._began_records) / self._rate
        return (time_ns - self._began_ns) / _NANOSECONDS / self._speed


class ReplayState(msgspec.Struct, frozen=True, kw_only=True):
    """The state that all players of one run share. `patience`: seconds to wait beyond the recorded server's time;
    `gives_up`: end a conversation when a wait runs out, instead of continuing."""

    turns: Turns
    pace: ReplayPace
    ahead: PlaybackBuffer
    patience: float = PATIENCE_SECONDS
    gives_up: bool = False


class Player:
    """Plays items: `put` takes them, in order, and `run` plays them and returns after `end`."""

    def __init__(self, stage: ReplayState, live: Live, tally: ReplayTally, report: Report) -> None:
        self._stage = stage
        self._live = live
        self._tally = tally
        self._report = report
        self._open = False
        self._given_up = ""
        self._said_ns = 0
        self._said_at = 0.0
        self._weight = CONVERSATION_BYTES
        send, receive = trio.open_memory_channel[tuple[Item, int]](10**9)  # bounded by `PlaybackBuffer`
        self._send, self._receive = send, receive

    async def put(self, item: Item) -> None:
        """Take the next item; waits while too much of all conversations is not yet played."""
        size, self._weight = item.size + self._weight, 0
        await self._stage.ahead.take(size)
        item.place = self._stage.turns.take()
        self._send.send_nowait((item, size))

    def end(self) -> None:
        """Mark the end of the items."""
        self._send.close()

    async def run(self) -> None:
        """Play, and close the connection. Failures of the server go to the report."""
        async with trio.open_nursery() as nursery:
            async for item, size in self._receive:
                try:
                    await self._play(item, nursery)
                finally:
                    self._stage.turns.done(item.place)
                    self._stage.ahead.give_back(size)
            if self._open:
                await self._live.close()
                if not self._given_up:
                    self._tally.compare_records(None)
            nursery.cancel_scope.cancel()
        for exchange, outcome in self._tally.unanswered():
            self._report.differs(exchange, outcome, "nothing")

    async def _play(self, item: Item, nursery: trio.Nursery) -> None:
        match item:
            case ClientSent():
                await self._replay(item, nursery)
            case ServerGave():
                self._tally.want(item)
                await self._wait(item, lambda: self._tally.has(item.exchange))
            case Over():
                await self._wait(item, lambda: False)
                self._compare_ends(item)
                if item.alone and not (item.broken or self._given_up):
                    self._tally.compare_records(item.exchange)
                self._forget(item.exchange)
            case Finish():
                await self._finish(item)

    # ---- saying --------------------------------------------------------------------------------------------------

    async def _replay(self, item: ClientSent, nursery: trio.Nursery) -> None:
        await self._stage.turns.wait(item.place)
        await self._stage.pace.wait(item.time_ns, item.records)
        if self._given_up or (not self._open and not await self._connect(nursery)):
            return
        if self._tally.over:
            self._report.leave_out(f"the rest was not said: {self._tally.over}")
            return
        self._said_ns, self._said_at = item.time_ns, trio.current_time()
        if not await self._in_time(lambda: self._live.send(item)):
            self._stop(f"the server accepted no data for {self._stage.patience:g} s")
        if isinstance(item.move, Reset):
            self._forget(item.move.stream_id)

    async def _connect(self, nursery: trio.Nursery) -> bool:
        try:
            await self._live.open(nursery)
        except OperationFailed as error:
            self._stop(error.failure.message)
            return False
        self._open = True
        return True

    async def _finish(self, item: Finish) -> None:
        await self._stage.turns.wait(item.place)
        if self._open and not item.reset:
            await self._in_time(self._live.finish)
        elif self._open:
            await self._live.close(at_once=True)
            self._stop("")

    def _forget(self, exchange: int) -> None:
        self._tally.forget(exchange)
        self._live.forget(exchange)

    def _stop(self, reason: str) -> None:
        """Stop playing this conversation."""
        self._given_up = reason or "the recorded client left"
        if reason:
            self._report.leave_out(f"the rest was not said: {reason}")

    async def _in_time(self, action: Callable[[], Awaitable[None]]) -> bool:
        with trio.move_on_after(self._stage.patience):
            await action()
            return True
        return False

    # ---- waiting -------------------------------------------------------------------------------------------------

    async def _wait(self, item: ServerGave | Over, enough: Callable[[], bool]) -> None:
        """Wait until the live server has given enough or can give no more, or until patience ends.

        A server may take as long as the recorded one did, for instance while it waited for later records.
        """
        if not self._open or self._given_up:
            return
        exchange = item.exchange
        recorded = self._said_at + (item.time_ns - self._said_ns) / _NANOSECONDS
        where = "" if exchange is None else f"exchange {exchange}: "
        with trio.move_on_at(max(trio.current_time(), recorded) + self._stage.patience):
            while not (enough() or self._live.over(exchange)):
                await self._tally.changed.park()
            if isinstance(item, ServerGave) and (missing := self._tally.lost(exchange)):
                self._report.waited(f"{where}{missing} did not come: {self._tally.over or 'the answer ended before'}")
                self._tally.forgive(exchange)
            return
        missing = self._tally.missing(exchange) or "the end of the answer"
        reason = f"{where}{missing} did not come in {self._stage.patience:g} s"
        self._report.waited(reason)
        self._tally.forgive(exchange)
        if self._stage.gives_up:
            await self._live.close(at_once=True)
            self._stop(reason)

    def _compare_ends(self, item: Over) -> None:
        broken = self._live.broken(item.exchange)
        if self._open and bool(broken) != item.broken:
            names = "a whole answer", "one broken off"
            self._report.differs(item.exchange, names[item.broken], f"{names[bool(broken)]} {broken}".strip())
