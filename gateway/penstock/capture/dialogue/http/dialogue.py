"""The dialogue of a conversation over HTTP, and the decoder of a connection of HTTP/2 (RFC 9113).

A decoder splits both sides of a connection into exchanges: over HTTP/2 these have the numbers of their streams. Bytes
are split by `penstock.wire.http.observer`; `SeenExchanges` turns heads into messages and gives bodies to the readers
of the protocol that a request belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from msgspec.structs import replace

from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchanges import SeenExchanges
from penstock.capture.dialogue.http.h2_side import H2Side
from penstock.capture.dialogue.http.http1 import REQUEST_START, Http1Decoder
from penstock.capture.dialogue.http.streams import H2Streams
from penstock.capture.dialogue.messages import Message, Problem
from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Conversation, Joined, Lost, Noted, Opened, Sender
from penstock.model.limits import KIB
from penstock.wire.http import PREFACE, sniff
from penstock.wire.http.observer.faults import HttpFault, TimedRange
from penstock.wire.http.observer.frames import plausible

__all__ = ["Http2Decoder", "HttpDecoder", "HttpDialogue"]

_MOST_WAITING: Final = 256 * KIB
"""Bytes after which a server that sends before its client's protocol is known does not speak HTTP."""
_MOST_NOTED: Final = 1000


class HttpDecoder(Protocol):
    """Decoder of both sides of one connection, which passes its results to `SeenExchanges`."""

    def receive(self, sender: Sender, data: memoryview, offset: int, time_ns: int) -> None:
        """Read the next bytes of a side."""

    def closed(self, sender: Sender, time_ns: int) -> None:
        """End a side, which has finished sending."""

    def lost(self, sender: Sender) -> None:
        """Handle missing bytes of a side: it is read again from the next place at which a message seems to begin."""

    def end(self, time_ns: int) -> None:
        """End both sides at the end of the recording."""


class Http2Decoder:
    """Listener to an HTTP/2 connection.

    `in_middle`: the beginning was not recorded. Entries that the heads of either side refer to are unknown then, so
    that frames are reported by their types. `joins`: it was not recorded either, but preludes are read first.
    """

    def __init__(
        self, collector: MessageCollector, exchanges: SeenExchanges, *, in_middle: bool = False, joins: bool = False
    ) -> None:
        self._collector = collector
        streams = H2Streams(collector, exchanges)
        client, server = (H2Side(sender, collector, exchanges, streams) for sender in Sender)
        client.peer, server.peer = server, client
        self._sides: Final = {Sender.CLIENT: client, Sender.SERVER: server}
        self._streams = streams
        if joins:
            streams.join()
        if in_middle:
            self.lost(Sender.CLIENT)

    def receive(self, sender: Sender, data: memoryview, offset: int, time_ns: int) -> None:
        """Read the next bytes of a side."""
        self._sides[sender].receive(data, offset, time_ns)

    def closed(self, sender: Sender, time_ns: int) -> None:
        """End a side, which has finished sending."""
        self._sides[sender].finish(time_ns)

    def lost(self, sender: Sender) -> None:
        """Forget all streams and header tables: entries that later heads refer to may be missing."""
        del sender
        self._streams.forget()
        for side in self._sides.values():
            side.seek()

    def end(self, time_ns: int) -> None:
        """End both sides at the end of the recording."""
        for sender, side in self._sides.items():
            side.report_skipped(time_ns)
            if side.half:
                fault = HttpFault(side.offset, "the recording ends amid a frame", "")
                self._collector.fault(sender, time_ns, fault, fatal=False)


_CLIENT, _SERVER = Sender.CLIENT, Sender.SERVER


