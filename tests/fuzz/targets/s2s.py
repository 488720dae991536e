"""S2S: the four ends of its sessions, and the relay that forwards whole frames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fuzz.laws import chosen, cuts, keeps_the_laws, pull

from penstock.model.failures import Failure
from penstock.model.operations import Append, Appended
from penstock.model.records import RecordBatch, StreamRef
from penstock.wire.codec import Codec, Role
from penstock.wire.compression import Compression, compress
from penstock.wire.http_failures import failure_to_http
from penstock_s2.codec.errors import failure_from_http
from penstock_s2.codec.protobuf import decode_append_ack, encode_append_ack
from penstock_s2.codec.s2s import PLUGIN, AppendClient, AppendServer, ReadClient, ReadServer
from penstock_s2.codec.s2s.frames import FrameError, FrameReader, Terminal, encode_frame
from penstock_s2.codec.s2s.limits import S2S_MAX_FRAME_LENGTH
from penstock_s2.codec.s2s.whole_frames import WholeFrames

STREAM: Final = StreamRef("fuzzed-basin", "fuzzed")
ENDS: Final = tuple((role, dialect) for role in Role for dialect in PLUGIN.dialects)


def seeds() -> Iterator[bytes]:
    """Yield the sample of each end, as it is and in compressed frames."""
    for index, (role, dialect) in enumerate(ENDS):
        sample = PLUGIN.sample(role, dialect)
        yield bytes([index]) + sample
        for compression in (Compression.ZSTD, Compression.GZIP):
            yield bytes([index]) + _compressed(sample, compression)
    yield bytes([len(ENDS)]) + PLUGIN.sample(Role.CLIENT, "read")


def _compressed(frames: bytes, compression: Compression) -> bytes:
    reader, out = FrameReader(), b""
    reader.feed(frames)
    while (frame := reader.next()) is not None and not isinstance(frame, Terminal):
        out += b"".join(encode_frame([compress(compression, frame.payload)], compression))
    return out


def check(data: bytes) -> None:
    """Check the laws of codecs, that events are encoded to bytes that give them again, and the relay."""
    chose, said = chosen((*ENDS, None), data)
    if chose is None:
        _relay(said)
        return

    def make() -> Codec[Any, Any]:
        return PLUGIN.make(*chose)

    keeps_the_laws(make, said, PLUGIN.limit)
    for event in pull(make(), said):
        again = _again(event)
        assert _plain(again) == _plain(event), f"{event!r} became {again!r}"


def _again(event: Any) -> Any:
    """Return the event that the other end receives if this one is sent to it."""
    match event:
        case Append():
            return pull(AppendServer(event.stream), b"".join(AppendClient().send(event)))[0]
        case Appended():
            return decode_append_ack(encode_append_ack(event))
        case Failure():
            return failure_from_http(*failure_to_http(event))
        case _:
            return pull(ReadClient(), b"".join(ReadServer().send(event)))[0]


def _plain(event: Any) -> Any:
    """Return an event as a value that can be compared."""
    if isinstance(event, RecordBatch):
        return list(event.records()), event.tail, event.metered
    return (event.code, event.retryable) if isinstance(event, Failure) else event


def _relay(said: bytes) -> None:
    whole, faulty = _whole_frames(said)
    for pieces in [[said], *cuts(said)]:
        frames, out = WholeFrames(), b""
        try:
            for piece in pieces:
                out += b"".join(frames.feed(piece))
                frames.check()
        except FrameError:
            assert faulty and out == whole
        else:
            assert not faulty and out == whole and frames.held == len(said) - len(whole)


def _whole_frames(said: bytes) -> tuple[bytes, bool]:
    """Return the whole frames at the beginning, and whether a length that no frame has follows."""
    at = 0
    while len(said) - at >= 3:
        length = int.from_bytes(said[at : at + 3], "big")
        if not 0 < length <= S2S_MAX_FRAME_LENGTH:
            return said[:at], True
        if at + 3 + length > len(said):
            break
        at += 3 + length
    return said[:at], False
