"""Which dialogue hears a conversation: by its protocol where that is known, else by what is said first.

dialogue = dialogue_for(conversation)
for event in events:
    yield from dialogue.receive(event)
yield from dialogue.end()
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from penstock_codecs.capture import Conversation, Sender
from penstock_codecs.dialogue.deciding import DecidingDialogue
from penstock_codecs.dialogue.http.dialogue import HttpDialogue
from penstock_codecs.dialogue.messages import Dialogue
from penstock_codecs.dialogue.opaque import OpaqueDialogue
from penstock_codecs.dialogue.s3p import S3PDialogue
from penstock_codecs.dialogue.s3p.reading import reply_begins
from penstock_codecs.dialogue.segment import Deliveries, SegmentDialogue
from penstock_codecs.dialogue.segment.spoken import HELLO, Spoken
from penstock_codecs.http.sniff import PREFACE
from penstock_codecs.segment.layout import Direction

__all__ = ["ENOUGH", "UNKNOWN", "dialogue_for", "dialogue_of", "spoken_by"]

ENOUGH: Final = 64
"""So many of a side's first bytes show what it speaks."""
UNKNOWN: Final = ""
"""What is spoken is nothing that Penstock speaks."""
TLS: Final = "tls"

_REQUEST_LINE: Final = re.compile(rb"[A-Z]{1,16}(?: ([/*a-z])?)?")
"""A method, and how a target begins: a path, `*`, or a whole URI (RFC 9112, section 3)."""
_PROTOCOLS: Final[dict[str, Callable[[Conversation, Deliveries | None], Dialogue]]] = {
    **dict.fromkeys(("s2", "controller", "management", "http"), lambda conversation, _: HttpDialogue(conversation)),
    "s3p": lambda conversation, _: S3PDialogue(conversation),
    "segment": SegmentDialogue,
    TLS: lambda conversation, _: OpaqueDialogue(
        conversation, "TLS, and what is said inside it is not known", "RFC 8446, section 5.1"
    ),
    UNKNOWN: lambda conversation, _: OpaqueDialogue(
        conversation, "the first bytes are those of no protocol that Penstock speaks"
    ),
}
"""`http` is what bytes can tell of the first three."""


class _Test(NamedTuple):
    """How a protocol's side begins: True, False, or None where more bytes are needed."""

    protocol: str
    begins: Callable[[bytes], bool | None]


def _starts(wanted: bytes) -> Callable[[bytes], bool | None]:
    def begins(data: bytes) -> bool | None:
        if len(data) < len(wanted):
            return None if wanted.startswith(data) else False
        return data.startswith(wanted)

    return begins


def _request_line(data: bytes) -> bool | None:
    found = _REQUEST_LINE.match(data)
    if found is None or found[1]:
        return found is not None
    return None if found.end() == len(data) else False


def _star(data: bytes) -> bool | None:
    return None if data == b"*" else data[:1] == b"*" and data[1:2].isdigit()


def _settings(data: bytes) -> bool | None:
    """A server's first frame over HTTP/2: SETTINGS of stream 0, without ACK, its length a multiple of 6."""
    if len(data) < 9:
        return None if data[:1] == b"\0"[: len(data)] else False
    length = int.from_bytes(data[:3], "big")
    return data[3:9] == b"\x04\0\0\0\0\0" and length % 6 == 0


def _messages(direction: Direction) -> Callable[[bytes], bool | None]:
    return lambda data: Spoken().begins(direction, data)


_TLS_RECORD: Final = re.compile(rb"\x16\x03[\0-\x04]")


def _tls(data: bytes) -> bool | None:
    if len(data) < 3:
        return None if b"\x16\x03".startswith(data[:2]) else False
    return _TLS_RECORD.match(data) is not None


