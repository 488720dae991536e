"""The codec interface, and the registry of codecs.

A codec is one connection (or one session inside an HTTP exchange) of one protocol: bytes in, events out; events
in, bytes out. It owns no socket and no clock. Events are pulled one at a time, so that not pulling is the
back-pressure. No codec here needs a timer: heartbeats are events that a front sends when its own clock says so.

The same class of module serves both roles: a front drives the server side, a back the client side, and a client
wired to a server is each protocol's first test. The laws that every codec keeps are in `conformance`; anybody's
plug-in can be held to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from importlib.metadata import entry_points
from typing import Any, Final, Literal, Protocol, TypeVar

__all__ = ["NEED_DATA", "PAUSED", "Codec", "CodecPlugin", "Pull", "Role", "load_plugins"]

Received_co = TypeVar("Received_co", covariant=True)
Sent_contra = TypeVar("Sent_contra", contravariant=True)

ENTRY_POINT_GROUP: Final = "penstock.codecs"


class Pull(Enum):
    """What `next_event` answers when there is no event."""

    NEED_DATA = auto()
    """Give more bytes to `receive`, or b"" if the peer has finished."""
    PAUSED = auto()
    """Bytes may be there, but nothing will be read from them: the conversation has ended or waits for `send`."""


NEED_DATA: Final[Literal[Pull.NEED_DATA]] = Pull.NEED_DATA
PAUSED: Final[Literal[Pull.PAUSED]] = Pull.PAUSED


class Role(Enum):
    """Which end of the conversation a codec speaks for."""

    CLIENT = "client"
    SERVER = "server"


class Codec(Protocol[Received_co, Sent_contra]):
    """One conversation of one protocol, sans-IO."""

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the peer; b"" says that the peer has finished sending. The bytes are copied if kept."""

    def next_event(self) -> Received_co | Pull:
        """The next event, or NEED_DATA, or PAUSED.

        Raises RemoteProtocolError where the peer broke the protocol, after everything before the fault was
        delivered; every later call raises the same.
        """

    def send(self, event: Sent_contra) -> list[bytes]:
        """The bytes that say `event`, as pieces to be joined or written in order.

        Raises LocalProtocolError where the protocol does not allow it now.
        """

    @property
    def buffered(self) -> int:
        """Bytes held: received and not yet delivered. Bounded by the protocol's limits whatever the peer does."""


@dataclass(frozen=True, slots=True)
class CodecPlugin:
    """What a distribution registers under entry-point group "penstock.codecs".

    `make(role, dialect)` gives a codec for one conversation with default limits; `dialects` lists the names that
    it takes, the default first. `sample` gives the bytes of a well-formed conversation as the *peer* of `role`
    would send it, which is what the laws in `conformance` cut, mutate and truncate; `limit` is the most bytes
    the codec may ever hold.
    """

    name: str
    make: Callable[[Role, str], Codec[Any, Any]]
    dialects: tuple[str, ...]
    sample: Callable[[Role, str], bytes]
    limit: int


def load_plugins() -> dict[str, CodecPlugin]:
    """All installed codecs by name.

    Raises TypeError naming the entry point where one is not a CodecPlugin, and ValueError where two installed
    distributions claim one name.
    """
    found: dict[str, CodecPlugin] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        plugin = entry.load()
        if not isinstance(plugin, CodecPlugin):
            raise TypeError(f"entry point {entry.name} = {entry.value} in {ENTRY_POINT_GROUP} is not a CodecPlugin")
        if entry.name in found:
            raise ValueError(f"two installed distributions register the codec {entry.name!r}")
        found[entry.name] = plugin
    return found
