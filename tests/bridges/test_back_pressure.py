"""A back that takes nothing more slows its own clients only; memory is bounded; nothing is acknowledged too early."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from support.pravega.relay import Relay
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.s2.client import S2Client
from support.s2.frames import FrameReader, append_input, encode_frame
from support.s3p.client import S3PClient, encode

from penstock_proto import s2_pb2 as pb

ROUTES = """
[backs.far]
kind = "{kind}"
address = "127.0.0.1:{port}"
request_seconds = 60

[[routes]]
name = "far"
match = "prefix"
stream = "far-"
back = "far"

[[routes]]
name = "near"
"""
BODY = bytes(range(256)) * 2000
STUCK_SECONDS = 1.0
"""A writer whose bytes are not taken for so long is taken to be stuck."""
WRITERS = 4
MOST_BYTES = 48 << 20
"""Bytes that one writer may hand over while nothing is read from the gateway, including the system's buffers."""
MOST_MEMORY = WRITERS * MOST_BYTES


@contextmanager
def bridge(kind: str) -> Iterator[tuple[GatewayProcess, Relay]]:
    """A gateway, and a slow server behind it for some of its streams."""
    with running_gateway() as server:
        port = {"s2": server.s2_port, "s3p": server.s3p_port, "segment": server.segment_port}[kind]
        with (
            Relay(port) as between,
            running_gateway(CONFIG + ROUTES.format(kind=kind, port=between.port)) as gateway,
        ):
            yield gateway, between


class Writer:
    """Sends one record of BODY after the other, as far as the gateway takes them."""

    def __init__(self, port: int, stream: str) -> None:
        self.stream = stream
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.unit = self.begin()
        self.pending = memoryview(b"")
        self.sent = 0  # records, the last one maybe by halves
        self.acknowledged = 0

    def begin(self) -> bytes:
        """The bytes of one append."""
        raise NotImplementedError

    def acknowledgements(self, data: bytes) -> int:
        """Return how many appends these bytes acknowledge."""
        raise NotImplementedError

    def push(self) -> int:
        """Send until it is stuck; the bytes that were taken."""
        taken = 0
        while taken < 2 * MOST_BYTES and select.select([], [self.socket], [], STUCK_SECONDS)[1]:
            if not self.pending:
                self.pending = memoryview(self.unit)
                self.sent += 1
            count = self.socket.send(self.pending[: 1 << 16])
            self.pending = self.pending[count:]
            taken += count
        return taken

    def finish(self) -> None:
        """Send what is left of the last append, and wait until all are acknowledged."""
        while self.pending or self.acknowledged < self.sent:
            readable, writable, _ = select.select([self.socket], [self.socket] if self.pending else [], [], 60)
            assert readable or writable, f"{self.acknowledged} of {self.sent} are acknowledged"
            if writable:
                self.pending = self.pending[self.socket.send(self.pending[: 1 << 16]) :]
            if readable:
                self.acknowledged += self.acknowledgements(self.socket.recv(1 << 16))


class S2SWriter(Writer):
    """An append session over HTTP/1.1."""

    def begin(self) -> bytes:
        path = f"/v1/streams/{self.stream}/records"
        lines = (f"POST {path} HTTP/1.1", "host: localhost", f"s2-basin: {BASIN}", "content-type: s2s/proto")
        self.socket.sendall("\r\n".join((*lines, "transfer-encoding: chunked", "", "")).encode())
        self._head = b""
        self._body = b""
        self._frames = FrameReader()
        frame = encode_frame(append_input(BODY))
        return b"%x\r\n%s\r\n" % (len(frame), frame)

    def acknowledgements(self, data: bytes) -> int:
        if b"\r\n\r\n" not in self._head:
            self._head += data
            first, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return 0
            assert first.startswith(b"HTTP/1.1 200"), self._head
        self._body += data
        found = 0
        while b"\r\n" in self._body:
            size, _, rest = self._body.partition(b"\r\n")
            count = int(size, 16)
            if len(rest) < count + 2:
                break
            found += len([pb.AppendAck.FromString(frame.message) for frame in self._frames.feed(rest[:count])])
            self._body = rest[count + 2 :]
        return found


class S3PWriter(Writer):
    """Pipelined APPENDs."""

    def begin(self) -> bytes:
        self._lines = 0
        return encode(["APPEND", self.stream, [], [BODY]])

    def acknowledgements(self, data: bytes) -> int:
        assert b"ERR" not in data, data
        before = self._lines // 2  # a bulk string is two lines
        self._lines += data.count(b"\n")
        return self._lines // 2 - before


PAIRS = [("S2S", "segment"), ("S3P", "s2"), ("S2S", "s2"), ("S2S", "s3p"), ("S3P", "segment")]


@pytest.mark.parametrize(
    ("front", "kind"),
    [pytest.param(*pair, id="-".join(pair), marks=() if at < 2 else pytest.mark.long) for at, pair in enumerate(PAIRS)],
)
def test_a_slow_back_slows_its_own_clients_only(front: str, kind: str) -> None:
    with bridge(kind) as (gateway, between), ExitStack() as sockets:
        s2 = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
        streams = [f"far-{number}" for number in range(WRITERS)]
        with_s3p = S3PClient(("127.0.0.1", gateway.s3p_port))
        sockets.callback(with_s3p.close)
        for stream in streams:
            assert with_s3p.create(stream) == "OK"
        port = gateway.s2_port if front == "S2S" else gateway.s3p_port
        writers = [(S2SWriter if front == "S2S" else S3PWriter)(port, stream) for stream in streams]
        for writer in writers:
            sockets.enter_context(writer.socket)
        if front == "S2S":
            for writer in writers:  # its head is there, so that what follows are acknowledgements
                while b"\r\n\r\n" not in writer._head:
                    assert writer.acknowledgements(writer.socket.recv(1 << 16)) == 0
        memory = gateway.resident_bytes()

        between.flows.clear()
        taken = [writer.push() for writer in writers]
        assert all(some < MOST_BYTES for some in taken), taken
        assert gateway.resident_bytes() - memory < MOST_MEMORY
        assert not select.select([writer.socket for writer in writers], [], [], 0)[0], "acknowledged too early"
        s2.append("near", "others", "go on")
        assert s2.bodies("near", seq_num=0) == ["others", "go on"]
        assert with_s3p.append("near", b"also here")

        between.flows.set()
        for writer in writers:
            writer.finish()
        for writer in writers:
            assert s2.tail(writer.stream)["seq_num"] == writer.sent
            with s2.read_session(writer.stream, seq_num=0, count=writer.sent) as session:
                for number, each in enumerate(session.records(writer.sent, timeout=60)):
                    assert (each.seq_num, each.body) == (number, BODY)
