"""HTTP/2 of one side (RFC 9113): header blocks are blanked in place, bodies passed or redacted."""

from __future__ import annotations

from typing import Final

from hpack.exceptions import HPACKDecodingError
from hpack.table import HeaderTable

from penstock.capture.pcapng import Sender
from penstock.capture.redaction.choice import ContentChooser
from penstock.capture.redaction.contents import Content, Gathered, Searched
from penstock.capture.redaction.flow import Flow, NotUnderstood, Parser, Truncated
from penstock.capture.redaction.hpack_blanking import UNKNOWN_NAME, redact_block
from penstock.capture.redaction.requests import OpenRequests, RequestParts
from penstock.capture.redaction.secrets import Secrets
from penstock.capture.redaction.text import Buffer, Edit
from penstock.wire.http.observer.faults import HttpFault, TimedRange
from penstock.wire.http.observer.frames import (
    END_HEADERS,
    END_STREAM,
    LARGEST_FRAME,
    Frame2,
    FrameScanner,
    FrameType,
    block_fragment,
)
from penstock.wire.http.preludes import TABLE_STREAM

__all__ = ["MAX_BLOCK", "UNPARSABLE", "Http2Side"]

MAX_BLOCK: Final = 64 * 1024
"""Longest header block that is read; a longer one is blanked whole."""
UNPARSABLE: Final = b"\x80"
"""Filler of blocks that cannot be read: a reference to index 0, which is an error (RFC 7541, 6.1)."""
_BLOCKS: Final = frozenset({FrameType.HEADERS, FrameType.PUSH_PROMISE, FrameType.CONTINUATION})
_NUMBERS: Final[dict[int, int]] = {
    FrameType.PRIORITY: 5,
    FrameType.RST_STREAM: 4,
    FrameType.SETTINGS: LARGEST_FRAME,
    FrameType.GOAWAY: 8,
    FrameType.WINDOW_UPDATE: 4,
}
"""Bytes at the beginning of a frame that are numbers; behind them, and in other frames, there may be text."""
_SETTING: Final = 6
_DATA, _CONTINUATION = int(FrameType.DATA), int(FrameType.CONTINUATION)
_MOST_CONTENTS: Final = 10_000


class _Block(Gathered):
    """A header block from one or several frames."""

    def read(self) -> None:
        if len(self.unit) > MAX_BLOCK:
            self.abandon()

    def withhold(self, start: int, end: int) -> None:
        self.write(Edit(start, UNPARSABLE * (end - start)))


