"""Counts the records in an encoded ReadBatch, which is forwarded unread.

CPU time for a batch of 1 MiB with records of 1 KiB, in us: 7 if all records have the size of the first one, which its
first and last records tell; otherwise 250 for the protobuf library, half of it for joining the pieces. Walking over the
lengths of records takes 420.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.wire.http import Buffer
from penstock_proto import s2_pb2

__all__ = ["count_records"]

_parse: Final = s2_pb2.ReadBatch.FromString

_RECORDS: Final = 0x0A
"""The tag of ReadBatch.records: field 1, length-delimited."""
_TAIL: Final = 0x12
"""The tag of ReadBatch.tail: field 2, length-delimited."""
_SEQ_NUM: Final = 0x08
"""The tag of SequencedRecord.seq_num: field 1, varint."""
_VARINT_BYTES: Final = 10
_HEAD_BYTES: Final = 24
"""Bytes for a tag and a length, then a tag and a sequence number."""


def count_records(pieces: Sequence[Buffer]) -> int:
    """Return the number of records in the pieces of an encoded ReadBatch.

    Raises DecodeError if it is none, as far as the lengths of its fields tell.
    """
    count = _uniform(pieces, sum(map(len, pieces)))
    if count is not None:
        return count
    whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return len(_parse(whole).records)  # type: ignore[arg-type]  # it takes any buffer


def _uniform(pieces: Sequence[Buffer], size: int) -> int | None:
    """Return the number of records if all have the size of the first one and successive numbers; None otherwise, or if
    that cannot be seen from the first and the last one."""
    first = _excerpt(pieces, 0)
    if len(first) < _HEAD_BYTES or first[0] != _RECORDS:
        return None
    length, at = _varint(first, 1)
    each = at + length
    count = size // each
    last = _excerpt(pieces, (count - 1) * each) if count else b""
    if last[: at + 1] != first[: at + 1] or first[at] != _SEQ_NUM or len(last) < _HEAD_BYTES:
        return None
    if _varint(last, at + 1)[0] - _varint(first, at + 1)[0] != count - 1:
        return None
    rest = _excerpt(pieces, count * each)
    return count if not rest or (rest[0] == _TAIL and len(rest) > 1 and rest[1] == size - count * each - 2) else None


def _excerpt(pieces: Sequence[Buffer], at: int) -> bytes:
    """Return the bytes at an offset: fewer than 24 at the end."""
    if len(pieces) == 1:
        return bytes(pieces[0][at : at + _HEAD_BYTES])
    excerpt = b""
    for piece in pieces:
        if at < len(piece):
            excerpt += piece[at : at + _HEAD_BYTES - len(excerpt)]
            if len(excerpt) == _HEAD_BYTES:
                break
        at = max(at - len(piece), 0)
    return excerpt


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint of at most ten bytes and the offset after it; zero bytes follow `data` if it is cut off."""
    value = 0
    for index, byte in enumerate(data[at : at + _VARINT_BYTES]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, at + index + 1
    return value, at + _VARINT_BYTES
