"""Read requests and responses of Kafka in recorded bytes.

Each message has its length before it, so one that cannot be read is a fault, and reading goes on behind it. A response
does not say what it answers: it is decoded with its request, by the dialogue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.capture.dialogue.sides import PlacedEvent, UnreadableBytes
from penstock_kafka.codec import APIS, MAX_FRAME
from penstock_kafka.codec.conversation import read_request
from penstock_kafka.codec.wire import KafkaFault

__all__ = ["GUIDE", "KafkaSideReader", "request_begins", "request_reader", "response_begins", "response_reader"]

GUIDE: Final = "Kafka protocol guide, protocol request/response format"
_LENGTH: Final = 4
_NAME_AT: Final = 14
"""Offset of the client's name: behind the length, API, version, correlation id, and the length of the name."""
_LEAST: Final = 11
"""The least length of a request whose client has a name."""
_MOST_GUESSED: Final = 1 << 24
"""Longest message that is taken for one in the middle of a conversation, in bytes."""


class KafkaSideReader:
    """Reader of one side's bytes from an offset on. `read` decodes what follows a length."""

    def __init__(self, read: Callable[[bytes], Any], least: int, offset: int) -> None:
        self._read = read
        self._least = least
        self._data = bytearray()
        self.begun = offset
        """Offset of the current message."""

    def receive(self, data: bytes) -> None:
        """Take the bytes that follow."""
        self._data += data

    def next(self) -> PlacedEvent | None:
        """Return the next message. Raises UnreadableBytes."""
        if len(self._data) < _LENGTH:
            return None
        length = int.from_bytes(self._data[:_LENGTH], "big", signed=True)
        if not self._least <= length <= MAX_FRAME:
            rule = f"a message has {self._least} to {MAX_FRAME} bytes, not {length}"
            raise UnreadableBytes(rule, GUIDE, self.begun)
        if len(self._data) < _LENGTH + length:
            return None
        frame = bytes(self._data[_LENGTH : _LENGTH + length])
        del self._data[: _LENGTH + length]
        start, self.begun = self.begun, self.begun + _LENGTH + length
        try:
            return PlacedEvent(self._read(frame), start, self.begun)
        except KafkaFault as fault:
            at = start + _LENGTH + fault.at
            raise UnreadableBytes(f"a request in a known version: {fault}", GUIDE, at, fatal=False) from None


request_reader: Final = partial(KafkaSideReader, read_request, 8)
"""Reads the client's side from an offset on."""
response_reader: Final = partial(KafkaSideReader, bytes, 4)
"""Reads the server's side from an offset on, as undecoded messages."""


def request_begins(data: bytes) -> bool | None:
    """Return whether these bytes begin with a request, as far as they show; None: too few bytes.

    All clients name themselves, and without that a request could be a message of many protocols.
    """
    if len(data) >= 4 and not _LEAST <= int.from_bytes(data[:4], "big") <= MAX_FRAME:
        return False
    if len(data) >= 8:
        api, version = APIS.get(int.from_bytes(data[4:6], "big")), int.from_bytes(data[6:8], "big")
        if api is None or not api.oldest <= version <= api.newest:
            return False
    if len(data) < _NAME_AT:
        return None
    name = int.from_bytes(data[_NAME_AT - 2 : _NAME_AT], "big", signed=True)
    return name > 0 and all(0x20 < byte < 0x7F for byte in data[_NAME_AT : _NAME_AT + name])


def response_begins(data: bytes) -> bool | None:
    """Return whether these bytes could begin with a response, of which nothing but the length is known."""
    if len(data) < _LENGTH:
        return None
    return 4 <= int.from_bytes(data[:4], "big") <= _MOST_GUESSED
