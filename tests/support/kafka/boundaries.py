"""The boundaries between the messages of a connection to a broker."""

from __future__ import annotations

from support.boundaries import MessageBoundaries

__all__ = ["Boundaries"]

_LENGTH = 4


class Boundaries(MessageBoundaries):
    """Those of requests and responses, each behind its length."""

    def _size(self) -> int:
        if len(self._rest) < _LENGTH:
            return 0
        return _LENGTH + int.from_bytes(self._rest[:_LENGTH], "big")
