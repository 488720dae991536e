"""What a recorded conversation is made of, for those who play it again: what its client said, and what it was given.

Both stand in the order of the recording. What was given is counted: a server that is asked again may cut its batches
differently and number its records differently, but it answers as many requests, acknowledges as many appended records
and delivers as many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock_codecs.capture import Sender
from penstock_codecs.dialogue import APPENDED, Message
from penstock_codecs.http import Body, End, RequestHead, Reset

__all__ = ["Finish", "Given", "Item", "Move", "Over", "Say", "given_by", "outcome_of"]

Move = bytes | RequestHead | Body | End | Reset
"""What a client says: bytes as they are, or a part of a request, whose `stream_id` is the recorded exchange."""

ITEM_BYTES: Final = 300
"""What an item takes beside its bytes."""


@dataclass(slots=True)
class Say:
    """The client said something. `records`: how many had been acknowledged and delivered by then, in all the capture.

    `exchange`: the recorded one, where it begins a request; `basin`: that this is about, over HTTP, where it is known.
    """

    move: Move
    time_ns: int
    exchange: int | None = None
    basin: str = ""
    records: int = 0
    place: int = 0
    """Where it stands among the items of all conversations, from 0."""

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        if isinstance(self.move, bytes):
            return ITEM_BYTES + len(self.move)
        return ITEM_BYTES + (sum(map(len, self.move.parts)) if isinstance(self.move, Body) else ITEM_BYTES)


@dataclass(slots=True)
class Given:
    """The server gave the client something: answers to requests, records delivered or acknowledged.

    `exchange`: over HTTP the exchange; None where all of a conversation is counted together. `outcome`: what an answer
    says in a word, "" for none; `asked`: the exchange as the dialogue numbers it. Its time, like that of all items, is
    filled in by whoever takes it.
    """

    exchange: int | None
    answers: int = 0
    records: int = 0
    outcome: str = ""
    asked: int | None = None
    time_ns: int = 0
    place: int = 0
    size: int = ITEM_BYTES


@dataclass(slots=True)
class Over:
    """The answer in an exchange was complete, or was `broken` off by the server."""

    exchange: int
    broken: bool = False
    time_ns: int = 0
    place: int = 0
    size: int = ITEM_BYTES


@dataclass(slots=True)
class Finish:
    """The client finished sending, or was lost (`reset`)."""

    time_ns: int
    reset: bool = False
    place: int = 0
    size: int = ITEM_BYTES


Item = Say | Given | Over | Finish

_RESET: Final = "RST_STREAM"
"""It ends an exchange, which is told of in its own way."""
_SESSIONS: Final = frozenset({"s2s", "sse"})
"""Layers in which a server delivers without being asked for each batch."""


def given_by(message: Message, exchange: int | None) -> Given | None:
    """What a server's message gives its client; None for what says nothing new: heartbeats, pings, interim answers."""
    if message.sender is Sender.CLIENT:
        return None
    given = Given(exchange, asked=message.exchange, outcome=outcome_of(message))
    count = len(message.records)
    if message.layer in _SESSIONS and count and message.answers is None and not message.failure:
        given.records = count
    elif message.layer == "segment" and count and message.records[0].action == APPENDED:
        given.records, given.outcome = count, outcome_of(message) if message.failure else ""
    elif message.answers is not None or (message.failure and message.kind != _RESET):
        given.answers = 1
    else:
        return None
    return given


def outcome_of(message: Message) -> str:
    """What an answer says in a word: the code of a failure, else the message's kind; "" for what is no answer."""
    if message.failure:
        return message.failure.partition(":")[0]
    return message.kind if message.answers is not None else ""
