"""Live connections to the target, on which a recorded client's messages are sent.

Over HTTP, recorded requests are sent part by part by an HTTP client: frames, windows and header tables are the client's
own. Fields of the recorded connection are removed from requests or replaced: the authority, the framing, and the
credentials.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import trio

from penstock.capture.pcapng import Conversation, Side, SocketAddress
from penstock.core.errors import CannotStart
from penstock.model.failures import LocalProtocolError, OperationFailed
from penstock.model.limits import KIB
from penstock.net.http.client.connection import HttpClientConnection, HttpStream
from penstock.net.http.client.settings import HttpClientSettings
from penstock.net.tls import ClientTls
from penstock.net.transport import Transport
from penstock.net.upstream import Dial, Upstream, UpstreamSettings, reason_of
from penstock.observe.taps.tap import Tap
from penstock.observe.taps.tapped import encrypted, tapped
from penstock.protocols.servers import Server
from penstock.tools.replay.items import ClientSent
from penstock.tools.replay.report import ReplayTally
from penstock.wire.codec import Role
from penstock.wire.http import Body, End, HttpHeaders, RequestHead, Reset, connection

__all__ = [
    "CONNECT_SECONDS",
    "LINGER_SECONDS",
    "ExchangeNumbers",
    "Live",
    "LiveBytes",
    "LiveExchanges",
    "Rewritten",
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
_OF_THE_CONNECTION: Final = frozenset(
    {
        *("host", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "http2-settings"),
        "expect",  # the replay does not wait for 100 Continue
    }
)
_REDACTED: Final = re.compile(r"(?:[A-Za-z0-9-]+[ \t]+)?\*+")
"""The recorder's replacement for a secret header."""


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


class Rewritten:
    """Rewrites recorded requests for the target. `token`: replaces the recorded one; `basin`: replaces the recorded
    one. None: as recorded, without what was redacted. `own_headers`: see `ListenerKind.replayed_headers`."""

    def __init__(
        self,
        authority: str,
        scheme: str,
        token: str | None,
        basin: str | None,
        own_headers: Callable[[str, str], Mapping[str, str]],
    ) -> None:
        self._own_headers = own_headers
        self._authority = authority
        self._scheme = scheme
        self._token = token
        self._basin = basin

    def head(self, head: RequestHead, basin: str) -> RequestHead:
        """Return the head to send. `basin`: of the recorded request; "" if it has none or it is unknown."""
        headers = [
            (name, value)
            for name, value in head.headers
            if name not in _OF_THE_CONNECTION and not _REDACTED.fullmatch(value)
        ]
        if self._token is not None:
            headers = _without(headers, "authorization")
            headers.append(("authorization", f"Bearer {self._token}"))
        for name, value in self._own_headers(head.target, self._basin or basin).items():
            headers = [*_without(headers, name), (name, value)]
        chunked = any(name == "transfer-encoding" for name, _ in head.headers)
        if chunked:
            headers.append(("transfer-encoding", "chunked"))
        return RequestHead(0, head.method, head.target, headers, self._authority, self._scheme)


def _without(headers: HttpHeaders, name: str) -> list[tuple[str, str]]:
    return [pair for pair in headers if pair[0] != name]


