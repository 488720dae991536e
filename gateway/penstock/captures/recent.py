"""The last bytes of one side of a conversation."""

from __future__ import annotations

__all__ = ["Recent"]


class Recent:
    """Keeps up to twice `kept` bytes."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._data = bytearray()
        self._end = 0

    def add(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """More bytes, which stand at `offset`; those that are too old are forgotten."""
        if offset != self._end:
            self._data.clear()
        self._data += data
        self._end = offset + len(data)
        if len(self._data) > 2 * self._kept:
            del self._data[: len(self._data) - self._kept]

    def between(self, start: int, end: int) -> tuple[bytes, int]:
        """What is kept from `start` to before `end`, and where it begins."""
        begin = self._end - len(self._data)
        first = min(max(start, begin), self._end)
        return bytes(self._data[first - begin : max(end, first) - begin]), first
