"""The player of one recorded conversation, which plays it item by item on a live connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from penstock.tools.replay import PATIENCE_SECONDS
from penstock.tools.replay.items import ClientSent, Finish, Item, Over, ServerGave
from penstock.tools.replay.live import Live
from penstock.tools.replay.order import PlaybackBuffer, Turns
from penstock.tools.replay.pace import ReplayPace
from penstock.tools.replay.report import Report
from penstock.tools.replay.tally import ReplayTally
from penstock_codecs.failures import OperationFailed
from penstock_codecs.http import Reset
from penstock_codecs.limits import KIB

__all__ = ["CONVERSATION_BYTES", "Player", "ReplayState"]

CONVERSATION_BYTES: Final = 32 * KIB
"""Estimated memory of a conversation with its dialogues before its first item is played. Measured: 15 KiB over S3P."""
_NANOSECONDS: Final = 1_000_000_000


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
        for asked, outcome in self._tally.unanswered():
            self._report.differs(asked, outcome, "nothing")

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

    def _stop(self, why: str) -> None:
        """Stop playing this conversation."""
        self._given_up = why or "the recorded client left"
        if why:
            self._report.leave_out(f"the rest was not said: {why}")

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
        why = f"{where}{missing} did not come in {self._stage.patience:g} s"
        self._report.waited(why)
        self._tally.forgive(exchange)
        if self._stage.gives_up:
            await self._live.close(at_once=True)
            self._stop(why)

    def _compare_ends(self, item: Over) -> None:
        broken = self._live.broken(item.exchange)
        if self._open and bool(broken) != item.broken:
            names = "a whole answer", "one broken off"
            self._report.differs(item.exchange, names[item.broken], f"{names[bool(broken)]} {broken}".strip())
