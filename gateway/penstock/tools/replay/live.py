"""Live connections to the target, on which a recorded client's messages are sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import trio

from penstock.core.errors import CannotStart
from penstock.net.tls import ClientTls
from penstock.net.upstream import Dial, Upstream, UpstreamSettings, reason_of
from penstock.observe.taps.tap import Tap
from penstock.observe.taps.tapped import tapped
from penstock.protocols.servers import Server
from penstock.tools.replay.items import ClientSent
from penstock.tools.replay.tally import ReplayTally
from penstock_analysis.capture import Conversation, Side, SocketAddress
from penstock_codecs.failures import OperationFailed
from penstock_codecs.limits import KIB

__all__ = [
    "CONNECT_SECONDS",
    "LINGER_SECONDS",
    "ExchangeNumbers",
    "Live",
    "LiveBytes",
    "live_conversation",
    "reach",
    "upstream_of",
]

CONNECT_SECONDS: Final = 10.0
"""Seconds for a connection with its TLS handshake."""
_FOREVER: Final = 1_000_000.0
"""A limit in seconds that is never reached: the player sets the deadlines."""
LINGER_SECONDS: Final = 1.0
"""Seconds that a server has to close after the end of the client's bytes."""
_READ_BYTES: Final = 256 * KIB


class Live(Protocol):
    """One live connection. Its tap reports what is received to its Tally."""

    async def open(self, nursery: trio.Nursery) -> None:
        """Connect, and receive from the server in `nursery` from then on. Raises OperationFailed if it cannot be
        reached."""

    async def send(self, item: ClientSent) -> None:
        """Send what the recorded client sent. Waits while the server accepts no more."""

    def over(self, exchange: int | None) -> bool:
        """Return whether nothing more can arrive in this exchange (None: on the connection)."""

    def broken(self, exchange: int) -> str:
        """Return why the response in an exchange was broken off; "" if it was not."""

    def forget(self, exchange: int) -> None:
        """End an exchange that is over in the recording; reset it if it is not complete."""

    async def finish(self) -> None:
        """Send the end of the client's bytes."""

    async def close(self, *, at_once: bool = False) -> None:
        """Close the connection. Unless `at_once`, the server has LINGER_SECONDS to finish what is in flight."""


def live_conversation(recorded: Conversation, protocol: str, target: Server) -> Conversation:
    """Return the conversation of the live connection for its dialogue: the recorded one, with the target as its
    server."""
    return Conversation(
        recorded.number,
        recorded.client,
        SocketAddress(*target.address),
        Side.BACK,
        "replay",
        protocol,
        target.tls,
        recorded.run,
    )


def upstream_of(
    target: Server, tls: ClientTls | None, tally: ReplayTally, conversation: Conversation, dial: Dial | None
) -> Upstream:
    """Return the upstream of a target, with a tap on each connection that reports to `tally`. `dial`: instead of
    TCP."""
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


async def reach(target: Server, tls: ClientTls | None) -> None:
    """Connect to the target once, and close. Raises CannotStart with the reason if none of its addresses is reached."""
    reasons: list[str] = []
    for address in (target.address, *target.others):
        settings = UpstreamSettings(
            name="target", host=address.host, port=address.port, tls=tls, connect_seconds=CONNECT_SECONDS
        )
        try:
            await trio.aclose_forcefully(await Upstream(settings).connect())
        except OperationFailed as error:
            reasons.append(error.failure.message)
        else:
            return
    raise CannotStart(f"nothing was replayed: {'; '.join(reasons)}")


class LiveBytes(Live):
    """A connection without HTTP: bytes are sent as they were recorded. `numbers`: called with the recorded exchange of
    each message that is sent, in order; `reassigned`: puts the ids of this run into a message."""

    def __init__(
        self,
        upstream: Upstream,
        tally: ReplayTally,
        numbers: Callable[[int], None],
        reassigned: Callable[[bytes], bytes],
    ) -> None:
        self._upstream = upstream
        self._tally = tally
        self._numbers = numbers
        self._reassigned = reassigned
        self._stream: trio.abc.Stream

    async def open(self, nursery: trio.Nursery) -> None:
        self._stream = await self._upstream.connect()
        nursery.start_soon(self._receive)

    async def _receive(self) -> None:
        try:
            while await self._stream.receive_some(_READ_BYTES):
                pass
            self._tally.end("the server closed the connection")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._tally.end(f"the connection was lost: {reason_of(error)}")

    async def send(self, item: ClientSent) -> None:
        if item.exchange is not None:
            self._numbers(item.exchange)
        assert isinstance(item.move, bytes)
        try:
            await self._stream.send_all(self._reassigned(item.move))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._tally.end(f"the connection was lost: {reason_of(error)}")

    def over(self, exchange: int | None) -> bool:
        del exchange
        return bool(self._tally.over)

    def broken(self, exchange: int) -> str:
        del exchange
        return ""

    def forget(self, exchange: int) -> None:
        del exchange

    async def finish(self) -> None:
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            try:
                await self._stream.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                self._tally.end(f"the connection was lost: {reason_of(error)}")

    async def close(self, *, at_once: bool = False) -> None:
        if not at_once:
            await self.finish()
            with trio.move_on_after(LINGER_SECONDS):
                while not self._tally.over:
                    await self._tally.changed.park()
        await trio.aclose_forcefully(self._stream)


class ExchangeNumbers:
    """Maps live exchanges to recorded ones, for dialogues that number them from 1."""

    def __init__(self, renumbered: bool) -> None:
        self._renumbered = renumbered
        self._sent = 0
        self._last = 0
        self._recorded: dict[int, int] = {}

    def sent(self, exchange: int) -> None:
        """Record that the next message belongs to this recorded exchange."""
        if self._renumbered:
            self._sent += 1
            self._last = exchange
            self._recorded[self._sent] = exchange

    def recorded(self, exchange: int | None) -> int | None:
        """Return the recorded exchange of a live one."""
        if exchange is None or not self._renumbered:
            return exchange
        beyond = self._last + exchange - self._sent  # of incomplete messages
        return self._recorded.pop(exchange, beyond)
