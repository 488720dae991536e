"""Connections that are cut, delayed or doubled at a chosen message boundary."""

from __future__ import annotations

import importlib
import socket
import struct
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import trio

from penstock.net.upstream import UpstreamSettings

__all__ = ["Act", "Chaos", "Direction", "Kind"]

_RESET: Final = struct.pack("ii", 1, 0)


class Kind(Enum):
    """The trouble at a boundary."""

    CUT = "cut"
    """The message behind it does not arrive; both ends see the end of the connection."""
    RESET = "reset"
    """The same, and both ends see an error."""
    CUT_BEHIND = "cut behind"
    """The message behind it arrives, and nothing after it in either direction."""
    DELAY = "delay"
    """Everything behind it in this direction arrives later, but in time."""
    STALL = "stall"
    """The same, and the gateway has given up waiting."""
    DOUBLE = "double"
    """The message behind it arrives twice."""


class Direction(Enum):
    """The direction of messages, as the gateway sees it."""

    OUT = "out"
    IN = "in"


@dataclass(frozen=True)
class Act:
    """A trouble, at the boundary before message `number` of that direction, counted from 0 over all connections."""

    kind: Kind
    direction: Direction
    number: int

    def __str__(self) -> str:
        return f"{self.kind.value} {self.direction.value} {self.number}"


@dataclass
class Chaos:
    """The connections of a gateway to its server. `act`: what happens to one of them; None: nothing.

    `delay_seconds`: less than the gateway waits for an answer. `stall_seconds`: more than that.
    """

    nursery: trio.Nursery
    act: Act | None
    delay_seconds: float
    stall_seconds: float
    messages: dict[Direction, list[bytes]] = field(default_factory=lambda: {one: [] for one in Direction})
    """All messages so far."""
    acted: bool = False
    _is_over: bool = False
    _quiet_at: float = 0.0

    def watch(self, stream: trio.abc.Stream, settings: UpstreamSettings) -> trio.abc.Stream:
        """See `penstock.net.upstream.Watch`."""
        return _Stream(self, stream, settings.protocol)

    async def settle(self) -> None:
        """Wait until nothing is held up; nothing happens to later messages, and they are not counted."""
        self._is_over = True
        await trio.sleep_until(self._quiet_at + self.delay_seconds)

    def seconds(self, kind: Kind) -> float:
        """Return the time for which messages are held up, from now on."""
        seconds = self.delay_seconds if kind is Kind.DELAY else self.stall_seconds
        self._quiet_at = trio.current_time() + seconds
        return seconds

    def kind_at(self, direction: Direction, message: bytes) -> Kind | None:
        """Count a message; return what is done with it."""
        if self._is_over:
            return None
        messages = self.messages[direction]
        messages.append(message)
        if self.act is None or (direction, len(messages) - 1) != (self.act.direction, self.act.number):
            return None
        self.acted = True
        return self.act.kind


class _Stream(trio.abc.HalfCloseableStream):
    """One connection. Messages reach the other end whole: the rest of one that is incomplete is kept back."""

    def __init__(self, chaos: Chaos, inner: trio.abc.Stream, protocol: str) -> None:
        self._chaos = chaos
        self._inner = inner
        boundaries = importlib.import_module(f"support.{protocol}.boundaries")
        self._boundaries = {one: boundaries.Boundaries() for one in Direction}
        self._arrived: deque[bytes] = deque()
        self._held: list[bytes] | None = None
        self._due = 0.0
        self._cut: Kind | None = None
        self._closed = False

    # ---- from the gateway ----------------------------------------------------------------------------------------

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._check()
        for message in self._boundaries[Direction.OUT].take(bytes(data)):
            if self._cut is not None:
                break
            await self._pass_on(message)
        await trio.lowlevel.checkpoint()
        self._check()

    def _check(self) -> None:
        """Raise BrokenResourceError after a reset. After a cut, what is sent goes nowhere."""
        if self._cut is Kind.RESET:
            raise trio.BrokenResourceError("reset")

    async def _pass_on(self, message: bytes) -> None:
        kind = self._chaos.kind_at(Direction.OUT, message)
        if self._held is not None:
            self._held.append(message)
            return
        match kind:
            case Kind.CUT | Kind.RESET:
                await self._end(kind)
            case Kind.CUT_BEHIND:
                await self._inner.send_all(message)
                await self._end(Kind.CUT)
            case Kind.DELAY | Kind.STALL:
                self._held = [message]
                self._chaos.nursery.start_soon(self._release, self._chaos.seconds(kind))
            case Kind.DOUBLE if self._boundaries[Direction.OUT].repeatable(message):
                await self._inner.send_all(message * 2)
            case _:
                await self._inner.send_all(message)

    async def _release(self, seconds: float) -> None:
        """Let what was held up arrive, also where the gateway has closed the connection meanwhile, as TCP does."""
        await trio.sleep(seconds)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while self._held:
                held, self._held = self._held, []
                await self._inner.send_all(b"".join(held))
        self._held = None
        if self._closed:
            await self._inner.aclose()

    # ---- to the gateway ------------------------------------------------------------------------------------------

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        while not self._arrived:
            if self._cut is not None:
                await trio.lowlevel.checkpoint()
                self._check()
                return b""
            try:
                data = bytes(await self._inner.receive_some(max_bytes))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                if self._cut is None:
                    raise
                continue
            if not data:
                return b""
            await self._take(data)
        await trio.sleep_until(self._due)
        data = b"".join(self._arrived)
        self._arrived.clear()
        return data

    async def _take(self, data: bytes) -> None:
        for message in self._boundaries[Direction.IN].take(data):
            kind = self._chaos.kind_at(Direction.IN, message)
            if kind in (Kind.CUT, Kind.RESET):
                await self._end(kind)
            if self._cut is not None:
                return
            self._arrived.append(message)
            match kind:
                case Kind.CUT_BEHIND:
                    await self._end(Kind.CUT)
                case Kind.DELAY | Kind.STALL:
                    self._due = trio.current_time() + self._chaos.seconds(kind)
                case Kind.DOUBLE if self._boundaries[Direction.IN].repeatable(message):
                    self._arrived.append(message)

    # ---- the end -------------------------------------------------------------------------------------------------

    async def _end(self, kind: Kind) -> None:
        if self._cut is not None:
            return
        self._cut = kind
        if kind is Kind.RESET:
            self._arrived.clear()
            if isinstance(self._inner, trio.SocketStream):
                self._inner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        await trio.aclose_forcefully(self._inner)

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        if self._cut is None and isinstance(self._inner, trio.abc.HalfCloseableStream):
            await self._inner.send_eof()

    async def aclose(self) -> None:
        self._closed = True
        if self._held is None:
            await self._inner.aclose()
