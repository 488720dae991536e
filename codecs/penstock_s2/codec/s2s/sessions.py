"""S2S sessions, both kinds and both ends (S2 fact sheet, 2.3 and 2.4).

| session | client sends | server sends |
|---|---|---|
| append | Append (AppendInput) | Appended (AppendAck), in the order of the inputs |
| read | nothing | RecordBatch (ReadBatch), StreamPosition (heartbeat: the tail) |

A server ends a session either by finishing its body, or with a Failure (a terminal frame). HTTP handles the request and
response heads, and the ends of the bodies, which `receive(b"")` reports.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Literal

from penstock.model.failures import (
    Failure,
    FailureCode,
    LocalProtocolError,
    OperationFailed,
    RemoteProtocolError,
    fail,
)
from penstock.model.operations import Append, Appended
from penstock.model.records import RecordBatch, StreamPosition, StreamRef
from penstock.wire.codec import NEED_DATA, PAUSED, Pull
from penstock.wire.compression import Compression
from penstock.wire.http_failures import failure_to_http
from penstock_s2.codec.errors import failure_from_http
from penstock_s2.codec.protobuf import (
    decode_append_ack,
    decode_append_input,
    decode_read_batch,
    encode_append_ack,
    encode_append_input,
    encode_heartbeat,
    read_batch_pieces,
)
from penstock_s2.codec.s2s.frames import (
    Frame,
    FrameError,
    FrameReader,
    Terminal,
    compress_payload,
    encode_frame,
    encode_terminal,
)
from penstock_s2.codec.s2s.limits import S2S_MAX_PAYLOAD
from penstock_s2.codec.validation import validate_append

__all__ = ["AppendClient", "AppendServer", "ReadClient", "ReadServer"]


class _Intake:
    """Reads frames from the peer, up to the end, a fault, or `close`."""

    def __init__(self, code: FailureCode) -> None:
        self._code = code
        self._reader = FrameReader()
        self._finished = False
        self._closed = False
        self._error: RemoteProtocolError | None = None

    @property
    def held(self) -> int:
        return self._reader.held

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        if self._closed:
            return
        if data:
            self._reader.feed(data)
        else:
            self._finished = True

    def close(self) -> None:
        """Read nothing more, and drop what was received."""
        self._closed = True
        self._reader.clear()

    def fault(self, text: str) -> RemoteProtocolError:
        """Close, and return the error to raise now and from every later call."""
        self.close()
        self._error = RemoteProtocolError(Failure(self._code, text))
        return self._error

    def undecodable(self, text: object) -> RemoteProtocolError:
        return self.fault(f"Failed to decode S2S frame: {text}")

    def next(self) -> Frame | Terminal | Pull:
        """Return the next frame; PAUSED at the end. Raises RemoteProtocolError."""
        if self._error is not None:
            raise self._error
        if self._closed:
            return PAUSED
        try:
            frame = self._reader.next()
            if frame is not None:
                return frame
            if not self._finished:
                return NEED_DATA
            self._reader.end()
        except FrameError as error:
            raise self.undecodable(error) from None
        self.close()
        return PAUSED


class _Session:
    """Shared base of both ends of both sessions; for servers `code` is BAD_FRAME, as in S2.

    For clients it is OTHER: the server is to blame, and what it has done is unknown.
    """

    def __init__(self, compression: Compression, code: FailureCode) -> None:
        self._compression = compression
        self._intake = _Intake(code)
        self._ended = False
        self.reconnect_advised = False
        """Server: set to advise the client to reconnect in the frames. Client: True once a frame has advised it."""

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes of the peer's body; b"" at its end."""
        self._intake.receive(data)

    @property
    def buffered(self) -> int:
        """Bytes of incomplete frames; at most 2 MiB + 3 once all events have been taken."""
        return self._intake.held

    def _frame(self, payload: bytes) -> list[bytes]:
        """Return a frame with the session's compression and advice."""
        self._check_open()
        return _frame(payload, self._compression, self._advises)

    @property
    def _advises(self) -> bool:
        return False

    def _check_open(self) -> None:
        if self._ended:
            raise LocalProtocolError("the S2S session has ended")


