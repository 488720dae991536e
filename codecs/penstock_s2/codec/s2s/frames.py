"""S2S frames: a length, a flag byte, a payload (S2 fact sheet, 2.1).

0..2  length of what follows, 24 bits, big-endian
3     flags: 0x80 terminal, 0x60 compression, 0x10 reconnect advised; the rest is reserved
4..   a protobuf message, maybe compressed; in a terminal frame an HTTP status (16 bits) and a JSON body
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.model.failures import LocalProtocolError
from penstock.wire.compression import Compression, DecompressionError, compress, decompress
from penstock_s2.codec.s2s.limits import S2S_COMPRESSION_THRESHOLD, S2S_MAX_FRAME_LENGTH, S2S_MAX_PAYLOAD

__all__ = [
    "HEAD_BYTES",
    "MAX_HELD",
    "Frame",
    "FrameError",
    "FrameReader",
    "Terminal",
    "choose_compression",
    "compress_payload",
    "encode_frame",
    "encode_terminal",
    "is_plain",
]

_SMALL: Final = 4096
"""Smaller pieces that are held are joined: each would take 40 bytes of memory beside its own."""
_LENGTH_BYTES: Final = 3
_EXCERPT_BYTES: Final = 256
HEAD_BYTES: Final = 4
"""Size of a frame's length and flags."""
_TERMINAL: Final = 0x80
_COMPRESSION_SHIFT: Final = 5
_COMPRESSION_MASK: Final = 3
_RECONNECT_ADVISED: Final = 0x10
_REFUSED: Final = re.compile(r"\s*q\s*=\s*0(\.0*)?\s*")
_head: Final = Struct(">I").pack
_COMPRESSIONS: Final = {compression.value: compression for compression in Compression}

MAX_HELD: Final = _LENGTH_BYTES + S2S_MAX_FRAME_LENGTH
"""Most bytes that a FrameReader holds once all frames have been taken from it."""


class Frame(NamedTuple):
    """A regular frame. `payload` is the decompressed message; it may be a view of the reader's buffer.

    `compression`: the frame's compression on the wire.
    """

    payload: bytes | memoryview
    reconnect_advised: bool
    compression: Compression = Compression.NONE


