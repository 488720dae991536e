"""Fields that no client of S2 knows, in its answers and in the frames of its sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.routing.faults.unknown import IN_BODIES, AddField, in_json, in_protobuf
from penstock_codecs.limits import S2S_MAX_PAYLOAD
from penstock_codecs.s2s.frames import FrameReader, Terminal, compress_payload, encode_frame, encode_terminal

__all__ = ["IN_ANSWERS", "in_frames"]


def in_frames(frames: bytes) -> bytes:
    """Return whole S2S frames with an unknown field in each message: of protobuf, or of JSON in a terminal frame. A
    message that is too large for it stays."""
    reader = FrameReader()
    reader.feed(frames)
    pieces: list[bytes] = []
    while (frame := reader.next()) is not None:
        if isinstance(frame, Terminal):
            pieces += encode_terminal(frame.status, in_json(frame.body))
            continue
        message = bytes(frame.payload)
        if len(longer := in_protobuf(message)) <= S2S_MAX_PAYLOAD:
            message = longer
        compression, payload = compress_payload(frame.compression, message)
        pieces += encode_frame([payload], compression, reconnect_advised=frame.reconnect_advised)
    return b"".join(pieces)


IN_ANSWERS: Final[Mapping[str, AddField]] = {**IN_BODIES, "s2s/proto": in_frames}
"""By media type."""
