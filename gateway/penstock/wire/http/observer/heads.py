"""Parse heads of HTTP/1.1 (RFC 9112, 2 to 6), and locate the first wrong byte of invalid ones.

Heads accepted here are those that `http.h1` accepts: the tests compare the two. Only empty lines before a request are
accepted here alone (RFC 9112, 2.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from penstock.wire.http.events import HttpLimits
from penstock.wire.http.observer.faults import BytesAt, HttpFault

__all__ = [
    "MAX_HEAD",
    "REQUEST_LINE",
    "STATUS_LINE",
    "Framing",
    "Head",
    "HeadBuffer",
    "request_framing",
    "response_framing",
]

MAX_HEAD: Final = HttpLimits().max_head

_TOKEN: Final = r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+"
_VALUE: Final = r"(?:[^\x00\s]+(?:[ \t]+[^\x00\s]+)*)?"
_FIELD: Final = re.compile(rf"({_TOKEN}):[ \t]*({_VALUE})[ \t]*".encode())
_FOLDED: Final = re.compile(rb"[ \t]+")
_END: Final = re.compile(rb"\n\r?\n")
_CONTENT_LENGTH: Final = re.compile(rb"[0-9]{1,20}")
_VERSION: Final = re.compile(rb"HTTP/[0-9]\.[0-9]")

REQUEST_LINE: Final = re.compile(rf"({_TOKEN}) ([\x21-\x7e]+) HTTP/([0-9]\.[0-9])".encode())
STATUS_LINE: Final = re.compile(rb"HTTP/([0-9]\.[0-9]) ([0-9]{3})(?: ((?:[ \t]|[^\x00\s])*))?")
_CUT_PARTS: Final = 4
"""These parts of a request line may be cut anywhere; a cut in its version cannot be recognised."""
_CLAUSES: Final = {REQUEST_LINE: "RFC 9112, section 3", STATUS_LINE: "RFC 9112, section 4"}


class _Part(NamedTuple):
    pattern: re.Pattern[bytes]
    rule: str


_SPACE: Final = _Part(re.compile(rb" "), "a single space stands here")
_PARTS: Final = {
    REQUEST_LINE: (
        _Part(re.compile(_TOKEN.encode()), "a request begins with a method"),
        _SPACE,
        _Part(re.compile(rb"[\x21-\x7e]+"), "a request target of visible characters stands here"),
        _SPACE,
        _Part(_VERSION, "the version, as HTTP/1.1, stands here"),
    ),
    STATUS_LINE: (
        _Part(_VERSION, "a response begins with the version, as HTTP/1.1"),
        _SPACE,
        _Part(re.compile(rb"[0-9]{3}"), "a status of three digits stands here"),
        _Part(re.compile(rb"(?: (?:[ \t]|[^\x00\s])*)?"), ""),
    ),
}
_FIELD_PARTS: Final = (
    _Part(re.compile(_TOKEN.encode()), "a field has a name"),
    _Part(re.compile(rb":"), "a colon follows the field's name"),
    _Part(re.compile(rf"[ \t]*{_VALUE}[ \t]*".encode()), ""),
)


class Head(Struct):
    """A head as it was sent: the groups of its first line, its fields, and the offsets of their lines."""

    start: int
    line: tuple[bytes, ...]
    fields: list[tuple[bytes, bytes]]
    offsets: list[int]

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the fields as text of latin-1 characters, with names in lower case."""
        return tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in self.fields)

    def values(self, name: bytes) -> Iterator[tuple[int, bytes]]:
        """Return the offsets and values of a field's lines."""
        return (
            (at, value) for at, (field_name, value) in zip(self.offsets, self.fields, strict=True) if field_name == name
        )


class HeadBuffer:
    """Parser of bytes to heads. `line`: REQUEST_LINE or STATUS_LINE."""

    def __init__(self, line: re.Pattern[bytes]) -> None:
        self._line = line
        self._held = bytearray()
        self._offset = 0
        self._scanned = 0
        self._checked = False
        self.start_ns = 0
        """Time of the first byte that is held."""

    @property
    def held(self) -> int:
        """Bytes of an incomplete head."""
        return len(self._held)

    @property
    def offset(self) -> int:
        """Offset of the bytes that are held."""
        return self._offset

    def receive(self, data: memoryview, offset: int, time_ns: int) -> tuple[Head | None, int]:
        """Return the head that these bytes complete, if any, and how many of them belong to it. Raises Fault."""
        at = 0
        if not self._held:
            while at < len(data) and data[at] in b"\r\n":
                at += 1
            self._offset, self.start_ns = offset + at, time_ns
        before = len(self._held)
        self._held += data[at : at + MAX_HEAD + 1 - before]
        match = _END.search(self._held, max(0, self._scanned - 2))
        if match is None:
            self._scanned = len(self._held)
            self._check_early()
            return None, len(data)
        whole = BytesAt(self._offset, bytes(self._held[: match.end()]))
        self.clear()
        return _head(whole, self._line), at + match.end() - before

    def check_cut(self) -> None:
        """Check the held bytes at the end of the input. Raises Fault if they could not have become a head."""
        if self._line is not REQUEST_LINE or b"\n" in self._held:
            return
        held, place = BytesAt(self._offset, bytes(self._held)), 0
        for part in _PARTS[REQUEST_LINE][:_CUT_PARTS]:
            match = part.pattern.match(held.data, place)
            if match is None and place < len(held.data):
                raise HttpFault(self._offset + place, part.rule, _CLAUSES[REQUEST_LINE], held)
            if match is None:
                return
            place = match.end()

    def clear(self) -> None:
        """Forget the bytes that are held."""
        self._held.clear()
        self._scanned = 0
        self._checked = False

    def _check_early(self) -> None:
        """Reject bytes that cannot become a head at once, as the bytes that complete it may never arrive."""
        if len(self._held) > MAX_HEAD:
            rule = f"a head has at most {MAX_HEAD} bytes here"
            raise HttpFault(self._offset, rule, "RFC 9112, section 3", BytesAt(self._offset, bytes(self._held[:256])))
        end = self._held.find(b"\n")
        if not self._checked and end >= 0:
            self._checked = True
            held = BytesAt(self._offset, bytes(self._held))
            _match(self._line, _PARTS[self._line], _CLAUSES[self._line], held, 0, _bare(held.data[:end]))


