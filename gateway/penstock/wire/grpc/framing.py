"""Messages with their prefix: whether it is compressed (one byte), and its length (four bytes, big-endian)."""

from __future__ import annotations

from struct import Struct
from typing import Final

from penstock.model.limits import MIB
from penstock.wire.compression import Compression, DecompressionError, TooLarge, decompress, most_compressed
from penstock.wire.grpc.status import Code, GrpcError

__all__ = ["ENCODINGS", "MAX_MESSAGE", "MessageReader", "frame"]

MAX_MESSAGE: Final = 4 * MIB
"""Largest message that is accepted, in bytes after decompression: the default of gRPC's own servers."""

_COMPRESSIONS: Final = {"identity": Compression.NONE, "gzip": Compression.GZIP}
ENCODINGS: Final = ",".join(_COMPRESSIONS)
"""Value of the header grpc-accept-encoding."""

_PREFIX: Final = Struct(">BI")


def frame(message: bytes) -> bytes:
    """Return `message` with its prefix, uncompressed."""
    return _PREFIX.pack(0, len(message)) + message


class MessageReader:
    """Reads the one message of a unary request from pieces of its bytes.

    `encoding` is the value of grpc-encoding. Every method raises GrpcError; it holds at most one message of the allowed
    size and the last piece.
    """

    def __init__(self, encoding: str | None, limit: int = MAX_MESSAGE) -> None:
        self._encoding = encoding or "identity"
        self._limit = limit
        self._held = bytearray()
        self._compressed = False
        self._end = 0  # end of the message in the held bytes; 0 until the prefix has arrived

    @property
    def held(self) -> int:
        """Bytes received."""
        return len(self._held)

    def receive(self, data: bytes) -> None:
        """Take the next bytes of the request."""
        self._held += data
        if not self._end and len(self._held) >= _PREFIX.size:
            flag, length = _PREFIX.unpack_from(self._held)
            self._check(flag, length)
            self._compressed = flag == 1
            self._end = _PREFIX.size + length
        if self._end and len(self._held) > self._end:
            raise GrpcError(Code.INTERNAL, "more than one message in a unary request")

    def _check(self, flag: int, length: int) -> None:
        if flag not in (0, 1):
            raise GrpcError(Code.INTERNAL, f"a message has compressed-flag {flag}")
        if flag and self._encoding == "identity":
            raise GrpcError(Code.INTERNAL, "a message has its compressed-flag set, and grpc-encoding names no encoding")
        if flag and self._encoding not in _COMPRESSIONS:
            raise GrpcError(Code.UNIMPLEMENTED, f"grpc-encoding {self._encoding[:50]!r} is not one of {ENCODINGS}")
        most = most_compressed(_COMPRESSIONS[self._encoding], self._limit) if flag else self._limit
        if length > most:
            raise GrpcError(Code.RESOURCE_EXHAUSTED, f"a message of {length} bytes, at most {most} are allowed")

    def finish(self) -> bytes:
        """Return the decompressed message at the end of the request."""
        if not self._end or len(self._held) < self._end:
            what = "in the middle of its message" if self._held else "without a message"
            raise GrpcError(Code.INTERNAL, f"the request ended {what}")
        message = memoryview(self._held)[_PREFIX.size :]
        try:
            return (
                decompress(_COMPRESSIONS[self._encoding], message, self._limit) if self._compressed else bytes(message)
            )
        except TooLarge as error:
            raise GrpcError(Code.RESOURCE_EXHAUSTED, f"a compressed message: {error}") from None
        except DecompressionError as error:
            raise GrpcError(Code.INTERNAL, f"a compressed message: {error}") from None
