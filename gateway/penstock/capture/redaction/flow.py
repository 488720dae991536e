"""Bytes of one side of a conversation while they are inspected, blanked and released.

A *parser* is a generator that reads a flow and moves `at` forward over the bytes that it has decided about; it yields
when it needs more. Bytes before `at` are released unless a content still holds them back. Unchanged chunks are passed
on as they came, by reference.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, Protocol

import msgspec

from penstock.capture.pcapng import CaptureEvent, Chunk, Conversation, Sender, Withheld
from penstock.capture.redaction.leaves import Leaves
from penstock.capture.redaction.text import Buffer, Edit, WithheldEdit

__all__ = ["FOR_EVER", "Flow", "NotUnderstood", "Parser", "Redaction", "Truncated"]

SMALL: Final = 4096
"""Chunks that are held are joined up to this size: an object for each of many short ones would cost more."""

_SHORT_LINE: Final = 64
"""Bytes that are searched first for a line's end, since the searched bytes are copied."""
FOR_EVER: Final = 1 << 62
"""More bytes than any side sends."""

Parser = Generator[None, None, None]


class Redaction(msgspec.Struct, frozen=True):
    """Search for secrets in the messages of one protocol on bare TCP.

    `parse` makes the parser of one side: it moves `Flow.at` behind what it has decided about, blanks secrets, and
    raises NotUnderstood at bytes that break the protocol. `begins` tells by the first byte of a side whether this
    protocol is spoken. Its last argument is True if the protocol is the configured one; where it is not, claim only
    bytes with which no request or response over HTTP begins, since secrets are looked for as this protocol has them.
    `joins` returns the parser of a side from the middle of a connection if the bytes at hand begin with a message, else
    None.
    """

    parse: Callable[[Flow, Leaves], Parser]
    begins: Callable[[Sender, bytes, bool], bool]
    joins: Callable[[Flow, Leaves, bytes], Parser | None]


class NotUnderstood(Exception):
    """The bytes from `at` on are not in the parser's protocol."""


class Truncated(Exception):
    """The side has ended, and the parser needs more bytes."""


class Holder(Protocol):
    """Object that holds bytes of a flow back."""

    def cut(self) -> None:
        """Finish: no more bytes will arrive, and the content is incomplete."""

    def abandon(self) -> None:
        """Blank the bytes that are held back, and all that may follow."""


class _Piece:
    """A chunk, or several short ones. `edited`: its bytes with secrets blanked, or None if there are none."""

    __slots__ = ("chunk", "data", "edited", "offset")

    def __init__(self, chunk: Chunk) -> None:
        self.chunk: Chunk | None = chunk
        self.offset = chunk.offset
        self.data: Buffer = chunk.data
        self.edited: bytearray | None = None

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    def extend(self, data: Buffer) -> None:
        if self.chunk is not None:
            self.chunk = None
            self.data = bytearray(self.data)
        assert isinstance(self.data, bytearray)
        self.data += data
        if self.edited is not None:
            self.edited += data

    def view(self, start: int, end: int) -> Buffer:
        """Return original bytes; those of a piece that may grow are copied."""
        start, end = start - self.offset, end - self.offset
        if self.chunk is None:
            return bytes(self.data[start:end])
        return memoryview(self.data)[start:end]


def _end(piece: _Piece) -> int:
    return piece.end


