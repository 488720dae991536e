"""The connections that are open now, of listeners and of backs, each with its tap."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Final, Protocol

import trio

from penstock.backs.upstream_settings import UpstreamSettings
from penstock.metrics.families import (
    BACK_CONNECTIONS,
    BACK_CONNECTIONS_MADE,
    CONNECTIONS,
    CONNECTIONS_ACCEPTED,
)
from penstock.metrics.series import Count
from penstock.observe import next_connection_number
from penstock.recorder.sink import Sink
from penstock.recorder.tap import Tap, Use, Watcher
from penstock.recorder.tapped import TappedStream, encrypted, tapped
from penstock_codecs.capture import Conversation, Endpoint, Side

__all__ = ["Connections", "Opening"]

_NOWHERE: Final = Endpoint("0.0.0.0", 0), Endpoint("0.0.0.0", 1)


class Opening(Watcher, Protocol):
    """Also told of new connections."""

    def opened(self, tap: Tap) -> None:
        """A connection, before its first byte."""


class Connections:
    """All of one process. `run`: what tells its captures from those of other processes."""

    def __init__(self) -> None:
        self.run = secrets.token_hex(4)
        self.watcher: Opening | None = None
        """Who decides what is recorded."""
        self._open: dict[int, Tap] = {}
        self._dialled: dict[int, trio.abc.Stream] = {}

    def accepted(self, stream: trio.abc.Stream, number: int, name: str, protocol: str) -> TappedStream:
        """A client's connection, above TLS, from now on with a tap: the stream to be used instead. `number`: the log's;
        `name`: of the listener, as `listeners.s2`."""
        server, client = _ends(stream)
        tls = encrypted(stream) is not None
        return self._tapped(
            stream, Conversation(number, client, server, Side.FRONT, name, protocol, tls=tls, run=self.run)
        )

    def dialled(self, stream: trio.abc.Stream, settings: UpstreamSettings) -> TappedStream:
        """The same for a connection with the server of a back. See `penstock.backs.upstream.Watch`."""
        client, server = _ends(stream)
        number, name, tls = next_connection_number(), f"backs.{settings.name}", encrypted(stream) is not None
        self._dialled[number] = stream
        return self._tapped(
            stream, Conversation(number, client, server, Side.BACK, name, settings.protocol, tls=tls, run=self.run)
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
        """End a connection with a server, as if the network had: who uses it finds it lost. Whether there was one."""
        stream = self._dialled.get(number)
        tls = None if stream is None else encrypted(stream)
        inner = stream if tls is None else tls.transport_stream
        if not isinstance(inner, trio.SocketStream):
            return False
        with contextlib.suppress(OSError):  # it is gone already
            inner.socket.shutdown(trio.socket.SHUT_RDWR)
        return True

    def __iter__(self) -> Iterator[Tap]:
        """Those that are open, in the order of their numbers. They may end meanwhile."""
        return iter([tap for _, tap in sorted(self._open.items())])

    # ---- what taps say -------------------------------------------------------------------------------------------

    def used(self, tap: Tap, use: Use) -> None:
        """See `Watcher`."""
        if self.watcher is not None:
            self.watcher.used(tap, use)

    def dropped(self, tap: Tap, sink: Sink, generation: int) -> None:
        """See `Watcher`."""
        if self.watcher is not None:
            self.watcher.dropped(tap, sink, generation)

    def ended(self, tap: Tap) -> None:
        """See `Watcher`."""
        self._dialled.pop(tap.conversation.number, None)
        if self._open.pop(tap.conversation.number, None) is not None:
            _counts(tap.conversation)[0].value -= 1
        if self.watcher is not None:
            self.watcher.ended(tap)


def _counts(conversation: Conversation) -> tuple[Count, Count]:
    """How many like this are open, and how many there have been."""
    if conversation.side is Side.FRONT:
        labels = conversation.name, conversation.protocol
        return CONNECTIONS.child(*labels), CONNECTIONS_ACCEPTED.child(*labels)
    labels = conversation.name.removeprefix("backs."), conversation.protocol
    return BACK_CONNECTIONS.child(*labels), BACK_CONNECTIONS_MADE.child(*labels)


def _ends(stream: trio.abc.Stream) -> tuple[Endpoint, Endpoint]:
    """Ours and our peer's; without an address for what is no socket, or gone."""
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
        return own, Endpoint("::" if ":" in own.host else "0.0.0.0", 0)


def _endpoint(name: object) -> Endpoint:
    """Of a socket's name; a zone behind the number is left out. Raises OSError for one that has none."""
    if not isinstance(name, tuple):
        raise OSError("it has no address")
    return Endpoint(str(name[0]).partition("%")[0], int(name[1]))
