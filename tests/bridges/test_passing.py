"""S2S in front of S2S: the frames that the server gets are the client's, and the client's are the server's."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import zstandard
from support.pravega.relay import Relay
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.s2.frames import ZSTD, encode_frame

from penstock_proto import s2_pb2 as pb

RESERVED = 0x03
"""Reserved flag bits, which must be passed on unchanged (S2 fact sheet, 2.1)."""
FUTURE = b"\xf8\x7f\x07"
"""An unknown protobuf field: number 2047, value 7."""


BACK = """
[backs.far]
kind = "s2"
address = "127.0.0.1:{port}"

[[routes]]
name = "all"
back = "far"
"""


class Bridge(NamedTuple):
    gateway: GatewayProcess
    server: GatewayProcess
    between: Relay


@pytest.fixture(scope="module")
def bridge() -> Iterator[Bridge]:
    """A gateway, another one behind it, and a relay between them that records."""
    with running_gateway() as server, Relay(server.s2_port) as between:
        back = (
            f'[backs.far]\nkind = "s2"\naddress = "127.0.0.1:{between.port}"\n[[routes]]\nname = "all"\nback = "far"\n'
        )
        with running_gateway(CONFIG + back) as gateway:
            yield Bridge(gateway, server, between)


def records(*bodies: bytes) -> bytes:
    """An AppendInput that no codec of ours would have spelled like this."""
    message = pb.AppendInput(records=[pb.AppendRecord(body=body) for body in bodies])
    return FUTURE + message.SerializeToString() + FUTURE


def frames_of(*bodies: bytes) -> list[bytes]:
    """Frames of three kinds: with reserved bits, compressed in a way of its own, and plain."""
    large = zstandard.ZstdCompressor(level=19, write_checksum=True).compress(records(*bodies * 40))
    return [
        encode_frame(records(*bodies), RESERVED),
        encode_frame(large, ZSTD),
        encode_frame(records(b"x" * 300_000)),
    ]


def head(method: str, stream: str, query: str = "", *more: str) -> bytes:
    path = f"/v1/streams/{stream}/records{query}"
    lines = (f"{method} {path} HTTP/1.1", "host: localhost", f"s2-basin: {BASIN}", "content-type: s2s/proto", *more)
    return "\r\n".join((*lines, "connection: close", "", "")).encode()


def exchange(port: int, request: bytes) -> bytes:
    """All of the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        pieces = []
        while data := connection.recv(65536):
            pieces.append(data)
    return b"".join(pieces)


def body_of(message: bytes) -> bytes:
    """The body of an HTTP/1.1 message in chunks, by hand."""
    first, _, rest = message.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in first.lower(), first
    body = b""
    while True:
        size, _, rest = rest.partition(b"\r\n")
        count = int(size, 16)
        if not count:
            return body
        body += rest[:count]
        rest = rest[count + 2 :]


class Overheard:
    """Bytes between gateway and server from now on, in one exchange."""

    def __init__(self, between: Relay) -> None:
        self._between = between
        self._before = [self._lengths(between.said), self._lengths(between.answered)]

    @staticmethod
    def _lengths(messages: list[bytearray]) -> list[int]:
        return [len(message) for message in messages]

    def _since(self, messages: list[bytearray], before: list[int]) -> bytes:
        more = [bytes(message[length:]) for message, length in zip(messages, before + [0] * 100, strict=False)]
        (found,) = [message for message in more if message]
        return found

    @property
    def request(self) -> bytes:
        return self._since(self._between.said, self._before[0])

    @property
    def answer(self) -> bytes:
        return self._since(self._between.answered, self._before[1])


def test_frames_are_passed_on_untouched_in_both_directions(bridge: Bridge) -> None:
    gateway, _, between = bridge
    frames = frames_of(b"one", b"two" * 100, b"")
    body = b"".join(frames)
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:5000], body[5000:]))
    heard = Overheard(between)
    answer = exchange(
        gateway.s2_port, head("POST", "untouched", "", "transfer-encoding: chunked") + chunks + b"0\r\n\r\n"
    )
    assert body_of(heard.request) == body
    assert body_of(heard.answer) == body_of(answer)
    assert len(body_of(answer)) > 3 * 7

    for encoding in ("identity", "zstd", "gzip"):
        heard = Overheard(between)
        asked = head("GET", "untouched", "?seq_num=0&count=124", f"accept-encoding: {encoding}")
        answer = exchange(gateway.s2_port, asked)
        assert f"accept-encoding: {encoding}".encode() in heard.request.lower()
        assert body_of(heard.answer) == body_of(answer)
        assert len(body_of(answer)) > 300


def test_what_the_server_refuses_is_refused_in_its_words(bridge: Bridge) -> None:
    gateway, server, _ = bridge
    for stream, query in (
        ("untouched", "?seq_num=99999"),
        ("untouched", "?seq_num=x"),
        ("a%2Fb", "?seq_num=0&count=1"),
    ):
        asked = head("GET", stream, query)
        direct, passed = (exchange(port, asked) for port in (server.s2_port, gateway.s2_port))
        status = direct.split(b"\r\n")[0]
        assert status in (b"HTTP/1.1 416 Requested Range Not Satisfiable", b"HTTP/1.1 400 Bad Request")
        assert passed.split(b"\r\n")[0] == status
        assert passed.partition(b"\r\n\r\n")[2] == direct.partition(b"\r\n\r\n")[2]


def test_the_servers_own_last_word_is_the_last(bridge: Bridge) -> None:
    gateway, _, between = bridge
    message = pb.AppendInput(records=[pb.AppendRecord(body=b"x")], match_seq_num=7)
    frame = encode_frame(message.SerializeToString())
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(frame), frame)
    heard = Overheard(between)
    answer = body_of(exchange(gateway.s2_port, head("POST", "conditions", "", "transfer-encoding: chunked") + chunked))
    assert answer == b"\x00\x00\x19\x80\x01\x9c" + b'{"seq_num_mismatch":0}'
    assert body_of(heard.answer) == answer


def test_a_lost_server_is_told_of_in_a_terminal_frame_and_then_the_session_can_be_had_again(bridge: Bridge) -> None:
    gateway, _, between = bridge
    frame = encode_frame(records(b"one"))
    with socket.create_connection(("127.0.0.1", gateway.s2_port), timeout=30) as client:
        client.sendall(head("POST", "lost", "", "transfer-encoding: chunked"))
        client.sendall(b"%x\r\n%s\r\n" % (len(frame), frame))
        answer = b""
        while b"\r\n\r\n" not in answer or len(answer.partition(b"\r\n\r\n")[2]) < 20:  # the head, and an ack
            answer += client.recv(65536)
        between.cut()
        while data := client.recv(65536):
            answer += data
    body = body_of(answer)
    assert b"\x80\x01\xf7" in body, "a terminal frame with status 503"
    assert b'"unavailable"' in body
    assert str(between.port).encode() in body
    again = body_of(exchange(gateway.s2_port, head("GET", "lost", "?seq_num=0&count=1")))
    assert b"one" in again
