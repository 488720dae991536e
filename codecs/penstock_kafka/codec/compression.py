"""The compressions of record batches, within bounds: whatever the bytes claim or contain, at most `limit` bytes come
out.

Snappy's blocks come bare (librdkafka) or in the framing of the Java library (all others); both state their sizes. An
LZ4 frame need not: it is decompressed into a buffer that grows up to the limit.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import cramjam

from penstock.wire import compression as shared
from penstock.wire.compression import DecompressionError, TooLarge

__all__ = ["KafkaCompression", "compress", "decompress"]

_XERIAL: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = len(_XERIAL) + 8
"""Behind the mark are two numbers of 4 bytes: the version, and the oldest version that can read it."""
_LZ4_FIRST: Final = 8
"""The first buffer for an LZ4 frame has this many times its size; each further one is that much larger."""
_NO_ROOM: Final = "failed to write whole buffer"
"""The library's error if the buffer is too small."""


class KafkaCompression(IntEnum):
    """The compression of a batch; the value is its spelling in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(compression: KafkaCompression, data: bytes) -> bytes:
    """Return the records of a batch, compressed. Snappy's blocks are bare."""
    match compression:
        case KafkaCompression.GZIP:
            return shared.compress(shared.Compression.GZIP, data)
        case KafkaCompression.ZSTD:
            return shared.compress(shared.Compression.ZSTD, data)
        case KafkaCompression.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(data))
        case KafkaCompression.LZ4:
            compressor = cramjam.lz4.Compressor(block_linked=False)  # Kafka's Java reader takes no linked blocks
            compressor.compress(data)
            return bytes(compressor.finish())
    return data


def decompress(compression: KafkaCompression, data: bytes, limit: int) -> bytes:
    """Return the records of a batch, of at most `limit` bytes. Raises DecompressionError."""
    match compression:
        case KafkaCompression.GZIP:
            return shared.decompress(shared.Compression.GZIP, data, limit)
        case KafkaCompression.ZSTD:
            return shared.decompress(shared.Compression.ZSTD, data, limit)
        case KafkaCompression.SNAPPY:
            return _xerial(data, limit) if data.startswith(_XERIAL) else _snappy(data, limit)
        case KafkaCompression.LZ4:
            return _lz4(data, limit)
    if len(data) > limit:
        raise _too_large(limit)
    return data


def _snappy(block: bytes, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise _too_large(limit)
        content = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(block, content)
    except (cramjam.DecompressionError, OSError) as error:
        raise DecompressionError(f"damaged snappy block: {error}") from None
    if written != size:
        raise DecompressionError(f"a snappy block states {size} bytes, and has {written}")
    return bytes(content)


def _xerial(data: bytes, limit: int) -> bytes:
    contents: list[bytes] = []
    at = _XERIAL_HEADER
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4 + size
        if at > len(data):
            raise DecompressionError("snappy data is cut short")
        content = _snappy(data[at - size : at], limit)
        limit -= len(content)
        contents.append(content)
    return b"".join(contents)


def _lz4(frame: bytes, limit: int) -> bytes:
    size = min(limit, _LZ4_FIRST * len(frame))
    while True:
        content = bytearray(size)
        try:
            written = cramjam.lz4.decompress_into(frame, content)
        except (cramjam.DecompressionError, OSError) as error:
            if _NO_ROOM not in str(error):
                raise DecompressionError(f"damaged lz4 frame: {error}") from None
            if size == limit:
                raise _too_large(limit) from None
            size = min(limit, _LZ4_FIRST * size)
        else:
            return bytes(memoryview(content)[:written])


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"decompressed size exceeds {limit} bytes")
