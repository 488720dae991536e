"""HTTP/2 of one side (RFC 9113): frames are walked, header blocks blanked in place, bodies skipped or redacted."""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import Struct
from typing import Final, NamedTuple

from penstock_analysis.capture import Sender
from penstock_analysis.redaction.choice import Choice
from penstock_analysis.redaction.contents import Content, Gathered, Searched, feed
from penstock_analysis.redaction.exchanges import Exchange, Exchanges
from penstock_analysis.redaction.flow import Flow, NotUnderstood, Parser
from penstock_analysis.redaction.hpack_blanking import UNTOLD, HeaderNames, Unparsable, redact_block
from penstock_analysis.redaction.secrets import Secrets
from penstock_analysis.redaction.text import Edit
from penstock_codecs.http.preludes import TABLE_STREAM
from penstock_codecs.http.sniff import PREFACE

__all__ = ["MAX_BLOCK", "UNPARSABLE", "Http2Side", "begins_with_frames"]

_HEAD: Final = Struct(">HBBBL")
HEAD_BYTES: Final = 9
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x4, 0x8, 0x20
MAX_BLOCK: Final = 64 * 1024
"""Longest header block that is read; a longer one is blanked whole."""
UNPARSABLE: Final = b"\x80"
"""Filler of blocks that cannot be read: a reference to index 0, which is an error (RFC 7541, 6.1)."""
_NUMBERS: Final = 8
_SETTING: Final = 6
_MOST_CONTENTS: Final = 10_000


class _Frame(NamedTuple):
    size: int
    kind: int
    flags: int
    stream: int


def _frame(head: bytes) -> _Frame:
    high, low, kind, flags, stream = _HEAD.unpack_from(head)
    return _Frame(high << 8 | low, kind, flags, stream & 0x7FFFFFFF)


class _Block(Gathered):
    """A header block from one or several frames."""

    def read(self) -> None:
        if len(self.unit) > MAX_BLOCK:
            self.abandon()

    def blank(self, start: int, end: int) -> None:
        self.write(Edit(start, UNPARSABLE * (end - start)))


