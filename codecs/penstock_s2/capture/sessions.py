"""Read S2S sessions: inputs, acknowledgements, batches, heartbeats, terminal frames (S2 fact sheet, 2)."""

from __future__ import annotations

from typing import cast

from google.protobuf.descriptor import Descriptor

from penstock.capture.dialogue.http.appends import MAX_WAITING, MAX_WAITING_BYTES, delivered, unacknowledged
from penstock.capture.dialogue.http.collector import MessageCollector
from penstock.capture.dialogue.http.exchange import BodyReader, SeenExchange
from penstock.capture.dialogue.http.protobuf_faults import first_fault
from penstock.capture.pcapng import Sender
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.records import RecordBatch
from penstock.wire.compression import Compression
from penstock.wire.http.observer.faults import BytesAt, HttpFault, TimedRange
from penstock_proto import s2_pb2
from penstock_s2.capture.clauses import S2_MESSAGES, S2S_FRAMES, S2S_SESSIONS
from penstock_s2.capture.shapes import (
    append_fields,
    appended_fields,
    batch_fields,
    frame_fields,
    position,
)
from penstock_s2.codec.errors import failure_from_http
from penstock_s2.codec.protobuf import decode_append_ack, decode_append_input, decode_read_batch
from penstock_s2.codec.s2s.frames import Frame, FrameError, FrameReader, Terminal

__all__ = ["AppendAcks", "AppendInputs", "GuessedAppendAcks", "GuessedAppendInputs", "ReadBatches"]

_HEAD_BYTES = 4


class _Frames(BodyReader):
    """Frames of one side of a session, whose messages are of one kind."""

    layer = "s2s"
    session = True
    kind: Descriptor

    def __init__(self, collector: MessageCollector, exchange: SeenExchange, sender: Sender) -> None:
        super().__init__(collector, exchange, sender)
        self._frames = FrameReader()
        self._closed = False

    def receive(self, data: memoryview, offset: int, time_ns: int) -> None:
        """Report every frame that these bytes complete."""
        self._check_open(offset)
        self._places.add(offset, len(data), time_ns)
        self._frames.feed(data)
        while (frame := self._next()) is not None:
            size = self._places.left - self._frames.held
            span = self._places.take(size)
            if isinstance(frame, Frame):
                self._regular(frame, span, size)
            else:
                self._terminal(frame, span)
            if self._places.left:
                self._check_open(self._places.offset())

    def finish(self, end: TimedRange) -> None:
        """Finish: the body must not end inside a frame."""
        del end
        try:
            self._frames.end()
        except FrameError as error:
            raise self._misframed(error) from None

    @property
    def half(self) -> str:
        """Name of the incomplete frame, if there is one."""
        return "a frame" if self._places.left else ""

    def _check_open(self, offset: int) -> None:
        if self._closed:
            raise HttpFault(offset, "nothing follows a terminal frame", S2S_SESSIONS)

    def _next(self) -> Frame | Terminal | None:
        try:
            return self._frames.next()
        except FrameError as error:
            raise self._misframed(error) from None

    def _misframed(self, error: FrameError) -> HttpFault:
        places = self._places
        start, offset = places.offset(), places.offset(error.at)
        # The excerpt may have come in several pieces: of these, the first stands where it says.
        whole = places.offset(len(error.excerpt) - 1) - start == len(error.excerpt) - 1
        return HttpFault(offset, str(error), S2S_FRAMES, BytesAt(start, error.excerpt) if whole else None)

    def _regular(self, frame: Frame, span: TimedRange, size: int) -> None:
        try:
            self._message(frame, span, frame_fields(size, frame.compression, frame.reconnect_advised))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.BAD_PROTO:
                fault = HttpFault(span.start, error.failure.message, S2_MESSAGES)
                self._fault(fault, span.end_ns)
                return
            raise self._undecodable(frame, span, error.failure.message) from None

    def _undecodable(self, frame: Frame, span: TimedRange, reason: str) -> HttpFault:
        """Return the fault of a message that does not decode, as exactly as possible inside a frame in one piece."""
        fault = first_fault(frame.payload, self.kind)
        rule = reason if fault is None else fault.rule
        at = _HEAD_BYTES
        plain = frame.compression is Compression.NONE and span.end - span.start == _HEAD_BYTES + len(frame.payload)
        if fault is not None and plain:
            at += fault.at
        held = BytesAt(span.start + _HEAD_BYTES, frame.payload) if plain else None
        return HttpFault(min(span.start + at, span.end), rule, S2_MESSAGES, held)

    def _message(self, frame: Frame, span: TimedRange, fields: dict[str, object]) -> None:
        raise NotImplementedError

    def _terminal(self, terminal: Terminal, span: TimedRange) -> None:
        """Report the terminal frame, which ends the session: pending appends will not be acknowledged."""
        self._closed = self._exchange.terminated = True
        failure = failure_from_http(terminal.status, terminal.body)
        records = self._exchange.appends.left(str(failure))
        fields: dict[str, object] = {"status": terminal.status, "code": failure.code.value, "message": failure.message}
        self._report(
            span, "Terminal", {**fields, **failure.details}, records=records, failure=str(failure), event=failure
        )


