"""Live connections, on which a recorded client speaks again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import trio

from penstock.backs.upstream import Dial, Upstream, UpstreamSettings, reason_of
from penstock.recorder.tap import Tap
from penstock.recorder.tapped import tapped
from penstock.replay.items import Say
from penstock.replay.tally import Tally
from penstock.replay.target import Target
from penstock.tls import ClientTls
from penstock_codecs.capture import Conversation, Endpoint, Side
from penstock_codecs.limits import KIB

__all__ = ["CONNECT_SECONDS", "LINGER_SECONDS", "Live", "LiveBytes", "Numbers", "live_conversation", "upstream_of"]

CONNECT_SECONDS: Final = 10.0
"""For a connection, with its TLS handshake."""
_FOREVER: Final = 1_000_000.0
"""Seconds. Deadlines are the player's."""
LINGER_SECONDS: Final = 1.0
"""A server that is told that nothing more comes may take so long to close."""
_READ_BYTES: Final = 256 * KIB


class Live(Protocol):
    """One live connection. What comes is told to its Tally by its tap."""

    async def open(self, nursery: trio.Nursery) -> None:
        """Connect, and hear the server from then on in `nursery`. Raises OperationFailed where it is not there."""

    async def say(self, item: Say) -> None:
        """Say what the recorded client said. Waits while the server takes no more."""

    def over(self, exchange: int | None) -> bool:
        """Whether nothing more can come in this exchange (None: at all)."""

    def broken(self, exchange: int) -> str:
        """Why the answer in an exchange was broken off; "" where it was not."""

    def forget(self, exchange: int) -> None:
        """The exchange is over in the recording: what is not complete is broken off."""

    async def finish(self) -> None:
        """Nothing more will be said."""

    async def close(self, *, at_once: bool = False) -> None:
        """Close the connection. Unless it is `at_once`, the server has a moment to end what is under way."""


def live_conversation(recorded: Conversation, protocol: str, target: Target) -> Conversation:
    """What the live connection is to a dialogue: as the recorded one, and we are its client."""
    return Conversation(
        recorded.number,
        recorded.client,
        Endpoint(*target.address),
        Side.BACK,
        "replay",
        protocol,
        target.tls,
        recorded.run,
    )


def upstream_of(
    target: Target, tls: ClientTls | None, tally: Tally, conversation: Conversation, dial: Dial | None
) -> Upstream:
    """How a target is reached, each connection with a tap that tells `tally`. `dial`: instead of TCP."""
    settings = UpstreamSettings(
        name="target",
        host=target.address.host,
        port=target.address.port,
        tls=tls,
        connect_seconds=CONNECT_SECONDS,
        request_seconds=_FOREVER,
        idle_seconds=_FOREVER,
        max_connections=1,
    )

    def watch(stream: trio.abc.Stream, _settings: UpstreamSettings) -> trio.abc.Stream:
        tap = Tap(conversation, tally)
        tap.attach(tally)
        return tapped(stream, tap)

    return Upstream(settings, dial=dial, watch=watch)


class LiveBytes:
    """A connection of bare TCP: bytes go out as they were recorded. `numbers`: takes the recorded exchange of each
    message that is said, in order."""

    def __init__(self, upstream: Upstream, tally: Tally, numbers: Callable[[int], None]) -> None:
        self._upstream = upstream
        self._tally = tally
        self._numbers = numbers
        self._stream: trio.abc.Stream

    async def open(self, nursery: trio.Nursery) -> None:
        """See `Live`."""
        self._stream = await self._upstream.connect()
        nursery.start_soon(self._hear)

    async def _hear(self) -> None:
        try:
            while await self._stream.receive_some(_READ_BYTES):
                pass
            self._tally.end("the server closed the connection")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._tally.end(f"the connection was lost: {reason_of(error)}")

    async def say(self, item: Say) -> None:
        """See `Live`."""
        if item.exchange is not None:
            self._numbers(item.exchange)
        assert isinstance(item.move, bytes)
        try:
            await self._stream.send_all(item.move)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._tally.end(f"the connection was lost: {reason_of(error)}")

    def over(self, exchange: int | None) -> bool:
        """See `Live`."""
        del exchange
        return bool(self._tally.over)

    def broken(self, exchange: int) -> str:
        """See `Live`."""
        del exchange
        return ""

    def forget(self, exchange: int) -> None:
        """See `Live`."""
        del exchange

    async def finish(self) -> None:
        """See `Live`."""
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            try:
                await self._stream.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                self._tally.end(f"the connection was lost: {reason_of(error)}")

    async def close(self, *, at_once: bool = False) -> None:
        """See `Live`."""
        if not at_once:
            await self.finish()
            with trio.move_on_after(LINGER_SECONDS):
                while not self._tally.over:
                    await self._tally.changed.park()
        await trio.aclose_forcefully(self._stream)


class Numbers:
    """The recorded exchanges of messages that are said, for dialogues that number them from 1."""

    def __init__(self, renumbered: bool) -> None:
        self._renumbered = renumbered
        self._said = 0
        self._last = 0
        self._recorded: dict[int, int] = {}

    def say(self, exchange: int) -> None:
        """The next message is of this recorded exchange."""
        if self._renumbered:
            self._said += 1
            self._last = exchange
            self._recorded[self._said] = exchange

    def recorded(self, exchange: int | None) -> int | None:
        """The recorded exchange of a live one."""
        if exchange is None or not self._renumbered:
            return exchange
        beyond = self._last + exchange - self._said  # of what is no whole message
        return self._recorded.pop(exchange, beyond)
