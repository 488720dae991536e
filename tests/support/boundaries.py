"""The boundaries between the messages of a connection; those of each protocol are in `support.PROTOCOL.boundaries`."""

from __future__ import annotations

__all__ = ["MessageBoundaries"]


class MessageBoundaries:
    """Cuts the bytes of one direction into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[bytes]:
        """Return the messages that these bytes complete."""
        self._rest += data
        found = []
        while 0 < (size := self._size()) <= len(self._rest):
            found.append(self._rest[:size])
            self._rest = self._rest[size:]
        return found

    def _size(self) -> int:
        """Return the size of the next message, 0 if it is not known yet."""
        raise NotImplementedError

    def repeatable(self, _message: bytes) -> bool:
        """Return whether a message may arrive twice."""
        return True
