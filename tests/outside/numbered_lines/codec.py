"""The codec: lines of one side, for both roles."""

from __future__ import annotations

from typing import Final, Literal

from penstock.model.failures import Failure, FailureCode, LocalProtocolError, RemoteProtocolError
from penstock.wire.codec import NEED_DATA, PAUSED, Codec, CodecPlugin, Pull, Role

__all__ = ["DIALECTS", "MOST", "PLUGIN", "Line", "LinesCodec"]

Line = tuple[bytes, ...]
"""The word that a line begins with, and its other parts."""
DIALECTS: Final = {"lf": b"\n", "crlf": b"\r\n"}
MOST: Final = 1_100_000
"""Most bytes of a line."""
PARTS: Final = {
    Role.CLIENT: {b"OK": 1, b"ROW": 2, b"END": 1, b"NO": 1},
    Role.SERVER: {b"LOGIN": 1, b"PUT": 2, b"GET": 3},
}
"""The words that each role receives, with the number of parts behind them."""
_NUMBERS: Final = {b"OK": (1,), b"ROW": (1,), b"END": (1,), b"GET": (2, 3)}
"""The parts that are numbers."""


class LinesCodec(Codec[Line, Line]):
    """One conversation; see `penstock.wire.codec.Codec`."""

    def __init__(self, role: Role, dialect: str = "lf") -> None:
        self._words = PARTS[role]
        self._said = PARTS[Role.SERVER if role is Role.CLIENT else Role.CLIENT]
        self._end = DIALECTS[dialect]
        self._data = bytearray()
        self._finished = False
        self._broken: Failure | None = None

    @property
    def buffered(self) -> int:
        return len(self._data)

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        self._finished = self._finished or not data
        if self._broken is None:
            self._data += data[: max(0, MOST + 1 - len(self._data))] if b"\n" not in self._data else data

    def next_event(self) -> Line | Pull:
        if self._broken is not None:
            raise RemoteProtocolError(self._broken)
        end = self._data.find(self._end)
        if end < 0 and len(self._data) <= MOST and not (self._finished and self._data):
            return PAUSED if self._finished else NEED_DATA
        if end < 0 or end > MOST:
            hung_up = len(self._data) <= MOST
            raise self._fail(FailureCode.CLIENT_HANGUP if hung_up else FailureCode.LIMIT_EXCEEDED, "a line has no end")
        line = bytes(self._data[:end])
        word, *rest = line.split(b" ", self._words.get(line.split(b" ", 1)[0], 0))
        if len(rest) != self._words.get(word) or b"\n" in line:
            raise self._fail(FailureCode.INVALID, f"{line[:64]!r} is no line of this side")
        if not all(rest[index - 1].isdigit() and len(rest[index - 1]) < 19 for index in _NUMBERS.get(word, ())):
            raise self._fail(FailureCode.INVALID, f"{line[:64]!r} has no number where one belongs")
        del self._data[: end + len(self._end)]
        return word, *rest

    def _fail(self, code: FailureCode, message: str) -> RemoteProtocolError:
        self._broken = Failure(code, message)
        self._data.clear()
        return RemoteProtocolError(self._broken)

    def send(self, event: Line) -> list[bytes]:
        if self._said.get(event[0]) != len(event) - 1 or any(b"\n" in part for part in event):
            raise LocalProtocolError(f"{event[0]!r} cannot be said with these parts")
        return [b" ".join(event) + self._end]


def _sample(role: Role, dialect: str) -> bytes:
    lines: dict[Role, tuple[Line, ...]] = {
        Role.SERVER: ((b"LOGIN", b"x"), (b"PUT", b"orders", b"one two"), (b"GET", b"orders", b"0", b"10")),
        Role.CLIENT: ((b"OK", b"7"), (b"ROW", b"7", b"one two"), (b"END", b"8"), (b"NO", b"no such stream")),
    }
    return b"".join(b" ".join(line) + DIALECTS[dialect] for line in lines[role])


def _make(role: Role, dialect: Literal["lf", "crlf"] | str) -> LinesCodec:
    return LinesCodec(role, dialect)


PLUGIN: Final = CodecPlugin("lines", _make, tuple(DIALECTS), _sample, limit=MOST + 65_536)