class Flow:
    """One side of one conversation. Offsets are those of the capture: bytes of this side since the connection began."""

    def __init__(
        self, conversation: Conversation, sender: Sender, offset: int, memory: dict[str, Any] | None = None
    ) -> None:
        self.memory: dict[str, Any] = {} if memory is None else memory
        """State that the parsers of both sides of the conversation share, by protocol."""
        self.conversation = conversation
        self.sender = sender
        self.at = offset
        """The first byte that the parser has not decided about."""
        self.end = offset
        """Behind the last byte that has come."""
        self.released = offset
        """The first byte that has not gone on."""
        self.passing = 0
        """Bytes from `at` on that pass uninspected."""
        self.folds = False
        """True if a line at `at` that begins with a space continues a secret."""
        self.ended = False
        self.holding: dict[Holder, int] = {}
        """Contents that hold bytes back, and from which on."""
        self._withheld: list[tuple[int, int]] = []  # where withheld bytes begin and end, of those not released
        self._pieces: list[_Piece] = []
        self._cursor = 0  # the piece in which `at` stands

    # ---- in and out ----------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """Bytes that were received and not released."""
        return self.end - self.released

    def passes(self, chunk: Chunk) -> bool:
        """Return whether the whole chunk passes uninspected; then nothing else is to be done with it."""
        size = len(chunk.data)
        if self.passing < size or self.released != self.end or self._pieces:
            return False
        self.passing -= size
        self.at = self.end = self.released = self.end + size
        return True

    def receive(self, chunk: Chunk) -> None:
        """Take the next bytes."""
        last = self._pieces[-1] if self._pieces else None
        if last is not None and len(last.data) + len(chunk.data) <= SMALL:
            last.extend(chunk.data)
            self._cursor = min(self._cursor, len(self._pieces) - 1)
        else:
            self._pieces.append(_Piece(chunk))
        self.end += len(chunk.data)

    def emit(self, time_ns: int, cause: Chunk | None = None) -> list[CaptureEvent]:
        """Return the chunks to release, and before them marks of withheld bytes. Bytes that were held back get the time
        `time_ns`, so times never decrease."""
        limit = min(self.at, *self.holding.values()) if self.holding else self.at
        if limit <= self.released:
            return []
        out: list[CaptureEvent] = [*self._marks(limit, time_ns)] if self._withheld else []
        for piece in self._pieces:
            if piece.end <= self.released:
                continue
            if piece.offset >= limit:
                break
            start, end = max(piece.offset, self.released), min(piece.end, limit)
            if cause is not None and piece.chunk is cause and end - start == len(piece.data) and piece.edited is None:
                out.append(cause)
                continue
            source = piece.data if piece.edited is None else piece.edited
            data: Buffer = memoryview(source)[start - piece.offset : end - piece.offset]
            if len(data) <= SMALL:
                data = bytes(data)
            out.append(Chunk(self.conversation, time_ns, self.sender, start, data))
        self.released = limit
        self._forget()
        return out

    def _marks(self, limit: int, time_ns: int) -> Iterator[Withheld]:
        """Yield the marks of withheld bytes before `limit`, and forget them."""
        later: list[tuple[int, int]] = []
        for low, high in sorted(self._withheld):
            start, end = max(low, self.released), min(high, limit)
            if start < end:
                yield Withheld(self.conversation, time_ns, self.sender, start, end - start)
            if high > limit:
                later.append((max(low, limit), high))
        self._withheld = later

    def _forget(self) -> None:
        done = min(self.released, self.at)
        count = 0
        for piece in self._pieces:
            if piece.end > done:
                break
            count += 1
        if count:
            del self._pieces[:count]
            self._cursor = max(0, self._cursor - count)

    # ---- blanking ------------------------------------------------------------------------------------------------

    def write(self, start: int, data: Buffer) -> None:
        """Overwrite bytes; those already released stay as they are."""
        end = start + len(data)
        # Not a slice, nor an iterator that skips: there may be thousands of pieces, and of places to be changed.
        for index in range(bisect_right(self._pieces, start, key=_end), len(self._pieces)):
            piece = self._pieces[index]
            if piece.offset >= end:
                break
            low, high = max(start, piece.offset, self.released), min(end, piece.end)
            if low >= high:
                continue
            if piece.edited is None:
                piece.edited = bytearray(piece.data)
            piece.edited[low - piece.offset : high - piece.offset] = data[low - start : high - start]

    def blank(self, start: int, end: int, fill: bytes = b"*") -> None:
        """Overwrite each of these bytes by `fill`, one byte."""
        if end > start:
            self.write(start, fill * (end - start))

    def apply(self, edit: Edit) -> None:
        """Apply an edit whose place is an offset of the capture."""
        self.write(edit.start, edit.data)
        if isinstance(edit, WithheldEdit):
            self._mark(edit.start, edit.start + len(edit.data))

    def withhold(self, start: int, end: int) -> None:
        """Blank these bytes, and mark them as withheld."""
        self.blank(start, end)
        self._mark(start, end)

    def _mark(self, start: int, end: int) -> None:
        if self._withheld and self._withheld[-1][1] == start:
            self._withheld[-1] = self._withheld[-1][0], end
        elif end > start:
            self._withheld.append((start, end))

    def give_up(self, time_ns: int) -> list[CaptureEvent]:
        """Release all bytes that are held back, withheld. Parsers read on; their later edits of these bytes have no
        effect."""
        self._withheld = []
        out: list[CaptureEvent] = [
            Withheld(self.conversation, time_ns, self.sender, self.released, self.end - self.released)
        ]
        for piece in self._pieces:
            start = max(piece.offset, self.released)
            if start < piece.end:
                out.append(Chunk(self.conversation, time_ns, self.sender, start, b"*" * (piece.end - start)))
        self.released = self.end
        return out

    def blank_all(self) -> None:
        """Withhold all bytes that are not released, decided about or not; the parser must be replaced afterwards."""
        self.holding.clear()
        self.withhold(self.released, self.end)
        self.at = self.end
        self.passing = 0

    # ---- for parsers ---------------------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Bytes received from `at` on."""
        return self.end - self.at

    def need(self, size: int) -> Parser:
        """Wait until that many bytes are available. Raises Truncated."""
        while self.end - self.at < size:
            if self.ended:
                raise Truncated
            yield

    def peek(self, size: int) -> bytes:
        """Return the next bytes, at most `size`."""
        return self.copy(self.at, min(self.at + size, self.end))

    def copy(self, start: int, end: int) -> bytes:
        """Return original bytes from `at` on."""
        parts = []
        for piece in self._pieces[self._find() :]:
            if piece.offset >= end:
                break
            low, high = max(start, piece.offset), min(end, piece.end)
            if low < high:
                parts.append(bytes(piece.data[low - piece.offset : high - piece.offset]))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _find(self) -> int:
        while self._cursor < len(self._pieces) and self._pieces[self._cursor].end <= self.at:
            self._cursor += 1
        return self._cursor

    def next_view(self, most: int) -> Buffer:
        """Return the next contiguous bytes, at most that many, and move `at` behind them."""
        piece = self._pieces[self._find()]
        start = self.at
        self.at = min(piece.end, start + most)
        return piece.view(start, self.at)

    def skip(self, size: int) -> Parser:
        """Let that many bytes pass. Raises Truncated."""
        self.passing = size
        while True:
            step = min(self.passing, self.end - self.at)
            self.at += step
            self.passing -= step
            if not self.passing:
                return
            if self.ended:
                raise Truncated
            yield

    def withhold_next(self, size: int) -> Parser:
        """Withhold that many bytes as they arrive. Raises Truncated."""
        while size:
            yield from self.need(1)
            step = min(size, self.available)
            self.withhold(self.at, self.at + step)
            self.at += step
            size -= step

    def back_to(self, offset: int) -> None:
        """Decide again about the bytes from an offset on, except those that were released."""
        self.at = max(offset, self.released)
        self._cursor = 0

    def line(self, limit: int) -> Generator[None, None, bytes]:
        """Return the next line with its LF, leaving `at` before it. Raises Truncated, and NotUnderstood if the line is
        too long."""
        text, step = b"", _SHORT_LINE
        while True:
            at = self.at + len(text)
            new = self.copy(at, min(self.end, at + step, self.at + limit))
            place = new.find(b"\n")
            if place >= 0:
                return text + new[: place + 1]
            text += new
            step *= 4
            if len(text) >= limit:
                raise NotUnderstood
            if self.at + len(text) == self.end:
                if self.ended:
                    raise Truncated
                yield
