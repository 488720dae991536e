"""The boundaries between the messages of a connection to a segment store, of either dialect."""

from __future__ import annotations

from penstock_codecs.segment.layout import HEADER, HEADER_BYTES

__all__ = ["Boundaries"]


class Boundaries:
    """Cuts the bytes of one direction into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[bytes]:
        """Return the messages that these bytes complete."""
        self._rest += data
        found = []
        while len(self._rest) >= HEADER_BYTES:
            end = HEADER_BYTES + HEADER.unpack_from(self._rest)[1]
            if end > len(self._rest):
                break
            found.append(self._rest[:end])
            self._rest = self._rest[end:]
        return found

    def repeatable(self, _message: bytes) -> bool:
        """Return whether a message may be sent twice."""
        return True
