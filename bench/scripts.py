"""Catch-up reads as scripts: what to send, and how many bytes come back. Playing one costs a client next to nothing.

A script is written by a first read that is not timed: it checks what the server says, record by record, and notes
the length of each answer. The timed reads then only count bytes.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass

import wire
from lanes import Refused

__all__ = [
    "H2Frames",
    "Script",
    "durable_script",
    "is_whole",
    "read_all",
    "redis_script",
    "s2s_h2_script",
    "s2s_script",
    "s3p_script",
    "sse_h2_script",
    "sse_script",
    "unary_script",
]

PAGE = 1000
"""Records per READ and per XRANGE: the most that both allow by default."""


@dataclass(frozen=True)
class Script:
    """The requests of a reader, piece by piece, each with the number of bytes of its answer.

    `closes`: the server ends the connection after the answer, so that every reading takes a new connection.
    `opening`: what is said once on each connection, and the number of bytes that answer it. `varies`: how the answer
    is cut into chunks does, so that its end is that of the connection, and its length only nearly known.
    `multiplexed`: the request is a header block for HTTP/2, and the answer's bytes are those of its DATA frames.
    """

    steps: tuple[tuple[bytes, int], ...]
    records: int
    closes: bool
    opening: tuple[bytes, int] | None = None
    varies: bool = False
    multiplexed: bool = False

    @property
    def answer_bytes(self) -> int:
        """Bytes that one reading receives."""
        return sum(length for _, length in self.steps)


def read_all(port: int, request: bytes) -> bytes:
    """Everything that the server sends until it closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        pieces = []
        while data := connection.recv(1 << 20):
            pieces.append(data)
    return b"".join(pieces)


def _chunks(body: bytes) -> Iterator[bytes]:
    at = 0
    while True:
        line_end = body.index(b"\r\n", at)
        length = int(body[at:line_end], 16)
        if length == 0:
            return
        yield body[line_end + 2 : line_end + 2 + length]
        at = line_end + 4 + length


def _body(answer: bytes) -> bytes:
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise Refused(answer[:500])
    return b"".join(_chunks(body)) if b"transfer-encoding: chunked" in head.lower() else body


def _check(body: bytes, records: int) -> None:
    if (found := body.count(wire.MARKER)) != records:
        raise Refused(f"{records} records were appended, {found} came back")


class H2Frames:
    """The answer to one request over HTTP/2 after the other, as received bytes bring it.

    `block`: the request's header block. Payloads are skipped, unless `keep` collects those of DATA frames.
    """

    def __init__(self, connection: socket.socket, *, keep: bool = False) -> None:
        self._socket = connection
        self._head = b""
        self._skip = 0
        self._stream = -1
        self._keep = keep
        self.body = bytearray()
        self.data_bytes = 0
        self.ended = False
        connection.sendall(wire.h2_opening() + wire.h2_frame(0x4, 1, 0, b""))

    def ask(self, block: bytes) -> None:
        """Send the next request, on a new stream."""
        self._stream += 2
        self.data_bytes, self.ended = 0, False
        self._socket.sendall(wire.h2_frame(0x1, 0x4 | 0x1, self._stream, block))

    def feed(self, data: memoryview) -> None:
        """Take received bytes. Raises Refused for an answer that is no 200, and for the end of the connection."""
        at, end = 0, len(data)
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                if self._keep and self._kind == 0x0:
                    self.body += data[at : at + step]
                at += step
                self._skip -= step
                continue
            step = min(9 - len(self._head), end - at)
            self._head += data[at : at + step]
            at += step
            if len(self._head) == 9:
                self._begin(self._head)
                self._head = b""

    def _begin(self, head: bytes) -> None:
        self._skip = int.from_bytes(head[:3], "big")
        self._kind, flags = head[3], head[4]
        if self._kind == 0x0:
            self.data_bytes += self._skip
        elif self._kind in (0x3, 0x7):
            raise Refused(f"HTTP/2 frame of type {self._kind}")
        if self._kind in (0x0, 0x1) and flags & 0x1:
            self.ended = True  # no payload follows that matters


