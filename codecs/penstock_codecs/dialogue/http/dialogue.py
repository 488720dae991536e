"""The dialogue of a conversation that speaks HTTP, of either version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock_codecs.capture import CaptureEvent, Chunk, Closed, Conversation, Lost, Noted, Opened, Sender
from penstock_codecs.dialogue.http.exchanges import Exchanges
from penstock_codecs.dialogue.http.http1 import REQUEST_START, Http1Listener
from penstock_codecs.dialogue.http.http2 import Http2Listener, seems_http2
from penstock_codecs.dialogue.http.listener import Listener
from penstock_codecs.dialogue.http.places import Span
from penstock_codecs.dialogue.http.telling import Fault, Teller
from penstock_codecs.dialogue.messages import Message, Problem
from penstock_codecs.http import PREFACE, sniff
from penstock_codecs.limits import KIB

__all__ = ["HttpDialogue"]

_CLIENT, _SERVER = Sender.CLIENT, Sender.SERVER
_MOST_WAITING: Final = 256 * KIB
"""A server that says so much before its client has said what it speaks does not speak HTTP."""
_MOST_NOTED: Final = 1000


class HttpDialogue:
    """See `Dialogue`. The first bytes tell HTTP/1.1 from HTTP/2 (by prior knowledge, or by ALPN inside TLS).

    Where these were not recorded, HTTP/1.1 is heard from the first request that begins a chunk. HTTP/2 whose heads
    refer to what was not recorded is told frame by frame.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._teller = Teller(conversation)
        self._exchanges = Exchanges(self._teller)
        self._listener: Listener | None = None
        self._waiting: list[Chunk] = []  # what was said while it is not clear what is spoken
        self._offsets = {_CLIENT: 0, _SERVER: 0}  # behind what was heard
        self._opened_before = False
        self._in_middle = False
        self._skipped: dict[Sender, tuple[int, int]] = {}
        self._finished: set[Sender] = set()
        self._time_ns = 0

    def receive(self, event: CaptureEvent) -> Iterator[Message | Problem]:
        """What an event of this conversation completes."""
        self._time_ns = event.time_ns
        if isinstance(event, Chunk):
            self._chunk(event)
        elif isinstance(event, Opened):
            self._opened(event)
        elif isinstance(event, Lost):
            self._lost(event)
        elif isinstance(event, Noted):
            if event.key == "stream" and len(self._exchanges.noted_streams) < _MOST_NOTED:
                self._exchanges.noted_streams.append(event.value)
        else:
            self._closed(event)
        return iter(self._teller.take())

    def end(self) -> Iterator[Message | Problem]:
        """The recording has ended: what was left half said, and records that nobody acknowledged."""
        for chunk in self._waiting:
            self._skip(chunk)
        self._tell_skipped()
        if self._listener is not None:
            self._listener.end(self._time_ns)
        why = {"why": "the connection ended before"} if self._finished else {}
        self._exchanges.abandon(_CLIENT, self._here(_CLIENT), "end", **why)
        return iter(self._teller.take())

    # ---- what happens ------------------------------------------------------------------------------------------------
    def _opened(self, event: Opened) -> None:
        offsets = {_CLIENT: event.client_offset, _SERVER: event.server_offset}
        if not self._opened_before:
            self._opened_before = True
            self._offsets = offsets
            self._in_middle = any(offsets.values())
            return
        for sender, offset in offsets.items():  # it goes on, in the next file or after a pause
            if offset > self._offsets[sender]:
                self._gap(sender, offset - self._offsets[sender], "it was not recorded")

    def _lost(self, event: Lost) -> None:
        self._gap(event.sender, event.length, event.reason)

    def _gap(self, sender: Sender, length: int, reason: str) -> None:
        """Bytes of a side are missing."""
        rule = f"{length or 'some'} bytes are not in the recording: {reason}"
        self._teller.fault(sender, self._time_ns, Fault(self._offsets[sender], rule, ""), fatal=False)
        self._exchanges.abandon(sender, self._here(sender), "lost")
        self._offsets[sender] += length
        self._waiting.clear()
        self._in_middle = True
        if self._listener is not None:
            self._listener.lost(sender)

    def _closed(self, event: Closed) -> None:
        if event.sender is _CLIENT and _SERVER not in self._finished:
            self._exchanges.client_left = True
        both = (event.sender, _SERVER if event.sender is _CLIENT else _CLIENT)
        for sender in both if event.reset else both[:1]:
            if sender not in self._finished and self._listener is not None:
                self._listener.closed(sender, self._time_ns)
            self._finished.add(sender)

    def _chunk(self, chunk: Chunk) -> None:
        known = self._offsets[chunk.sender]
        if chunk.offset > known:
            self._gap(chunk.sender, chunk.offset - known, "the recording has a gap")
        elif chunk.offset < known:  # it was heard, at least in part
            chunk = replace(chunk, offset=known, data=memoryview(chunk.data)[known - chunk.offset :])
        if not len(chunk.data):
            return
        self._offsets[chunk.sender] = chunk.offset + len(chunk.data)
        if self._listener is not None:
            self._hear(self._listener, chunk)
        else:
            self._choose(chunk)

    def _hear(self, listener: Listener, chunk: Chunk) -> None:
        data = memoryview(chunk.data)
        self._teller.hear(chunk.sender, data, chunk.offset)
        listener.hear(chunk.sender, data, chunk.offset, chunk.time_ns)
        self._teller.settle(chunk.sender)

    # ---- what is spoken ----------------------------------------------------------------------------------------------
    def _choose(self, chunk: Chunk) -> None:
        if self._in_middle:
            self._choose_in_middle(chunk)
            return
        self._waiting.append(replace(chunk, data=bytes(chunk.data)))
        spoken = sniff(b"".join(bytes(each.data) for each in self._waiting if each.sender is _CLIENT))
        if spoken is None and sum(len(each.data) for each in self._waiting) <= _MOST_WAITING:
            return
        kind = Http2Listener if spoken == "h2" else Http1Listener
        self._listener = kind(self._teller, self._exchanges)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._hear(self._listener, each)

    def _choose_in_middle(self, chunk: Chunk) -> None:
        data = memoryview(chunk.data)
        if chunk.sender is _CLIENT and REQUEST_START.match(data):
            listener: Listener = Http1Listener(self._teller, self._exchanges)
            listener.lost(chunk.sender)
        elif chunk.sender is _CLIENT and bytes(data[: len(PREFACE)]) == PREFACE:
            listener = Http2Listener(self._teller, self._exchanges)
        elif seems_http2(data):
            listener = Http2Listener(self._teller, self._exchanges, in_middle=True)
        else:
            self._skip(chunk)
            return
        self._tell_skipped()
        self._listener = listener
        self._hear(listener, chunk)

    def _skip(self, chunk: Chunk) -> None:
        offset, length = self._skipped.get(chunk.sender, (chunk.offset, 0))
        self._skipped[chunk.sender] = (offset, length + len(chunk.data))

    def _tell_skipped(self) -> None:
        for sender, (offset, length) in self._skipped.items():
            rule = f"{length} bytes were not understood: nothing in them begins like HTTP"
            self._teller.fault(sender, self._time_ns, Fault(offset, rule, ""), fatal=False)
        self._skipped.clear()

    def _here(self, sender: Sender) -> Span:
        at = self._offsets[sender]
        return Span(at, at, self._time_ns, self._time_ns)
