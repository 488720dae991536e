"""Frames of HTTP/2 made and taken apart by hand, and a server codec to feed them to."""

from typing import Any

from hyperframe.frame import (
    DataFrame,
    ExtensionFrame,
    Frame,
    HeadersFrame,
    SettingsFrame,
)
from support.http.story import pull, said

from penstock.wire.codec import Role
from penstock.wire.http import PREFACE, Body, HttpLimits, ResponseHead
from penstock.wire.http.h2 import Http2Connection

GET = [(":method", "GET"), (":scheme", "http"), (":authority", "b.localhost"), (":path", "/v1/a%2Fb?x=1"), ("k", "v")]
POST = [(":method", "POST"), (":scheme", "http"), (":authority", "b.localhost"), (":path", "/up")]


def headers(stream_id: int, fields: list[tuple[str, str]], *flags: str, **more: Any) -> HeadersFrame:
    """Return a header block of literals without indexing, which depends on no state."""
    block = b"".join(b"\x00%c%s%s%s" % (len(n), n.encode(), length_of(len(v)), v.encode()) for n, v in fields)
    return HeadersFrame(stream_id, block, flags=["END_HEADERS", *flags], **more)


def length_of(size: int) -> bytes:
    """Return an integer with a 7-bit prefix (RFC 7541, 5.1)."""
    if size < 127:
        return bytes([size])
    rest, out = size - 127, b"\x7f"
    while rest >= 128:
        out += bytes([rest % 128 + 128])
        rest //= 128
    return out + bytes([rest])


def grease() -> ExtensionFrame:
    """Return a frame of an unknown type (RFC 9113, 5.5)."""
    frame = ExtensionFrame(0xBA, 0, body=b"grease")
    frame.body_len = 6
    return frame


def wire(*frames: Frame) -> bytes:
    return PREFACE + SettingsFrame(0).serialize() + b"".join(frame.serialize() for frame in frames)


def parse(data: bytes) -> list[Frame]:
    frames, view = [], memoryview(data)
    while view:
        frame, length = Frame.parse_frame_header(view[:9])
        frame.parse_body(view[9 : 9 + length])
        frames.append(frame)
        view = view[9 + length :]
    return frames


def server(limits: HttpLimits | None = None) -> Http2Connection:
    return Http2Connection(Role.SERVER, limits)


def started(*frames: Frame, limits: HttpLimits | None = None) -> Http2Connection:
    codec = server(limits)
    codec.receive(wire(*frames))
    pull(codec)
    said(codec)
    return codec


def frames_of(codec: Http2Connection, kind: type[Frame]) -> list[Any]:
    return [frame for frame in parse(said(codec)) if type(frame) is kind]


def answer(codec: Http2Connection, stream_id: int, *parts: bytes, end: bool = False) -> None:
    codec.send(ResponseHead(stream_id, 200, []))
    codec.send(Body(stream_id, parts, end))


def body_of(frames: list[Frame], stream_id: int) -> bytes:
    return b"".join(f.data for f in frames if isinstance(f, DataFrame) and f.stream_id == stream_id)
