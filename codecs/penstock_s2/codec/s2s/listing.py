"""S2S frames and the protobuf messages in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from penstock.wire.listing import Line, Listing, Reading, Undecodable, size
from penstock.wire.protobuf_listing import fields
from penstock_proto import s2_pb2
from penstock_s2.codec.s2s.frames import Frame, FrameError, FrameReader, Terminal

__all__ = ["LISTING"]

_HEAD_BYTES: Final = 4
_COMPRESSIONS: Final = {0: "", 1: ", zstd", 2: ", gzip"}
_MESSAGES: Final[dict[tuple[str, str], type[Message]]] = {
    ("client", "append"): s2_pb2.AppendInput,
    ("server", "append"): s2_pb2.AppendAck,
    ("server", "read"): s2_pb2.ReadBatch,
}
"""Messages that each side sends in a session; the client of a read session sends nothing."""


def _lines(data: bytes, kind: Descriptor) -> Iterator[Line]:
    reader = FrameReader()
    reader.feed(data)
    at = 0
    while at < len(data):
        try:
            frame = reader.next()
            if frame is None:
                reader.end()
                return
        except FrameError as error:
            raise Undecodable(str(error), at) from None
        end = len(data) - reader.held
        yield from _frame(data[at:end], at, frame, kind)
        at = end


def _frame(raw: bytes, at: int, frame: Frame | Terminal, kind: Descriptor) -> Iterator[Line]:
    if isinstance(frame, Terminal):
        yield Line(at, 0, f"Terminal frame ({size(len(raw))})")
        yield Line(at + _HEAD_BYTES, 1, f"status = {frame.status}")
        yield Line(at + _HEAD_BYTES + 2, 1, f"body = {frame.body!r}")
        return
    payload = bytes(frame.payload)
    compression = _COMPRESSIONS[raw[3] >> 5 & 3]
    advised = ", reconnect advised" if frame.reconnect_advised else ""
    yield Line(at, 0, f"{kind.name} ({size(len(raw))}{compression}{advised})")
    if not compression:
        yield from fields(payload, 0, len(payload), kind, 1, at + _HEAD_BYTES)
        return
    try:  # the fields have no offsets of their own in the compressed input
        for line in fields(payload, 0, len(payload), kind, 1, 0):
            yield line._replace(at=None)
    except Undecodable as error:
        raise Undecodable(f"in the decompressed message, {error}", at) from None


def _readings(side: str, dialect: str) -> list[Reading]:
    def of(kind: Descriptor) -> Reading:
        return lambda data: _lines(data, kind)

    kinds = [
        cast(Descriptor, message.DESCRIPTOR)  # the library has two equal classes of descriptors
        for (sender, session), message in _MESSAGES.items()
        if side in ("auto", sender) and dialect in ("auto", session)
    ]
    return [of(kind) for kind in kinds] or [_silent]


def _silent(data: bytes) -> Iterator[Line]:
    if data:
        raise Undecodable("the client of a read session sends nothing", 0)
    return iter(())


LISTING: Final = Listing(("append", "read"), _readings)