class HttpDialogue:
    """Dialogue over HTTP. The first bytes tell HTTP/1.1 from HTTP/2 (by prior knowledge, or by ALPN inside TLS).

    If they were not recorded, HTTP/1.1 is read from the first request that begins a chunk. HTTP/2 whose heads refer to
    missing bytes is reported frame by frame.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._collector = MessageCollector(conversation)
        self._exchanges = SeenExchanges(self._collector)
        self._decoder: HttpDecoder | None = None
        self._waiting: list[Chunk] = []  # chunks kept until the HTTP version is known
        self._offsets = {_CLIENT: 0, _SERVER: 0}  # end of the bytes received
        self._opened_before = False
        self._in_middle = False
        self._skipped: dict[Sender, tuple[int, int]] = {}
        self._finished: set[Sender] = set()
        self._time_ns = 0

    def receive(self, event: CaptureEvent) -> Iterator[Message | Problem]:
        """Yield the items that an event of this conversation completes."""
        self._time_ns = event.time_ns
        if isinstance(event, Chunk):
            self._chunk(event)
        elif isinstance(event, Opened):
            self._opened(event)
        elif isinstance(event, Lost):
            self._lost(event)
        elif isinstance(event, Joined):
            self._joined(event)
        elif isinstance(event, Noted):
            if event.key == "stream" and len(self._exchanges.noted_streams) < _MOST_NOTED:
                self._exchanges.noted_streams.append(event.value)
        elif isinstance(event, Closed):
            self._closed(event)
        return iter(self._collector.take())

    def end(self) -> Iterator[Message | Problem]:
        """Yield the last items at the end of the recording: incomplete messages, and unacknowledged records."""
        for chunk in self._waiting:
            self._skip(chunk)
        self._report_skipped()
        if self._decoder is not None:
            self._decoder.end(self._time_ns)
        reason = {"reason": "the connection ended before"} if self._finished else {}
        self._exchanges.abandon(_CLIENT, self._here(_CLIENT), "end", **reason)
        return iter(self._collector.take())

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

    def _joined(self, event: Joined) -> None:
        """Read preludes, the state before the recording, without reporting their messages."""
        offsets = {_CLIENT: event.client_offset, _SERVER: event.server_offset}
        if offsets != self._offsets or not self._in_middle:
            return  # preludes of an earlier place, repeated in a later file
        decoder: HttpDecoder
        if event.version == "2":
            decoder = Http2Decoder(self._collector, self._exchanges, joins=True)
        else:
            decoder = Http1Decoder(self._collector, self._exchanges)
        self._collector.muted = True
        for sender, data in ((_CLIENT, event.client), (_SERVER, event.server)):
            decoder.receive(sender, memoryview(data), offsets[sender] - len(data), event.time_ns)
        self._collector.muted = False
        self._exchanges.join()
        self._decoder, self._in_middle = decoder, False
        self._waiting.clear()

    def _lost(self, event: Lost) -> None:
        self._gap(event.sender, event.length, event.reason)

    def _gap(self, sender: Sender, length: int, reason: str) -> None:
        """Handle missing bytes of a side."""
        rule = f"{length or 'some'} bytes are not in the recording: {reason}"
        self._collector.fault(sender, self._time_ns, HttpFault(self._offsets[sender], rule, ""), fatal=False)
        self._exchanges.abandon(sender, self._here(sender), "lost")
        self._offsets[sender] += length
        self._waiting.clear()
        self._in_middle = True
        if self._decoder is not None:
            self._decoder.lost(sender)

    def _closed(self, event: Closed) -> None:
        if event.sender is _CLIENT and _SERVER not in self._finished:
            self._exchanges.client_left = True
        both = (event.sender, _SERVER if event.sender is _CLIENT else _CLIENT)
        for sender in both if event.reset else both[:1]:
            if sender not in self._finished and self._decoder is not None:
                self._decoder.closed(sender, self._time_ns)
            self._finished.add(sender)

    def _chunk(self, chunk: Chunk) -> None:
        known = self._offsets[chunk.sender]
        if chunk.offset > known:
            self._gap(chunk.sender, chunk.offset - known, "the recording has a gap")
        elif chunk.offset < known:  # it was received already, at least in part
            chunk = replace(chunk, offset=known, data=memoryview(chunk.data)[known - chunk.offset :])
        if not len(chunk.data):
            return
        self._offsets[chunk.sender] = chunk.offset + len(chunk.data)
        if self._decoder is not None:
            self._receive(self._decoder, chunk)
        else:
            self._choose(chunk)

    def _receive(self, decoder: HttpDecoder, chunk: Chunk) -> None:
        data = memoryview(chunk.data)
        self._collector.receive(chunk.sender, data, chunk.offset)
        decoder.receive(chunk.sender, data, chunk.offset, chunk.time_ns)
        self._collector.settle(chunk.sender)

    # ---- choice of the decoder ---------------------------------------------------------------------------------------
    def _choose(self, chunk: Chunk) -> None:
        if self._in_middle:
            self._choose_in_middle(chunk)
            return
        self._waiting.append(replace(chunk, data=bytes(chunk.data)))
        spoken = sniff(b"".join(bytes(each.data) for each in self._waiting if each.sender is _CLIENT))
        if spoken is None and sum(len(each.data) for each in self._waiting) <= _MOST_WAITING:
            return
        kind = Http2Decoder if spoken == "h2" else Http1Decoder
        self._decoder = kind(self._collector, self._exchanges)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._receive(self._decoder, each)

    def _choose_in_middle(self, chunk: Chunk) -> None:
        data = memoryview(chunk.data)
        if chunk.sender is _CLIENT and REQUEST_START.match(data):
            decoder: HttpDecoder = Http1Decoder(self._collector, self._exchanges)
            decoder.lost(chunk.sender)
        elif chunk.sender is _CLIENT and bytes(data[: len(PREFACE)]) == PREFACE:
            decoder = Http2Decoder(self._collector, self._exchanges)
        elif plausible(data):
            decoder = Http2Decoder(self._collector, self._exchanges, in_middle=True)
        else:
            self._skip(chunk)
            return
        self._report_skipped()
        self._decoder = decoder
        self._receive(decoder, chunk)

    def _skip(self, chunk: Chunk) -> None:
        offset, length = self._skipped.get(chunk.sender, (chunk.offset, 0))
        self._skipped[chunk.sender] = (offset, length + len(chunk.data))

    def _report_skipped(self) -> None:
        for sender, (offset, length) in self._skipped.items():
            rule = f"{length} bytes were not understood: nothing in them begins like HTTP"
            self._collector.fault(sender, self._time_ns, HttpFault(offset, rule, ""), fatal=False)
        self._skipped.clear()

    def _here(self, sender: Sender) -> TimedRange:
        at = self._offsets[sender]
        return TimedRange(at, at, self._time_ns, self._time_ns)
