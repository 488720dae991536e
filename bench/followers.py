"""A connection that follows a stream and counts records as they arrive, per protocol."""

from __future__ import annotations

import socket

import wire
from lanes import Refused

__all__ = ["FOLLOWERS", "SHARED_BY", "Follower"]

SHARED_BY = 100
"""Followers on a connection that is shared; the gateway lets a client without a token have as many."""


class Follower:
    """Follows `stream` from its beginning. `feed` says how many records the received bytes complete."""

    def __init__(self, port: int, stream: str) -> None:
        self.stream = stream
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""
        self.open()
        self.socket.setblocking(False)

    def open(self) -> None:
        """Ask for the stream; the socket still blocks."""
        raise NotImplementedError

    def feed(self, data: bytes) -> int:
        """Counts the marker that every body begins with, wherever the bytes are cut."""
        data = self._held + data
        self._held = data[len(data) - len(wire.MARKER) + 1 :]
        return data.count(wire.MARKER)

    def close(self) -> None:
        self.socket.close()


class _Pushed(Follower):
    """The server sends by itself, from one request on."""

    def head(self) -> bytes:
        raise NotImplementedError

    def open(self) -> None:
        self.socket.sendall(self.head())
        answer = self.socket.recv(65536)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise Refused(answer)
        self.feed(answer)


class S2SFollower(_Pushed):
    def head(self) -> bytes:
        return wire.read_session_head(self.stream, "seq_num=0")


class SSEFollower(_Pushed):
    def head(self) -> bytes:
        return wire.event_stream_head(self.stream, "seq_num=0")


class S2SFollowerH2(Follower):
    """Over HTTP/2, on a connection of its own."""

    def open(self) -> None:
        block = wire.h2_read_head(self.stream, "seq_num=0")
        settled = wire.h2_frame(0x4, 1, 0, b"")
        self.socket.sendall(wire.h2_opening() + wire.h2_frame(0x1, 0x4 | 0x1, 1, block) + settled)
        answer = b""
        while b"\x88" not in answer:  # :status 200 of the static table (RFC 7541, appendix A)
            data = self.socket.recv(65536)
            if not data:
                raise Refused("the connection was closed")
            answer += data
        self.feed(answer)


class SharedS2SFollowerH2(Follower):
    """Over HTTP/2, on a connection with up to SHARED_BY - 1 others, which were opened just before it."""

    _last: tuple[int, socket.socket, int] | None = None  # port, connection, number of followers

    def __init__(self, port: int, stream: str) -> None:
        self.stream = stream
        self._held = b""
        last = SharedS2SFollowerH2._last
        if last is not None and last[0] == port and last[1].fileno() >= 0 and last[2] < SHARED_BY:
            _, self.socket, number = last
        else:
            number, self.socket = 0, socket.create_connection(("127.0.0.1", port), timeout=20)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.sendall(wire.h2_opening() + wire.h2_frame(0x4, 1, 0, b""))
        SharedS2SFollowerH2._last = port, self.socket, number + 1
        block = wire.h2_read_head(stream, "seq_num=0")
        self.socket.sendall(wire.h2_frame(0x1, 0x4 | 0x1, 2 * number + 1, block))


class _Polled(Follower):
    """The client asks again after each answer: a blocking read from behind the last record it saw."""

    def open(self) -> None:
        import hiredis

        self._reader = hiredis.Reader()
        self._ask()

    def command(self) -> bytes:
        raise NotImplementedError

    def take(self, reply: list[object]) -> int:
        """Notes the last identifier of a reply; how many records it holds."""
        raise NotImplementedError

    def _ask(self) -> None:
        self.socket.send(self.command())  # some 80 bytes into an empty buffer: never cut

    def feed(self, data: bytes) -> int:
        self._reader.feed(data)
        records = 0
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, Exception):
                raise Refused(str(reply))
            if reply:
                records += self.take(reply)
            self._ask()
        return records


class S3PFollower(_Polled):
    least = b"0-0"

    def command(self) -> bytes:
        return wire.resp(b"READ", self.stream.encode(), [b"BLOCK", b"5000", b"MIN_ID", self.least])

    def take(self, reply: list[object]) -> int:
        assert isinstance(reply[-2], bytes)
        ms, seq = reply[-2].split(b"-")
        self.least = b"%s-%d" % (ms, int(seq) + 1)
        return len(reply) // 2


class RedisFollower(_Polled):
    last = b"0-0"

    def command(self) -> bytes:
        return wire.resp(b"XREAD", b"BLOCK", b"5000", b"STREAMS", self.stream.encode(), self.last)

    def take(self, reply: list[object]) -> int:
        entries = reply[0][1]  # type: ignore[index]
        self.last = entries[-1][0]
        return len(entries)


FOLLOWERS: dict[str, type[Follower]] = {
    "S2S h1": S2SFollower,
    "S2S h2": S2SFollowerH2,
    "S2S h2, shared": SharedS2SFollowerH2,
    "SSE": SSEFollower,
    "S3P": S3PFollower,
    "redis": RedisFollower,
}
