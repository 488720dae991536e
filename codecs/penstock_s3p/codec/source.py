"""Split the peer's bytes into S3P's two kinds of items: `*<n>` lines and bulk strings.

The parser pulls items; an incomplete item returns None and costs nothing until enough bytes have arrived. Nothing is
scanned twice because it arrived in pieces, and nothing is allocated because it was announced: a length is checked
against its limit before its bytes are waited for.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.model.failures import FailureCode, printable
from penstock.wire.waiting import WaitingBytes
from penstock_s3p.codec.errors import S3PFault
from penstock_s3p.codec.limits import S3P_MAX_HEADER_LINE

__all__ = ["InputBuffer"]

CRLF: Final = b"\r\n"
MAX_DIGITS: Final = 20
"""Most digits of a length: those of the largest 64-bit number; leading zeros count (S3P fact sheet 3, item 4)."""
SHORT_RECORD: Final = 192
"""Records up to about this many bytes are parsed by one split. Measured per record (Python 3.11, CPU time), split
against one look-up per record: 20 B 0.10/0.40 us, 100 B 0.18/0.41 us, 300 B 0.39/0.42 us, 1 KiB 1.08/0.48 us."""
FEWEST_TO_SPLIT: Final = 8
"""Fewest records to split: a split costs about as much as four look-ups by itself."""
MOST_LENGTHS: Final = 8192
"""Most header lines to remember: they take at most 1 MiB of memory."""

_ARRAY_LINE: Final = re.compile(rb"\*([0-9]{1,20})\r\n")
_BULK_LINE: Final = re.compile(rb"\$([0-9]{1,20})\r\n")
_KINDS: Final = {_ARRAY_LINE: (b"*", "an array"), _BULK_LINE: (b"$", "a bulk string")}


class _Lengths(dict[bytes, int]):
    """Numbers of `$<n>` lines seen before; other lines raise KeyError and are left to the strict parser.

    Only canonical spellings are kept, and a limited number of them: odd spellings slow down only their own sender.
    """

    def __missing__(self, line: bytes) -> int:
        digits = line[1:]
        if line[:1] != b"$" or not digits.isdigit() or digits[:1] == b"0" or len(digits) > MAX_DIGITS:
            raise KeyError(line)
        length = int(digits)
        if len(self) < MOST_LENGTHS:
            self[line] = length
        return length


_LENGTHS: Final = _Lengths((b"$%d" % length, length) for length in range(1, SHORT_RECORD + 1))


class InputBuffer:
    """Bytes that one peer sent and that are not parsed yet."""

    __slots__ = ("_at", "_base", "_data", "_item", "_mark", "_together", "_waiting", "_wanted", "ended")

    def __init__(self) -> None:
        self._data = b""  # the bytes being parsed
        self._at = 0  # and the offset of the first unparsed one
        self._base = 0  # number of bytes before `_data`
        self._waiting = WaitingBytes()  # what arrived after `_data`
        self._wanted = 1  # unparsed bytes that the parser needs to continue
        self._item = 0  # start of the last item
        self._mark = 0  # start of the message
        self._together = 0  # bytes of the bulk strings in the list being filled
        self.ended = False

    # ---- filling -------------------------------------------------------------------------------------------------

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take more bytes; b"" is the end."""
        if not data:
            self.ended = True
            return
        self._waiting.add(data)

    def refill(self) -> bool:
        """Make arrived bytes available to the parser. Returns False if they are too few to continue."""
        rest = len(self._data) - self._at
        if rest + self._waiting.size < self._wanted:
            return False
        if self._waiting.size:
            head = [self._data[self._at :]] if rest else []
            self._base += self._at
            self._data = b"".join([*head, *self._waiting.take()])
            self._at = 0
        return True

    def drop(self) -> None:
        """Drop all bytes."""
        self._base += len(self._data) + self._waiting.size
        self._data = b""
        self._at = 0
        self._waiting.take()

    def begin_message(self) -> None:
        """Mark the start of a message."""
        self._mark = self._item = self.position

    @property
    def position(self) -> int:
        """Number of bytes of the connection that have been parsed."""
        return self._base + self._at

    @property
    def held(self) -> int:
        """Bytes of the current message, parsed or not, and of everything after it."""
        return self._base + len(self._data) + self._waiting.size - self._mark

    # ---- faults --------------------------------------------------------------------------------------------------

    def bad_format(self, message: str) -> S3PFault:
        """Return the fault for a malformed item, at the last item."""
        return S3PFault(FailureCode.BAD_FORMAT, message, self._item)

    def bad_message(self, message: str) -> S3PFault:
        """Return the fault for a malformed message, at its start."""
        return S3PFault(FailureCode.BAD_FORMAT, message, self._mark)

    def over_limit(self, message: str) -> S3PFault:
        """Return the fault for an item larger than allowed, at the last item."""
        return S3PFault(FailureCode.LIMIT_EXCEEDED, message, self._item)

    # ---- items ---------------------------------------------------------------------------------------------------

    def peek(self) -> bytes | None:
        """Return the next byte without consuming it."""
        byte = self._data[self._at : self._at + 1]
        if not byte:
            self._wanted = 1
            return None
        return byte

    def line(self, limit: int, expected: str) -> bytes | None:
        """Return the text before the next CRLF; at most `limit` bytes including CRLF."""
        self._item = self.position
        end = self._data.find(CRLF, self._at, self._at + limit)
        if end >= 0:
            text = self._data[self._at : end]
            self._at = end + 2
            return text
        rest = len(self._data) - self._at
        if rest >= limit:
            raise self.over_limit(f"{expected} is longer than {limit} bytes")
        self._wanted = rest + 1
        return None

    def array(self, expected: str) -> int | None:
        """Return the number of elements of the array that begins here."""
        self._item = self.position
        return self._header(_ARRAY_LINE, expected)

    def bulk(self, limit: int, expected: str, bound: str = "") -> bytes | None:
        """Return the bulk string that begins here, of 1 to `limit` bytes; `bound` describes the limit in errors if it
        needs more words."""
        begin = self._at
        self._item = self._base + begin
        length = self._header(_BULK_LINE, expected)
        if length is None:
            return None
        if length == 0:
            raise self.bad_format(f"zero-length bulk string as {expected}")
        if length > limit:
            raise self.over_limit(f"{expected} of {length} bytes exceeds {bound or f'the limit of {limit} bytes'}")
        start = self._at
        stop = start + length
        closing = self._data[stop : stop + 2]
        if closing == CRLF:
            self._at = stop + 2
            return self._data[start:stop]
        self._at = begin  # until the whole item has arrived; its header is then parsed once more
        if CRLF.startswith(closing):
            self._wanted = stop + len(closing) + 1 - begin
            return None
        raise self.bad_format(f"{expected} of {length} bytes is followed by {_wrong_end(closing)}, not by CRLF")

    def bulks(self, into: list[bytes], count: int, limit: int, together: int, expected: str) -> bool:
        """Append bulk strings to a list, empty at first, until it holds `count`. Returns False if more bytes are needed
        first.

        Each has 1 to `limit` bytes, and all of them at most `together`. A run of regular ones is parsed fast, with a
        proof that the strict parser would find the same; the strict parser handles the rest and words the errors.
        """
        if not into:
            self._together = 0
        self._run(into, count - len(into), limit, together)
        while len(into) < count:
            left = together - self._together
            bound = "" if left >= limit else f"the {left} bytes that {together} in total leave for it"
            content = self.bulk(min(limit, left), f"{expected} {len(into) + 1}", bound)
            if content is None:
                return False
            into.append(content)
            self._together += len(content)
        return True

    def _run(self, into: list[bytes], most: int, limit: int, together: int) -> None:
        """Take complete bulk strings with canonical lengths, up to the first odd one; none if one is too large."""
        contents, at = self._split(most) if most >= FEWEST_TO_SPLIT else ([], self._at)
        more, at = self._step(at, most - len(contents))
        contents += more
        size = self._together + sum(map(len, contents))
        if contents and max(map(len, contents)) <= limit and size <= together:
            into += contents
            self._together = size
            self._at = at

    def _split(self, most: int) -> tuple[list[bytes], int]:
        """Cut at every CRLF if records are short: correct if no body contains one, which the lengths prove."""
        data, at = self._data, self._at
        line_end = data.find(CRLF, at, at + S3P_MAX_HEADER_LINE)
        if line_end < 0 or _LENGTHS.get(data[at:line_end], MOST_LENGTHS) > SHORT_RECORD:
            return [], at
        # The window keeps the cost proportional to `most`, however much has been received.
        parts = data[at : at + most * (SHORT_RECORD + S3P_MAX_HEADER_LINE)].split(CRLF, 2 * most)
        bodies = parts[1:-1:2]
        lines = parts[0 : 2 * len(bodies) : 2]
        sizes = list(map(len, bodies))
        if list(map(_LENGTHS.get, lines)) != sizes:
            return [], at
        return bodies, at + sum(sizes) + sum(map(len, lines)) + 4 * len(bodies)

    def _step(self, at: int, most: int) -> tuple[list[bytes], int]:
        """Take bulk strings with one look-up of the header line each."""
        data, index, lengths = self._data, self._data.index, _LENGTHS
        contents: list[bytes] = []
        try:
            for _ in range(most):
                start = index(CRLF, at, at + S3P_MAX_HEADER_LINE) + 2
                stop = start + lengths[data[at : start - 2]]
                if data[stop : stop + 2] != CRLF:
                    break
                contents.append(data[start:stop])
                at = stop + 2
        except (ValueError, KeyError):
            pass  # the line is incomplete or odd; the strict parser tells which
        return contents, at

    def _header(self, kind: re.Pattern[bytes], expected: str) -> int | None:
        """Return the number in the `*<n>` or `$<n>` line that begins here."""
        match = kind.match(self._data, self._at)
        if match is not None:
            self._at = match.end()
            return int(match[1])
        self._no_header(kind, expected)
        return None

    def _no_header(self, kind: re.Pattern[bytes], expected: str) -> None:
        """Wait for more bytes if the line may still become valid; otherwise raise, naming the first wrong byte."""
        mark, name = _KINDS[kind]
        line = self._data[self._at : self._at + S3P_MAX_HEADER_LINE]
        digits = len(line) - 1 - len(line[1:].lstrip(b"0123456789"))
        rest = line[1 + max(digits, 0) :]
        if line and line[:1] != mark:
            raise self.bad_format(f"expected {name} ({mark.decode()}) as {expected}, got '{printable(line[:1])}'")
        if digits > MAX_DIGITS:
            raise self.bad_format(f"the length of {expected} has more than {MAX_DIGITS} digits")
        if rest and digits == 0:
            raise self.bad_format(f"expected a decimal digit in the length of {expected}, got '{printable(rest[:1])}'")
        if not CRLF.startswith(rest[:2]):
            raise self.bad_format(f"the length of {expected} is followed by {_wrong_end(rest)}, not by CRLF")
        self._wanted = len(self._data) - self._at + 1


def _wrong_end(ending: bytes) -> str:
    """Return the text in place of CRLF, up to the first wrong byte: the same however the bytes were cut."""
    return f"'{printable(ending[: 2 if ending[:1] == CRLF[:1] else 1])}'"