class Http2Side:
    """One direction of a connection. `mid`: the recording began after the connection did."""

    def __init__(
        self, flow: Flow, secrets: Secrets, choice: Choice, exchanges: Exchanges, sender: Sender, *, mid: bool = False
    ) -> None:
        self._flow = flow
        self._secrets = secrets
        self._choice = choice
        self._exchanges = exchanges
        self._sender = sender
        self._mid = mid
        self._names = HeaderNames()
        self._contents: dict[int, Content | None] = {}  # of streams whose head went by
        self._block: _Block | None = None
        self._begun = _Frame(0, 0, 0, 0)  # the frame with which the block began
        exchanges.resets[sender] = self.reset

    def parse(self) -> Parser:
        """Parse this side."""
        flow = self._flow
        if self._sender is Sender.CLIENT and not self._mid:
            yield from flow.need(len(PREFACE))
            flow.at += len(PREFACE)
        kinds: dict[int, Callable[[_Frame], Parser]] = {
            DATA: self._data,
            HEADERS: self._headers,
            PUSH_PROMISE: self._headers,
            CONTINUATION: self._continuation,
            RST_STREAM: self._reset,
            PRIORITY: self._skipped,
            SETTINGS: self._skipped,
            WINDOW_UPDATE: self._skipped,
        }
        while True:
            yield from flow.need(HEAD_BYTES)
            frame = _frame(flow.peek(HEAD_BYTES))
            if (self._block is not None) is not (frame.kind == CONTINUATION):
                raise NotUnderstood  # RFC 9113, 6.10
            yield from kinds.get(frame.kind, self._other)(frame)

    def _unpadded(self, frame: _Frame, fixed: int) -> Generator[None, None, tuple[int, int]]:
        """Take the frame's head, its pad length and `fixed` bytes; return the sizes of content and padding."""
        flow = self._flow
        padded = bool(frame.flags & PADDED)
        fixed += padded
        if frame.size < fixed:
            raise NotUnderstood
        yield from flow.need(HEAD_BYTES + fixed)
        padding = flow.peek(HEAD_BYTES + 1)[HEAD_BYTES] if padded else 0
        if frame.size < fixed + padding:
            raise NotUnderstood
        flow.at += HEAD_BYTES + fixed
        return frame.size - fixed - padding, padding

    # ---- bodies --------------------------------------------------------------------------------------------------

    def _data(self, frame: _Frame) -> Parser:
        if frame.stream not in self._contents:
            self._keep(frame.stream, self._choice.of_unknown(self._flow))
        content = self._contents[frame.stream]
        if content is not None:
            content.boundary()
        if frame.flags & PADDED:
            size, padding = yield from self._unpadded(frame, 0)
            yield from feed(self._flow, size, content)
            yield from self._text(padding)
        else:
            self._flow.at += HEAD_BYTES
            yield from feed(self._flow, frame.size, content)
        if frame.flags & END_STREAM:
            self._end(frame.stream)

    def _keep(self, stream: int, content: Content | None) -> None:
        self._contents[stream] = content
        if len(self._contents) > _MOST_CONTENTS:
            oldest = self._contents.pop(next(iter(self._contents)))
            if oldest is not None:
                oldest.abandon()

    def _end(self, stream: int) -> None:
        content = self._contents.pop(stream, None)
        if content is not None:
            content.end()
        if self._sender is Sender.SERVER:
            self._exchanges.over(stream)

    def _reset(self, frame: _Frame) -> Parser:
        yield from self._skipped(frame)
        for reset in self._exchanges.resets.values():
            reset(frame.stream)
        self._exchanges.over(frame.stream)

    def reset(self, stream: int) -> None:
        """Expect nothing more on a stream; frames still in transit are blanked."""
        content = self._contents.get(stream)
        if content is None:
            self._contents.pop(stream, None)
        else:
            content.cut()
            content.abandon()

    def _skipped(self, frame: _Frame) -> Parser:
        """Skip a frame of numbers without text."""
        if frame.size != _LENGTHS.get(frame.kind, frame.size) or (frame.kind == SETTINGS and frame.size % _SETTING):
            raise NotUnderstood
        self._flow.at += HEAD_BYTES
        yield from self._flow.skip(frame.size)

    def _other(self, frame: _Frame) -> Parser:
        """Read a frame that is neither head nor body and may hold text: PING, GOAWAY behind two numbers, others."""
        flow = self._flow
        numbers = min(frame.size, _NUMBERS if frame.kind == GOAWAY else 0)
        flow.at += HEAD_BYTES
        yield from flow.skip(numbers)
        yield from self._text(frame.size - numbers)

    def _text(self, size: int) -> Parser:
        """Read bytes that should have no meaning, such as padding."""
        content = Searched(self._flow, self._secrets.patterns) if self._secrets.patterns and size else None
        yield from feed(self._flow, size, content)
        if content is not None:
            content.end()

    # ---- heads ---------------------------------------------------------------------------------------------------

    def _headers(self, frame: _Frame) -> Parser:
        fixed = 4 if frame.kind == PUSH_PROMISE else 5 if frame.flags & HAS_PRIORITY else 0
        size, padding = yield from self._unpadded(frame, fixed)
        self._begun = frame
        self._block = _Block(self._flow)
        yield from feed(self._flow, size, self._block)
        yield from self._text(padding)
        self._complete(frame)

    def _continuation(self, frame: _Frame) -> Parser:
        self._flow.at += HEAD_BYTES
        yield from feed(self._flow, frame.size, self._block)
        self._complete(frame)

    def _complete(self, frame: _Frame) -> None:
        """Blank the secrets of the block if this was its last frame."""
        block = self._block
        if not frame.flags & END_HEADERS or block is None:
            return
        self._block = None
        fields: dict[bytes, bytes] = {}
        if not block.blind:
            try:
                edits, fields = redact_block(bytes(block.unit), self._names, self._secrets)
            except Unparsable:
                block.abandon()
            else:
                block.done(len(block.unit), edits)
                block.end()
        if block.blind:  # the entries that it added to the table are unknown
            self._names = HeaderNames()
        if self._begun.kind == HEADERS:
            self._begin(self._begun.stream, fields)
            if self._begun.flags & END_STREAM:
                self._end(self._begun.stream)

    def _begin(self, stream: int, fields: dict[bytes, bytes]) -> None:
        """Choose the content of the body behind a head; trailers have none."""
        if stream == TABLE_STREAM and self._exchanges.joining:
            return
        told = {name: [value.lower()] for name, value in fields.items()}
        untold = UNTOLD in fields
        if self._sender is Sender.CLIENT and (b":method" in fields or (untold and stream not in self._contents)):
            known = not untold or b":path" in fields
            exchange = Exchange(fields.get(b":method", b""), fields.get(b":path", b""), told, known)
            self._exchanges.asked(stream, exchange)
            content = None if untold else self._choice.of_request(self._flow, exchange, told)
        elif self._sender is Sender.SERVER and (fields.get(b":status", b"1")[:1] != b"1" or untold):
            content = None if untold else self._choice.of_response(self._flow, self._exchanges.of(stream), told)
        else:
            return
        if self._exchanges.joining:
            content = self._choice.of_unknown(self._flow)
        elif untold:
            if stream in self._contents:
                return  # they may be trailers
            content = self._choice.of_unknown(self._flow, begun=True)
        self._keep(stream, content)


_LENGTHS: Final = {PRIORITY: 5, RST_STREAM: 4, PING: 8, WINDOW_UPDATE: 4}
_FLAGS: Final = (0x09, 0x2D, 0, 0, 0x01, 0x0C, 0x01, 0, 0, 0x04)
_OF_STREAMS: Final = frozenset({DATA, HEADERS, PRIORITY, RST_STREAM, PUSH_PROMISE, CONTINUATION})
_OF_CONNECTIONS: Final = frozenset({SETTINGS, PING, GOAWAY})
_LONGEST: Final = 1 << 20
_ENOUGH: Final = 3


def begins_with_frames(data: bytes) -> bool:
    """Return whether these bytes begin with frames: complete ones up to the end, or several."""
    at = count = 0
    while at + HEAD_BYTES <= len(data):
        frame = _frame(data[at : at + HEAD_BYTES])
        if frame.kind > CONTINUATION or frame.size > _LONGEST or frame.size != _LENGTHS.get(frame.kind, frame.size):
            return False
        if frame.flags & ~_FLAGS[frame.kind] or data[at + 5]:  # of 16 million streams
            return False
        if frame.kind in (_OF_CONNECTIONS if frame.stream else _OF_STREAMS):
            return False
        at += HEAD_BYTES + frame.size
        count += at <= len(data)
    return bool(count) and (at == len(data) or count >= _ENOUGH)
