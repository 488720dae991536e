"""One connection of the benchmark's client per protocol: how it opens, what a batch is, how answers are counted.

A lane owns a non-blocking socket. `credit` takes what was received and says how many batches it acknowledges; it
does as little as tells the truth, so that the client is not what is measured. An answer that is an error raises
`Refused`.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from time import perf_counter

import wire

__all__ = ["LANES", "Lane", "Refused"]


class Refused(Exception):
    """The server answered with an error; the message holds the beginning of its answer."""


class Lane:
    """A connection that sends batches and counts acknowledgements."""

    def __init__(self, port: int, stream: str, body: bytes, count: int) -> None:
        self.stream = stream
        self.count = count
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pending = memoryview(b"")  # bytes that the socket did not take yet
        self.sent_at: deque[float] = deque()  # of the batches in flight
        self.blocks: Iterator[bytes | bytearray] = itertools.repeat(self.batch(body))
        self.open()
        self.socket.setblocking(False)

    def batch(self, body: bytes) -> bytes | bytearray:
        """The bytes of one batch."""
        raise NotImplementedError

    def open(self) -> None:
        """Everything up to the point where batches can be sent; the socket still blocks."""

    def credit(self, data: bytes) -> int:
        """Return the number of batches that these received bytes acknowledge."""
        raise NotImplementedError

    def may_send(self) -> bool:
        """Return whether flow control lets one more batch go."""
        return True

    def submit(self) -> None:
        """Send a batch, as far as the socket takes it."""
        self.sent_at.append(perf_counter())
        self.pending = memoryview(next(self.blocks))
        self.flush()

    def flush(self) -> None:
        """Send what is pending, as far as the socket takes it."""
        with contextlib.suppress(BlockingIOError):
            self.pending = self.pending[self.socket.send(self.pending) :]

    def close(self) -> None:
        self.socket.close()


class _Frames:
    """Counts S2S frames in a stream of bytes."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> int:
        data = self._held + data
        at = frames = 0
        while len(data) - at >= 4:
            end = at + 3 + int.from_bytes(data[at : at + 3], "big")
            if data[at + 3] & 0x80:
                raise Refused(data[at : at + 300])
            if end > len(data):
                break
            at = end
            frames += 1
        self._held = data[at:]
        return frames


class S2SOverHttp1(Lane):
    """S2S append session over HTTP/1.1, one chunk per frame."""

    def batch(self, body: bytes) -> bytes:
        return wire.chunk(wire.append_frame(body, self.count))

    def open(self) -> None:
        self._frames = _Frames()
        self._held = b""
        self.socket.sendall(wire.session_head(self.stream))
        head = b""
        while b"\r\n\r\n" not in head:
            head += self._receive()
        head, _, rest = head.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200") or rest:
            raise Refused(head + rest)

    def _receive(self) -> bytes:
        data = self.socket.recv(65536)
        if not data:
            raise Refused("the connection was closed")
        return data

    def credit(self, data: bytes) -> int:
        data = self._held + data
        at = acks = 0
        while (line_end := data.find(b"\r\n", at)) >= 0:
            begin = line_end + 2
            end = begin + int(data[at:line_end], 16)
            if end + 2 > len(data):
                break
            acks += self._frames.feed(data[begin:end])
            at = end + 2
        self._held = data[at:]
        return acks