def _bare(line: bytes | bytearray | memoryview) -> bytes:
    return bytes(line).removesuffix(b"\r")


def _match(
    pattern: re.Pattern[bytes], parts: Sequence[_Part], clause: str, held: BytesAt, at: int, line: bytes
) -> tuple[bytes, ...]:
    """Return the groups of a line at `at`. Raises Fault if it does not match."""
    match = pattern.fullmatch(line)
    if match is not None:
        return tuple(group or b"" for group in match.groups())
    place = 0
    for part in parts:
        match = part.pattern.match(line, place)
        if match is None:
            raise HttpFault(held.offset + at + place, part.rule, clause, held)
        place = match.end()
    raise HttpFault(held.offset + at + place, "this byte does not belong here", clause, held)


def _head(whole: BytesAt, line: re.Pattern[bytes]) -> Head:
    data = bytes(whole.data)
    lines = data.split(b"\n")[:-2]
    head = Head(whole.offset, _match(line, _PARTS[line], _CLAUSES[line], whole, 0, _bare(lines[0])), [], [])
    at = len(lines[0]) + 1
    for place, text in _unfolded(lines[1:], at, whole):
        name, value = _match(_FIELD, _FIELD_PARTS, "RFC 9112, section 5", whole, place, text)
        head.fields.append((name.lower(), value))
        head.offsets.append(whole.offset + place)
    return head


def _unfolded(lines: list[bytes], at: int, whole: BytesAt) -> Iterator[tuple[int, bytes]]:
    """Return the lines of the fields; one that begins with white space continues the one before (RFC 9112, 5.2)."""
    last, place = b"", at
    for index, line in enumerate(lines):
        text = _bare(line)
        fold = _FOLDED.match(text)
        if fold is None:
            if index:
                yield place, last
            last, place = text, at
        elif not index:
            raise HttpFault(whole.offset + at, "no white space before the first field", "RFC 9112, section 2.2", whole)
        else:
            last += b" " + text[fold.end() :]
        at += len(line) + 1
    if lines:
        yield place, last


# ---- how long the body is (RFC 9112, 6) ----------------------------------------------------------------------------


class Framing(NamedTuple):
    """End of a body: in chunks, after `length` bytes, or (neither) with the connection."""

    chunked: bool
    length: int | None


def request_framing(head: Head) -> Framing:
    """Return the framing of a request's body. Raises Fault, also for faults of the head as a whole."""
    hosts = list(head.values(b"host"))
    if len(hosts) > 1 or (not hosts and head.line[2] == b"1.1"):
        at = hosts[1][0] if hosts else head.start
        raise HttpFault(at, "a request has exactly one Host field", "RFC 9112, section 3.2")
    chunked, length = _chunked(head), _content_length(head)
    if chunked is not None and (length is not None or head.line[2] < b"1.1"):
        rule = "Transfer-Encoding does not go with Content-Length, nor with HTTP/1.0"
        raise HttpFault(chunked, rule, "RFC 9112, section 6.1")
    return Framing(chunked is not None, length or 0)


def response_framing(head: Head, bodiless: bool) -> Framing:
    """Return the framing of a response's body. Raises Fault."""
    chunked, length = _chunked(head), _content_length(head)
    if bodiless:
        return Framing(False, 0)
    return Framing(True, None) if chunked is not None else Framing(False, length)


def _chunked(head: Head) -> int | None:
    """Return the offset of the Transfer-Encoding that declares the body chunked, or None."""
    codings = list(head.values(b"transfer-encoding"))
    if not codings:
        return None
    at, value = codings[-1]
    if len(codings) > 1 or value.lower() != b"chunked":
        raise HttpFault(at, "the only transfer coding is chunked, once", "RFC 9112, section 6.1")
    return at


def _content_length(head: Head) -> int | None:
    length: bytes | None = None
    for at, value in head.values(b"content-length"):
        for text in value.split(b","):
            if not _CONTENT_LENGTH.fullmatch(text.strip()):
                raise HttpFault(at, "Content-Length is a number", "RFC 9112, section 6.3")
            if length is not None and text.strip() != length:
                raise HttpFault(at, "there is one Content-Length", "RFC 9112, section 6.3")
            length = text.strip()
    return None if length is None else int(length)
