"""S2S frames by hand (S2 fact sheet 2.1), so that the tests do not judge our codec by itself."""

from __future__ import annotations

import gzip
import json
import struct
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import zstandard

from penstock_proto import s2_pb2 as pb

TERMINAL, ZSTD, GZIP, ADVISED = 0x80, 0x20, 0x40, 0x10


class Frame(NamedTuple):
    """One frame as it came: the flag byte and the payload, still compressed."""

    flag: int
    payload: bytes

    @property
    def terminal(self) -> bool:
        return bool(self.flag & TERMINAL)

    @property
    def compression(self) -> int:
        return self.flag & 0x60

    @property
    def message(self) -> bytes:
        """The protobuf message."""
        assert not self.terminal, self.failure
        if self.compression == ZSTD:
            return zstandard.ZstdDecompressor().decompressobj().decompress(self.payload)
        return gzip.decompress(self.payload) if self.compression == GZIP else self.payload

    @property
    def failure(self) -> tuple[int, Any]:
        """Status and JSON body of a terminal frame."""
        assert self.terminal, self
        return struct.unpack(">H", self.payload[:2])[0], json.loads(self.payload[2:])


def encode_frame(payload: bytes, flag: int = 0) -> bytes:
    """A frame around a payload that is compressed already, if the flag says so."""
    return (1 + len(payload)).to_bytes(3, "big") + bytes([flag]) + payload


class FrameReader:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """All frames that are whole now."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= 3:
            end = 3 + int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < end:
                break
            frames.append(Frame(self._buffer[3], bytes(self._buffer[4:end])))
            del self._buffer[:end]
        return frames

    @property
    def empty(self) -> bool:
        return not self._buffer


class ByteStream(Protocol):
    """One exchange of either HTTP version, as `s2_http.Http1Stream` and `h2c.H2Stream` offer it."""

    def send(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def receive(self, timeout: float = ...) -> bytes: ...
    def close(self) -> None: ...
    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> dict[str, str]: ...


def record(body: bytes, headers: Iterable[tuple[bytes, bytes]] = (), timestamp: int | None = None) -> pb.AppendRecord:
    """Return an AppendRecord message."""
    pairs = [pb.Header(name=name, value=value) for name, value in headers]
    return pb.AppendRecord(body=body, headers=pairs, timestamp=timestamp)


def append_input(
    *bodies: bytes, match_seq_num: int | None = None, fencing_token: str | None = None, timestamp: int | None = None
) -> bytes:
    """Return a serialized AppendInput of records without headers."""
    return pb.AppendInput(
        records=[record(body, timestamp=timestamp) for body in bodies],
        match_seq_num=match_seq_num,
        fencing_token=fencing_token,
    ).SerializeToString()


class Session:
    """An S2S session over either HTTP version."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self._reader = FrameReader()
        self._frames: deque[Frame] = deque()

    def send(self, message: bytes, flag: int = 0) -> None:
        """Send one frame to the server."""
        self.stream.send(encode_frame(message, flag))

    def next(self, timeout: float = 10) -> Frame | None:
        """Return the next frame; None at the clean end of the body. Raises TimeoutError."""
        while not self._frames:
            data = self.stream.receive(timeout)
            if not data:
                assert self._reader.empty, "the body ended inside a frame"
                return None
            self._frames.extend(self._reader.feed(data))
        return self._frames.popleft()

    def ack(self, timeout: float = 10) -> pb.AppendAck:
        """Return the next frame, which must be an acknowledgement."""
        frame = self.next(timeout)
        assert frame is not None, "the session ended"
        return pb.AppendAck.FromString(frame.message)

    def batch(self, timeout: float = 10) -> pb.ReadBatch:
        """Return the next frame, which must be a batch; a heartbeat is one without records."""
        frame = self.next(timeout)
        assert frame is not None, "the session ended"
        return pb.ReadBatch.FromString(frame.message)

    def records(self, count: int, timeout: float = 10) -> list[pb.SequencedRecord]:
        """Return the next `count` records, from as many frames as it takes; heartbeats are skipped."""
        found: list[pb.SequencedRecord] = []
        while len(found) < count:
            found += self.batch(timeout).records
        return found

    def rest(self, timeout: float = 10) -> list[Frame]:
        """Return all frames until the body ends."""
        frames = []
        while (frame := self.next(timeout)) is not None:
            frames.append(frame)
        return frames

    def failure(self, timeout: float = 10) -> tuple[int, Any]:
        """Return the terminal frame that ends the session; nothing may follow it."""
        frames = self.rest(timeout)
        assert len(frames) == 1, frames
        return frames[0].failure

    def close(self) -> None:
        self.stream.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
