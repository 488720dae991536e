"""S3P answers are valid RESP2, so that two readers made for Redis are independent judges (S3P fact sheet, 4).

Commands are not Redis commands (they nest arrays), so they are sent as raw bytes.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Any

import hiredis
import pytest
import redis
from redis.connection import Connection
from support.peers import unique
from support.process import GatewayProcess

Argument = bytes | Sequence[bytes]


def command(*arguments: Argument) -> bytes:
    """A command: bulk strings, and arrays of bulk strings where an argument is a sequence."""

    def bulk(value: bytes) -> bytes:
        return b"$%d\r\n%s\r\n" % (len(value), value)

    def spell(argument: Argument) -> bytes:
        if isinstance(argument, bytes):
            return bulk(argument)
        return b"*%d\r\n" % len(argument) + b"".join(map(bulk, argument))

    return b"*%d\r\n" % len(arguments) + b"".join(map(spell, arguments))


BINARY = bytes(range(256)) + b"\r\n$5\r\n*0\r\n"


def ids(reply: list[bytes]) -> list[tuple[int, int]]:
    return [tuple(map(int, found.split(b"-"))) for found in reply[::2]]  # type: ignore[misc]


class HiredisClient:
    """A socket and a `hiredis.Reader`."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.reader = hiredis.Reader()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> Any:
        while (reply := self.reader.gets()) is False:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self.reader.feed(data)
        return reply

    def ask(self, *arguments: Argument) -> Any:
        self.send(command(*arguments))
        return self.receive()


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[HiredisClient]:
    client = HiredisClient(gateway.s3p_port)
    yield client
    client.socket.close()


@pytest.fixture
def name() -> bytes:
    return unique("resp").encode()


def test_hiredis_reads_a_whole_conversation(client: HiredisClient, name: bytes) -> None:
    assert client.ask(b"CREATE", name, ()) == b"OK"
    assert client.ask(b"READ", name, ()) == []
    last = client.ask(b"APPEND", name, (), (b"hello", BINARY))
    ms, seq = map(int, last.split(b"-"))
    assert seq == 1
    assert client.ask(b"APPEND", name, (b"ID", b"%d" % (ms + 5)), (b"later",)) == b"%d-0" % (ms + 5)
    read = client.ask(b"READ", name, ())
    assert read == [b"%d-0" % ms, b"hello", b"%d-1" % ms, BINARY, b"%d-0" % (ms + 5), b"later"]
    assert client.ask(b"read", name, (b"count", b"1", b"min_id", b"%d-1" % ms)) == [b"%d-1" % ms, BINARY]
    assert client.ask(b"TRIM", name, (b"MIN_ID", b"%d-1" % ms)) == b"OK"
    assert client.ask(b"READ", name, (b"COUNT", b"10"))[0] == b"%d-1" % ms
    assert client.ask(b"DELETE", name, ()) == b"OK"
    assert str(client.ask(b"READ", name, ())).startswith("ERR_UNKNOWN_STREAM ")


def test_hiredis_reads_errors_and_the_connection_goes_on_or_ends_as_specified(
    client: HiredisClient, name: bytes
) -> None:
    client.ask(b"CREATE", name, ())
    exists = client.ask(b"CREATE", name, ())
    assert isinstance(exists, hiredis.ReplyError)
    assert str(exists).startswith("ERR_STREAM_EXISTS ")
    client.ask(b"APPEND", name, (b"ID", b"500"), (b"x",))
    assert str(client.ask(b"APPEND", name, (b"ID", b"499"), (b"x",))).startswith("ERR_NON_MONOTONIC_ID ")
    assert client.ask(b"APPEND", name, (b"ID", b"500"), (b"y",)) == b"500-1"
    assert str(client.ask(b"PING")).startswith("ERR_BAD_FORMAT ")
    with pytest.raises(EOFError):
        client.receive()


def test_hiredis_reads_a_thousand_pipelined_replies_in_order(client: HiredisClient, name: bytes) -> None:
    pipeline = [command(b"CREATE", name, ())]
    pipeline += [command(b"APPEND", name, (), (b"%d" % n, b"%d again" % n)) for n in range(999)]
    client.send(b"".join(pipeline))
    replies = [client.receive() for _ in pipeline]
    assert replies[0] == b"OK"
    got = [tuple(map(int, reply.split(b"-"))) for reply in replies[1:]]
    assert got == sorted(set(got))
    read: list[bytes] = []
    least = b"0-0"
    while batch := client.ask(b"READ", name, (b"MIN_ID", least, b"COUNT", b"300")):
        read += batch[1::2]
        ms, seq = ids(batch)[-1]
        least = b"%d-%d" % (ms, seq + 1)
    assert read == [body for n in range(999) for body in (b"%d" % n, b"%d again" % n)]


def test_hiredis_waits_in_a_blocked_read(client: HiredisClient, gateway: GatewayProcess, name: bytes) -> None:
    client.ask(b"CREATE", name, ())
    client.send(command(b"READ", name, (b"BLOCK", b"5000")))
    other = HiredisClient(gateway.s3p_port)
    try:
        identifier = other.ask(b"APPEND", name, (), (b"wake up",))
    finally:
        other.socket.close()
    assert client.receive() == [identifier, b"wake up"]
    assert client.ask(b"READ", name, (b"BLOCK", b"30", b"MIN_ID", b"99999999999999-0")) == []


@pytest.fixture
def connection(gateway: GatewayProcess) -> Iterator[Connection]:
    """redis-py's own connection, told to say nothing of its own on connecting."""
    connection = Connection(host="127.0.0.1", port=gateway.s3p_port, protocol=2, driver_info=None, socket_timeout=10)
    connection.connect()
    yield connection
    connection.disconnect()


def test_the_connection_of_redis_py_reads_a_whole_conversation(connection: Connection, name: bytes) -> None:
    def ask(*arguments: Argument) -> Any:
        connection.send_packed_command([command(*arguments)])
        return connection.read_response()

    assert ask(b"CREATE", name, ()) == b"OK"
    first = ask(b"APPEND", name, (), (b"hello",))
    assert ask(b"APPEND", name, (), (BINARY,)) > b""
    assert ask(b"READ", name, ())[:2] == [first, b"hello"]
    assert ask(b"READ", name, ())[3] == BINARY
    with pytest.raises(redis.ResponseError, match=r"^ERR_STREAM_EXISTS "):
        ask(b"CREATE", name, ())
    assert ask(b"TRIM", name, (b"MIN_ID", b"18446744073709551615-0")) == b"OK"
    assert ask(b"READ", name, ()) == []
    with pytest.raises(redis.ResponseError, match=r"^ERR_UNKNOWN_STREAM "):
        ask(b"READ", b"never created", ())
    with pytest.raises(redis.ResponseError, match=r"^ERR_BAD_FORMAT "):
        ask(b"HELLO", b"3")
    with pytest.raises(redis.ConnectionError):
        connection.read_response()