class _Server(_Session):
    def __init__(self, compression: Compression) -> None:
        super().__init__(compression, FailureCode.BAD_FRAME)

    @property
    def _advises(self) -> bool:
        return self.reconnect_advised

    def _end(self, failure: Failure) -> list[bytes]:
        """Return the terminal frame and end the session; anything the client still sends is ignored."""
        self._check_open()
        self._ended = True
        self._intake.close()
        return encode_terminal(*failure_to_http(failure))


class _Client(_Session):
    def __init__(self, compression: Compression) -> None:
        super().__init__(compression, FailureCode.OTHER)

    def _next_frame(self) -> Frame | Failure | Pull:
        frame = self._intake.next()
        if isinstance(frame, Frame):
            self.reconnect_advised |= frame.reconnect_advised
            return frame
        if isinstance(frame, Pull):
            return frame
        self._ended = True
        self._intake.close()
        return failure_from_http(frame.status, frame.body)


class AppendServer(_Server):
    """The server's end of an append session on `stream`.

    An input that is well formed but invalid is delivered as a Failure, after which nothing more is read: answer the
    inputs before it, then send the Failure. The same holds for a RemoteProtocolError's failure. A terminal frame whose
    status is a success ends the input, as the end of the body does.
    """

    def __init__(self, stream: StreamRef, compression: Compression = Compression.NONE) -> None:
        super().__init__(compression)
        self._stream = stream
        self._unacknowledged = 0

    def next_event(self) -> Append | Failure | Pull:
        """Return the next input, valid by S2's rules; see the class. Raises RemoteProtocolError(BAD_FRAME)."""
        frame = self._intake.next()
        if isinstance(frame, Pull):
            return frame
        if isinstance(frame, Terminal):
            if not frame.is_success:
                raise self._intake.undecodable("Unexpected terminal frame as input")
            self._intake.close()
            return PAUSED
        try:
            append = decode_append_input(frame.payload, self._stream)
            validate_append(append)
        except OperationFailed as error:
            if error.failure.code is FailureCode.BAD_PROTO:
                raise self._intake.undecodable(error.failure.message) from None
            self._intake.close()
            return error.failure
        self._unacknowledged += 1
        return append

    def send(self, event: Appended | Failure) -> list[bytes]:
        """Return the acknowledgement of the oldest unacknowledged input, or the end.

        Raises LocalProtocolError if every input has been acknowledged or the session has ended.
        """
        if isinstance(event, Failure):
            return self._end(event)
        if not self._unacknowledged:
            raise LocalProtocolError("an acknowledgement without an input")
        self._unacknowledged -= 1
        return self._frame(encode_append_ack(event))


class AppendClient(_Client):
    """The client's end of an append session; inputs may be sent before earlier ones are acknowledged."""

    def __init__(self, compression: Compression = Compression.NONE) -> None:
        super().__init__(compression)
        self._unacknowledged: deque[int] = deque()
        self._next_seq_num = 0

    def send(self, event: Append) -> list[bytes]:
        """Return an input's frame. Raises LocalProtocolError if the server has ended the session."""
        pieces = self._frame(encode_append_input(event))
        self._unacknowledged.append(len(event.bodies))
        return pieces

    def next_event(self) -> Appended | Failure | Pull:
        """Return the acknowledgement of the oldest unacknowledged input, or the Failure that ended the session.

        Raises RemoteProtocolError(OTHER) for anything that does not acknowledge that input, and for an end without a
        Failure while inputs are unacknowledged.
        """
        frame = self._next_frame()
        if frame is PAUSED and self._unacknowledged and not self._ended:
            raise self._intake.fault(f"the S2S session ended with {len(self._unacknowledged)} inputs unacknowledged")
        if not isinstance(frame, Frame):
            return frame
        try:
            appended = decode_append_ack(frame.payload)
        except OperationFailed as error:
            raise self._intake.undecodable(error.failure.message) from None
        self._check(appended)
        return appended

    def _check(self, appended: Appended) -> None:
        if not self._unacknowledged:
            raise self._intake.fault("the server acknowledged an input that was not sent")
        count = self._unacknowledged.popleft()
        start, end = appended.start.seq_num, appended.end.seq_num
        if end - start != count:
            raise self._intake.fault(f"the server acknowledged {end - start} records of an input of {count}")
        if start < self._next_seq_num:
            raise self._intake.fault(f"the server acknowledged sequence number {start} after {self._next_seq_num - 1}")
        self._next_seq_num = end


