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
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from penstock.capture.dialogue.messages import Dialogue, Message, Problem
from penstock.capture.dialogue.withheld import RedactedDialogue
from penstock.capture.pcapng import CaptureEvent, Chunk, Conversation, Joined, Lost, Opened, Sender
from penstock.capture.plugin import HTTP, Likeness, plugins

__all__ = [
    "ENOUGH",
    "MOST_BYTES",
    "MOST_EVENTS",
    "UNKNOWN",
    "OpaqueDialogue",
    "dialogue_for",
    "memories",
    "spoken_by",
]

UNKNOWN: Final = ""
"""A protocol that Penstock does not support."""
MOST_BYTES: Final = 64 * 1024
MOST_EVENTS: Final = 1024
"""Most bytes and events kept; beyond that the protocol counts as unsupported."""
ENOUGH: Final = 64
"""Bytes at a side's beginning that suffice to recognize its protocol."""
TLS: Final = "tls"
_OPAQUE: Final = {
    TLS: ("TLS, and what is said inside it is not known", "RFC 8446, section 5.1"),
    UNKNOWN: ("the first bytes are those of no protocol that Penstock speaks", ""),
}
_TLS_RECORD: Final = re.compile(rb"\x16\x03[\0-\x04]")


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


class _DecidingDialogue:
    """Dialogue that keeps events until `spoken_by` knows the protocol from a side's bytes, then passes all of them to
    that protocol's dialogue.

    Of a side that was recorded from its beginning only the first bytes count; of another, every chunk may begin with a
    message, and one that does not proves nothing else.
    """

    def __init__(self, make: Callable[[str], Dialogue]) -> None:
        self._make = make
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
            protocol = UNKNOWN
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
                return HTTP
            case Chunk():
                return self._first_bytes(event.sender, bytes(event.data))
            case _:
                pass
        return None

    def _first_bytes(self, sender: Sender, data: bytes) -> str | None:
        if sender in self._late:
            return spoken_by(sender, data, late=True) or None
        first = self._firsts.get(sender, b"")
        if len(first) >= ENOUGH:
            return None
        self._firsts[sender] = first = (first + data)[:ENOUGH]
        spoken = spoken_by(sender, first)
        # A server's greeting may be anything; what the client says first is the protocol's own.
        return None if spoken == UNKNOWN and sender is Sender.SERVER else spoken

    def end(self) -> Iterator[Message | Problem]:
        """End the dialogue at the end of the recording; undecided events are treated as of an unknown protocol."""
        if self._inner is None:
            yield from self._hear(self._make(UNKNOWN))
        assert self._inner is not None, "decided at last"
        yield from self._inner.end()


def _tls(_sender: Sender, first: bytes, _late: bool) -> Likeness | None:
    if len(first) < 3:
        return None if b"\x16\x03".startswith(first[:2]) else Likeness.NONE
    return Likeness.MARK if _TLS_RECORD.match(first) else Likeness.NONE


def spoken_by(sender: Sender, first: bytes, *, late: bool = False) -> str | None:
    """Return the protocol of a side that begins with these bytes: the name of a plug-in, `tls`, or UNKNOWN.

    None: more bytes are needed; `ENOUGH` of them always suffice. `late`: these are the first bytes of some message, and
    not of the conversation.
    """
    if not first:
        return None
    tests = {TLS: _tls} | {name: plugin.begins for name, plugin in plugins().items() if plugin.begins is not None}
    likeness = {name: begins(sender, first[:ENOUGH], late) for name, begins in tests.items()}
    best = max(likeness, key=lambda name: likeness[name] or Likeness.NONE)
    if likeness[best]:
        return best
    return None if None in likeness.values() and len(first) < ENOUGH else UNKNOWN


def memories() -> dict[str, Any]:
    """Return what the dialogues of one capture share, by protocol."""
    return {name: plugin.memory() for name, plugin in plugins().items() if plugin.memory is not None}


def dialogue_for(conversation: Conversation, shared: Mapping[str, Any] | None = None) -> Dialogue:
    """Return a dialogue for a conversation, which detects the protocol by itself if the conversation does not name it.

    It must receive the conversation's events from the first one (`Opened`) on. `shared`: the `memories` of the capture,
    without which messages that are spread over several conversations are not put together.
    """
    if conversation.protocol in plugins():
        return RedactedDialogue(_dialogue(conversation.protocol, conversation, shared))
    return RedactedDialogue(_DecidingDialogue(lambda protocol: _dialogue(protocol, conversation, shared)))


def _dialogue(protocol: str, conversation: Conversation, shared: Mapping[str, Any] | None = None) -> Dialogue:
    if protocol in _OPAQUE:
        return OpaqueDialogue(conversation, *_OPAQUE[protocol])
    plugin = plugins()[protocol]
    memory = None if plugin.memory is None else plugin.memory() if shared is None else shared[protocol]
    return plugin.dialogue(conversation, memory)
