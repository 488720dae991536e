"""What a capture says, in the order in which it happened: conversations that open, bytes of either side, notes, ends.

The recorder's taps make these events, `capture.writing` makes pcapng of them, `capture.reading` makes them of pcapng
again, and everything that looks at a recording (dialogues, replay, the mock, Spark) begins with them. Bytes are
plaintext: what stood inside TLS.

A *conversation* is one TCP connection. Places in it are counted per sender, in bytes from the connection's first byte,
also where the recording begins in its middle.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

__all__ = ["CaptureEvent", "Chunk", "Closed", "Conversation", "Endpoint", "Lost", "Noted", "Opened", "Sender", "Side"]


class Sender(Enum):
    """Who sent it: the one that opened the connection, or the one that accepted it."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> Sender:
        """Its peer."""
        return Sender.SERVER if self is Sender.CLIENT else Sender.CLIENT


class Side(Enum):
    """Which side of the gateway a conversation is on."""

    FRONT = "front"
    """A client's with one of our listeners."""
    BACK = "back"
    """Ours with a server behind us."""
    FOREIGN = "foreign"
    """Not recorded by a gateway, but by tcpdump or the like."""


class Endpoint(NamedTuple):
    """One end of a connection: a number of IPv4 or IPv6, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """One connection. `number`: the gateway's number of it, as its log has it; in foreign captures counted from 1.

    `name`: the listener or back, as `listeners.s2` or `backs.lite`; `protocol`: what is spoken by configuration, one
    of `s2`, `s3p`, `segment`, `controller`, `management`, "" where nobody knows. `run`: tells processes apart whose
    captures are read together, since numbers begin anew with each. Equality is identity.
    """

    number: int
    client: Endpoint
    server: Endpoint
    side: Side = Side.FOREIGN
    name: str = ""
    protocol: str = ""
    tls: bool = False
    run: str = ""


@dataclass(frozen=True, slots=True)
class Opened:
    """From here on the conversation is recorded. Offsets other than 0: the first bytes were not recorded.

    `continued`: the earlier part stands in another file, which ended here (rotation), or a pause lies between.
    """

    conversation: Conversation
    time_ns: int
    client_offset: int = 0
    server_offset: int = 0
    continued: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of one side as they were read or written at once; they begin at `offset` of what that side sent."""

    conversation: Conversation
    time_ns: int
    sender: Sender
    offset: int
    data: bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Lost:
    """`length` bytes of one side are not in the capture; 0: nobody knows how many, and nothing follows of this
    conversation. `reason` is for people."""

    conversation: Conversation
    time_ns: int
    sender: Sender
    offset: int
    length: int
    reason: str


@dataclass(frozen=True, slots=True)
class Noted:
    """What the gateway knew: `key` is `route`, `stream`, `identity` or `back`, and the value its name. Each pair comes
    once per conversation and file."""

    conversation: Conversation
    time_ns: int
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A side has finished sending (FIN); with `reset` the whole connection is gone (RST), whoever did it."""

    conversation: Conversation
    time_ns: int
    sender: Sender
    reset: bool = False


CaptureEvent = Opened | Chunk | Lost | Noted | Closed
