"""Conversations through a Redactor, in any cuts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock_codecs.capture import CaptureEvent, Chunk, Closed, Conversation, Endpoint, Opened, Sender
from penstock_codecs.redaction import RedactionRules, Redactor

CLIENT, SERVER = Sender.CLIENT, Sender.SERVER
Said = Sequence[tuple[Sender, bytes]]
"""Who says what, in order."""


def conversation(protocol: str = "s2", number: int = 1) -> Conversation:
    return Conversation(number, Endpoint("127.0.0.1", 40000), Endpoint("127.0.0.1", 4000), protocol=protocol)


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
    """What is written of a conversation. `cuts`: places in the bytes of both sides together where chunks end too."""
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
    """What is written in whatever cuts: whole, byte by byte, and in two at each place. Always the same."""
    whole = redacted(said, rules, protocol, start=start)
    size = sum(len(data) for _, data in said)
    assert redacted(said, rules, protocol, range(size), start) == whole
    for cut in range(1, size):
        assert redacted(said, rules, protocol, [cut], start) == whole, cut
    return whole