class LiveExchanges(Live):
    """A `Live` connection (`penstock.tools.replay.live`) over HTTP. `version`: "2" or "1.1", as it was recorded; over
    TLS the server chooses."""

    def __init__(
        self, upstream: Upstream, tally: ReplayTally, rewritten: Rewritten, version: str, patience: float
    ) -> None:
        self._upstream = upstream
        self._tally = tally
        self._rewritten = rewritten
        self._alpn = "h2" if version == "2" else "http/1.1"
        self._settings = HttpClientSettings(write_seconds=patience)
        self._connection: HttpClientConnection
        self._streams: dict[int, HttpStream] = {}
        self._recorded: dict[int, int] = {}
        self._ended: set[int] = set()  # exchanges whose live response is complete
        self._broken: dict[int, str] = {}
        self._sending: set[int] = set()  # exchanges whose request is not complete
        self._answered: set[int] = set()  # of these, those whose response was complete in the recording
        self._draining: dict[int, trio.CancelScope] = {}
        self._nursery: trio.Nursery

    def recorded(self, exchange: int | None) -> int | None:
        """Return the recorded exchange of a live one."""
        return None if exchange is None else self._recorded.get(exchange)

    async def open(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        stream = await self._upstream.connect([self._alpn])
        scheme, agreed = "http", self._alpn
        if (tls := encrypted(stream)) is not None:
            scheme, agreed = "https", tls.selected_alpn_protocol() or "http/1.1"
        codec = connection(agreed, Role.CLIENT, self._settings.limits, scheme)
        transport = Transport(stream, self._settings.read_size, self._settings.write_seconds)
        assumed = 100 if agreed == "h2" else 1
        self._connection = HttpClientConnection(self._upstream, transport, codec, self._settings, lambda: None, assumed)
        nursery.start_soon(self._connection.run)

    async def send(self, item: ClientSent) -> None:
        move = item.move
        try:
            match move:
                case RequestHead():
                    await self._begin(move, item.basin)
                case Body():
                    if (stream := self._streams.get(move.stream_id)) is not None:
                        await stream.send(list(move.parts))
                case End():
                    if (stream := self._streams.get(move.stream_id)) is not None:
                        stream.whole(End(stream.stream_id, move.trailers))  # even if the response has ended already
                        self._request_sent(move.stream_id)
                case Reset():
                    self._leave(move.stream_id)
                case _:
                    raise TypeError(move)
        except OperationFailed:
            pass  # the response has ended; `_drain` reports that
        except LocalProtocolError as error:
            self._tally.end(f"the request cannot be said again: {error}")

    async def _begin(self, head: RequestHead, basin: str) -> None:
        await self._room()
        recorded = head.stream_id
        try:
            rewritten = self._rewritten.head(head, basin)
            while (stream := self._connection.begin(rewritten)) is None:
                if not await self._connected_again():
                    return
        except OperationFailed as error:
            self._broken[recorded] = error.failure.message
            self._ended.add(recorded)
            self._tally.changed.unpark_all()
            return
        self._streams[recorded] = stream
        self._recorded[stream.stream_id] = recorded
        self._sending.add(recorded)
        scope = self._draining[recorded] = trio.CancelScope()
        stream.begun()
        self._nursery.start_soon(self._drain, recorded, stream, scope)

    async def _room(self) -> None:
        """Wait until the server accepts another request. It may accept fewer at once than the recorded one: over
        HTTP/1.1 one after the other, even if the recorded client did not wait."""
        while len(self._streams) >= self._connection.peer_streams and self._asked() and not self._tally.over:
            if not (answered := self._asked() & self._ended):
                await self._tally.changed.park()
            for recorded in answered:
                self._leave(recorded)

    async def _connected_again(self) -> bool:
        """Connect again: the server may close between requests where the recorded one did not. Return whether that
        succeeded."""
        if self._streams:
            self._tally.end("the server accepts no more requests on the connection")
            return False
        self._recorded.clear()
        try:
            await self.open(self._nursery)
        except OperationFailed as error:
            self._tally.end(error.failure.message)
            return False
        return True

    async def _drain(self, recorded: int, stream: HttpStream, scope: trio.CancelScope) -> None:
        """Receive all of a response and drop it; the tap has reported its contents."""
        with scope:
            try:
                while await stream.receive_pieces(1):
                    pass
            except OperationFailed as error:
                self._broken[recorded] = error.failure.message
            self._ended.add(recorded)
            self._tally.changed.unpark_all()

    def over(self, exchange: int | None) -> bool:
        return bool(self._tally.over) or exchange in self._ended

    def broken(self, exchange: int) -> str:
        return self._broken.get(exchange, "")

    def forget(self, exchange: int) -> None:
        """End an exchange as `Live` specifies; but let a request finish that the recorded client continued after the
        response."""
        self._ended.discard(exchange)
        self._broken.pop(exchange, None)
        if exchange in self._sending:
            self._answered.add(exchange)
        else:
            self._leave(exchange)

    def _request_sent(self, exchange: int) -> None:
        self._sending.discard(exchange)
        if exchange in self._answered:
            self._leave(exchange)

    def _asked(self) -> set[int]:
        """Return the exchanges whose requests are complete."""
        return self._streams.keys() - self._sending

    def _leave(self, recorded: int) -> None:
        stream = self._streams.pop(recorded, None)
        self._sending.discard(recorded)
        self._answered.discard(recorded)
        if stream is not None:
            self._connection.leave(stream)
            self._recorded.pop(stream.stream_id, None)
            self._draining.pop(recorded).cancel()

    async def finish(self) -> None:
        """Do nothing: HTTP clients close when they have their responses."""
        await trio.lowlevel.checkpoint()

    async def close(self, *, at_once: bool = False) -> None:
        """Close the connection as `Live` specifies; requests without a response by then are reset."""
        if not at_once:
            with trio.move_on_after(LINGER_SECONDS):
                while not self._tally.over and not self._asked() <= self._ended:
                    await self._tally.changed.park()
        self._connection.retire()
        for recorded in list(self._streams):
            self._leave(recorded)
        await trio.lowlevel.checkpoint()
