"""Decode a chunked body (RFC 9112, 7.1).

h11 copies such a body three times and takes 5 to 9 us a chunk. Here all chunks of a read become one piece, copied out
of the buffer that it was read into, and large chunks of `bytes` are not copied at all.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Final

from penstock.model.limits import KIB
from penstock.wire.http.events import Buffer, HttpHeaders

__all__ = ["ChunkError", "ChunkLines", "ChunkedBody", "chunk_framing"]

_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n\0]*)?\r\n")
_TRAILER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r\n\0\v\f]*)\r\n")
"""The caller strips blanks around the value: an expression that did so would take cubic time on many of them."""
_BETWEEN: Final = re.compile(rb"\r\n([0-9A-Fa-f]{1,8})\r\n")
"""The lines between two chunks, as nearly all servers send them."""
_LARGE: Final = 64 * KIB
"""Mean bytes of the chunks in a read from which they are kept where they are: to handle a piece takes as long as to
copy this."""
_SMALL: Final = 4 * KIB
"""Bytes below which a chunk is always copied: it may wait for long, and must not keep all bytes of its read alive."""
_MOST_CHUNKS: Final = 1000
"""Number of chunks in a piece: the view of each takes 200 bytes until it is copied."""
_CRLF: Final = b"\r\n"
_HEX: Final = b"0123456789abcdefABCDEF"


def chunk_framing(left: int, line_end: bytes) -> bytes:
    """Return a beginning of a chunked body after which `left` bytes of a chunk are to come, or the rest of the line end
    after one."""
    if left:
        return b"%x\r\n" % left
    return b"1\r\n*" + b"\r\n"[: 2 - len(line_end)] if line_end else b""


class ChunkError(ValueError):
    """The bytes are not a chunked body. For an observer: the rule, its clause, and the line that breaks it, whose first
    wrong byte is at `at`."""

    def __init__(self, message: str, rule: str, line: bytes = b"", at: int = 0, section: str = "7.1") -> None:
        super().__init__(message)
        self.rule = rule
        self.line = line
        self.at = at
        self.clause = f"RFC 9112, section {section}"


class ChunkLines:
    """State of a chunked body between its pieces: the lines around chunks, and the trailers. `most`: bytes of the
    longest line, and of all trailers together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line = b""  # received part of the current line
        self._left = 0  # bytes missing of the current chunk
        self._behind_data = False  # the current line is the empty one after a chunk's data
        self._in_trailers = False
        self._trailers: list[tuple[str, str]] = []
        self._trailer_bytes = 0
        self._complete = False

    @property
    def trailers(self) -> HttpHeaders:
        """Fields after the last chunk; names in lower case."""
        return tuple(self._trailers)

    def _take_line(self, view: memoryview, at: int) -> int:
        """Read on in a line, and interpret it once complete. Nearly always it is complete at once, and short."""
        begin = at - len(self._line)
        for step in (64, self._most + 2):
            line = self._line + bytes(view[at : max(at, begin + step)])
            end = line.find(b"\n")
            if end >= 0:
                self._line = b""
                self._understand(line[: end + 1])
                return begin + end + 1
        if len(line) > self._most + 1:  # CR may be the last of it
            raise ChunkError(
                f"a line of more than {self._most} bytes in a chunked body",
                f"a line of a chunked body has at most {self._most} bytes here",
            )
        self._line = line
        return len(view)

    def _understand(self, line: bytes) -> None:
        if self._behind_data:
            if line != _CRLF:
                raise ChunkError("a chunk exceeds its announced size", "a line end stands behind a chunk", line)
            self._behind_data = False
        elif self._in_trailers:
            self._trailer(line)
        else:
            match = _SIZE_LINE.fullmatch(line)
            if match is None:
                raise ChunkError(
                    f"malformed chunk header: {line[:20]!r}",
                    "a chunk begins with its size, in a line of its own",
                    line,
                    len(line) - len(line.lstrip(_HEX)),
                )
            self._begin_chunk(match[1])

    def _begin_chunk(self, size: bytes) -> None:
        self._behind_data = False
        self._left = int(size, 16)
        self._in_trailers = not self._left

    def _trailer(self, line: bytes) -> None:
        if line == _CRLF:
            self._complete = True
            return
        self._trailer_bytes += len(line)
        match = _TRAILER.fullmatch(line)
        if match is None or self._trailer_bytes > self._most:
            raise ChunkError(
                "malformed or oversized trailers",
                "trailers are fields, and not longer than a head",
                line,
                section="7.1.2",
            )
        self._trailers.append((match[1].decode("ascii").lower(), match[2].strip(b" \t").decode("latin-1")))


class ChunkedBody(ChunkLines):
    """Decodes a chunked body: `receive` takes bytes, `next` returns pieces of the body; `trailers` is complete once
    `ended`.

    `next` raises a fault after all pieces before it were taken, and on every later call.
    """

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._pieces: deque[Buffer] = deque()
        self._error: ChunkError | None = None
        self.held = 0
        """Bytes of body that have not been taken."""
        self.surplus = b""
        """Bytes after the body."""

    @property
    def framing(self) -> bytes | None:
        """A beginning of a chunked body that leaves its reader in this one's state, apart from `half_line`; None if
        there is none, as in trailers."""
        if self._in_trailers or self._complete or self._error is not None:
            return None
        return chunk_framing(self._left, b"\r\n" if self._behind_data else b"")

    @property
    def half_line(self) -> bytes:
        """Received part of a line of framing."""
        return self._line

    @property
    def ended(self) -> bool:
        """True if the body is complete, and was taken to its last byte."""
        return self._complete and not self._pieces

    def receive(self, data: Buffer) -> None:
        """Take bytes. Of a `bytes` object, large chunks are kept as views; all else is copied."""
        if self._error is not None:
            return
        view = memoryview(data)
        at, size = 0, len(view)
        chunks: list[memoryview] = []
        try:
            while at < size:
                if self._left:
                    if len(chunks) == _MOST_CHUNKS:
                        self._keep(chunks, views=False)
                        chunks.clear()
                    chunk = view[at : at + self._left]
                    chunks.append(chunk)
                    at += len(chunk)
                    self._left -= len(chunk)
                    self._behind_data = not self._left
                elif self._behind_data and not self._line and (lines := _BETWEEN.match(view, at)):
                    at = lines.end()
                    self._begin_chunk(lines[1])
                elif self._complete:
                    self.surplus += view[at:]
                    break
                else:
                    at = self._take_line(view, at)
        except ChunkError as error:
            self._error = error
        self._keep(chunks, views=isinstance(data, bytes))

    def _keep(self, chunks: Sequence[memoryview], *, views: bool) -> None:
        size = sum(map(len, chunks))
        self.held += size
        if views and size >= _LARGE * len(chunks):
            self._pieces.extend(bytes(chunk) if len(chunk) < _SMALL else chunk for chunk in chunks)
        elif chunks:
            self._pieces.append(b"".join(chunks))

    def finish(self) -> None:
        """End the input: the peer has closed."""
        if not self._complete and self._error is None:
            self._error = ChunkError(
                "the connection was closed in the middle of a chunked body", "the last chunk of a body is missing"
            )

    def next(self) -> Buffer | None:
        """Return the next piece of the body, or None if there is none now. Raises ChunkError."""
        if self._pieces:
            piece = self._pieces.popleft()
            self.held -= len(piece)
            return piece
        if self._error is not None:
            raise self._error
        return None