_FRAME_HEAD: Final = Struct(">HBBBI")
_FRAME_HEAD_BYTES: Final = _FRAME_HEAD.size
_ALONE: Final = {4, 6, 7}  # SETTINGS, PING, GOAWAY: of stream 0
_FRAME_LENGTHS: Final[dict[int, Callable[[int], bool]]] = {
    0: lambda _length: True,  # DATA
    1: lambda length: length > 0,  # HEADERS
    2: lambda length: length == 5,  # PRIORITY
    3: lambda length: length == 4,  # RST_STREAM
    4: lambda length: length % 6 == 0,  # SETTINGS
    6: lambda length: length == 8,  # PING
    7: lambda length: length >= 8,  # GOAWAY
    8: lambda length: length == 4,  # WINDOW_UPDATE
    9: lambda length: length > 0,  # CONTINUATION
}
"""Types of frames and their lengths (RFC 9113, section 6)."""
_LONGEST_FRAME: Final = 16_384
"""Longer ones are allowed only by a setting that hardly anybody changes."""


def _frames(data: bytes) -> bool | None:
    """Frames of HTTP/2, one behind the other, as far as these bytes go."""
    if len(data) < _FRAME_HEAD_BYTES:
        return None
    at = 0
    while at + _FRAME_HEAD_BYTES <= len(data):
        high, low, kind, _flags, stream = _FRAME_HEAD.unpack_from(data, at)
        length = high << 8 | low
        fits = _FRAME_LENGTHS.get(kind)
        if fits is None or not fits(length) or length > _LONGEST_FRAME:
            return False
        if stream >> 31 or (kind != 8 and (stream == 0) is not (kind in _ALONE)):
            return False
        at += _FRAME_HEAD_BYTES + length
    return True


_LATE: Final[tuple[_Test, ...]] = (_Test("http", _frames),)
"""What shows itself only where a conversation is heard from its middle, behind the tests of its beginning."""
_TESTS: Final[dict[Sender, tuple[_Test, ...]]] = {
    Sender.CLIENT: (
        _Test("http", _starts(PREFACE)),
        _Test("s3p", _star),
        _Test("segment", _starts(HELLO)),
        _Test(TLS, _tls),
        _Test("http", _request_line),
        _Test("segment", _messages(Direction.REQUEST)),
    ),
    Sender.SERVER: (
        _Test("http", _starts(b"HTTP/1.")),
        _Test("http", _settings),
        _Test("segment", _starts(HELLO)),
        _Test(TLS, _tls),
        _Test("s3p", reply_begins),
        _Test("segment", _messages(Direction.REPLY)),
    ),
}
"""The first that fits is what is spoken."""


def spoken_by(sender: Sender, first: bytes, *, late: bool = False) -> str | None:
    """What a side speaks that says these bytes first: `http`, `s3p`, `segment`, `tls`, or UNKNOWN.

    None: more of its bytes are needed; `ENOUGH` of them always suffice. `late`: these are the first bytes of some
    message, and not of the conversation.
    """
    if not first:
        return None
    undecided = False
    for test in _TESTS[sender] + _LATE if late else _TESTS[sender]:
        begins = test.begins(first[:ENOUGH])
        if begins:
            return test.protocol
        undecided |= begins is None
    return None if undecided and len(first) < ENOUGH else UNKNOWN


def dialogue_for(conversation: Conversation, deliveries: Deliveries | None = None) -> Dialogue:
    """A dialogue for a conversation, which finds out by itself what is spoken where its protocol does not say so.

    It hears the conversation's events from the first one (`Opened`) on. `deliveries`, one for all conversations of a
    capture, lets events be put together whose parts were read over several connections.
    """
    make = _PROTOCOLS.get(conversation.protocol) if conversation.protocol else None
    if make is not None:
        return make(conversation, deliveries)
    return DecidingDialogue(conversation, spoken_by, lambda protocol: _PROTOCOLS[protocol](conversation, deliveries))


def dialogue_of(conversation: Conversation, first: bytes) -> Dialogue | None:
    """The dialogue for a conversation whose client began with `first`; None: more of these bytes are needed."""
    protocol = conversation.protocol if conversation.protocol in _PROTOCOLS else ""
    spoken = protocol or spoken_by(Sender.CLIENT, first)
    return None if spoken is None else _PROTOCOLS[spoken](conversation, None)
