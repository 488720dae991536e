"""The segment protocol of the benchmark's client: its bytes, its lanes for appends, its scripts for reads.

Spellings: segment fact sheet, 1.3 (released) and section 2 (draft).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from struct import Struct, pack, pack_into, unpack_from
from uuid import uuid4

import wire
from lanes import LANES, Lane, Refused
from scripts import Script

__all__ = ["DRAFT", "RELEASED", "SCRIPTS", "block_count"]

RELEASED, DRAFT = "segment released", "segment draft"
BLOCK = 1 << 20
"""Largest block, in bytes of events with their headers; and what a read asks for."""

_HEADER = Struct(">ii")
_HELLO = pack(">iiii", -127, 8, 16, 5)
_EVENT, _SETUP, _APPEND_SETUP, _BEGIN, _END, _APPENDED, _READ, _DATA, _CREATE = 0, 1, 2, 3, 4, 7, 9, 10, 20
_CREATED, _EXISTS = 21, 52


def block_count(size: int) -> int:
    """Events of so many bytes that fit into one block."""
    return BLOCK // (8 + size)


def _message(kind: int, *fields: bytes) -> bytes:
    return _HEADER.pack(kind, sum(map(len, fields))) + b"".join(fields)


def _text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def _segment(stream: str) -> bytes:
    return _text(f"{wire.BASIN}/{stream}/0.#epoch.0")


def _create(stream: str) -> bytes:
    return _message(_CREATE, pack(">q", 1), _segment(stream), bytes(5), _text(""), bytes(8))


class _Messages:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Type and body of each message that is whole now."""
        data = self._held + data
        at = 0
        while len(data) - at >= 8:
            kind, length = _HEADER.unpack_from(data, at)
            if len(data) - at < 8 + length:
                break
            yield kind, data[at + 8 : at + 8 + length]
            at += 8 + length
        self._held = data[at:]


def _ask(connection: socket.socket, request: bytes, *expected: int) -> bytes:
    """One request with one short answer, which is given without its header."""
    connection.sendall(request)
    head = _exactly(connection, 8)
    kind, length = _HEADER.unpack(head)
    body = _exactly(connection, length)
    if kind not in expected:
        raise Refused(f"message of type {kind}: {body[:300]!r}")
    return body


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        data = connection.recv(size - len(found))
        if not data:
            raise Refused("the connection was closed")
        found += data
    return bytes(found)


# ---- appends -------------------------------------------------------------------------------------------------


class _Segment(Lane):
    """A batch is one block of whole events: a template, into which numbers are put before it is sent."""

    def batch(self, body: bytes) -> bytearray:
        self._events = _message(_EVENT, body) * self.count
        self._writer = uuid4().bytes
        self._sent = self._acked = 0
        self._messages = _Messages()
        self._template = bytearray(self.spell())
        return self._template

    def spell(self) -> bytes:
        """The bytes of a block."""
        raise NotImplementedError

    def number(self) -> None:
        """Put in what differs from block to block."""
        raise NotImplementedError

    def submit(self) -> None:
        self.number()
        self._sent += 1
        super().submit()

    def credit(self, data: bytes) -> int:
        before = self._acked
        for kind, body in self._messages.feed(data):
            if kind != _APPENDED:
                raise Refused(f"message of type {kind}: {body[:300]!r}")
            self._acked = unpack_from(">q", body, 16)[0] // self.unit
        return self._acked - before

    @property
    def unit(self) -> int:
        """By how much acknowledgements rise from block to block."""
        raise NotImplementedError


class Released(_Segment):
    """AppendBlock that is filled exactly, and AppendBlockEnd."""

    def spell(self) -> bytes:
        size = len(self._events)
        end = (self._writer, pack(">iiiqq", size, 0, self.count, 0, 7))
        return _message(_BEGIN, self._writer, self._events) + _message(_END, *end)

    def open(self) -> None:
        _ask(self.socket, _HELLO, -127)
        _ask(self.socket, _create(self.stream), _CREATED, _EXISTS)
        setup = _message(_SETUP, pack(">q", 1), self._writer, _segment(self.stream), _text(""))
        _ask(self.socket, setup, _APPEND_SETUP)

    def number(self) -> None:
        pack_into(">q", self._template, len(self._template) - 16, (self._sent + 1) * self.count)

    @property
    def unit(self) -> int:
        return self.count


class Draft(_Segment):
    """BeginAppendBlock, events, EndAppendBlock."""

    def spell(self) -> bytes:
        numbers = pack(">qi", 0, len(self._events))
        return _message(_BEGIN, self._writer, numbers) + self._events + _message(_END, self._writer, numbers)

    def open(self) -> None:
        _ask(self.socket, _create(self.stream), _CREATED, _EXISTS)
        _ask(self.socket, _message(_SETUP, self._writer, _segment(self.stream)), _APPEND_SETUP)

    def number(self) -> None:
        pack_into(">q", self._template, 24, self._sent * self.unit)
        pack_into(">q", self._template, len(self._template) - 12, (self._sent + 1) * self.unit)

    @property
    def unit(self) -> int:
        return len(self._events)


LANES[RELEASED], LANES[DRAFT] = Released, Draft

# ---- reads ---------------------------------------------------------------------------------------------------


def _script(port: int, stream: str, records: int, released: bool) -> Script:
    """Reads from the first byte on, each from where the one before ended."""
    name = _segment(stream)
    steps: list[tuple[bytes, int]] = []
    offset = seen = 0
    rest = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        if released:
            _ask(connection, _HELLO, -127)
        while seen < records:
            tail = _text("") + pack(">q", 1) if released else b""
            request = _message(_READ, name, pack(">qi", offset, BLOCK), tail)
            body = _ask(connection, request, _DATA)
            data = body[len(name) + 14 : -8] if released else body[len(name) + 9 :]
            if not data:
                raise Refused(f"{records} records were appended, {seen} came back")
            steps.append((request, 8 + len(body)))
            offset += len(data)
            rest += data
            seen += rest.count(wire.MARKER)
            rest = rest[-len(wire.MARKER) + 1 :]
    opening = (_HELLO, len(_HELLO)) if released else None
    return Script(tuple(steps), seen, closes=False, opening=opening)


SCRIPTS = {
    RELEASED: lambda port, stream, records: _script(port, stream, records, True),
    DRAFT: lambda port, stream, records: _script(port, stream, records, False),
}
"""Writers of scripts, by candidate."""
