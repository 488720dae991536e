"""Which streams may have been seen before, in memory that does not grow with them."""

from __future__ import annotations

from typing import Final

from penstock_codecs.model import StreamRef

__all__ = ["Traces"]

_BITS: Final = 23
"""Of 1 MiB: of a hundred thousand streams one other in a thousand is taken for seen, of a million one in twenty."""


class Traces:
    """A Bloom filter: a stream that was added is always found, and a few others are too."""

    def __init__(self) -> None:
        self._marks = bytearray(1 << (_BITS - 3))

    def add(self, ref: StreamRef) -> None:
        """It was seen."""
        for at in _places(ref):
            self._marks[at >> 3] |= 1 << (at & 7)

    def __contains__(self, ref: StreamRef) -> bool:
        """Whether it may have been seen."""
        return all(self._marks[at >> 3] & 1 << (at & 7) for at in _places(ref))


def _places(ref: StreamRef) -> tuple[int, int]:
    number = hash((ref.basin, ref.stream)) & 0xFFFF_FFFF_FFFF_FFFF
    return number >> (64 - _BITS), number & ((1 << _BITS) - 1)
