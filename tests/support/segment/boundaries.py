"""The boundaries between the messages of a connection to a segment store, of either dialect."""

from __future__ import annotations

from support.boundaries import MessageBoundaries

from penstock_pravega.codec.layout import HEADER, HEADER_BYTES

__all__ = ["Boundaries"]


class Boundaries(MessageBoundaries):
    """Those of messages, each with its length in its header."""

    def _size(self) -> int:
        if len(self._rest) < HEADER_BYTES:
            return 0
        return HEADER_BYTES + HEADER.unpack_from(self._rest)[1]
