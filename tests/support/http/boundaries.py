"""The boundaries between the messages of a connection that speaks HTTP, of either version."""

from __future__ import annotations

import re

from support.boundaries import MessageBoundaries

from penstock.wire.http import PREFACE

__all__ = ["Boundaries"]

_FRAME_HEADER = 9
_DATA = b"\x00"
_HEADERS = b"\x01"
_CHUNK = re.compile(rb"[0-9a-fA-F]+\r\n")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked\r\n", re.IGNORECASE)


class Boundaries(MessageBoundaries):
    """Those of HTTP/2's preface and frames, or of HTTP/1.1's heads, chunks, and bodies with a length."""

    def __init__(self) -> None:
        super().__init__()
        self._next = self._head

    def _size(self) -> int:
        return self._next()

    def data(self, message: bytes) -> bytes:
        """Return what a message carries of a body: a DATA frame's or a chunk's; empty for another message."""
        if self._next == self._frame:
            return message[_FRAME_HEADER:] if message[3:4] == _DATA else b""
        chunk = _CHUNK.match(message)
        return b"" if chunk is None else message[chunk.end() : -2]

    def repeatable(self, message: bytes) -> bool:
        """Return whether a message may arrive twice.

        Not HTTP/2's headers, which change the state that both ends compress the next ones with. Not HTTP/1.1's
        requests: each is answered, and nothing tells which answer belongs to which. Not its chunks with content, which
        nothing tells from content that is there twice.
        """
        if self._next == self._frame:
            return message[3:4] != _HEADERS
        return not self.data(message) and not message.partition(b"\r\n")[0].endswith(b" HTTP/1.1")

    def _head(self) -> int:
        rest = self._rest
        if len(rest) < _FRAME_HEADER:
            return 0
        if rest[:1] < b"A" or rest.startswith(PREFACE[:_FRAME_HEADER]):
            self._next = self._frame
            return len(PREFACE) if rest.startswith(b"P") else self._frame()
        end = rest.find(b"\r\n\r\n") + 4
        if end < 4:
            return 0
        head = rest[: end - 2]
        if _CHUNKED.search(head):
            self._next = self._chunk
        elif (length := _LENGTH.search(head)) and int(length[1]):
            self._body = int(length[1])
            self._next = self._whole_body
        return end

    def _whole_body(self) -> int:
        if len(self._rest) >= self._body:
            self._next = self._head
        return self._body

    def _chunk(self) -> int:
        end = self._rest.find(b"\r\n") + 2
        if end < 2:
            return 0
        length = int(self._rest[: end - 2].partition(b";")[0], 16)
        if not length and len(self._rest) >= end + 2:
            self._next = self._head
        return end + length + 2

    def _frame(self) -> int:
        if len(self._rest) < _FRAME_HEADER:
            return 0
        return _FRAME_HEADER + int.from_bytes(self._rest[:3], "big")
