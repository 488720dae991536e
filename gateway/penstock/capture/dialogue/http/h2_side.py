"""One side of an HTTP/2 connection: its frames and its header blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct, iter_unpack
from typing import Any, Final

import h2.errors
import hpack
from h2.settings import SettingCodes

from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchanges import SeenExchanges
from penstock.capture.dialogue.http.streams import H2Streams
from penstock.capture.pcapng import Sender
from penstock.model.limits import MIB
from penstock.wire.http import PREFACE
from penstock.wire.http.observer.faults import BytesAt, HttpFault, TimedRange
from penstock.wire.http.observer.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    LARGEST_FRAME,
    Frame2,
    FrameScanner,
    FrameType,
    block_fragment,
    plausible,
)
from penstock.wire.http.observer.heads import MAX_HEAD
from penstock.wire.http.preludes import TABLE_STREAM

__all__ = ["H2Side"]

_MAX_TABLE: Final = 1 * MIB
"""The largest table of headers that is kept of a side, whatever its peer allows."""
_MAX_BLOCK: Final = 4 * MAX_HEAD
_U32: Final = Struct(">I")
_GOAWAY: Final = Struct(">II")
_CODES: Final = {int(code): code.name for code in h2.errors.ErrorCodes}
_SETTINGS: Final = {int(code): code.name for code in SettingCodes}
_SETTING_RANGES: Final[Mapping[int, tuple[int, int]]] = {
    int(SettingCodes.ENABLE_PUSH): (0, 1),
    int(SettingCodes.INITIAL_WINDOW_SIZE): (0, 2**31 - 1),
    int(SettingCodes.MAX_FRAME_SIZE): (2**14, LARGEST_FRAME),
}
_CONTROL: Final = frozenset(
    {FrameType.RST_STREAM, FrameType.SETTINGS, FrameType.PING, FrameType.GOAWAY, FrameType.WINDOW_UPDATE}
)
"""Frames that can be read without those before them."""
_HPACK_CLAUSES: Final[Mapping[type[Exception], str]] = {
    hpack.InvalidTableIndexError: "RFC 7541, section 2.3.3",
    hpack.InvalidTableSizeError: "RFC 7541, section 6.3",
    hpack.OversizedHeaderListError: "RFC 9113, section 10.5.1",
}


class _Block:
    """An incomplete header block: its first frame, its bytes, and its place."""

    __slots__ = ("data", "frame", "span", "start")

    def __init__(self, frame: Frame2, data: bytes, start: int, span: TimedRange) -> None:
        self.frame = frame
        self.data = bytearray(data)
        self.start = start  # of the first fragment
        self.span = span


class H2Side:
    """One side. Streams and exchanges belong to both sides. After a fault of the connection nothing is read."""

    peer: H2Side

    def __init__(
        self, sender: Sender, collector: MessageCollector, exchanges: SeenExchanges, streams: H2Streams
    ) -> None:
        self.sender = sender
        self._collector = collector
        self._exchanges = exchanges
        self._streams = streams
        self._scanner = FrameScanner(self._data, self._frame)
        self._decoder: hpack.Decoder | None = hpack.Decoder(MAX_HEAD)
        self._preface = PREFACE if sender is Sender.CLIENT else b""
        self._begun = False  # SETTINGS have come
        self._block: _Block | None = None
        self._listed_frame: Frame2 | None = None  # whose content came last
        self._promised = 0  # the stream that PUSH_PROMISE promises
        self._dead = False
        self._seeking = False
        self._skipped = 0
        self._skipped_at = 0
        self.offset = 0
        """End of the bytes received."""

    @property
    def half(self) -> int:
        """Bytes of an incomplete frame."""
        return 0 if self._dead or self._seeking else self._scanner.half

    def finish(self, time_ns: int) -> None:
        """End the side, which has finished sending."""
        if self.half:
            rule = f"the connection ends between frames: {self.half} bytes of one came"
            self._collector.fault(self.sender, time_ns, HttpFault(self.offset, rule, "RFC 9113, section 4.1"))
        self._dead = not self._seeking

    def seek(self) -> None:
        """Read frames from the next chunk on that begins like one: earlier bytes are missing."""
        self._seeking, self._dead, self._begun = True, False, True
        self._preface = b""
        self._block = None
        self._decoder = None
        self._scanner = FrameScanner(self._listed_data, self._listed)
        self._scanner.max_frame = LARGEST_FRAME

    def allow(self, setting: int, value: int) -> None:
        """Apply a setting of the peer. Limits are only raised, since the time at which a setting takes effect is
        unknown."""
        if setting == SettingCodes.MAX_FRAME_SIZE:
            self._scanner.max_frame = max(self._scanner.max_frame, value)
        elif setting == SettingCodes.HEADER_TABLE_SIZE and self._decoder is not None:
            self._decoder.max_allowed_table_size = max(self._decoder.max_allowed_table_size, min(value, _MAX_TABLE))

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Read the next bytes."""
        self.offset = offset + len(data)
        if self._dead or (self._seeking and not self._found(data, offset, time_ns)):
            return
        try:
            if self._preface:
                data, offset = self._take_preface(data, offset)
            self._scanner.receive(data, offset, time_ns)
        except HttpFault as fault:
            self._dead = True
            self._collector.fault(self.sender, time_ns, fault)

    def report_skipped(self, time_ns: int) -> None:
        """Report the bytes that were not understood as a problem, if there are any."""
        if self._skipped:
            rule = f"{self._skipped} bytes before the first frame were not understood: its beginning was not recorded"
            self._collector.fault(self.sender, time_ns, HttpFault(self._skipped_at, rule, ""), fatal=False)
            self._skipped = 0

    # ---- in the middle -----------------------------------------------------------------------------------------------
    def _found(self, data: memoryview, offset: int, time_ns: int) -> bool:
        if not plausible(data):
            self._skipped_at = self._skipped_at if self._skipped else offset
            self._skipped += len(data)
            return False
        self.report_skipped(time_ns)
        self._seeking = False
        rule = "the heads of this side refer to data that was not recorded: frames are decoded by their types only"
        self._collector.fault(self.sender, time_ns, HttpFault(offset, rule, "RFC 7541, section 2.3"), fatal=False)
        return True

    def _listed_data(self, frame: Frame2, data: memoryview, offset: int, time_ns: int) -> None:
        begins = frame != self._listed_frame
        self._listed_frame = frame
        self._streams.guesses.receive(frame.stream_id, self.sender, data, offset, time_ns, begins)

    def _listed(self, frame: Frame2, payload: bytes, span: TimedRange) -> None:
        if frame.type in _CONTROL:
            self._frame(frame, payload, span)
        elif frame.type in (FrameType.DATA, FrameType.HEADERS):
            fields = {"bytes": frame.length, "end_stream": bool(frame.flags & END_STREAM)}
            self._report(frame, span, fields)
            if frame.flags & END_STREAM:
                self._streams.guesses.end(frame.stream_id, self.sender)

    # ---- frames ------------------------------------------------------------------------------------------------------
    def _take_preface(self, data: memoryview, offset: int) -> tuple[memoryview, int]:
        size = min(len(self._preface), len(data))
        if data[:size] != self._preface[:size]:
            at = next(at for at in range(size) if data[at] != self._preface[at])
            raise HttpFault(offset + at, "a client begins with the connection preface", "RFC 9113, section 3.4")
        self._preface = self._preface[size:]
        return data[size:], offset + size

    def _data(self, frame: Frame2, data: memoryview, offset: int, time_ns: int) -> None:
        self._in_order(frame)
        if self._streams.takes_data(self.sender, frame, data):
            self._exchanges.data(frame.stream_id, self.sender, data, offset, time_ns)

    def _frame(self, frame: Frame2, payload: bytes, span: TimedRange) -> None:
        self._in_order(frame)
        read = _READ.get(frame.type)
        if read is not None:
            read(self, frame, payload, span)

    def _in_order(self, frame: Frame2) -> None:
        if not self._begun and frame.type != FrameType.SETTINGS:
            raise HttpFault(frame.offset, "the first frame is SETTINGS", "RFC 9113, section 3.4")
        self._begun = True
        block = self._block
        if block is not None and (frame.type != FrameType.CONTINUATION or frame.stream_id != block.frame.stream_id):
            rule = f"a header block of stream {block.frame.stream_id} goes on here"
            raise HttpFault(frame.offset, rule, "RFC 9113, section 6.10")

    def _end_of_data(self, frame: Frame2, payload: bytes, span: TimedRange) -> None:
        del payload
        if frame.flags & END_STREAM:
            end = span if not frame.length else TimedRange(span.end, span.end, span.end_ns, span.end_ns)
            self._streams.end(self.sender, frame.stream_id, end, ())
        elif not frame.length:
            self._streams.takes_data(self.sender, frame, memoryview(b""))

    def _headers(self, frame: Frame2, payload: bytes, span: TimedRange) -> None:
        start, end = block_fragment(frame, payload)
        at = span.end - len(payload) + start
        self._block = _Block(frame, payload[start:end], at, span)
        if frame.type == FrameType.PUSH_PROMISE:
            self._promised = _U32.unpack_from(payload, start - 4)[0] & 0x7FFFFFFF
        if frame.flags & END_HEADERS:
            self._block_complete(self._block)

    def _continuation(self, frame: Frame2, payload: bytes, span: TimedRange) -> None:
        block = self._block
        if block is None:
            raise HttpFault(span.start, "CONTINUATION goes on with a header block", "RFC 9113, section 6.10")
        block.data += payload
        block.span = block.span.to(span)
        if len(block.data) > _MAX_BLOCK:
            raise HttpFault(
                span.start, f"a header block has at most {_MAX_BLOCK} bytes here", "RFC 9113, section 10.5.1"
            )
        if frame.flags & END_HEADERS:
            self._block_complete(block)

    def _block_complete(self, block: _Block) -> None:
        self._block = None
        if self._decoder is None:
            return
        try:
            fields = list(self._decoder.decode(bytes(block.data), raw=True))
        except hpack.HPACKError as error:
            clause = _HPACK_CLAUSES.get(type(error), "RFC 7541, section 6")
            held = BytesAt(block.start, bytes(block.data[:256]))
            raise HttpFault(block.start, str(error) or "a field of the header block is none", clause, held) from None
        if self._collector.muted and block.frame.stream_id == TABLE_STREAM:
            return
        if block.frame.type == FrameType.PUSH_PROMISE:
            self._streams.promise(self._promised, block.span)
            shown = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in fields]
            self._report(block.frame, block.span, {"promised": self._promised, "headers": shown})
        else:
            self._streams.head(self.sender, block.frame, fields, block.span)

    def _reset(self, frame: Frame2, payload: bytes, span: TimedRange) -> None:
        self._streams.reset(self.sender, frame, span, _failure_of(_U32.unpack(payload)[0]))

    def _settings(self, frame: Frame2, payload: bytes, span: TimedRange) -> None:
        if len(payload) % 6 or (frame.flags & ACK and payload):
            rule = "SETTINGS has six bytes for each setting, none as an acknowledgement"
            raise HttpFault(frame.offset, rule, "RFC 9113, section 6.5")
        fields: dict[str, Any] = {"ack": True} if frame.flags & ACK else {}
        for place, (setting, value) in enumerate(iter_unpack(">HI", payload)):
            least, most = _SETTING_RANGES.get(setting, (0, 2**32 - 1))
            name = _SETTINGS.get(setting, f"{setting:#x}")
            if not least <= value <= most:
                offset = span.end - len(payload) + 6 * place
                raise HttpFault(offset, f"{name} is from {least} to {most}, not {value}", "RFC 9113, section 6.5.2")
            self.peer.allow(setting, value)
            if len(fields) < len(_SETTINGS):
                fields[name] = value
        self._report(frame, span, fields)

    def _ping(self, frame: Frame2, payload: bytes, span: TimedRange) -> None:
        self._report(frame, span, {"ack": bool(frame.flags & ACK), "data": payload.hex()})

    def _goaway(self, frame: Frame2, payload: bytes, span: TimedRange) -> None:
        last, code = _GOAWAY.unpack_from(payload)
        debug = payload[_GOAWAY.size :][:200].decode("utf-8", "replace")
        fields = {"last_stream_id": last & 0x7FFFFFFF, "code": _CODES.get(code, f"{code:#x}"), "debug": debug}
        failure = _failure_of(code)
        self._report(frame, span, fields, f"{failure}: {debug}" if failure and debug else failure)

    def _window(self, frame: Frame2, payload: bytes, span: TimedRange) -> None:
        if not _U32.unpack(payload)[0] & 0x7FFFFFFF:
            fault = HttpFault(span.end - 4, "a window is widened by at least 1 byte", "RFC 9113, section 6.9")
            if not frame.stream_id:
                raise fault
            self._exchanges.broken(frame.stream_id, self.sender, fault, span.end_ns)

    def _report(self, frame: Frame2, span: TimedRange, fields: dict[str, Any], failure: str = "") -> None:
        exchange = frame.stream_id or None
        self._collector.add(self.sender, span, "http", frame.name, exchange=exchange, fields=fields, failure=failure)


def _failure_of(code: int) -> str:
    """Return the name of an error code, or "" for NO_ERROR."""
    return _CODES.get(code, f"{code:#x}") if code else ""


_READ: Final[Mapping[int, Callable[[H2Side, Frame2, bytes, TimedRange], None]]] = {
    FrameType.DATA: H2Side._end_of_data,
    FrameType.HEADERS: H2Side._headers,
    FrameType.PUSH_PROMISE: H2Side._headers,
    FrameType.CONTINUATION: H2Side._continuation,
    FrameType.RST_STREAM: H2Side._reset,
    FrameType.SETTINGS: H2Side._settings,
    FrameType.PING: H2Side._ping,
    FrameType.GOAWAY: H2Side._goaway,
    FrameType.WINDOW_UPDATE: H2Side._window,
}
