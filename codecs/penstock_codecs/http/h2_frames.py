"""h2 made to fit: one frame at a time, bounded header blocks, no dumps, streams that outlive a GOAWAY."""

from __future__ import annotations

from struct import Struct
from typing import Final

import h2.config
import h2.connection
import h2.exceptions
import h2.settings
import hpack
from h2.frame_buffer import CONTINUATION_BACKLOG, FrameBuffer
from h2.settings import SettingCodes
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, SettingsFrame

from penstock_codecs.codec import Role
from penstock_codecs.http.events import Buffer, HttpLimits

__all__ = ["OneFrame", "data_frames", "start"]

_FRAME_HEADER: Final = Struct(">HBBBL")
_MAX_HEADER_TABLE: Final = 4096
_SETTINGS: Final = frozenset(int(code) for code in SettingCodes)


class _H2(h2.connection.H2Connection):
    MAX_CLOSED_STREAMS = 4096  # remembered so that late frames are told from wrong ones; 65,536 would cost 6 MB


class _Encoder(hpack.Encoder):
    """Remembers no more headers for the peer than HTTP/2's default, however much memory the peer announces.

    Answers repeat what requests bring (a browser's origin): in a table of 4 GiB it would be kept for ever.
    """

    @property
    def header_table_size(self) -> int:
        """Bytes of the table."""
        return self.header_table.maxsize

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        size = self.header_table.maxsize = min(value, _MAX_HEADER_TABLE)
        if self.header_table.resized:  # the next headers tell the least size and the last (RFC 7541, 4.2)
            self.table_size_changes = [min([size, *self.table_size_changes]), size]


def _no_dump() -> str:
    return ""


class OneFrame(FrameBuffer):
    """Hands h2 one frame per `receive_data`: what came before a faulty frame is delivered before its error."""

    def __init__(self, role: Role, max_head: int) -> None:
        super().__init__(server=role is Role.SERVER)
        self._max_head = max_head
        self.taken = False
        self.goaway: GoAwayFrame | None = None

    def __next__(self) -> Frame:
        if self.taken:
            raise StopIteration
        # h2 looks at the length only once the whole frame is there.
        self._validate_frame_length(int.from_bytes(self._data[:3], "big") if len(self._data) >= 3 else 0)
        frame = super().__next__()
        self.taken = True
        if type(frame) is DataFrame:
            # h2 passes repr(frame), with the whole body in hexadecimal, to a logger that drops it. Without the
            # dump a frame of 16 KiB costs 11 us instead of 29, one of 64 KiB 24 instead of 90.
            frame._body_repr = _no_dump  # type: ignore[method-assign]
        elif type(frame) is SettingsFrame:
            # h2 would keep 0.7 KB for each of 65,536 settings that mean nothing (RFC 9113, 6.5.2).
            frame.settings = {code: value for code, value in frame.settings.items() if code in _SETTINGS}
        elif type(frame) is GoAwayFrame:
            # h2 forbids every further frame after a GOAWAY, but streams that are open go on (RFC 9113, 6.8).
            self.goaway = frame
            raise StopIteration
        return frame

    def _update_header_buffer(self, f: Frame | None) -> Frame | None:
        if len(self._headers_buffer) >= CONTINUATION_BACKLOG:  # h2 would take it for a mistake
            raise h2.exceptions.DenialOfServiceError("too many CONTINUATION frames")
        frame = super()._update_header_buffer(f)
        if self.header_bytes > self._max_head:
            raise h2.exceptions.DenialOfServiceError("header block too long")
        return frame

    @property
    def header_bytes(self) -> int:
        """Bytes of an unfinished header block."""
        return sum(len(frame.data) for frame in self._headers_buffer)

    def __len__(self) -> int:
        return len(self._data) + self.header_bytes


def start(role: Role, limits: HttpLimits, frames: OneFrame) -> h2.connection.H2Connection:
    """An h2 connection that reads from `frames` and has its preface and settings ready to send."""
    client = role is Role.CLIENT
    # The headers that h2 is given to send are made and checked by the caller; those received it validates.
    connection = _H2(
        h2.config.H2Configuration(client_side=client, validate_outbound_headers=False, normalize_outbound_headers=False)
    )
    # The settings go in by the constructor: `local_settings.update` before `initiate_connection` would not be
    # advertised, and the peer would wait for ever after 64 KiB (S2 fact sheet 2.5).
    initial = {
        SettingCodes.MAX_CONCURRENT_STREAMS: limits.max_streams,
        SettingCodes.INITIAL_WINDOW_SIZE: limits.stream_window,
        SettingCodes.MAX_FRAME_SIZE: limits.max_frame,
        SettingCodes.MAX_HEADER_LIST_SIZE: limits.max_head,
    }
    if client:
        initial[SettingCodes.ENABLE_PUSH] = 0
    connection.local_settings = h2.settings.Settings(client=client, initial_values=initial)
    connection.max_inbound_frame_size = limits.max_frame
    connection.decoder.max_header_list_size = limits.max_head
    connection.encoder = _Encoder()
    connection.incoming_buffer = frames
    connection.initiate_connection()
    connection.increment_flow_control_window(limits.connection_window - 65535)
    return connection


def data_frames(connection: h2.connection.H2Connection, stream_id: int, piece: Buffer, end: bool) -> list[Buffer]:
    """The frames of a piece of body for which there is window, ending the stream or not.

    Only the last goes through h2, which checks that the stream allows it. h2 copies a body four times and takes 10 us
    a frame; the frames before it are its slices, not copied, at 0.4 us each. What h2 has to send must be empty.
    """
    frames: list[Buffer] = []
    limit = connection.max_outbound_frame_size
    whole = (len(piece) - 1) // limit * limit
    if whole:
        connection.outbound_flow_control_window -= whole
        connection.streams[stream_id].outbound_flow_control_window -= whole
        header = _FRAME_HEADER.pack(limit >> 8, limit & 0xFF, 0, 0, stream_id)
        view = memoryview(piece)
        for at in range(0, whole, limit):
            frames += (header, view[at : at + limit])
        piece = view[whole:]
    connection.send_data(stream_id, piece, end_stream=end)  # type: ignore[arg-type]  # it joins what it is given: any buffer will do
    frames.append(connection.data_to_send())
    return frames
