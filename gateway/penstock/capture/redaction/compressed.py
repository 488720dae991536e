"""Replace compressed payloads that hold a secret by others of the same length.

Where possible the new payload holds the content with the secrets blanked, padded with bytes that decoders skip: a
skippable frame, empty blocks, a member's comment (RFC 8878, 3.1; RFC 1951, 3.2; RFC 1952, 2.3.1). Otherwise it holds
empty content. A payload that cannot be decompressed, or is too short for even that, becomes `*`, which no decoder
accepts.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import product
from typing import Final

import zstandard

from penstock.capture.redaction.text import Edit, WithheldEdit, changed, stars
from penstock.wire.compression import Compression, DecompressionError, decompress

__all__ = ["compressed_edits", "packed_into"]

_ZSTD_LEVELS: Final = (3, 9)
_STRONGEST: Final = 19
_MOST_FOR_STRONGEST: Final = 256 * 1024
"""Longest content for which the strongest level is tried: it takes 0.1 s, and 1 s for 2 MiB."""
_GZIP_LEVELS: Final = (6, 9)
_GZIP: Final = 31
_COMMENT: Final = 0x10
_GZIP_HEAD: Final = 10
_STORED_BLOCK: Final = b"\0\0\0\xff\xff"
"""A block of deflate with nothing in it (RFC 1951, 3.2.4). Some readers refuse long comments."""
_SKIPPABLE: Final = b"\x50\x2a\x4d\x18"
_SKIPPABLE_HEAD: Final = 8
_EMPTY_BLOCK: Final = bytes(3)
_MOST_EMPTY_BLOCKS: Final = 3


def compressed_edits(
    compression: Compression,
    data: bytes,
    limit: int,
    redact: Callable[[bytes], list[Edit]],
    plain: Callable[[bytes], list[Edit]],
) -> list[Edit]:
    """Return the edits of a compressed payload. `redact` returns those of the content, or raises ValueError if it
    cannot parse it; `plain` returns those of bytes that decoders skip. `limit`: the most bytes after decompression."""
    try:
        content = decompress(compression, data, limit)
        edits = redact(content)
    except (DecompressionError, ValueError):
        return [WithheldEdit.of(len(data))]
    if not edits:
        # A match by chance is left alone: that is one without which the content is another.
        return [edit for edit in plain(data) if _holds(compression, changed(data, [edit]), content)]
    packed = packed_into(compression, changed(content, edits), len(data))
    if packed is None:
        return [WithheldEdit(0, packed_into(compression, b"", len(data)) or stars(len(data)))]
    return [Edit(0, packed)]


def packed_into(compression: Compression, content: bytes, size: int) -> bytes | None:
    """Return `content`, compressed with zstd or gzip to exactly `size` bytes, or None if it does not fit."""
    return _zstd(content, size) if compression is Compression.ZSTD else _gzip(content, size)


def _holds(compression: Compression, data: bytes, content: bytes) -> bool:
    try:
        return decompress(compression, data, len(content)) == content
    except DecompressionError:
        return False


def _zstd(content: bytes, size: int) -> bytes | None:
    """Return frames of `size` bytes in all that hold `content`, or None if it does not fit."""
    levels = (*_ZSTD_LEVELS, _STRONGEST) if len(content) <= _MOST_FOR_STRONGEST else _ZSTD_LEVELS
    # Some decoders need the content's size. A checksum has 4 bytes, the size up to 8: so more rooms can be filled.
    for sized, level, checksum in product((True, False), levels, (False, True)):
        packer = zstandard.ZstdCompressor(level=level, write_checksum=checksum, write_content_size=sized)
        frame = packer.compress(content)
        filled = _filled(frame, size - len(frame))
        if filled is not None:
            return filled
    return None


def _filled(frame: bytes, room: int) -> bytes | None:
    """Return a zstd frame lengthened by `room` bytes, or None if that is impossible. A skippable frame has at least 8
    bytes, an empty block has 3."""
    if room < 0:
        return None
    for blocks in range(_MOST_EMPTY_BLOCKS + 1):
        rest = room - blocks * len(_EMPTY_BLOCK)
        if rest == 0 or rest >= _SKIPPABLE_HEAD:
            head = zstandard.frame_header_size(frame)
            skipped = rest - _SKIPPABLE_HEAD
            tail = b"" if rest == 0 else _SKIPPABLE + skipped.to_bytes(4, "little") + stars(skipped)
            return frame[:head] + _EMPTY_BLOCK * blocks + frame[head:] + tail
    return None


def _gzip(content: bytes, size: int) -> bytes | None:
    """Return one member of `size` bytes that holds `content`, or None if it does not fit."""
    for level in _GZIP_LEVELS:
        encoder = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
        member = encoder.compress(content) + encoder.flush()
        room = size - len(member)
        if room >= 0:
            blocks, rest = divmod(room, len(_STORED_BLOCK))
            comment = stars(rest - 1) + b"\0" if rest else b""
            head = member[:3] + bytes((_COMMENT if rest else 0,)) + member[4:_GZIP_HEAD]
            return head + comment + _STORED_BLOCK * blocks + member[_GZIP_HEAD:]
    return None
