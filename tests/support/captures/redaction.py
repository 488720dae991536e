"""Conversations through a Redactor, in any cuts."""

from __future__ import annotations

import re
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import zstandard
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Conversation, Opened, Sender, SocketAddress
from penstock.capture.redaction.redactor import Redactor
from penstock.capture.redaction.rules import RedactionRules

CLIENT, SERVER = Sender.CLIENT, Sender.SERVER
Said = Sequence[tuple[Sender, bytes]]
"""Bytes of a conversation in order, each piece with its sender."""


def conversation(protocol: str = "s2", number: int = 1) -> Conversation:
    return Conversation(number, SocketAddress("127.0.0.1", 40000), SocketAddress("127.0.0.1", 4000), protocol=protocol)


class Tape:
    """A Redactor with one conversation, and what came out of it; offsets and lengths are checked on the way."""

    def __init__(self, rules: RedactionRules | None = None, protocol: str = "s2", start: int = 0) -> None:
        self.redactor = Redactor(rules or RedactionRules())
        self.conversation = conversation(protocol)
        self.offsets = dict.fromkeys(Sender, start)
        self.out = {sender: bytearray() for sender in Sender}
        self.start = start
        self.time = 0
        self.last_time = 0
        self.redactor.redact(Opened(self.conversation, 0, start, start))

    def say(self, sender: Sender, data: bytes) -> list[CaptureEvent]:
        self.time += 1
        chunk = Chunk(self.conversation, self.time, sender, self.offsets[sender], data)
        self.offsets[sender] += len(data)
        return self.hear(self.redactor.redact(chunk))

    def hear(self, events: list[CaptureEvent]) -> list[CaptureEvent]:
        for event in events:
            if isinstance(event, Chunk):
                assert event.offset == self.start + len(self.out[event.sender])
                assert event.time_ns >= self.last_time
                self.last_time = event.time_ns
                self.out[event.sender] += event.data
        return events

    def close(self) -> tuple[bytes, bytes]:
        for sender in Sender:
            self.time += 1
            self.hear(self.redactor.redact(Closed(self.conversation, self.time, sender)))
        for sender in Sender:
            assert len(self.out[sender]) == self.offsets[sender] - self.start
        assert self.redactor.held == 0
        assert self.redactor.failures == 0
        return bytes(self.out[CLIENT]), bytes(self.out[SERVER])


def redacted(
    said: Said,
    rules: RedactionRules | None = None,
    protocol: str = "s2",
    cuts: Iterable[int] | None = None,
    start: int = 0,
) -> tuple[bytes, bytes]:
    """Return the written bytes of a conversation, by side. `cuts`: further chunk ends, as offsets into both sides
    together.
    """
    tape = Tape(rules, protocol, start)
    at, places = 0, sorted(cuts or ())
    for sender, data in said:
        ends = [place - at for place in places if at < place < at + len(data)] + [len(data)]
        first = 0
        for end in ends:
            tape.say(sender, data[first:end])
            first = end
        at += len(data)
    return tape.close()


def at_every_cut(
    said: Said, rules: RedactionRules | None = None, protocol: str = "s2", start: int = 0
) -> tuple[bytes, bytes]:
    """Return the written bytes of a conversation, and check that chunking does not change them.

    It is cut not at all, at every byte, and into two at up to 200 places.
    """
    whole = redacted(said, rules, protocol, start=start)
    size = sum(len(data) for _, data in said)
    assert redacted(said, rules, protocol, range(size), start) == whole
    for cut in range(1, size, size // 200 + 1):
        assert redacted(said, rules, protocol, [cut], start) == whole, cut
    return whole


# ---- looking for leaks ---------------------------------------------------------------------------------------


def leaks(data: bytes, secret: bytes) -> list[str]:
    """Return the forms in which a secret occurs in these bytes."""
    found = ["raw"] if secret in data else []
    for shift in range(3):
        # Of the first and last characters some bits come from the neighbours.
        coded = b64encode(bytes(shift) + secret)[-(-shift * 4 // 3) : (shift + len(secret)) * 4 // 3 // 4 * 4]
        if len(coded) >= 8 and coded[1:-1] in data:
            found.append(f"base64, aligned {shift}")
    coded = _encoder.encode(secret)
    if len(coded) >= 6 and coded[:-1] in data:
        found.append("Huffman")
    return found + [f"in {name}" for name, content in _inside(data) if secret in content]


def _inside(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Decompress every zstd and gzip stream that begins anywhere in these bytes."""
    for found in re.finditer(rb"\x28\xb5\x2f\xfd", data):
        with suppress(zstandard.ZstdError):
            yield "zstd", zstandard.ZstdDecompressor().decompressobj().decompress(data[found.start() :])
    for found in re.finditer(rb"\x1f\x8b\x08", data):
        with suppress(zlib.error):
            yield "gzip", zlib.decompressobj(31).decompress(data[found.start() :])


_encoder = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)
