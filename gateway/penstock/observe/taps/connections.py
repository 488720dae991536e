"""The open connections, of listeners and of backs, each with its tap."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Final, Protocol

import trio

from penstock.capture.pcapng import Conversation, Side, SocketAddress
from penstock.observe import next_connection_number
from penstock.observe.metrics.families import (
    BACK_CONNECTIONS,
    BACK_CONNECTIONS_MADE,
    CONNECTIONS,
    CONNECTIONS_ACCEPTED,
)
from penstock.observe.metrics.series import Count
from penstock.observe.taps.sink import Sink
from penstock.observe.taps.tap import Tap, Use, Watcher
from penstock.observe.taps.tapped import TappedStream, encrypted, tapped

__all__ = ["Connections", "Dialled", "Opening"]

_NOWHERE: Final = SocketAddress("0.0.0.0", 0), SocketAddress("0.0.0.0", 1)


class Dialled(Protocol):
    """The part of a back's settings that a tap needs."""

    @property
    def name(self) -> str:
        """The back's name."""

    @property
    def protocol(self) -> str:
        """The protocol of the back's server, such as `s2`."""

    @property
    def path(self) -> str:
        """See `Conversation.path`."""


class Opening(Watcher, Protocol):
    """A watcher that also learns of new connections."""

    def opened(self, tap: Tap) -> None:
        """Handle a new connection, before its first byte."""


class Connections(Watcher):
    """All open connections of one process. `run`: distinguishes its captures from those of other processes."""

    def __init__(self) -> None:
        self.run = secrets.token_hex(4)
        self.watcher: Opening | None = None
        """Decides which connections are recorded."""
        self._open: dict[int, Tap] = {}
        self._dialled: dict[int, trio.abc.Stream] = {}

    def accepted(self, stream: trio.abc.Stream, number: int, name: str, protocol: str, path: str = "") -> TappedStream:
        """Tap a client's connection, above TLS. Returns the stream to use instead. `number`: the connection's in the
        log; `name`: of the listener, such as `listeners.s2`; `path`: see `Conversation`."""
        server, client = _ends(stream)
        tls = encrypted(stream) is not None
        return self._tapped(
            stream, Conversation(number, client, server, Side.FRONT, name, protocol, tls=tls, run=self.run, path=path)
        )

    def dialled(self, stream: trio.abc.Stream, settings: Dialled) -> TappedStream:
        """Tap a connection with the server of a back. Returns the stream to use instead. See
        `penstock.net.upstream.Watch`."""
        client, server = _ends(stream)
        number, name, tls = next_connection_number(), f"backs.{settings.name}", encrypted(stream) is not None
        self._dialled[number] = stream
        return self._tapped(
            stream,
            Conversation(number, client, server, Side.BACK, name, settings.protocol, tls, self.run, settings.path),
        )

    def _tapped(self, stream: trio.abc.Stream, conversation: Conversation) -> TappedStream:
        tap = self._open[conversation.number] = Tap(conversation, self)
        now, ever = _counts(conversation)
        now.value += 1
        ever.value += 1
        if self.watcher is not None:
            self.watcher.opened(tap)
        return tapped(stream, tap)

    def break_off(self, number: int) -> bool:
        """Break a connection with a server, as a failing network would. Returns whether there was one."""
        stream = self._dialled.get(number)
        tls = None if stream is None else encrypted(stream)
        inner = stream if tls is None else tls.transport_stream
        if not isinstance(inner, trio.SocketStream):
            return False
        with contextlib.suppress(OSError):  # it is gone already
            inner.socket.shutdown(trio.socket.SHUT_RDWR)
        return True

    def __iter__(self) -> Iterator[Tap]:
        """Iterate over the open connections, in the order of their numbers. They may end meanwhile."""
        return iter([tap for _, tap in sorted(self._open.items())])

    # ---- events of taps ------------------------------------------------------------------------------------------

    def used(self, tap: Tap, use: Use) -> None:
        if self.watcher is not None:
            self.watcher.used(tap, use)

    def dropped(self, tap: Tap, sink: Sink, generation: int) -> None:
        if self.watcher is not None:
            self.watcher.dropped(tap, sink, generation)

    def ended(self, tap: Tap) -> None:
        self._dialled.pop(tap.conversation.number, None)
        if self._open.pop(tap.conversation.number, None) is not None:
            _counts(tap.conversation)[0].value -= 1
        if self.watcher is not None:
            self.watcher.ended(tap)


def _counts(conversation: Conversation) -> tuple[Count, Count]:
    """Return the counters of connections like this one: open now, and ever."""
    if conversation.side is Side.FRONT:
        labels = conversation.name, conversation.protocol
        return CONNECTIONS.child(*labels), CONNECTIONS_ACCEPTED.child(*labels)
    labels = conversation.name.removeprefix("backs."), conversation.protocol
    return BACK_CONNECTIONS.child(*labels), BACK_CONNECTIONS_MADE.child(*labels)


def _ends(stream: trio.abc.Stream) -> tuple[SocketAddress, SocketAddress]:
    """Return our address and our peer's; 0.0.0.0 (or ::) for a stream that is not a socket, or closed."""
    tls = encrypted(stream)
    inner = stream if tls is None else tls.transport_stream
    if not isinstance(inner, trio.SocketStream):
        return _NOWHERE
    try:
        own = _endpoint(inner.socket.getsockname())
    except OSError:
        return _NOWHERE
    try:
        return own, _endpoint(inner.socket.getpeername())
    except OSError:
        return own, SocketAddress("::" if ":" in own.host else "0.0.0.0", 0)


def _endpoint(name: object) -> SocketAddress:
    """Return the address of a socket's name, without an IPv6 zone. Raises OSError if it has none."""
    if not isinstance(name, tuple):
        raise OSError("the socket has no address")
    return SocketAddress(str(name[0]).partition("%")[0], int(name[1]))