class ReadServer(_Server):
    """The server's end of a read session. The client sends nothing; bytes from it are ignored."""

    def __init__(self, compression: Compression = Compression.NONE) -> None:
        super().__init__(compression)
        self._intake.close()

    def next_event(self) -> Literal[Pull.PAUSED]:
        """Return PAUSED, always."""
        return PAUSED

    def send(self, event: RecordBatch | StreamPosition | Failure) -> list[bytes]:
        """Return the frames of a batch, a heartbeat, or the end.

        A batch's bytes are not copied, and its compressed frame is made once for all followers. A batch that does not
        fit into a frame, which takes tens of thousands of small headers, becomes several. Raises LocalProtocolError if
        the session has ended, and OperationFailed(NOT_REPRESENTABLE) for a single record that does not fit.
        """
        if isinstance(event, Failure):
            return self._end(event)
        self._check_open()
        if isinstance(event, StreamPosition):
            return [_heartbeat(event, self._compression, self._advises)]
        pieces = read_batch_pieces(event)
        size = sum(map(len, pieces))
        if size > S2S_MAX_PAYLOAD and event.count > 1:
            middle = event.count // 2
            return [*self.send(event.part(0, middle)), *self.send(event.part(middle, event.count))]
        _check_size(size)
        if self._compression is Compression.NONE:
            return encode_frame(pieces, reconnect_advised=self.reconnect_advised)
        key = ("s2s", self._compression, self.reconnect_advised)
        return [event.encoded(key, lambda _: b"".join(self._frame(b"".join(pieces))))]


class ReadClient(_Client):
    """The client's end of a read session."""

    def __init__(self) -> None:
        super().__init__(Compression.NONE)
        self._next_seq_num = 0

    def next_event(self) -> RecordBatch | StreamPosition | Failure | Pull:
        """Return the next batch, the tail in a heartbeat, or the Failure that ended the session.

        Raises RemoteProtocolError(OTHER) for anything else, and for repeated or out-of-order records.
        """
        frame = self._next_frame()
        if not isinstance(frame, Frame):
            return frame
        try:
            event = decode_read_batch(frame.payload)
        except OperationFailed as error:
            raise self._intake.undecodable(error.failure.message) from None
        if isinstance(event, RecordBatch):
            if event.first_seq_num < self._next_seq_num:
                last = self._next_seq_num - 1
                raise self._intake.fault(f"the server sent sequence number {event.first_seq_num} after {last}")
            self._next_seq_num = event.next_seq_num
        return event

    def send(self, event: object) -> list[bytes]:  # noqa: ARG002 - the interface has it
        """Raise LocalProtocolError: the client of a read session sends nothing."""
        raise LocalProtocolError("the client of an S2S read session sends nothing")


def _frame(payload: bytes, wanted: Compression, advised: bool) -> list[bytes]:
    _check_size(len(payload))
    compression, content = compress_payload(wanted, payload)
    return encode_frame([content], compression, reconnect_advised=advised)


@lru_cache(64)
def _heartbeat(tail: StreamPosition, compression: Compression, advised: bool) -> bytes:
    """Return the frame of a heartbeat, which all readers of a stream share until its tail moves."""
    return b"".join(_frame(encode_heartbeat(tail), compression, advised))


def _check_size(size: int) -> None:
    if size > S2S_MAX_PAYLOAD:
        message = f"a batch takes {size} bytes of protobuf, at most {S2S_MAX_PAYLOAD} fit into an S2S frame"
        raise fail(FailureCode.NOT_REPRESENTABLE, message)
