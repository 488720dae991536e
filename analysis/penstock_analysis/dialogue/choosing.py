"""Choose the dialogue of a conversation: by its protocol if that is known, otherwise by its first bytes.

dialogue = dialogue_for(conversation)
for event in events:
    yield from dialogue.receive(event)
yield from dialogue.end()

A conversation in an unsupported protocol: its chunks, by size.

A conversation of unknown protocol: its events are kept until its bytes reveal the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from struct import Struct
from typing import Final, NamedTuple, Protocol

from penstock_analysis.capture import CaptureEvent, Chunk, Conversation, Joined, Lost, Opened, Sender
from penstock_analysis.dialogue.http.dialogue import HttpDialogue
from penstock_analysis.dialogue.messages import Dialogue, Message, Problem
from penstock_analysis.dialogue.s3p import S3PDialogue
from penstock_analysis.dialogue.s3p.reading import reply_begins
from penstock_analysis.dialogue.segment import Deliveries, SegmentDialogue
from penstock_analysis.dialogue.segment.spoken import HELLO, Spoken
from penstock_codecs.http.sniff import PREFACE
from penstock_codecs.segment.layout import Direction

__all__ = [
    "ENOUGH",
    "MOST_BYTES",
    "MOST_EVENTS",
    "UNKNOWN",
    "DecidingDialogue",
    "OpaqueDialogue",
    "dialogue_for",
    "dialogue_of",
    "spoken_by",
]


class OpaqueDialogue:
    """Dialogue in which every chunk is a message of layer `tcp` and kind `data`, whose only field is its `size`; a
    Problem before the first of them, which is not fatal, gives the reason as `rule`."""

    def __init__(self, conversation: Conversation, rule: str, clause: str = "") -> None:
        self._conversation = conversation
        self._rule = rule
        self._clause = clause
        self._said = False

    def receive(self, event: CaptureEvent) -> Iterator[Message | Problem]:
        """Yield a chunk as a message."""
        if not isinstance(event, Chunk):
            return
        if not self._said:
            self._said = True
            yield self._problem(event)
        yield Message(
            self._conversation,
            event.sender,
            start_ns=event.time_ns,
            end_ns=event.time_ns,
            offset=event.offset,
            length=len(event.data),
            layer="tcp",
            kind="data",
            fields={"size": len(event.data)},
        )

    def _problem(self, chunk: Chunk) -> Problem:
        return Problem(
            self._conversation,
            chunk.sender,
            chunk.time_ns,
            chunk.offset,
            self._rule,
            self._clause,
            context=bytes(chunk.data[:64]),
            context_offset=chunk.offset,
            fatal=False,
        )

    def end(self) -> Iterator[Message | Problem]:
        """Return no items: no message is ever incomplete here."""
        return iter(())


MOST_BYTES: Final = 64 * 1024
MOST_EVENTS: Final = 1024
"""Most bytes and events kept; beyond that the protocol counts as unsupported."""
_ENOUGH: Final = 64


class SpokenBy(Protocol):
    """Function that returns the protocol of a side that begins with these bytes, or None if they are too few. See
    `choosing.spoken_by`."""

    def __call__(self, sender: Sender, first: bytes, *, late: bool = False) -> str | None:
        """Return the protocol, or None. `late`: the bytes begin a message, and not the conversation."""


class DecidingDialogue:
    """Dialogue that keeps events until `spoken_by` knows the protocol from a side's bytes, then passes all of them to
    that protocol's dialogue.

    Of a side that was recorded from its beginning only the first bytes count; of another, every chunk may begin with a
    message, and one that does not proves nothing else.
    """

    def __init__(
        self,
        conversation: Conversation,
        spoken_by: SpokenBy,
        make: Callable[[str], Dialogue],
        unknown: str = "",
    ) -> None:
        self._conversation = conversation
        self._spoken_by = spoken_by
        self._make = make
        self._unknown = unknown
        self._kept: list[CaptureEvent] = []
        self._bytes = 0
        self._firsts: dict[Sender, bytes] = {}
        self._late: set[Sender] = set()
        self._inner: Dialogue | None = None

    def receive(self, event: CaptureEvent) -> Iterator[Message | Problem]:
        """Yield the items that an event completes, and at the decision those of the events before it."""
        if self._inner is not None:
            yield from self._inner.receive(event)
            return
        if isinstance(event, Chunk):
            event = replace(event, data=bytes(event.data))
            self._bytes += len(event.data)
        self._kept.append(event)
        protocol = self._decided(event)
        if protocol is None and (self._bytes > MOST_BYTES or len(self._kept) > MOST_EVENTS):
            protocol = self._unknown
        if protocol is not None:
            yield from self._hear(self._make(protocol))

    def _hear(self, dialogue: Dialogue) -> Iterator[Message | Problem]:
        self._inner = dialogue
        kept, self._kept = self._kept, []
        for event in kept:
            yield from dialogue.receive(event)

    def _decided(self, event: CaptureEvent) -> str | None:
        match event:
            case Opened():
                offsets = {Sender.CLIENT: event.client_offset, Sender.SERVER: event.server_offset}
                self._late |= {sender for sender, offset in offsets.items() if offset}
            case Lost():
                self._late.add(event.sender)
                self._firsts.pop(event.sender, None)
            case Joined():
                return "http"
            case Chunk():
                return self._first_bytes(event.sender, bytes(event.data))
            case _:
                pass
        return None

    def _first_bytes(self, sender: Sender, data: bytes) -> str | None:
        if sender in self._late:
            return self._spoken_by(sender, data, late=True) or None
        first = self._firsts.get(sender, b"")
        if len(first) >= _ENOUGH:
            return None
        self._firsts[sender] = first = (first + data)[:_ENOUGH]
        spoken = self._spoken_by(sender, first)
        # A server's greeting may be anything; what the client says first is the protocol's own.
        return None if spoken == self._unknown and sender is Sender.SERVER else spoken

    def end(self) -> Iterator[Message | Problem]:
        """End the dialogue at the end of the recording; undecided events are treated as of an unknown protocol."""
        if self._inner is None:
            yield from self._hear(self._make(self._unknown))
        assert self._inner is not None, "decided at last"
        yield from self._inner.end()


ENOUGH: Final = 64
"""Bytes at a side's beginning that suffice to recognize its protocol."""
UNKNOWN: Final = ""
"""A protocol that Penstock does not support."""
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
    """Test whether a side begins in a protocol: True, False, or None if more bytes are needed."""

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
    """Test for a server's first frame over HTTP/2: SETTINGS of stream 0, without ACK, its length a multiple of 6."""
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
"""Default limit; longer frames are allowed only by a setting that is rarely changed."""