class Http2Side:
    """One direction of a connection, from a frame on.

    DATA goes to contents as it comes. Other frames are held back until they are whole.
    """

    def __init__(self, flow: Flow, secrets: Secrets, chooser: ContentChooser, pending: OpenRequests) -> None:
        self._flow = flow
        self._secrets = secrets
        self._chooser = chooser
        self._pending = pending
        self._table = HeaderTable()
        self._contents: dict[int, Content | None] = {}  # of streams whose head went by
        self._block: _Block | None = None
        self._begun: Frame2 | None = None  # the frame with which the block began
        self._data_frame: Frame2 | None = None  # the DATA that came last, and its content
        self._data_content: Content | None = None
        self._padding: Searched | None = None
        self._scanner = FrameScanner(self._data, self._frame, self._padded)
        self._scanner.max_frame = LARGEST_FRAME
        pending.resets[flow.sender] = self.reset

    def parse(self) -> Parser:
        """Parse this side."""
        flow, scanner = self._flow, self._scanner
        while True:
            try:
                yield from flow.need(1)
                offset, data = flow.at, memoryview(flow.next_view(flow.available))
                passed = 0 if self._block else scanner.pass_over(data, self._contents)
                scanner.receive(data[passed:], offset + passed, 0)
            except (Truncated, HttpFault, NotUnderstood) as why:
                flow.holding.pop(self, None)
                if not isinstance(why, Truncated):
                    flow.back_to(scanner.begun)
                    raise NotUnderstood from why
                if self._holds:
                    self._give_up()
                raise
            if self._holds:
                flow.holding[self] = scanner.begun
            else:
                flow.holding.pop(self, None)

    # ---- held back -----------------------------------------------------------------------------------------------

    @property
    def _holds(self) -> bool:
        """True if a frame is incomplete that is not DATA."""
        frame = self._scanner.frame
        return bool(self._scanner.half) and (frame is None or frame.type != _DATA)

    def _give_up(self) -> None:
        """Decide about a frame that will never be complete: blank a header block, leave the rest to a search."""
        frame = self._scanner.frame
        if frame is not None and frame.type in _BLOCKS:
            self._flow.blank(frame.offset, self._flow.end, UNPARSABLE)
        else:
            self._flow.back_to(self._scanner.begun)

    def cut(self) -> None:
        """Hold nothing back any more."""
        self._flow.holding.pop(self, None)

    def abandon(self) -> None:
        """Blank the bytes that are held back."""
        self.cut()
        self._flow.withhold(self._scanner.begun, self._flow.end)

    # ---- frames --------------------------------------------------------------------------------------------------

    def _in_order(self, frame: Frame2) -> None:
        if (self._block is not None) is not (frame.type == _CONTINUATION):
            raise NotUnderstood  # RFC 9113, 6.10

    def _frame(self, frame: Frame2, payload: bytes, span: TimedRange) -> None:
        if frame.type == _DATA:
            self._end_of_data(frame)
            return
        self._in_order(frame)
        offset = span.end - len(payload)
        if frame.type in _BLOCKS:
            self._headers(frame, payload, offset)
            return
        if frame.type == FrameType.RST_STREAM:
            for reset in self._pending.resets.values():
                reset(frame.stream_id)
            self._pending.forget_stream(frame.stream_id)
        elif frame.type == FrameType.SETTINGS and len(payload) % _SETTING:
            raise NotUnderstood
        numbers = _NUMBERS.get(frame.type, 0)
        self._text(payload[numbers:], offset + numbers)

    def _text(self, data: bytes, offset: int) -> None:
        """Search bytes that should have no meaning, such as padding."""
        if data and self._secrets.patterns:
            content = Searched(self._flow, self._secrets.patterns)
            content.take(data, offset)
            content.end()

    # ---- bodies --------------------------------------------------------------------------------------------------

    def _data(self, frame: Frame2, data: Buffer, offset: int, _time_ns: int) -> None:
        self._begin_data(frame)
        if self._data_content is not None:
            self._data_content.take(data, offset)

    def _padded(self, frame: Frame2, data: Buffer, offset: int, _time_ns: int) -> None:
        self._begin_data(frame)
        if self._secrets.patterns:
            self._padding = self._padding or Searched(self._flow, self._secrets.patterns)
            self._padding.take(data, offset)

    def _begin_data(self, frame: Frame2) -> None:
        if frame is self._data_frame:
            return
        self._in_order(frame)
        if frame.stream_id not in self._contents:
            self._keep(frame.stream_id, self._chooser.of_unknown(self._flow))
        self._data_frame, self._data_content = frame, self._contents[frame.stream_id]
        if self._data_content is not None:
            self._data_content.boundary()

    def _end_of_data(self, frame: Frame2) -> None:
        self._begin_data(frame)
        self._data_frame = self._data_content = None
        if self._padding is not None:
            self._padding.end()
            self._padding = None
        if frame.flags & END_STREAM:
            self._end(frame.stream_id)

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
        if self._flow.sender is Sender.SERVER:
            self._pending.forget_stream(stream)

    def reset(self, stream: int) -> None:
        """Expect nothing more on a stream; frames still in transit are blanked."""
        content = self._contents.get(stream)
        if content is None:
            self._contents.pop(stream, None)
        else:
            content.cut()
            content.abandon()

    # ---- heads ---------------------------------------------------------------------------------------------------

    def _headers(self, frame: Frame2, payload: bytes, offset: int) -> None:
        start, end = block_fragment(frame, payload)
        if frame.type != _CONTINUATION:
            self._begun, self._block = frame, _Block(self._flow)
        if self._block is not None and start < end:
            self._block.take(payload[start:end], offset + start)
        self._text(payload[end:], offset + end)
        self._complete(frame)

    def _complete(self, frame: Frame2) -> None:
        """Blank the secrets of the block if this was its last frame."""
        block = self._block
        if not frame.flags & END_HEADERS or block is None or self._begun is None:
            return
        self._block = None
        fields: dict[bytes, bytes] = {}
        if not block.blind:
            try:
                edits, fields = redact_block(bytes(block.unit), self._table, self._secrets)
            except HPACKDecodingError:
                block.abandon()
            else:
                block.done(len(block.unit), edits)
                block.end()
        if block.blind:  # the entries that it added to the table are unknown
            self._table = HeaderTable()
        if self._begun.type == FrameType.HEADERS:
            self._begin(self._begun.stream_id, fields)
            if self._begun.flags & END_STREAM:
                self._end(self._begun.stream_id)

    def _begin(self, stream: int, fields: dict[bytes, bytes]) -> None:
        """Choose the content of the body behind a head; trailers have none."""
        if stream == TABLE_STREAM and self._pending.joining:
            return
        told = {name: [value.lower()] for name, value in fields.items()}
        incomplete = UNKNOWN_NAME in fields
        client = self._flow.sender is Sender.CLIENT
        if client and (b":method" in fields or (incomplete and stream not in self._contents)):
            known = not incomplete or b":path" in fields
            request = RequestParts(fields.get(b":method", b""), fields.get(b":path", b""), told, known)
            self._pending.add_stream(stream, request)
        elif not client and (fields.get(b":status", b"1")[:1] != b"1" or incomplete):
            request = self._pending.of_stream(stream)
        else:
            return
        joining = self._pending.joining
        if not incomplete and not joining:
            self._keep(stream, self._chooser.of_body(self._flow, request, told))
        elif joining or stream not in self._contents:  # else they may be trailers
            self._keep(stream, self._chooser.of_unknown(self._flow, begun=not joining))