class S2SOverHttp2(Lane):
    """S2S append session over HTTP/2 with prior knowledge, on stream 1."""

    def streams(self) -> Sequence[str]:
        """Return the streams that have sessions on this connection."""
        return (self.stream,)

    def batch(self, body: bytes) -> bytes:
        frame = wire.append_frame(body, self.count)
        self._cost = len(frame)  # what flow control counts
        return wire.h2_data(frame)

    def open(self) -> None:
        self._frames = _Frames()
        self._held = b""
        self._windows = {0: 65_535, 1: 65_535}
        self._initial = 65_535
        self._replies = b""
        self._answered = 0
        heads = [
            wire.h2_frame(0x1, 0x4, 2 * index + 1, wire.h2_session_head(stream))
            for index, stream in enumerate(self.streams())
        ]
        self.socket.sendall(wire.h2_opening() + b"".join(heads))
        while self._answered < len(heads):
            self.credit(self.socket.recv(65536) or self._closed())

    def _closed(self) -> bytes:
        raise Refused("the connection was closed")

    def may_send(self) -> bool:
        return min(self._windows.values()) >= self._cost

    def submit(self) -> None:
        for number in self._windows:
            self._windows[number] -= self._cost
        self.sent_at.append(perf_counter())
        self.pending = memoryview(self._replies + next(self.blocks))
        self._replies = b""
        self.flush()

    def credit(self, data: bytes) -> int:
        data = self._held + data
        at = acks = 0
        while len(data) - at >= 9:
            end = at + 9 + int.from_bytes(data[at : at + 3], "big")
            if end > len(data):
                break
            kind, flags = data[at + 3], data[at + 4]
            payload = data[at + 9 : end]
            if kind == 0x0:
                acks += self._frames.feed(payload)
            else:
                self._control(kind, flags, int.from_bytes(data[at + 5 : at + 9], "big"), payload)
            at = end
        self._held = data[at:]
        if self._replies and not self.pending:
            self.pending, self._replies = memoryview(self._replies), b""
            self.flush()
        return acks

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == 0x1:
            if not payload.startswith(b"\x88"):  # :status 200 of the static table (RFC 7541, appendix A)
                raise Refused(payload)
            self._answered += 1
        elif kind == 0x4 and not flags & 1:
            for offset in range(0, len(payload), 6):
                if payload[offset : offset + 2] == b"\x00\x04":
                    initial = int.from_bytes(payload[offset + 2 : offset + 6], "big")
                    self._windows[1] += initial - self._initial
                    self._initial = initial
            self._replies += wire.h2_frame(0x4, 1, 0, b"")
        elif kind == 0x6 and not flags & 1:
            self._replies += wire.h2_frame(0x6, 1, 0, payload)
        elif kind == 0x8 and stream in self._windows:
            self._windows[stream] += int.from_bytes(payload, "big")
        elif kind in (0x3, 0x7):
            raise Refused(f"HTTP/2 frame of type {kind}: {payload!r}")


class _Replies(Lane):
    """Servers that answer with RESP bulk strings, `per_batch` of them to a batch."""

    per_batch = 1

    def open(self) -> None:
        self._lines = 0

    def ask(self, command: bytes) -> bytes:
        """One command with a one-line answer, before the socket is made non-blocking."""
        self.socket.sendall(command)
        answer = b""
        while not answer.endswith(b"\r\n"):
            answer += self.socket.recv(4096)
        return answer

    def credit(self, data: bytes) -> int:
        if b"ERR" in data:
            raise Refused(data[:300])
        before = self._lines // (2 * self.per_batch)  # a bulk string is two lines
        self._lines += data.count(b"\n")
        return self._lines // (2 * self.per_batch) - before


class S3P(_Replies):
    """S3P: a batch is one APPEND."""

    def batch(self, body: bytes) -> bytes:
        return wire.resp(b"APPEND", self.stream.encode(), (), [body] * self.count)

    def open(self) -> None:
        super().open()
        answer = self.ask(wire.resp(b"CREATE", self.stream.encode(), ()))
        if not answer.startswith((b"+OK", b"-ERR_STREAM_EXISTS")):
            raise Refused(answer)


class Redis(_Replies):
    """redis-server: a batch is as many XADD commands as a batch has records, sent in one go."""

    def batch(self, body: bytes) -> bytes:
        self.per_batch = self.count
        return wire.xadd(self.stream, body, self.count)


LANES: dict[str, type[Lane]] = {
    "S2S h1": S2SOverHttp1,
    "S2S h2": S2SOverHttp2,
    "S3P": S3P,
    "redis": Redis,
}
