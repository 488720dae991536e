"""Numbering what there is up to the tail, also while others, or clients of this gateway, append all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from penstock.backs.native import Scanned
from penstock.positions.columns import Sought

if TYPE_CHECKING:
    from penstock.backs.indexed.state import StreamState

__all__ = ["CatchingUp"]

_MOST_FEW: Final = 32
"""After so many answers in a row of a few records each, the tail of long ago was passed. S3P does not say where it is;
its servers may give less than there is, but none is known that gives so little."""


class CatchingUp:
    """Of one stream."""

    def __init__(self, stream: StreamState) -> None:
        self._stream = stream
        self._lock = trio.Lock()
        self._begun = 0  # how often a scan began,
        self._caught_up = 0  # and the last that came to the tail

    async def until(self, sought: Sought | None) -> None:
        """See `StreamState.catch_up`. It is over when a scan came to the tail, or beyond where the tail was: an append
        that was handed over after the beginning has a number, or so many bytes have."""
        stream, asked = self._stream, self._begun
        newest = stream.under_way.newest
        length: int | None = None
        few = 0
        while self._caught_up <= asked and stream.numbered <= newest and stream.is_sought(sought):
            if length is not None and stream.end.offset >= length:
                return
            async with self._lock:
                if self._caught_up > asked:
                    return
                self._begun += 1
                begun = self._begun
                scanned = await self._number_more()
                if scanned.at_tail or not scanned.bodies:
                    self._caught_up = begun
                    return
            few = few + 1 if scanned.few else 0
            if few >= _MOST_FEW:
                return
            if length is None and stream.has_offsets:
                length = (await stream.native.bounds(stream.ref)).end_offset

    async def _number_more(self) -> Scanned:
        """One scan from the end on."""
        stream = self._stream
        start, scanned = await stream.scan_end(stream.end)
        if scanned.bodies:
            numbered = await stream.extend(start, scanned)
            if len(numbered):
                stream.recent.add(numbered, stream.tail)
        return scanned
