"""The items of a recorded conversation: what its client said, and what it was given.

Both are in the order of the recording. What was given is only counted: a live server may batch and number records
differently, but it should answer, acknowledge and deliver as many.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

import msgspec

from penstock.capture.dialogue import APPENDED, DELIVERED, Message, SeenRecord
from penstock.capture.pcapng import Sender
from penstock.capture.plugin import layers_settled_by_record, plugins, unasked_layers
from penstock.wire.http import Body, End, RequestHead, Reset

__all__ = ["ClientSent", "Finish", "Item", "Move", "NewRecords", "Over", "ServerGave", "given_by", "outcome_of"]

Move = bytes | RequestHead | Body | End | Reset
"""Data that a client sends: raw bytes, or a part of a request, whose `stream_id` is the recorded exchange."""

ITEM_BYTES: Final = 300
"""Estimated memory of an item beside its bytes."""
_RESET: Final = "RST_STREAM"
"""Kind of message that ends an exchange, reported as `Over`."""
_NOWHERE: Final = (-1,)


class ClientSent(msgspec.Struct):
    """The client sent something. `records`: records acknowledged and delivered before, in the whole capture.

    `exchange`: the recorded one, if this begins a request; `basin`: of the request over HTTP, if it is known.
    """

    move: Move
    time_ns: int
    exchange: int | None = None
    basin: str = ""
    records: int = 0
    place: int = 0
    """Place among the items of all conversations, from 0."""

    @property
    def size(self) -> int:
        """Estimated memory of the item in bytes."""
        if isinstance(self.move, bytes):
            return ITEM_BYTES + len(self.move)
        return ITEM_BYTES + (sum(map(len, self.move.parts)) if isinstance(self.move, Body) else ITEM_BYTES)


class ServerGave(msgspec.Struct):
    """The server gave the client something: answers to requests, or records delivered or acknowledged.

    `exchange`: over HTTP the exchange; None if the whole conversation is counted together. `outcome`: the answer in a
    word, "" for none; `asked`: the exchange as the dialogue numbers it; `delivered`: records that the client did not
    have yet; `alone`: nothing else was in flight from its request to it, so that another server should deliver as
    many; `ids`: see `CapturePlugin.given_ids`. The consumer fills in `alone` and the time.
    """

    exchange: int | None
    answers: int = 0
    records: int = 0
    outcome: str = ""
    asked: int | None = None
    delivered: int = 0
    alone: bool = False
    ids: Mapping[str, Hashable] = msgspec.field(default_factory=dict)
    time_ns: int = 0
    place: int = 0
    size: int = ITEM_BYTES


class Over(msgspec.Struct):
    """The response in an exchange was complete, or `broken` off by the server. `alone`: as in `ServerGave`."""

    exchange: int
    broken: bool = False
    alone: bool = False
    time_ns: int = 0
    place: int = 0
    size: int = ITEM_BYTES


class Finish(msgspec.Struct):
    """The client finished sending, or was lost (`reset`)."""

    time_ns: int
    reset: bool = False
    place: int = 0
    size: int = ITEM_BYTES


Item = ClientSent | ServerGave | Over | Finish


class NewRecords:
    """The records that a conversation's client did not have yet: in each stream those beyond the ones before. A server
    may cut its batches differently, and so deliver a record again that another had left to the next request."""

    def __init__(self) -> None:
        self._furthest: dict[str, tuple[int, ...]] = {}

    def count(self, message: Message) -> int:
        """Return the number of new records that a message delivers; those without a position are all new."""
        new = 0
        for record in message.records:
            if record.action != DELIVERED:
                continue
            position = _position(record)
            if position is not None:
                if position <= self._furthest.get(record.stream, _NOWHERE):
                    continue
                self._furthest[record.stream] = position
            new += 1
        return new


def _position(record: SeenRecord) -> tuple[int, ...] | None:
    if record.record_id is not None:
        return tuple(map(int, record.record_id.split("-")))
    number = record.offset if record.seq_num is None else record.seq_num
    return None if number is None else (number,)


def given_by(message: Message, exchange: int | None, new: NewRecords) -> ServerGave | None:
    """Return what a server's message gives its client; None for messages without news: heartbeats, pings, interim
    responses. `new`: of its conversation."""
    if message.sender is Sender.CLIENT:
        return None
    response = ServerGave(exchange, asked=message.exchange, outcome=outcome_of(message), delivered=new.count(message))
    plugin = plugins().get(message.conversation.protocol)
    if plugin is not None and plugin.given_ids is not None:
        response.ids = plugin.given_ids(message)
    count = len(message.records)
    if message.layer in unasked_layers() and count and message.answers is None and not message.failure:
        response.records = count
    elif message.layer in layers_settled_by_record() and count and message.records[0].action == APPENDED:
        response.records, response.outcome = count, outcome_of(message) if message.failure else ""
    elif message.answers is not None or (message.failure and message.kind != _RESET):
        response.answers = 1
    elif not response.delivered:
        return None
    return response


def outcome_of(message: Message) -> str:
    """Return an answer in a word: the code of a failure, else the message's kind; "" if the message is no answer."""
    if message.failure:
        return message.failure.partition(":")[0]
    return message.kind if message.answers is not None else ""
