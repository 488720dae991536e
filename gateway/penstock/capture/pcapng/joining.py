"""Encode `Joined` events in comments of packets: as pairs `joined=PART/PARTS:...`, since a comment is short.

The parts together are, compressed by zlib and in base64, a line of JSON with the version, both offsets and the length
of the client's prelude, followed by the two preludes. Other tools show them as comments.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from typing import Final

from penstock.capture.pcapng.events import Conversation, Joined

__all__ = ["KEY", "JoinedParts", "joined_values"]

KEY: Final = "joined"
_PART: Final = 7_900
"""Characters of a part; with its number it is shorter than `notes.MAX_VALUE`."""
_MOST_PARTS: Final = 24
_MOST_BYTES: Final = 256 * 1024
"""Preludes of a connection take at most 110 KiB."""


def joined_values(joined: Joined) -> list[str]:
    """Return the values of its pairs, in order; none if the event is longer than a reader accepts."""
    head = {
        "version": joined.version,
        "client_offset": joined.client_offset,
        "server_offset": joined.server_offset,
        "client": len(joined.client),
    }
    content = json.dumps(head).encode() + b"\n" + joined.client + joined.server
    text = b64encode(zlib.compress(content, 1)).decode()
    pieces = [text[at : at + _PART] for at in range(0, len(text), _PART)]
    if len(pieces) > _MOST_PARTS or len(content) > _MOST_BYTES:
        return []
    return [f"{number}/{len(pieces)}:{piece}" for number, piece in enumerate(pieces, 1)]


class JoinedParts:
    """Assembler of the parts of one conversation. Incomplete sequences of parts are dropped."""

    def __init__(self) -> None:
        self._text = ""
        self._next = 1

    def add(self, value: str, conversation: Conversation, time_ns: int) -> Joined | None:
        """Add the next part; return the event if it was the last one. Raises ValueError for an invalid part."""
        place, _, piece = value.partition(":")
        number, _, count = place.partition("/")
        if not (number.isdecimal() and count.isdecimal() and len(place) <= 5):
            raise ValueError("a part has a number")
        if int(number) == 1:
            self._text, self._next = "", 1
        if int(number) != self._next or int(count) > _MOST_PARTS:
            raise ValueError("a part is missing")
        self._text += piece
        self._next += 1
        if int(number) < int(count):
            return None
        text, self._text, self._next = self._text, "", 1
        return _joined(text, conversation, time_ns)


def _joined(text: str, conversation: Conversation, time_ns: int) -> Joined:
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(b64decode(text, validate=True), _MOST_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    line, newline, preludes = content.partition(b"\n")
    head = json.loads(line)
    wanted = {"version": str, "client_offset": int, "server_offset": int, "client": int}
    if not newline or not isinstance(head, dict) or {name: type(head.get(name)) for name in wanted} != wanted:
        raise ValueError("it does not say what it is")
    size = head["client"]
    if not 0 <= size <= len(preludes) or head["version"] not in ("1.1", "2"):
        raise ValueError("it is not whole")
    offsets = head["client_offset"], head["server_offset"]
    return Joined(conversation, time_ns, head["version"], *offsets, preludes[:size], preludes[size:])
