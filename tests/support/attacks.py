"""Hostile clients: each a table entry that says what its connections send, and when.

Used by tests (a thread beside a well-behaved client) and by `bench/hostile.py` (a process of its own).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Self
from uuid import UUID

from support.segment.client import bytes_of

from penstock_kafka.codec import API_OF, KafkaClient, KafkaMessage, KafkaRequest
from penstock_kafka.codec.group_messages import DescribeGroupsRequest
from penstock_kafka.codec.record_messages import FetchPartition, FetchRequest, FetchTopic
from penstock_kafka.codec.topic_messages import CreatableTopic, CreateTopicsRequest
from penstock_pravega.codec import released

__all__ = ["ATTACKS", "FROM", "Attack", "Attacker", "source_of"]

FROM: Final = "127.0.0.2"
"""Address that attackers connect from, which makes them another client than the well-behaved one."""


def source_of(name: str) -> str:
    """Return the address that an attack comes from: each has its own, as the gateway keeps state per address."""
    return f"127.0.1.{1 + list(ATTACKS).index(name)}"


_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _PRIORITY, _RESET, _SETTINGS, _PING, _WINDOW, _CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
_END_STREAM, _END_HEADERS = 1, 4
_CANCEL: Final = struct.pack(">I", 8)
_AUTHORITY, _PATH = 1, 4  # of the static table


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return a frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + payload


def _literal(name: int, value: bytes) -> bytes:
    assert len(value) < 127
    return bytes([name, len(value)]) + value


_HELLO2: Final = _PREFACE + frame(_SETTINGS, 0, 0)
_GET: Final = b"\x82\x86" + _literal(_AUTHORITY, b"h") + _literal(_PATH, b"/v1/streams/hostile/records/tail")
_POST: Final = b"\x83\x86" + _literal(_AUTHORITY, b"h") + _literal(_PATH, b"/v1/streams/hostile/records")
_READ: Final = b"\x82\x86" + _literal(_AUTHORITY, b"h") + _literal(_PATH, b"/v1/streams/much/records?seq_num=0")
_HALF_HEAD2: Final = _HELLO2 + frame(_HEADERS, 0, 1, _GET + bytes(9000))[:20]
_BASIN: Final = b"\x00\x08s2-basin\x08penstock"
_S2S: Final = b"\x00\x0ccontent-type\x09s2s/proto"
_HTTP1: Final = b"POST /v1/streams/hostile/records HTTP/1.1\r\nhost: localhost\r\ns2-basin: penstock\r\n"
_HALF_MESSAGE: Final = struct.pack(">ii", released.AppendBlock.type_id, 15 << 20) + UUID(int=1).bytes
_ELEMENTS: Final = 9_999
"""Topics, partitions or groups of a request, as many as the gateway takes by default, with one for their topic."""
_KEEP_ALIVES: Final = bytes_of(released.Hello(16, 5)) + bytes_of(released.KeepAlive()) * 500


def nothing(_turn: int) -> bytes:
    """Says nothing more."""
    return b""


def _requests(turn: int, count: int, of: Callable[[int], bytes]) -> bytes:
    return b"".join(of(1 + 2 * (turn * count + number)) for number in range(count))


def _reset_at_once(stream_id: int) -> bytes:
    return frame(_HEADERS, _END_STREAM | _END_HEADERS, stream_id, _GET + _BASIN) + frame(_RESET, 0, stream_id, _CANCEL)


def _made_to_reset(stream_id: int) -> bytes:
    """Return frames that make the server reset a stream: a window that overflows."""
    return frame(_HEADERS, _END_HEADERS, stream_id, _POST + _BASIN) + frame(
        _WINDOW, 0, stream_id, struct.pack(">I", 2**31 - 1)
    )


def _settings(turn: int) -> bytes:
    sizes = (1 + turn % 2, 2**31 - 1)
    return b"".join(frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, size)) for size in sizes) * 50


def _open_streams(count: int) -> bytes:
    return b"".join(frame(_HEADERS, _END_HEADERS, 1 + 2 * n, _POST + _BASIN + _S2S) for n in range(count))


def _bomb(turn: int) -> bytes:
    """One header of 4,000 bytes, which 16,000 bytes refer to as often: 64 MB in one head."""
    header = b"\x40\x01x\x7f" + bytes([4000 - 127 & 127 | 128, 4000 - 127 >> 7]) + b"x" * 4000
    return frame(_HEADERS, _END_HEADERS | _END_STREAM, 1 + 2 * turn, _GET + header + b"\xbe" * 12_000)


def _kafka(version: int, message: KafkaMessage) -> bytes:
    return b"".join(KafkaClient().send(KafkaRequest(API_OF[type(message)], version, 1, "hostile", message)))


@cache
def _bad_topics() -> bytes:
    """Return a request to create topics without partitions, which are refused one by one."""
    topics = [CreatableTopic(name=f"t{number}", num_partitions=0) for number in range(_ELEMENTS)]
    return _kafka(5, CreateTopicsRequest(topics=topics, validate_only=True))


@cache
def _absent_partitions() -> bytes:
    """Return a request for records of a topic that is not there."""
    partitions = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in range(_ELEMENTS)]
    topics = [FetchTopic(topic="absent", partitions=partitions)]
    return _kafka(11, FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics))


@cache
def _group_names() -> bytes:
    """Return a request about groups that are not there."""
    return _kafka(5, DescribeGroupsRequest(groups=[f"g{number}" for number in range(_ELEMENTS)]))


@dataclass(frozen=True)
class Attack:
    """`opening` is sent at once on each connection, `more(turn)` every `pause` seconds after it. `reads`: takes what
    comes. `again`: connects anew when it is cut off. `reset`: ends its connections by RST after their opening, and
    connects anew. `half_closed`: says that it has finished, and stays. `buffer`: bytes that its system takes for it."""

    port: str
    connections: int
    opening: bytes = b""
    more: Callable[[int], bytes] = nothing
    pause: float = 0.05
    reads: bool = True
    again: bool = True
    reset: bool = False
    half_closed: bool = False
    buffer: int | None = None


ATTACKS: Final[dict[str, Attack]] = {
    # ---- half-said requests that drip
    "slowloris http/1.1": Attack("s2", 200, b"GET / HTTP/1.1\r\nx: ", lambda _: b"x", again=False),
    "slowloris h2": Attack("s2", 200, _HALF_HEAD2, lambda _: b"\0", again=False),
    "slowloris body": Attack(
        "s2",
        200,
        _HTTP1 + b"content-type: application/json\r\ncontent-length: 99999\r\n\r\n{",
        lambda _: b" ",
        again=False,
    ),
    "slowloris s2s": Attack(
        "s2",
        200,
        _HTTP1 + b"content-type: s2s/proto\r\ncontent-length: 99999\r\n\r\n\x00\xff\xff\x00",
        lambda _: b"\0",
        again=False,
    ),
    "slowloris durable": Attack(
        "durable",
        200,
        b"PUT /v1/stream/hostile HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n"
        b"content-length: 99999\r\n\r\nx",
        lambda _: b"x",
        again=False,
    ),
    "slowloris s3p": Attack("s3p", 200, b"*4\r\n$6\r\nAPPEND\r\n$200\r\n", lambda _: b"x", again=False),
    "slowloris segment": Attack("segment", 200, bytes_of(released.Hello(16, 5))[:6], lambda _: b"\0", again=False),
    "slowloris controller": Attack("controller", 200, _HALF_HEAD2, lambda _: b"\0", again=False),
    # ---- half-received messages that take memory
    "half messages segment": Attack(
        "segment",
        120,
        bytes_of(released.Hello(16, 5)) + _HALF_MESSAGE,
        lambda turn: bytes(1 << 19) if turn < 28 else b"",
    ),
    "half appends s3p": Attack(
        "s3p",
        200,
        b"*4\r\n$6\r\nAPPEND\r\n$1\r\nx\r\n*0\r\n*2\r\n$1000000\r\n",
        lambda turn: bytes(90_000) if turn < 11 else b"",
    ),
    "half bodies h2": Attack(
        "s2",
        4,
        _HELLO2 + _open_streams(100),
        lambda _: b"".join(frame(_DATA, 0, 1 + 2 * n, b"\x1f\xff\xff\x00" + bytes(12_000)) for n in range(100)),
    ),
    # ---- ends that are none
    "half-open": Attack("s2", 200, _HTTP1 + b"content-length: 9\r\n\r\n", half_closed=True, again=False),
    "reset s2": Attack("s2", 50, b"GET /v1/basins HTTP/1.1\r\nhost: localhost\r\n\r\n", reset=True),
    "reset s3p": Attack("s3p", 50, b"*4\r\n$6\r\nAPPEND\r\n", reset=True),
    "reset segment": Attack("segment", 50, bytes_of(released.Hello(16, 5)), reset=True),
    "connects and goes": Attack("s2", 50, reset=True),
    # ---- floods of tiny frames
    "tiny chunks http/1.1": Attack(
        "s2",
        4,
        _HTTP1 + b"content-type: s2s/proto\r\ntransfer-encoding: chunked\r\n\r\n",
        lambda _: b"1;x=y\r\n\0\r\n" * 500,
        pause=0.01,
    ),
    "pipelined http/1.1": Attack(
        "s2", 4, more=lambda _: b"GET /v1/nothing HTTP/1.1\r\nhost: localhost\r\n\r\n" * 100, pause=0.01, reads=False
    ),
    "tiny data h2": Attack(
        "s2",
        4,
        _HELLO2 + frame(_HEADERS, _END_HEADERS, 1, _POST + _BASIN + _S2S),
        lambda _: frame(_DATA, 0, 1, b"\0") * 500,
        pause=0.01,
    ),
    "tiny commands s3p": Attack("s3p", 4, more=lambda _: b"*2\r\n$6\r\nDELETE\r\n$7\r\nnothing\r\n" * 200, pause=0.01),
    "tiny messages segment": Attack("segment", 4, _KEEP_ALIVES, lambda _: bytes_of(released.KeepAlive()) * 500, 0.01),
    # ---- HTTP/2's own
    "rapid reset": Attack("s2", 4, _HELLO2, lambda turn: _requests(turn, 100, _reset_at_once), 0.01),
    "made to reset": Attack("s2", 4, _HELLO2, lambda turn: _requests(turn, 100, _made_to_reset), 0.01),
    "rapid reset controller": Attack("controller", 4, _HELLO2, lambda turn: _requests(turn, 100, _reset_at_once), 0.01),
    "continuation flood": Attack(
        "s2",
        4,
        _HELLO2 + frame(_HEADERS, 0, 1, _GET),
        lambda _: frame(_CONTINUATION, 0, 1, b"\x00\x01a\x01b") * 500,
        0.01,
    ),
    "empty continuations": Attack(
        "s2", 4, _HELLO2 + frame(_HEADERS, 0, 1, _GET), lambda _: frame(_CONTINUATION, 0, 1) * 500, 0.01
    ),
    "ping flood": Attack("s2", 4, _HELLO2, lambda _: frame(_PING, 0, 0, bytes(8)) * 500, 0.01),
    "ping flood unread": Attack("s2", 4, _HELLO2, lambda _: frame(_PING, 0, 0, bytes(8)) * 500, 0.01, reads=False),
    "settings flood": Attack("s2", 4, _HELLO2, lambda _: frame(_SETTINGS, 0, 0) * 500, 0.01),
    "empty data": Attack(
        "s2",
        4,
        _HELLO2 + frame(_HEADERS, _END_HEADERS, 1, _POST + _BASIN + _S2S),
        lambda _: frame(_DATA, 0, 1) * 500,
        0.01,
    ),
    "priority flood": Attack("s2", 4, _HELLO2, lambda _: frame(_PRIORITY, 0, 3, struct.pack(">IB", 1, 1)) * 500, 0.01),
    "window games": Attack("s2", 4, _HELLO2 + _open_streams(90), _settings, 0.01),
    "window updates": Attack("s2", 4, _HELLO2, lambda _: frame(_WINDOW, 0, 0, struct.pack(">I", 1)) * 500, 0.01),
    "header bomb h2": Attack("s2", 4, _HELLO2, _bomb, 0.01),
    "header bomb http/1.1": Attack("s2", 4, b"GET / HTTP/1.1\r\n", lambda _: b"x: " + b"y" * 8000 + b"\r\n", 0.01),
    "many headers http/1.1": Attack("s2", 4, b"GET / HTTP/1.1\r\n", lambda _: b"x:\r\n" * 2000, 0.01),
    # ---- requests of many elements
    "many topics kafka": Attack("kafka", 4, more=lambda _: _bad_topics()),
    "many partitions kafka": Attack("kafka", 4, more=lambda _: _absent_partitions()),
    "many groups kafka": Attack("kafka", 4, more=lambda _: _group_names()),
    # ---- readers that take nothing
    "unread answers http/1.1": Attack(
        "s2",
        100,
        b"GET /v1/streams/much/records?seq_num=0 HTTP/1.1\r\nhost: localhost\r\ns2-basin: penstock\r\n"
        b"content-type: s2s/proto\r\n\r\n",
        reads=False,
        again=False,
        buffer=4096,
    ),
    "unread answers h2": Attack(
        "s2",
        20,
        _PREFACE
        + frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, 1))
        + b"".join(frame(_HEADERS, _END_STREAM | _END_HEADERS, 1 + 2 * n, _READ + _BASIN + _S2S) for n in range(50)),
        reads=False,
        again=False,
    ),
    # ---- only there
    "idle": Attack("s2", 1000, again=False),
}
"""By name."""


@dataclass
class _Connection:
    socket: socket.socket
    turn: int = 0
    unsent: bytes = b""


@dataclass
class Attacker:
    """Carries out one attack, in a thread, until it is left. `opened`, `ended`: connections so far, and how many of
    them the gateway has ended."""

    attack: Attack
    address: tuple[str, int]
    source: str = FROM
    connections: int = 0
    opened: int = 0
    ended: int = 0
    refused: int = 0
    turns: int = 0
    _open: list[_Connection] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def run(self, seconds: float = float("inf")) -> None:
        """Attack for `seconds`, or until stopped."""
        until = time.monotonic() + seconds
        for _ in range(self.connections or self.attack.connections):
            self._connect()
        while not self._stop.is_set() and time.monotonic() < until:
            self.turns += 1
            for connection in list(self._open):
                self._take_turn(connection)
            self._stop.wait(self.attack.pause)
        for connection in self._open:
            connection.socket.close()
        self._open.clear()

    @property
    def open(self) -> int:
        """Connections that are open, as far as it knows."""
        return len(self._open)

    def _connect(self) -> None:
        if self._stop.is_set():
            return
        attack = self.attack
        one = socket.socket()
        try:
            if attack.buffer:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, attack.buffer)
            one.settimeout(5)
            one.bind((self.source, 0))
            one.connect(self.address)
        except OSError:
            self.refused += 1
            one.close()
            return
        self.opened += 1
        one.setblocking(False)
        connection = _Connection(one, unsent=attack.opening)
        self._open.append(connection)
        self._send(connection)
        with contextlib.suppress(OSError):
            if attack.half_closed:
                one.shutdown(socket.SHUT_WR)

    def _take_turn(self, connection: _Connection) -> None:
        attack = self.attack
        if attack.reset:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._end(connection)
            return
        if attack.reads and not self._drain(connection.socket):
            self.ended += 1
            self._end(connection)
            return
        if attack.half_closed:
            return
        if not connection.unsent:
            connection.unsent = attack.more(connection.turn)
            connection.turn += 1
        if not self._send(connection):
            self.ended += 1
            self._end(connection)

    def _end(self, connection: _Connection) -> None:
        connection.socket.close()
        self._open.remove(connection)
        if self.attack.again:
            self._connect()

    @staticmethod
    def _drain(one: socket.socket) -> bool:
        try:
            for _ in itertools.repeat(None, 16):
                if not one.recv(1 << 18):
                    return False
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    @staticmethod
    def _send(connection: _Connection) -> bool:
        if not connection.unsent:
            return True
        try:
            sent = connection.socket.send(connection.unsent)
        except BlockingIOError:
            return True
        except OSError as error:
            return error.errno == errno.ENOTCONN
        connection.unsent = connection.unsent[sent:]
        return True

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()