class Terminal(NamedTuple):
    """A terminal frame: nothing follows it."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        """True if the status tells no error: the session has ended normally."""
        return 200 <= self.status < 300


class FrameError(Exception):
    """The bytes are not S2S frames; the text is the S2 server's own if it has one.

    `at`: offset of the first wrong byte from the frame's first one. `excerpt`: the frame's first bytes, at most 256.
    """

    def __init__(self, text: str, at: int = 0, frame: memoryview | None = None) -> None:
        super().__init__(text)
        self.at = at
        self.excerpt = b"" if frame is None else bytes(frame[:_EXCERPT_BYTES])


def choose_compression(accepted: Iterable[str]) -> Compression:
    """Return the compression of a server's frames, given all values of a request's Accept-Encoding (fact sheet, 2.1).

    zstd wins, then gzip; weights are ignored, except for 0, which refuses (RFC 9110, 12.4.2).
    """
    codings = set()
    for value in accepted:
        coding, *parameters = value.lower().split(";")
        if not any(map(_REFUSED.fullmatch, parameters)):
            codings.add(coding.strip())
    if "zstd" in codings:
        return Compression.ZSTD
    return Compression.GZIP if "gzip" in codings else Compression.NONE


def compress_payload(compression: Compression, payload: bytes) -> tuple[Compression, bytes]:
    """Return the compression and bytes to send `payload` with: compressed if wanted, large enough and smaller so."""
    if compression is Compression.NONE or len(payload) < S2S_COMPRESSION_THRESHOLD:
        return Compression.NONE, payload
    compressed = compress(compression, payload)
    return (compression, compressed) if len(compressed) < len(payload) else (Compression.NONE, payload)


def encode_frame(
    payload: Sequence[bytes], compression: Compression = Compression.NONE, *, reconnect_advised: bool = False
) -> list[bytes]:
    """Return a regular frame of a payload in pieces, already compressed with `compression`.

    Raises LocalProtocolError for more than 2 MiB - 1 bytes.
    """
    size = sum(map(len, payload))
    if size > S2S_MAX_PAYLOAD:
        raise LocalProtocolError(f"S2S payload has {size} bytes, at most {S2S_MAX_PAYLOAD} fit into a frame")
    flags = compression.value << _COMPRESSION_SHIFT | (_RECONNECT_ADVISED if reconnect_advised else 0)
    return [_head(size + 1 << 8 | flags), *payload]


def encode_terminal(status: int, body: bytes) -> list[bytes]:
    """Return a terminal frame: `status` is an HTTP status, `body` the JSON that an HTTP answer would carry."""
    return [_head(len(body) + 3 << 8 | _TERMINAL), status.to_bytes(2, "big"), body]


def is_plain(head: bytes) -> bool:
    """Return whether the first four bytes of a frame announce a valid length and a message without compression."""
    flags = head[_LENGTH_BYTES]
    compressed = flags >> _COMPRESSION_SHIFT & _COMPRESSION_MASK
    length = int.from_bytes(head[:_LENGTH_BYTES], "big")
    return not (flags & _TERMINAL or compressed) and 0 < length <= S2S_MAX_FRAME_LENGTH


class FrameReader:
    """Reads frames from bytes, one at a time.

    A whole frame is read in place; the pieces of an incomplete one are kept as they arrive and joined once, so that
    neither many frames in one piece nor one frame in many pieces costs more than its bytes. It takes at most an eighth
    more memory than `held`: a growing buffer would fragment the heap.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._at = 0
        self._pieces: list[bytes] = []  # pieces after the buffer
        self._waiting = 0  # bytes in the pieces
        self._wanted = _LENGTH_BYTES  # bytes needed before a frame can be complete

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take more bytes."""
        if self._at == len(self._buffer) and not self._waiting:
            self._buffer, self._at = bytes(data), 0
            return
        if self._pieces and len(self._pieces[-1]) < _SMALL:
            self._pieces[-1] += data
        else:
            self._pieces.append(bytes(data))
        self._waiting += len(data)

    @property
    def held(self) -> int:
        """Bytes that have not been returned in a frame."""
        return len(self._buffer) - self._at + self._waiting

    def clear(self) -> None:
        """Drop the held bytes."""
        self._buffer, self._at = b"", 0
        self._pieces, self._waiting = [], 0
        self._wanted = _LENGTH_BYTES

    def next(self) -> Frame | Terminal | None:
        """Return the next frame, or None if it is incomplete.

        Raises FrameError as soon as it is clear that the bytes are not a frame.
        """
        held = len(self._buffer) - self._at + self._waiting
        if held < self._wanted:
            self._wait_for(self._wanted)
            return None
        if self._pieces:
            self._join()
        at = self._at
        length = int.from_bytes(self._buffer[at : at + _LENGTH_BYTES], "big")
        if not 0 < length <= S2S_MAX_FRAME_LENGTH:
            reason = "frame exceeds decode limit" if length else "empty frame payload"
            raise FrameError(reason, 0, memoryview(self._buffer)[at:])
        if held < _LENGTH_BYTES + length:
            self._wait_for(_LENGTH_BYTES + length)
            return None
        end = at + _LENGTH_BYTES + length
        flags = self._buffer[at + _LENGTH_BYTES]
        whole = memoryview(self._buffer)[at:end]
        if end == len(self._buffer):
            self.clear()
        else:
            self._at, self._wanted = end, _LENGTH_BYTES
        return _terminal(whole) if flags & _TERMINAL else _regular(flags, whole)

    def end(self) -> None:
        """End the input. Raises FrameError if that cuts a frame short."""
        if self.held:
            self._join()
            raise FrameError("bytes remaining on stream", self.held, memoryview(self._buffer))

    def _wait_for(self, wanted: int) -> None:
        """Set the bytes needed for the frame, and drop the frames before it."""
        self._wanted = wanted
        if self._at:
            self._join()

    def _join(self) -> None:
        """Join all held bytes into one buffer. Views of earlier frames keep the previous buffer alive."""
        self._buffer, self._at = b"".join((memoryview(self._buffer)[self._at :], *self._pieces)), 0
        self._pieces, self._waiting = [], 0


def _terminal(frame: memoryview) -> Terminal:
    content = frame[HEAD_BYTES:]
    if len(content) < 2:
        raise FrameError("terminal frame has no status", HEAD_BYTES, frame)
    return Terminal(int.from_bytes(content[:2], "big"), bytes(content[2:]))


def _regular(flags: int, frame: memoryview) -> Frame:
    compression = _COMPRESSIONS.get(flags >> _COMPRESSION_SHIFT & _COMPRESSION_MASK)
    if compression is None:
        raise FrameError("unknown compression algorithm", _LENGTH_BYTES, frame)
    payload: bytes | memoryview = frame[HEAD_BYTES:]
    if compression is not Compression.NONE:
        try:
            payload = decompress(compression, payload, S2S_MAX_PAYLOAD)
        except DecompressionError as error:
            raise FrameError(str(error), HEAD_BYTES, frame) from None
    return Frame(payload, bool(flags & _RECONNECT_ADVISED), compression)