def read_all_h2(port: int, block: bytes) -> bytes:
    """The whole body of an answer over HTTP/2."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        frames = H2Frames(connection, keep=True)
        frames.ask(block)
        while not frames.ended:
            data = connection.recv(1 << 20)
            if not data:
                raise Refused("the connection was closed")
            frames.feed(memoryview(data))
        return bytes(frames.body)


def _check_frames(body: bytes) -> None:
    at = 0
    while at < len(body):
        if body[at + 3] != 0:
            raise Refused(f"a frame with flag {body[at + 3]:#x}")
        at += 3 + int.from_bytes(body[at : at + 3], "big")


def _check_events(body: bytes) -> None:
    if not body.endswith(b"data: [DONE]\n\n"):
        raise Refused(body[-300:])


def s2s_script(port: int, stream: str, records: int) -> Script:
    """An S2S read session over HTTP/1.1, bounded to what is there."""
    request = wire.read_session_head(stream, f"seq_num=0&count={records}")
    answer = read_all(port, request)
    body = _body(answer)
    _check_frames(body)
    _check(body, records)
    return Script(((request, len(answer)),), records, closes=True, varies=True)


def sse_script(port: int, stream: str, records: int) -> Script:
    """The same as server-sent events, bodies as JSON text."""
    request = wire.event_stream_head(stream, f"seq_num=0&count={records}")
    answer = read_all(port, request)
    body = _body(answer)
    _check_events(body)
    _check(body, records)
    return Script(((request, len(answer)),), records, closes=True, varies=True)


def s2s_h2_script(port: int, stream: str, records: int) -> Script:
    """An S2S read session over HTTP/2."""
    block = wire.h2_read_head(stream, f"seq_num=0&count={records}")
    body = read_all_h2(port, block)
    _check_frames(body)
    _check(body, records)
    return Script(((block, len(body)),), records, closes=False, multiplexed=True)


def sse_h2_script(port: int, stream: str, records: int) -> Script:
    """The same as server-sent events."""
    block = wire.h2_read_head(stream, f"seq_num=0&count={records}", events=True)
    body = read_all_h2(port, block)
    _check_events(body)
    _check(body, records)
    return Script(((block, len(body)),), records, closes=False, multiplexed=True)


def is_whole(answer: bytes) -> bool:
    """Return whether these bytes are a whole answer over HTTP/1.1, which has a Content-Length. Raises Refused where it
    is an error."""
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise Refused(answer[:500])
    at = head.lower().index(b"content-length:") + 15
    return len(body) >= int(head[at:].partition(b"\r\n")[0])


def _kept_script(port: int, request: bytes) -> Script:
    """One request that has one record as its answer; the connection stays open."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        while not is_whole(answer):
            answer += connection.recv(1 << 20)
    _check(_body(answer), 1)
    return Script(((request, len(answer)),), 1, closes=False)


def unary_script(port: int, stream: str, _records: int) -> Script:
    """A read of the first record as JSON, over HTTP/1.1."""
    return _kept_script(port, wire.small_request("read", stream, b""))


def durable_script(port: int, stream: str, _records: int) -> Script:
    """A read of a whole stream, which has one record, by Durable Streams."""
    return _kept_script(port, wire.durable_read_head(stream))


class _Counting:
    """Asks over one connection and knows how long each answer was."""

    def __init__(self, port: int) -> None:
        import hiredis

        self._reader = hiredis.Reader()
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)

    def ask(self, command: bytes) -> tuple[list[object], int]:
        self.socket.sendall(command)
        length = 0
        while (reply := self._reader.gets()) is False:
            data = self.socket.recv(1 << 20)
            length += len(data)
            self._reader.feed(data)
        if isinstance(reply, Exception):
            raise Refused(str(reply))
        return reply, length


def s3p_script(port: int, stream: str, records: int) -> Script:
    """READ with COUNT, each from behind the last identifier of the one before."""
    asking = _Counting(port)
    steps: list[tuple[bytes, int]] = []
    least, seen = b"0-0", 0
    while seen < records:
        command = wire.resp(b"READ", stream.encode(), [b"COUNT", b"%d" % PAGE, b"MIN_ID", least])
        reply, length = asking.ask(command)
        if not reply:
            raise Refused(f"{records} records were appended, {seen} came back")
        steps.append((command, length))
        seen += len(reply) // 2
        ms, seq = reply[-2].split(b"-")  # type: ignore[attr-defined]
        least = b"%s-%d" % (ms, int(seq) + 1)
    asking.socket.close()
    return Script(tuple(steps), seen, closes=False)


def redis_script(port: int, stream: str, records: int) -> Script:
    """XRANGE with COUNT, each from behind the last identifier of the one before."""
    asking = _Counting(port)
    steps: list[tuple[bytes, int]] = []
    least, seen = b"-", 0
    while seen < records:
        command = wire.resp(b"XRANGE", stream.encode(), least, b"+", b"COUNT", b"%d" % PAGE)
        reply, length = asking.ask(command)
        if not reply:
            raise Refused(f"{records} records were appended, {seen} came back")
        steps.append((command, length))
        seen += len(reply)
        least = b"(" + reply[-1][0]  # type: ignore[index]
    asking.socket.close()
    return Script(tuple(steps), seen, closes=False)
