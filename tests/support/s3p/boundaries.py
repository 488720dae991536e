"""The boundaries between commands, and between replies."""

from __future__ import annotations

from support.boundaries import MessageBoundaries

__all__ = ["Boundaries"]

_COMMANDS = tuple(b"%s\r\n" % name for name in (b"CREATE", b"APPEND", b"READ", b"TRIM", b"DELETE"))


class Boundaries(MessageBoundaries):
    """Those of commands and replies, each whole with all that its arrays and bulk strings announce."""

    def _size(self) -> int:
        return self._end(0)

    def _end(self, at: int) -> int:
        """Return the end of the item that begins there, 0 if it is not complete."""
        end = self._rest.find(b"\r\n", at) + 2
        if end < 2:
            return 0
        kind, number = self._rest[at : at + 1], self._rest[at + 1 : end - 2]
        if kind == b"$":
            end += int(number) + 2
        elif kind == b"*":
            for _ in range(int(number)):
                end = end and self._end(end)
        return end if end <= len(self._rest) else 0

    def repeatable(self, message: bytes) -> bool:
        """Return whether a message may arrive twice: not a command, since an APPEND would append twice, and nothing
        tells which reply belongs to which."""
        return not message.partition(b"\r\n")[2].partition(b"\r\n")[2].startswith(_COMMANDS)
