"""Track the streams of an HTTP/2 connection, and check that frames are allowed on them (RFC 9113, 5.1 and 8.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import h2.exceptions
from h2.utilities import HeaderValidationFlags, validate_headers

from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchanges import SeenExchanges
from penstock.capture.dialogue.http.guesses import Guesses
from penstock.capture.pcapng import Sender
from penstock.wire.http import HttpHeaders, body_forbidden
from penstock.wire.http.events import without_quotes
from penstock.wire.http.h2_heads import request_head, response_head, trailers_of
from penstock.wire.http.observer.faults import HttpFault, TimedRange
from penstock.wire.http.observer.frames import END_STREAM, Frame2

__all__ = ["H2Streams"]

_MOST_OPEN: Final = 100_000
_MOST_CLOSED: Final = 4096
_STATES: Final = "RFC 9113, section 5.1"
_MALFORMED: Final = "RFC 9113, section 8.1.1"

Fields = Sequence[tuple[bytes, bytes]]


class _Stream:
    __slots__ = ("answered", "broken", "left", "method", "over")

    def __init__(self, method: str = "") -> None:
        self.method = method
        self.over: set[Sender] = set()
        self.answered = False
        self.broken = False  # later frames on it are ignored
        self.left: dict[Sender, int] = {}  # bytes of body still to come, if a side has announced them


class H2Streams:
    """Streams, shared by both sides. Faults of a stream are reported and end it; those of the connection are raised."""

    def __init__(self, collector: MessageCollector, exchanges: SeenExchanges) -> None:
        self._collector = collector
        self._exchanges = exchanges
        self._open: dict[int, _Stream] = {}
        self._closed: dict[int, bool] = {}  # lately; whether by a reset
        self._highest = 0
        self._in_middle = False
        self.guesses = Guesses(collector, exchanges.noted_streams)
        """For what comes where the heads are not known."""

    def forget(self) -> None:
        """Forget all streams."""
        self.guesses.clear()
        self._open.clear()
        self._closed.clear()
        self._in_middle = True

    def join(self) -> None:
        """Allow unknown streams: those that were over, and those that preludes leave out."""
        self._in_middle = True

    def promise(self, number: int, span: TimedRange) -> None:
        """Add a stream on which the server will respond without a request."""
        self._exchanges.unasked(number, span)
        stream = self._add(number)
        stream.over.add(Sender.CLIENT)

    # ---- heads -------------------------------------------------------------------------------------------------------
    def head(self, sender: Sender, frame: Frame2, fields: Fields, span: TimedRange) -> None:
        """Handle a complete header block."""
        number = frame.stream_id
        stream = self._open.get(number)
        if stream is None and sender is Sender.CLIENT and number > self._highest and number % 2:
            self._request(frame, fields, span)
        elif stream is None or sender in stream.over:
            self._out_of_place(sender, frame, stream)
        elif stream.broken:
            return
        elif sender is Sender.CLIENT or stream.answered:
            self._trailers(sender, frame, fields, span)
        else:
            self._response(stream, frame, fields, span)

    def _request(self, frame: Frame2, fields: Fields, span: TimedRange) -> None:
        number = frame.stream_id
        self._highest = number
        stream = self._add(number)
        if not self._well_formed(Sender.CLIENT, frame, fields, span, HeaderValidationFlags(False, False, False, False)):
            return
        head = request_head(number, fields, "http")
        stream.method = head.method
        end = bool(frame.flags & END_STREAM)
        self._exchanges.request(head, span, end)
        if end:
            self._over(Sender.CLIENT, number, stream)
        else:
            self._expect(stream, Sender.CLIENT, number, head.headers, span)

    def _response(self, stream: _Stream, frame: Frame2, fields: Fields, span: TimedRange) -> None:
        number = frame.stream_id
        flags = HeaderValidationFlags(True, False, True, False)
        if not self._well_formed(Sender.SERVER, frame, fields, span, flags):
            return
        try:
            head = response_head(number, fields)
        except h2.exceptions.ProtocolError as error:
            self._break(
                Sender.SERVER, number, HttpFault(span.start, str(error), "RFC 9113, section 8.3.2"), span.end_ns
            )
            return
        end = bool(frame.flags & END_STREAM)
        if head.status < 200 and not end:
            self._exchanges.interim(head, span)
            return
        stream.answered = True
        self._exchanges.response(head, span, end)
        if end:
            self._over(Sender.SERVER, number, stream)
        elif not body_forbidden(stream.method, head.status):
            self._expect(stream, Sender.SERVER, number, head.headers, span)

    def _trailers(self, sender: Sender, frame: Frame2, fields: Fields, span: TimedRange) -> None:
        if not frame.flags & END_STREAM:
            fault = HttpFault(frame.offset + 4, "trailers end their message", "RFC 9113, section 8.1")
            self._break(sender, frame.stream_id, fault, span.end_ns)
        elif self._well_formed(sender, frame, fields, span, HeaderValidationFlags(False, True, False, False)):
            self.end(sender, frame.stream_id, span, trailers_of(fields))

    def _well_formed(
        self,
        sender: Sender,
        frame: Frame2,
        fields: Fields,
        span: TimedRange,
        flags: HeaderValidationFlags,
    ) -> bool:
        try:
            for _ in validate_headers(fields, flags):
                pass
        except h2.exceptions.ProtocolError as error:
            fault = HttpFault(span.start, without_quotes(str(error)), "RFC 9113, section 8.2 and 8.3")
            self._break(sender, frame.stream_id, fault, span.end_ns)
            return False
        return True

    # ---- bodies ------------------------------------------------------------------------------------------------------
    def takes_data(self, sender: Sender, frame: Frame2, data: memoryview) -> bool:
        """Return whether content of DATA belongs to a message."""
        number = frame.stream_id
        stream = self._open.get(number)
        if stream is None or sender in stream.over:
            self._out_of_place(sender, frame, stream)
            return False
        if stream.broken:
            return False
        if sender is Sender.SERVER and not stream.answered:
            fault = HttpFault(frame.offset, "a response begins with its head", "RFC 9113, section 8.1")
            self._break(sender, number, fault, frame.start_ns)
            return False
        if sender in stream.left:
            stream.left[sender] -= len(data)
            if stream.left[sender] < 0:
                self._break(sender, number, _wrong_length(frame.offset), frame.start_ns)
                return False
        return True

    def end(self, sender: Sender, number: int, span: TimedRange, trailers: HttpHeaders) -> None:
        """End a side's message."""
        stream = self._open.get(number)
        if stream is None or sender in stream.over:
            return
        if not stream.broken:
            if stream.left.get(sender, 0) > 0:
                self._collector.fault(sender, span.end_ns, _wrong_length(span.start), exchange=number)
            self._exchanges.ended(number, sender, span, trailers)
        self._over(sender, number, stream)

    def reset(self, sender: Sender, frame: Frame2, span: TimedRange, code: str) -> None:
        """Handle a side's reset of a stream."""
        number = frame.stream_id
        if number not in self._open and number > self._highest and number % 2 and not self._in_middle:
            raise HttpFault(frame.offset, f"RST_STREAM of stream {number}, which is not open", _STATES)
        self._exchanges.reset(number, sender, span, code)
        if self._open.pop(number, None) is not None:
            self._close(number, True)

    # ---- within ------------------------------------------------------------------------------------------------------
    def _add(self, number: int) -> _Stream:
        if len(self._open) >= _MOST_OPEN:
            self._open.pop(next(iter(self._open)))
        stream = self._open[number] = _Stream()
        return stream

    def _expect(self, stream: _Stream, sender: Sender, number: int, headers: HttpHeaders, span: TimedRange) -> None:
        for name, value in headers:
            if name == "content-length":
                if not (value.isascii() and value.isdigit() and len(value) <= 20):
                    fault = HttpFault(span.start, "Content-Length is a number", _MALFORMED)
                    self._break(sender, number, fault, span.end_ns)
                    return
                stream.left[sender] = int(value)

    def _over(self, sender: Sender, number: int, stream: _Stream) -> None:
        stream.over.add(sender)
        if len(stream.over) == 2:
            self._open.pop(number, None)
            self._close(number, False)

    def _close(self, number: int, by_reset: bool) -> None:
        if len(self._closed) >= _MOST_CLOSED:
            self._closed.pop(next(iter(self._closed)))
        self._closed[number] = by_reset

    def _break(self, sender: Sender, number: int, fault: HttpFault, time_ns: int) -> None:
        stream = self._open.get(number)
        if stream is not None:
            stream.broken = True
        self._exchanges.broken(number, sender, fault, time_ns)

    def _out_of_place(self, sender: Sender, frame: Frame2, stream: _Stream | None) -> None:
        """Handle a frame on a stream that is not open for it; those in transit at a reset are allowed."""
        number = frame.stream_id
        if stream is not None or self._closed.get(number) is False:
            fault = HttpFault(frame.offset, f"{frame.name} after the end of stream {number}", _STATES)
            if stream is None or not stream.broken:
                self._break(sender, number, fault, frame.start_ns)
        elif self._in_middle:
            return
        elif number not in self._closed and (number > self._highest or number % 2 == 0):
            raise HttpFault(frame.offset, f"{frame.name} of stream {number}, which is not open", _STATES)
        elif number not in self._closed and len(self._closed) < _MOST_CLOSED:
            rule = f"numbers of streams grow: {number} comes after {self._highest}"
            raise HttpFault(frame.offset, rule, "RFC 9113, section 5.1.1")


def _wrong_length(offset: int) -> HttpFault:
    return HttpFault(offset, "a body has as many bytes as Content-Length says", _MALFORMED)
