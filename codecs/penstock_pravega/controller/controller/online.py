"""The readers of a group that are online, by the group's internal stream `_RG<group>`.

The readers of a Java client's group share a state by this stream: its events are updates of the state, or a whole state
that replaces all before it. Of these a whole state, the arrival and the departure of a reader matter here; the other
updates are about segments and checkpoints. Every structure is in the format of Pravega's clients:

    event     i32 1, structure: a whole state; or i32 2, then for each update i32 length, structure
    structure u8 0, u8 kind, u8 version, u8 revisions; then for each revision u8 number, i32 length, fields
    fields    of the first revision: of a reader's arrival and departure, its name; of a state, its configuration,
              checkpoints, lags by reader, coming segments, and segments by reader
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from penstock.model.byte_events import EVENT_HEADER_BYTES, split_events
from penstock.model.failures import FailureCode, fail

__all__ = ["OnlineReaders"]

_NUMBER: Final = Struct(">i")
_EVENT: Final = Struct(">iI")
_STRUCTURE: Final = Struct(">BBBBBi")
_WHOLE: Final = 1
_UPDATES: Final = 2
_COMPACTED: Final = 1
_ARRIVAL: Final = 2
_DEPARTURE: Final = 3
_LARGEST: Final = 9 << 20
"""Bytes of an event at most; Pravega's clients write at most 8 MiB."""


class OnlineReaders:
    """The readers that are online after the bytes received so far, from the first event of the stream on."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._rest = b""

    def receive(self, data: bytes) -> None:
        """Take the next bytes of the stream. Raises STORAGE if they are not a group's state."""
        data = self._rest + data
        try:
            end = _end_of_events(data)
            for event in split_events(data[:end]):
                self._apply(event)
        except (error, ValueError, IndexError) as problem:
            reason = f"the reader group's internal stream does not hold the state of its readers: {problem}"
            raise fail(FailureCode.STORAGE, reason) from None
        self._rest = data[end:]

    def _apply(self, event: bytes) -> None:
        (kind,) = _NUMBER.unpack_from(event)
        if kind == _WHOLE:
            structure, fields = _fields(event, _NUMBER.size)
            self.names = _readers(fields) if structure == _COMPACTED else set()
        elif kind == _UPDATES:
            at = _NUMBER.size
            while at < len(event):
                (length,) = _NUMBER.unpack_from(event, at)
                if length < 0:
                    raise ValueError(f"an update of {length} bytes")
                structure, fields = _fields(event, at + _NUMBER.size)
                if structure == _ARRIVAL:
                    self.names.add(fields.text())
                elif structure == _DEPARTURE:
                    self.names.discard(fields.text())
                at += _NUMBER.size + length
        else:
            raise ValueError(f"an event of kind {kind}")


def _end_of_events(data: bytes) -> int:
    """Return how many bytes whole events have."""
    end = 0
    while len(data) - end >= EVENT_HEADER_BYTES:
        size = EVENT_HEADER_BYTES + _EVENT.unpack_from(data, end)[1]
        if size > _LARGEST:
            raise ValueError(f"an event of {size} bytes")
        if end + size > len(data):
            break
        end += size
    return end


def _fields(data: bytes, at: int) -> tuple[int, _Fields]:
    """Return the kind of a structure, and the fields of its first revision."""
    form, kind, version, _, _, length = _STRUCTURE.unpack_from(data, at)
    if form or version or length < 0:
        raise ValueError(f"a structure of format {form}, version {version}")
    start = at + _STRUCTURE.size
    return kind, _Fields(data[start : start + length])


def _readers(state: _Fields) -> set[str]:
    """Return the readers of a whole state: those that have segments assigned, or none yet."""
    for _ in range(2):  # configuration, checkpoints
        state.skip(state.count())
    for _ in range(state.count()):
        state.text()
        state.skip(8)
    for _ in range(state.count()):
        state.text()
        state.skip(8 * state.count())
    names = set()
    for _ in range(state.count()):
        names.add(state.text())
        for _ in range(state.count()):
            state.text()
            state.skip(8)
    return names


class _Fields:
    """The fields of a structure, read one after the other. Raises IndexError at the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def skip(self, size: int) -> bytes:
        """Return the next bytes."""
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise IndexError(f"a structure ends after {len(self._data)} bytes")
        return self._data[start : self._at]

    def text(self) -> str:
        """Return the next string, which two bytes with its length precede."""
        return self.skip(int.from_bytes(self.skip(2), "big")).decode("utf-8", "replace")

    def count(self) -> int:
        """Return the next number, in 1, 2 or 4 bytes, of which the first bits tell how many."""
        first = self.skip(1)
        more = 0 if first[0] < 0x80 else 1 if first[0] < 0xC0 else 3
        return int.from_bytes(first + self.skip(more), "big") & (0x7F, 0x3FFF, 0, 0x3FFF_FFFF)[more]