class AppendInputs(_Frames):
    """Reader of the client's side of an append session."""

    kind = cast(Descriptor, s2_pb2.AppendInput.DESCRIPTOR)

    def _message(self, frame: Frame, span: TimedRange, fields: dict[str, object]) -> None:
        append = decode_append_input(frame.payload, self._exchange.ref)
        if not self._exchange.appends.ask(append, span.end_ns):
            rule = f"of at most {MAX_WAITING} appends and {MAX_WAITING_BYTES} bytes an acknowledgement is waited for"
            self._fault(HttpFault(span.start, rule, ""), span.end_ns)
        carried = self._exchange.appends.carried(append, span.end_ns)
        self._report(span, "AppendInput", append_fields(append) | fields, event=append, carried=carried)

    def _terminal(self, terminal: Terminal, span: TimedRange) -> None:
        if terminal.is_success:
            self._closed = True
            self._report(span, "Terminal", {"status": terminal.status})
            return
        raise HttpFault(span.start + _HEAD_BYTES - 1, "Unexpected terminal frame as input", S2S_SESSIONS)


class AppendAcks(_Frames):
    """Reader of the server's side of an append session."""

    kind = cast(Descriptor, s2_pb2.AppendAck.DESCRIPTOR)

    def __init__(self, collector: MessageCollector, exchange: SeenExchange, sender: Sender) -> None:
        super().__init__(collector, exchange, sender)
        self._next_seq_num = 0

    def finish(self, end: TimedRange) -> None:
        """Finish: the body must not end inside a frame, nor before every input is acknowledged."""
        super().finish(end)
        if not self._closed and (count := len(self._exchange.appends)) and not self._exchange.appends.unsure:
            rule = f"the session ended with {count} inputs unacknowledged"
            self._fault(HttpFault(end.start, rule, S2S_SESSIONS), end.end_ns)

    def _message(self, frame: Frame, span: TimedRange, fields: dict[str, object]) -> None:
        appended = decode_append_ack(frame.payload)
        book = self._exchange.appends
        count = appended.end.seq_num - appended.start.seq_num
        if book.answers_other(count):
            self._report(span, "AppendAck", appended_fields(appended) | fields, event=appended)
            return
        waiting = book.acknowledge()
        if waiting is None:
            self._fault(HttpFault(span.start, "an acknowledgement answers an input", S2S_SESSIONS), span.end_ns)
            self._report(span, "AppendAck", appended_fields(appended) | fields, event=appended)
            return
        if count != waiting.size:
            rule = f"an acknowledgement of {waiting.size} records says so many, not {count}"
            self._fault(HttpFault(span.start, rule, S2S_SESSIONS), span.end_ns)
        if appended.start.seq_num < self._next_seq_num:
            rule = f"sequence numbers grow: {appended.start.seq_num} comes after {self._next_seq_num - 1}"
            self._fault(HttpFault(span.start, rule, S2S_SESSIONS), span.end_ns)
        self._next_seq_num = appended.end.seq_num
        self._report(
            span,
            "AppendAck",
            appended_fields(appended) | fields,
            records=book.records(waiting, appended),
            event=appended,
            answers=span.end_ns - waiting.asked_ns,
        )


class ReadBatches(_Frames):
    """Reader of the server's side of a read session."""

    kind = cast(Descriptor, s2_pb2.ReadBatch.DESCRIPTOR)

    def __init__(self, collector: MessageCollector, exchange: SeenExchange, sender: Sender) -> None:
        super().__init__(collector, exchange, sender)
        self._next_seq_num = 0

    def _message(self, frame: Frame, span: TimedRange, fields: dict[str, object]) -> None:
        event = decode_read_batch(frame.payload)
        if isinstance(event, RecordBatch):
            if event.first_seq_num < self._next_seq_num:
                rule = f"sequence numbers grow: {event.first_seq_num} comes after {self._next_seq_num - 1}"
                self._fault(HttpFault(span.start, rule, S2S_SESSIONS), span.end_ns)
            self._next_seq_num = event.next_seq_num
            stream = self._exchange.stream
            records = delivered(event, stream, self._collector.conversation, span.end_ns)
            self._report(span, "ReadBatch", batch_fields(event) | fields, records=records, event=event)
        else:
            self._report(span, "heartbeat", {"tail": position(event)} | fields, event=event)


class GuessedAppendInputs(AppendInputs):
    """Inputs of a session whose head was not recorded. Which acknowledgement is of which input is unknown there, so
    their records count as not acknowledged."""

    def _message(self, frame: Frame, span: TimedRange, fields: dict[str, object]) -> None:
        append = decode_append_input(frame.payload, self._exchange.ref)
        if not append.bodies:
            raise fail(FailureCode.BAD_PROTO, "an AppendInput has records")
        records = unacknowledged([(append, span.end_ns)], self._exchange.stream, self._collector.conversation)
        self._report(span, "AppendInput", append_fields(append) | fields, records=records, event=append)


class GuessedAppendAcks(AppendAcks):
    """Acknowledgements of such a session."""

    def _message(self, frame: Frame, span: TimedRange, fields: dict[str, object]) -> None:
        appended = decode_append_ack(frame.payload)
        self._report(span, "AppendAck", appended_fields(appended) | fields, event=appended)
