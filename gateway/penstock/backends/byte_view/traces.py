"""A set of streams in constant memory that sometimes reports a stream that was never added."""

from __future__ import annotations

from typing import Final

from penstock.model.records import StreamRef

__all__ = ["BloomFilter"]

_BITS: Final = 23
"""Base-2 logarithm of the number of bits (1 MiB): about 1 in 1000 other streams is a false positive with a hundred
thousand streams added, and 1 in 20 with a million."""


class BloomFilter:
    """A Bloom filter: a stream that was added is always found, and a few others are too."""

    def __init__(self) -> None:
        self._marks = bytearray(1 << (_BITS - 3))

    def add(self, ref: StreamRef) -> None:
        """Add a stream."""
        for at in _places(ref):
            self._marks[at >> 3] |= 1 << (at & 7)

    def __contains__(self, ref: StreamRef) -> bool:
        """Return whether a stream may have been added."""
        return all(self._marks[at >> 3] & 1 << (at & 7) for at in _places(ref))


def _places(ref: StreamRef) -> tuple[int, int]:
    number = hash((ref.basin, ref.stream)) & 0xFFFF_FFFF_FFFF_FFFF
    return number >> (64 - _BITS), number & ((1 << _BITS) - 1)
