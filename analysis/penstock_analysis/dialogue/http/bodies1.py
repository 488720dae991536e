"""Split bodies of HTTP/1.1 from recorded bytes: in chunks, of a known length, or up to the connection's end (RFC 9112,
6 and 7).

Each takes bytes and passes on those of the body, with their place; `over` is the offset at which the body ended, or
None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from penstock_analysis.dialogue.http.heads import MAX_HEAD, Framing
from penstock_analysis.dialogue.http.places import Span
from penstock_analysis.dialogue.http.telling import Fault, Held
from penstock_codecs.http import Headers
from penstock_codecs.http.chunked import SIZE_LINE, TRAILER

__all__ = ["Body1", "body_of"]

HandOn = Callable[[memoryview, int, int], None]
"""Function that takes a piece of body, its offset and its time."""

_HEX: Final = b"0123456789abcdefABCDEF"
_CRLF: Final = b"\r\n"
_CHUNKED_CLAUSE: Final = "RFC 9112, section 7.1"


class Body1(Protocol):
    """One body."""

    over: Span | None
    """Span that ended it: its last chunk with the trailers, or the empty span behind its last byte."""

    @property
    def trailers(self) -> Headers:
        """Trailers of a chunked body."""

    @property
    def begun(self) -> bool:
        """True if any of its bytes have arrived."""

    def receive(self, data: memoryview, offset: int, time_ns: int) -> int:
        """Take bytes; return how many of them belong to the body. Raises Fault."""

    def finish(self, offset: int, time_ns: int) -> str:
        """End the connection at `offset`; return a description of the missing part, or "" if that ends the body."""


class _Fixed:
    trailers: Headers = ()

    def __init__(self, hand_on: HandOn, length: int) -> None:
        self._hand_on = hand_on
        self._length = self._left = length
        self.over: Span | None = None

    @property
    def begun(self) -> bool:
        return self._left < self._length

    def receive(self, data: memoryview, offset: int, time_ns: int) -> int:
        piece = data[: self._left]
        self._left -= len(piece)
        self._hand_on(piece, offset, time_ns)
        if not self._left:
            end = offset + len(piece)
            self.over = Span(end, end, time_ns, time_ns)
        return len(piece)

    def finish(self, offset: int, time_ns: int) -> str:  # noqa: ARG002 - as Body1 has it
        return f"{self._left} bytes of a body are missing"


class _UntilClose:
    trailers: Headers = ()
    begun = True

    def __init__(self, hand_on: HandOn) -> None:
        self._hand_on = hand_on
        self.over: Span | None = None

    def receive(self, data: memoryview, offset: int, time_ns: int) -> int:
        self._hand_on(data, offset, time_ns)
        return len(data)

    def finish(self, offset: int, time_ns: int) -> str:
        self.over = Span(offset, offset, time_ns, time_ns)
        return ""


class _Chunked:
    def __init__(self, hand_on: HandOn) -> None:
        self._hand_on = hand_on
        self._line = b""  # received part of the next line
        self._left = 0  # bytes of the chunk at hand
        self._behind_data = False  # the line that comes next is the empty one behind a chunk's data
        self._last: Span | None = None  # the line of the last chunk
        self._fields: list[tuple[str, str]] = []
        self._trailer_bytes = 0
        self._line_ns = 0
        self.begun = False
        self.over: Span | None = None

    @property
    def trailers(self) -> Headers:
        return tuple(self._fields)

    def receive(self, data: memoryview, offset: int, time_ns: int) -> int:
        self.begun = True
        at = 0
        while at < len(data) and self.over is None:
            if self._left:
                piece = data[at : at + self._left]
                self._hand_on(piece, offset + at, time_ns)
                self._left -= len(piece)
                self._behind_data = not self._left
                at += len(piece)
            else:
                at = self._take_line(data, at, offset, time_ns)
        return at

    def finish(self, offset: int, time_ns: int) -> str:  # noqa: ARG002 - as Body1 has it
        return "the last chunk of a body is missing"

    def _take_line(self, data: memoryview, at: int, offset: int, time_ns: int) -> int:
        before = len(self._line)
        if not before:
            self._line_ns = time_ns
        for step in (64, MAX_HEAD + 2):
            line = self._line + bytes(data[at : at + step - before]) if step > before else self._line
            end = line.find(b"\n")
            if end >= 0:
                self._line = b""
                at += end + 1 - before
                self._understand(line[: end + 1], Span(offset + at - end - 1, offset + at, self._line_ns, time_ns))
                return at
        if len(line) > MAX_HEAD:
            rule = f"a line of a chunked body has at most {MAX_HEAD} bytes here"
            raise Fault(offset + at - before, rule, _CHUNKED_CLAUSE)
        self._line = line
        return len(data)

    def _understand(self, line: bytes, span: Span) -> None:
        if self._behind_data:
            if line != _CRLF:
                raise Fault(span.start, "a line end stands behind a chunk", _CHUNKED_CLAUSE, Held(span.start, line))
            self._behind_data = False
        elif self._last is not None:
            self._trailer(line, span, self._last)
        else:
            found = SIZE_LINE.fullmatch(line)
            if found is None:
                at = span.start + len(line) - len(line.lstrip(_HEX))
                raise Fault(
                    at, "a chunk begins with its size, in a line of its own", _CHUNKED_CLAUSE, Held(span.start, line)
                )
            self._left = int(found[1], 16)
            self._last = None if self._left else span

    def _trailer(self, line: bytes, span: Span, last: Span) -> None:
        if line == _CRLF:
            self.over = last.to(span)
            return
        self._trailer_bytes += len(line)
        found = TRAILER.fullmatch(line)
        if found is None or self._trailer_bytes > MAX_HEAD:
            rule = "trailers are fields, and not longer than a head"
            raise Fault(span.start, rule, "RFC 9112, section 7.1.2", Held(span.start, line))
        self._fields.append((found[1].decode("ascii").lower(), found[2].strip(b" \t").decode("latin-1")))


def body_of(framing: Framing, hand_on: HandOn) -> Body1 | None:
    """Return a reader for the body, or None if the message has none."""
    if framing.chunked:
        return _Chunked(hand_on)
    if framing.length is None:
        return _UntilClose(hand_on)
    return _Fixed(hand_on, framing.length) if framing.length else None
