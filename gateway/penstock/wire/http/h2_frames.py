"""Adapt h2: one frame at a time, bounded header blocks, no dumps, streams that survive a GOAWAY and other streams'
errors."""

from __future__ import annotations

from collections.abc import Container, Sequence
from struct import Struct
from typing import Any, Final, TypeVar

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import hpack
from h2.connection import ConnectionState
from h2.errors import ErrorCodes
from h2.frame_buffer import CONTINUATION_BACKLOG, FrameBuffer
from h2.settings import SettingCodes
from h2.stream import StreamState
from hyperframe.frame import (
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PriorityFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from penstock.model.failures import Failure, FailureCode
from penstock.wire.codec import Role
from penstock.wire.http.events import Buffer, HttpLimits, without_quotes

__all__ = ["H2", "Few", "OneFrame", "StreamFailed", "data_frames", "failure_of", "start"]

T = TypeVar("T")

_FRAME_HEADER: Final = Struct(">HBBBL")
_HEADER_BYTES: Final = 9
_GATHERED: Final = 256 * 1024
_MOST_FRAMES: Final = 64
"""Bytes of body, and number of frames, from which no further frame is gathered. To gather so many of one byte takes as
long as h2 takes for two."""
_OPEN: Final = frozenset({ConnectionState.CLIENT_OPEN, ConnectionState.SERVER_OPEN})
_RECEIVING: Final = frozenset({StreamState.OPEN, StreamState.HALF_CLOSED_LOCAL})
_SENDING: Final = frozenset({StreamState.OPEN, StreamState.HALF_CLOSED_REMOTE})
_MAX_HEADER_TABLE: Final = 4096
_SETTINGS: Final = frozenset(int(code) for code in SettingCodes)
_METHODS: Final = {kind: method.__name__ for kind, method in h2.connection.H2Connection()._frame_dispatch_table.items()}
# The caller makes and checks the headers to send; h2 validates received ones.
_CONFIGURATIONS: Final = {
    role: h2.config.H2Configuration(
        client_side=role is Role.CLIENT, validate_outbound_headers=False, normalize_outbound_headers=False
    )
    for role in Role
}


class StreamFailed(h2.events.StreamReset):
    """h2 has reset a stream for an error of the peer that concerns this stream alone; `reason`: the error."""

    reason: str = ""


class _ZeroIncrement(WindowUpdateFrame):
    """A WINDOW_UPDATE of a stream by 0, which hyperframe treats as an error of the connection."""


class Few(list[T]):
    """A short queue: an empty `deque` takes 760 bytes, and h2 and hpack have sixteen for each connection."""

    __slots__ = ()

    def popleft(self) -> T:
        """Take the first item."""
        return self.pop(0)

    def appendleft(self, item: T) -> None:
        """Insert an item before the first."""
        self.insert(0, item)


class _Settings(h2.settings.Settings):
    """Settings with short queues of the values that are not acknowledged yet."""

    def __init__(self, client: bool, initial_values: dict[SettingCodes, int] | None = None) -> None:
        super().__init__(client, initial_values)
        self._settings = {code: Few(values) for code, values in self._settings.items()}  # type: ignore[misc]

    def __setitem__(self, key: SettingCodes | int, value: int) -> None:
        self._settings.setdefault(key, Few([None]))  # type: ignore[arg-type]
        super().__setitem__(key, value)


_METHODS[_ZeroIncrement] = "_receive_zero_increment"


class _Methods(dict[Any, Any]):
    """Finds the method of a connection for a frame. h2's own table holds twelve bound methods, 1.3 KiB."""

    __slots__ = ("_connection",)

    def __init__(self, connection: h2.connection.H2Connection) -> None:
        self._connection = connection

    def __missing__(self, kind: type[Frame]) -> Any:
        return getattr(self._connection, _METHODS[kind])


class H2(h2.connection.H2Connection):
    """Ends a stream instead of the connection where RFC 9113 demands it: malformed messages (8.1.1), a body of another
    length than announced, more streams than allowed (5.1.2), a window increment of 0 (6.9)."""

    MAX_CLOSED_STREAMS = 4096  # remembered to tell late frames from wrong ones; 65,536 would take 6 MB
    inbound_streams = 0
    """Number of the peer's streams that were open before its last header block."""

    def __init__(self, config: h2.config.H2Configuration) -> None:
        super().__init__(config)
        self.remote_settings = _Settings(not config.client_side)
        self.encoder = _Encoder()
        for table in (self.encoder.header_table, self.decoder.header_table):
            table.dynamic_entries = Few()  # type: ignore[assignment]  # at most 128 entries
        self._frame_dispatch_table = _Methods(self)

    @property
    def open_inbound_streams(self) -> int:
        """Always 0: h2 would end the connection for one stream too many. The caller compares `inbound_streams`."""
        self.inbound_streams = super().open_inbound_streams
        return 0

    def fail_stream(self, stream_id: int, reason: str) -> StreamFailed:
        """Reset a stream whose peer broke the protocol. Raises ProtocolError if it is not open."""
        self.reset_stream(stream_id, ErrorCodes.PROTOCOL_ERROR)
        event = StreamFailed(stream_id=stream_id, error_code=ErrorCodes.PROTOCOL_ERROR, remote_reset=False)
        event.reason = without_quotes(reason) or "malformed"
        return event

    def take_body(self, streams: Container[int]) -> tuple[int, bytes] | None:
        """Take the DATA frames that come next, if they belong to one of these streams, and return its number and their
        body in one piece; None if h2 must read the next frame.

        h2 copies a body twice more and takes 25 us a frame. It reads all frames but those that it would deliver as they
        are: without flags, on an open stream, within the windows and the announced length of the body.
        """
        data = self.incoming_buffer._data
        if self.incoming_buffer._headers_buffer:
            return None
        spans, stream_id, size, at = self._plain_frames(data, streams)
        if not size:
            return None
        stream = self.streams[stream_id]
        windows = self._inbound_flow_control_window_manager, stream._inbound_window_manager
        announced = stream._expected_content_length
        if (
            self.state_machine.state not in _OPEN
            or stream.state_machine.state not in _RECEIVING
            or not stream.state_machine.headers_received
            or any(size > window.current_window_size for window in windows)
            or (announced is not None and stream._actual_content_length + size > announced)
        ):
            return None
        for window in windows:
            window.window_consumed(size)
        stream._actual_content_length += size
        with memoryview(data) as view:
            body = b"".join([view[span] for span in spans])
        del data[:at]
        return stream_id, body

    def _plain_frames(self, data: bytearray, streams: Container[int]) -> tuple[list[slice], int, int, int]:
        """Return the places of the bodies of the next DATA frames that belong to one of these streams, its number, the
        size of the bodies, and where the last one ends. Frames that h2 must read are not looked through."""
        spans: list[slice] = []
        stream_id, size, at = -1, 0, 0
        while size < _GATHERED and len(spans) < _MOST_FRAMES and len(data) - at > _HEADER_BYTES:
            high, low, kind, flags, number = _FRAME_HEADER.unpack_from(data, at)
            length = high << 8 | low
            begin = at + _HEADER_BYTES
            if kind or flags or not 0 < length <= min(self.max_inbound_frame_size, len(data) - begin):
                break
            if number != stream_id and (spans or number not in streams):
                break
            stream_id, at = number, begin + length
            spans.append(slice(begin, at))
            size += length
        return spans, stream_id, size, at

    def _receive_frame(self, frame: Frame) -> list[h2.events.Event]:
        try:
            return super()._receive_frame(frame)
        except h2.exceptions.ProtocolError as error:
            if not self._concerns_the_stream_alone(frame, error):
                raise
            if isinstance(frame, DataFrame):  # it still counts against the connection's window
                self.acknowledge_received_data(frame.flow_controlled_length, frame.stream_id)
            return [self.fail_stream(frame.stream_id, str(error))]

    def _concerns_the_stream_alone(self, frame: Frame, error: h2.exceptions.ProtocolError) -> bool:
        """Return whether an error left all shared state of the connection intact: its state, its windows, its header
        table."""
        stream = self.streams.get(frame.stream_id)
        if stream is None or stream.closed or self.state_machine.state is ConnectionState.CLOSED:
            return False
        if isinstance(frame, DataFrame):
            return isinstance(error, h2.exceptions.InvalidBodyLengthError)
        undecoded = isinstance(error.__cause__, (hpack.HPACKError, LookupError, TypeError, UnicodeDecodeError))
        limited = isinstance(error, h2.exceptions.DenialOfServiceError)
        return isinstance(frame, (HeadersFrame, PriorityFrame)) and not (undecoded or limited)

    def _receive_zero_increment(self, frame: _ZeroIncrement) -> tuple[list[Frame], list[h2.events.Event]]:
        reason = "a window increment of 0"
        stream = self.streams.get(frame.stream_id)
        if stream is not None and not stream.closed:
            return [], [self.fail_stream(frame.stream_id, reason)]
        if self._stream_closed_by(frame.stream_id) is None:
            raise h2.exceptions.ProtocolError(f"{reason} for a stream that is not open")
        return [], []


class _Encoder(hpack.Encoder):
    """Remembers no more headers for the peer than HTTP/2's default, however much memory the peer announces.

    Answers repeat parts of requests (a browser's origin): a table of 4 GiB would keep them for ever.
    """

    @property
    def header_table_size(self) -> int:
        """Size of the table in bytes."""
        return self.header_table.maxsize

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        size = self.header_table.maxsize = min(value, _MAX_HEADER_TABLE)
        if self.header_table.resized:  # the next headers carry the smallest size and the last (RFC 7541, 4.2)
            self.table_size_changes = [min([size, *self.table_size_changes]), size]


def _no_dump() -> str:
    return ""


class OneFrame(FrameBuffer):
    """Passes h2 one frame per `receive_data`, so that frames before a faulty one are delivered before its error."""

    def __init__(self, role: Role, max_head: int) -> None:
        super().__init__(server=role is Role.SERVER)
        self._max_head = max_head
        self.taken = False
        self.goaway: GoAwayFrame | None = None

    def __next__(self) -> Frame:
        if self.taken:
            raise StopIteration
        # h2 checks the length only once the whole frame is there.
        self._validate_frame_length(int.from_bytes(self._data[:3], "big") if len(self._data) >= 3 else 0)
        if self._is_zero_increment():
            stream_id = int.from_bytes(self._data[5:9], "big") & 0x7FFFFFFF
            del self._data[:13]
            self.taken = True
            return _ZeroIncrement(stream_id)
        frame = super().__next__()
        self.taken = True
        if type(frame) is DataFrame:
            # h2 passes repr(frame), with the whole body in hexadecimal, to a logger that drops it. Without the
            # dump a frame of 16 KiB costs 11 us instead of 29, one of 64 KiB 24 instead of 90.
            frame._body_repr = _no_dump  # type: ignore[method-assign]
        elif type(frame) is SettingsFrame:
            # h2 would keep 0.7 KB for each of 65,536 unknown settings (RFC 9113, 6.5.2).
            frame.settings = {code: value for code, value in frame.settings.items() if code in _SETTINGS}
        elif type(frame) is GoAwayFrame:
            # h2 forbids every further frame after a GOAWAY, but open streams continue (RFC 9113, 6.8).
            self.goaway = frame
            raise StopIteration
        return frame

    def _is_zero_increment(self) -> bool:
        data = self._data
        if len(data) < 13 or data[3] != WindowUpdateFrame.type or self._headers_buffer:
            return False
        return data[:3] == b"\0\0\x04" and any(data[5:9]) and not int.from_bytes(data[9:13], "big") & 0x7FFFFFFF

    def _update_header_buffer(self, f: Frame | None) -> Frame | None:
        if len(self._headers_buffer) >= CONTINUATION_BACKLOG:  # h2 would report another error
            raise h2.exceptions.DenialOfServiceError("too many CONTINUATION frames")
        frame = super()._update_header_buffer(f)
        if self.header_bytes > self._max_head:
            raise h2.exceptions.DenialOfServiceError("header block too long")
        return frame

    @property
    def begun(self) -> bool:
        """True once the client's preface has arrived completely, or if none is expected."""
        return not self._preamble_len

    @property
    def held(self) -> bytes:
        """Bytes of an incomplete frame, and all bytes after the last frame read."""
        return bytes(self._data)

    @property
    def header_bytes(self) -> int:
        """Bytes of an unfinished header block."""
        return sum(len(frame.data) for frame in self._headers_buffer)

    def __len__(self) -> int:
        return len(self._data) + self.header_bytes


def failure_of(error: h2.exceptions.ProtocolError) -> Failure:
    """Return the failure for the peer's error, without its own bytes."""
    flooding = isinstance(error, h2.exceptions.DenialOfServiceError)
    code = FailureCode.LIMIT_EXCEEDED if flooding else FailureCode.BAD_FORMAT
    reason = without_quotes(str(error))
    if isinstance(error, h2.exceptions.NoSuchStreamError):  # its message is only the number
        reason = f"a frame of stream {error.stream_id}, which is not open"
    return Failure(code, f"HTTP/2: {reason}")


def start(role: Role, limits: HttpLimits, frames: OneFrame) -> H2:
    """Return an h2 connection that reads from `frames` and has its preface and settings ready to send."""
    client = role is Role.CLIENT
    connection = H2(_CONFIGURATIONS[role])
    # The constructor sets the settings: `local_settings.update` before `initiate_connection` would not be advertised,
    # and the peer would wait for ever after 64 KiB (S2 fact sheet 2.5).
    initial = {
        SettingCodes.MAX_CONCURRENT_STREAMS: limits.max_streams,
        SettingCodes.INITIAL_WINDOW_SIZE: limits.stream_window,
        SettingCodes.MAX_FRAME_SIZE: limits.max_frame,
        SettingCodes.MAX_HEADER_LIST_SIZE: limits.max_head,
    }
    if client:
        initial[SettingCodes.ENABLE_PUSH] = 0
    connection.local_settings = _Settings(client, initial)
    connection.max_inbound_frame_size = limits.max_frame
    connection.decoder.max_header_list_size = limits.max_head
    connection.incoming_buffer = frames
    connection.initiate_connection()
    connection.increment_flow_control_window(limits.connection_window - 65535)
    return connection


def data_frames(
    connection: h2.connection.H2Connection, stream_id: int, pieces: Sequence[Buffer], end: bool
) -> list[Buffer]:
    """Return the frames of a piece of body that fits into the window, with or without the stream's end.

    h2 sends the stream's last frame, and refuses what the stream does not allow. It copies a body four times and takes
    10 us a frame; the other frames are slices, not copied, at 0.4 us each. h2 must have nothing to send.
    """
    stream, limit = connection.streams[stream_id], connection.max_outbound_frame_size
    if connection.state_machine.state not in _OPEN or stream.state_machine.state not in _SENDING:
        connection.send_data(stream_id, b"")  # raises its error
    size = sum(map(len, pieces))
    left = (size - 1) // limit * limit if end else size
    connection.outbound_flow_control_window -= left
    stream.outbound_flow_control_window -= left
    frames: list[Buffer] = []
    last: list[Buffer] = []
    room = 0
    for piece in pieces:
        view = memoryview(piece)
        while left and view:
            if not room:
                room = min(limit, left)
                frames.append(_FRAME_HEADER.pack(room >> 8, room & 0xFF, 0, 0, stream_id))
            part = view[:room]
            frames.append(part)
            view, room, left = view[len(part) :], room - len(part), left - len(part)
        if view:
            last.append(view)
    if end:
        connection.send_data(stream_id, b"".join(last), end_stream=True)
        frames.append(connection.data_to_send())
    return frames