def _frames(data: bytes) -> bool | None:
    """Test for consecutive frames of HTTP/2, as far as these bytes go."""
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
"""Tests for the middle of a conversation, tried after those of its beginning."""
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
    """Return the protocol of a side that begins with these bytes: `http`, `s3p`, `segment`, `tls`, or UNKNOWN.

    None: more bytes are needed; `ENOUGH` of them always suffice. `late`: these are the first bytes of some message, and
    not of the conversation.
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
    """Return a dialogue for a conversation, which detects the protocol by itself if the conversation does not name it.

    It must receive the conversation's events from the first one (`Opened`) on. `deliveries`, one for all conversations
    of a capture, allows events to be put together whose parts were read over several connections.
    """
    make = _PROTOCOLS.get(conversation.protocol) if conversation.protocol else None
    if make is not None:
        return make(conversation, deliveries)
    return DecidingDialogue(conversation, spoken_by, lambda protocol: _PROTOCOLS[protocol](conversation, deliveries))


def dialogue_of(conversation: Conversation, first: bytes) -> Dialogue | None:
    """Return the dialogue for a conversation whose client began with `first`, or None if more of these bytes are
    needed."""
    protocol = conversation.protocol if conversation.protocol in _PROTOCOLS else ""
    spoken = protocol or spoken_by(Sender.CLIENT, first)
    return None if spoken is None else _PROTOCOLS[spoken](conversation, None)
