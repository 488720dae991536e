"""The last bytes of one side of a conversation."""

from __future__ import annotations

__all__ = ["RecentBytes"]


class RecentBytes:
    """Keeps at least the last `kept` bytes, and at most twice as many."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._data = bytearray()
        self._end = 0

    def add(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Append bytes at `offset` and drop those that are too old. A gap drops everything before it."""
        if offset != self._end:
            self._data.clear()
        self._data += data
        self._end = offset + len(data)
        if len(self._data) > 2 * self._kept:
            del self._data[: len(self._data) - self._kept]

    def between(self, start: int, end: int) -> tuple[bytes, int]:
        """Return the kept bytes from `start` to before `end`, and the offset of the first of them."""
        begin = self._end - len(self._data)
        first = min(max(start, begin), self._end)
        return bytes(self._data[first - begin : max(end, first) - begin]), first
