"""A blocking connection: whole sends, deadlines, a peer that must be heard before it listens, last words."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from penstock.model.failures import FailureCode, OperationFailed
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.transport import BlockingTransport

BIG = 12 << 20


@contextlib.contextmanager
def _talking_to(serve: Callable[[socket.socket], None], request_seconds: float = 10.0) -> Iterator[BlockingTransport]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = BlockingTransport(Endpoint("127.0.0.1", listener.getsockname()[1], request_seconds=request_seconds))
        near, _ = listener.accept()

        def run() -> None:
            with near, contextlib.suppress(OSError):
                serve(near)

        thread = threading.Thread(target=run)
        thread.start()
        yield transport
        transport.close()
        thread.join(10)
        assert not thread.is_alive()


def _take(near: socket.socket, size: int) -> int:
    taken = 0
    while taken < size and (data := near.recv(1 << 20)):
        taken += len(data)
    return taken


def test_a_server_that_speaks_before_it_listens_is_heard() -> None:
    said = bytes(range(256)) * (3 << 12)  # 3 MiB: more than sockets hold, less than is kept

    def serve(near: socket.socket) -> None:
        near.sendall(said)
        near.sendall(b"%d" % _take(near, BIG))

    with _talking_to(serve) as transport:
        transport.send([bytes(BIG - 3), bytearray(2), memoryview(b"x")])
        heard = b""
        while len(heard) < len(said) + len(str(BIG)):
            heard += transport.receive()
        assert heard == said + b"%d" % BIG
        assert transport.receive() == transport.receive() == b"", "the end stays the end"


def test_a_server_that_only_speaks_is_given_up_before_memory_is() -> None:
    def serve(near: socket.socket) -> None:
        while True:
            near.sendall(bytes(1 << 20))

    with _talking_to(serve, request_seconds=0.1) as transport:
        with pytest.raises(OperationFailed, match="nothing came in"):
            transport.send([bytes(BIG)])
        kept = 0
        with contextlib.suppress(OperationFailed):
            while True:
                kept += len(transport.receive())
        assert 4 << 20 <= kept <= 5 << 20


def test_last_words_are_heard() -> None:
    def serve(near: socket.socket) -> None:
        near.recv(1)
        near.sendall(b"no more")
        near.shutdown(socket.SHUT_WR)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with _talking_to(serve) as transport:
        with pytest.raises(OperationFailed, match="the connection broke") as raised:
            while True:
                transport.send([bytes(1 << 20)])
        assert raised.value.failure.code is FailureCode.UNAVAILABLE
        assert not transport.open
        assert bytes(transport.receive()) == b"no more"


def test_what_has_not_come_is_not_waited_for() -> None:
    with _talking_to(lambda near: near.sendall(near.recv(1))) as transport:
        assert transport.receive_now() is None
        transport.send([b"x"])
        assert bytes(transport.receive()) == b"x"
        assert transport.receive() == b""


def test_a_closed_connection_says_so() -> None:
    with _talking_to(socket.socket.close) as transport:
        transport.close()
        for work in (transport.receive, lambda: transport.send([b"x"])):
            with pytest.raises(OperationFailed) as raised:
                work()
            assert raised.value.failure.code is FailureCode.UNAVAILABLE


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 70])
def test_what_is_no_host_is_said(host: str) -> None:
    with pytest.raises(OperationFailed, match=f"http://{host}:1: cannot connect: ") as raised:
        BlockingTransport(Endpoint(host, 1, connect_seconds=0.5))
    assert raised.value.failure.code is FailureCode.UNAVAILABLE
