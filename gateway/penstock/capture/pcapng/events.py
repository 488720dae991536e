"""Capture events in the order in which they happened: conversations that open, bytes of either side, notes, ends.

The recorder's taps make these events, `capture.writing` makes pcapng of them, `capture.reading` makes them of pcapng
again, and everything that inspects a recording (dialogues, replay, the mock, Spark) begins with them. Bytes are
plaintext: those inside TLS.

A *conversation* is one TCP connection. Offsets in it are counted per sender, in bytes from the connection's first byte,
even if the recording begins in its middle.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec

__all__ = [
    "CaptureEvent",
    "Chunk",
    "Closed",
    "Conversation",
    "Joined",
    "Lost",
    "Noted",
    "Opened",
    "Sender",
    "Side",
    "SocketAddress",
    "Withheld",
]


class Sender(Enum):
    """Sender of bytes: the host that opened the connection, or the one that accepted it."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> Sender:
        """The sender's peer."""
        return Sender.SERVER if self is Sender.CLIENT else Sender.CLIENT


class Side(Enum):
    """Side of the gateway that a conversation is on."""

    FRONT = "front"
    """A client's with one of our listeners."""
    BACK = "back"
    """Ours with a server behind us."""
    FOREIGN = "foreign"
    """Not recorded by a gateway, but by tcpdump or the like."""


class SocketAddress(NamedTuple):
    """One end of a connection: an IPv4 or IPv6 address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Conversation(msgspec.Struct, frozen=True, eq=False):
    """One connection. `number`: the gateway's number of it, as in its log; in foreign captures counted from 1.

    `name`: the listener or back, as `listeners.s2` or `backs.lite`; `protocol`: the configured protocol, one of `s2`,
    `s3p`, `segment`, `controller`, `management`, or "" if unknown. `run`: tells processes apart whose captures are read
    together, since each numbers its own connections. `path`: the one under which the listener or server has streams; ""
    if it is unknown, or the protocol has none. Equality is identity.
    """

    number: int
    client: SocketAddress
    server: SocketAddress
    side: Side = Side.FOREIGN
    name: str = ""
    protocol: str = ""
    tls: bool = False
    run: str = ""
    path: str = ""


class Opened(msgspec.Struct, frozen=True):
    """Start of a conversation's recording. Offsets other than 0: the first bytes were not recorded.

    `continued`: the earlier part is in another file, which ended here (rotation), or a pause lies between.
    """

    conversation: Conversation
    time_ns: int
    client_offset: int = 0
    server_offset: int = 0
    continued: bool = False


class Chunk(msgspec.Struct, frozen=True):
    """Bytes of one side as they were read or written in one call; they begin at `offset` of that side's bytes."""

    conversation: Conversation
    time_ns: int
    sender: Sender
    offset: int
    data: bytes | bytearray | memoryview


class Lost(msgspec.Struct, frozen=True):
    """`length` bytes of one side that are missing from the capture; 0: an unknown number, and no event of this
    conversation follows. `reason` is for people."""

    conversation: Conversation
    time_ns: int
    sender: Sender
    offset: int
    length: int
    reason: str


class Withheld(msgspec.Struct, frozen=True):
    """`length` bytes of one side, from `offset` on, that redaction replaced as a whole, since it could not look for
    secrets in them: the bytes that follow in the capture have their length, and not their meaning."""

    conversation: Conversation
    time_ns: int
    sender: Sender
    offset: int
    length: int


class Noted(msgspec.Struct, frozen=True):
    """Information from the gateway: `key` is `route`, `stream`, `identity` or `back`, and the value its name. Each pair
    comes once per conversation and file."""

    conversation: Conversation
    time_ns: int
    key: str
    value: str


class Joined(msgspec.Struct, frozen=True):
    """State of an HTTP conversation that is recorded from its middle, as preludes, which bring a reader into the state
    of the connection at these offsets (`penstock.wire.http.preludes`).

    `client` and `server` are to be read before the bytes of that side behind its offset; neither was ever sent.
    `version`: "1.1" or "2", of HTTP.
    """

    conversation: Conversation
    time_ns: int
    version: str
    client_offset: int
    server_offset: int
    client: bytes
    server: bytes


class Closed(msgspec.Struct, frozen=True):
    """End of a side's bytes (FIN); with `reset` the whole connection was reset (RST), by either side."""

    conversation: Conversation
    time_ns: int
    sender: Sender
    reset: bool = False


CaptureEvent = Opened | Chunk | Lost | Withheld | Noted | Joined | Closed
