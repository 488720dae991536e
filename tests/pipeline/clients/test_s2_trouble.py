"""The client of S2 where connections break and servers misbehave: relays that cut, scripted answers, dead servers."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
from support.flaky import CuttingRelay, Scripted
from support.process import BASIN, GatewayProcess

from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.operations import Appended
from penstock.model.records import Columns, RecordBatch, StreamPosition
from penstock_s2.codec.protobuf import encode_append_ack
from penstock_s2.codec.s2s import ReadServer
from penstock_s2.codec.s2s.frames import encode_frame
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import Endpoint

STREAM = f"{BASIN}/pipeline-trouble"
COUNT = 4000
RECORD = 50


@pytest.fixture(scope="module")
def port(gateway: GatewayProcess) -> int:
    """Of a gateway that has STREAM, with COUNT records."""
    client = StreamClient(Endpoint("127.0.0.1", gateway.s2_port))
    client.create(STREAM)
    appender = client.appender(STREAM)
    for begin in range(0, COUNT, 500):
        appender.append([b"%d" % number * RECORD for number in range(begin, begin + 500)], {}, None, begin)
    appender.flush()
    client.close()
    return gateway.s2_port


class Connect(Protocol):
    def __call__(self, port: int, **options: float | str) -> StreamClient: ...


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes clients, which are closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(port: int, **options: float | str) -> StreamClient:
            plain = Endpoint("127.0.0.1", port, connect_seconds=5.0)
            client = StreamClient(replace(plain, **options))  # type: ignore[arg-type]
            stack.callback(client.close)
            return client

        yield make


def _bodies(client: StreamClient, start: int, end: int) -> list[bytes]:
    return [body for rows in client.read(STREAM, start, end) for body in rows.columns.bodies]


def _frames(*events: RecordBatch | StreamPosition | Failure) -> bytes:
    server = ReadServer()
    return b"".join(piece for event in events for piece in server.send(event))


def _batch(first: int, count: int) -> RecordBatch:
    return RecordBatch(Columns(range(first, first + count), [1] * count, [b"x"] * count))


def _session(*events: RecordBatch | StreamPosition | Failure, cut: int = 0) -> bytes:
    frames = _frames(*events)
    return _answer(frames[: len(frames) - cut], "s2s/proto")


def _answer(body: bytes, media: str = "application/json", status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _tail(number: int) -> bytes:
    return _answer(b'{"tail":{"seq_num":%d,"timestamp":1}}' % number)


def _info(name: str, *, deleted: bool = False) -> str:
    deletion = '"2026-01-01T00:00:00Z"' if deleted else "null"
    return f'{{"name":"{name}","created_at":"2026-01-01T00:00:00Z","deleted_at":{deletion}}}'


KEPT_FROM_0 = _answer(_frames(_batch(0, 1))[4:], "application/protobuf")


# ---- connections that break ------------------------------------------------------------------------------------------


def test_a_read_that_is_cut_anywhere_goes_on_where_it_was(connect: Connect, port: int) -> None:
    whole = _bodies(connect(port), 0, COUNT)
    cuts = [0, 1, 100, 300, 200_000, 90_001, 5, 150_000]
    with CuttingRelay(port, cuts) as relay:
        client = connect(relay.port)
        assert _bodies(client, 0, COUNT) == whole
        assert relay.accepted == len(cuts) + 1
        client.close()


@pytest.mark.parametrize("ask", [lambda client: client.tail(STREAM), lambda client: next(client.streams(STREAM))])
def test_questions_are_asked_again(connect: Connect, port: int, ask: Callable[[StreamClient], object]) -> None:
    expected = ask(connect(port))
    with CuttingRelay(port, [0, 20, 70]) as relay:
        assert ask(connect(relay.port)) == expected
        assert relay.accepted == 4


def test_a_connection_that_died_while_unused_is_replaced(connect: Connect, port: int) -> None:
    with CuttingRelay(port, [250]) as relay:  # amid the second answer, if there were one
        client = connect(relay.port, recover_seconds=0.0)
        assert client.tail(STREAM) == COUNT
        with pytest.raises(OperationFailed) as raised:
            [client.tail(STREAM) for _ in range(3)]
        assert raised.value.failure.code is FailureCode.UNAVAILABLE
        assert client.tail(STREAM) == COUNT
        client.close()
        assert client.tail(STREAM) == COUNT, "a client may be used again"


def test_an_append_that_is_cut_is_not_sent_again(connect: Connect, port: int) -> None:
    stream = f"{BASIN}/pipeline-trouble-cut"
    with CuttingRelay(port, [60_000], client_says=True) as relay:
        client = connect(relay.port)
        appender = client.appender(stream)
        with pytest.raises(OperationFailed) as raised:
            for number in range(100):
                appender.append([b"%d" % number + bytes(10_000)], {}, None, number)
            appender.flush()
        assert raised.value.failure.code is FailureCode.UNAVAILABLE
        stored = _end_of(client, stream)
        assert appender.acknowledged < stored <= 7
        [*batches] = client.read(stream, 0, stored)
        bodies = [body for rows in batches for body in rows.columns.bodies]
        assert [int(body.rstrip(b"\0")) for body in bodies] == [*range(stored - 1), -1]


def _end_of(client: StreamClient, stream: str) -> int:
    """Append one record and return the stream's length.

    Appends in flight when a connection broke may still be applied, so the tail is not certain until an append at it was
    stored.
    """
    while True:
        appender = client.appender(stream)
        try:
            appender.append([b"-1"], {}, None, client.tail(stream))
            end = appender.flush()
            assert end is not None
            return end.seq_num
        except OperationFailed as error:
            assert error.failure.code is FailureCode.SEQ_NUM_MISMATCH


def test_a_server_that_is_not_there_is_tried_for_a_while(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = connect(port, connect_seconds=0.2)
    for work in (lambda: client.tail(STREAM), lambda: list(client.read(STREAM, 0, 1))):
        with pytest.raises(
            OperationFailed, match=f"http://127.0.0.1:{port}: cannot connect: connection refused"
        ) as raised:
            work()
        assert raised.value.failure.code is FailureCode.UNAVAILABLE


def test_a_server_that_comes_back_is_waited_for(connect: Connect) -> None:
    with GatewayProcess() as gateway:
        client = connect(gateway.s2_port)
        stream = f"{BASIN}/x"
        appender = client.appender(stream)
        for number in range(8):
            appender.append([b"x" * 400_000] * 2, {}, None, 2 * number)
        appender.flush()
        reading = client.read(stream, 0, 16)
        taken = len(next(reading).columns.bodies)
        gateway.restart(kill=True)
        assert taken + sum(len(rows.columns.bodies) for rows in reading) == 16
        client.close()


def test_a_silent_server_is_given_up(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect(silent.getsockname()[1], request_seconds=0.05, recover_seconds=0.0)
        with pytest.raises(OperationFailed, match=r"nothing came in 0\.05 s"):
            client.tail(STREAM)
        with pytest.raises(OperationFailed, match=r"nothing came in 0\.05 s"):
            list(client.read(STREAM, 0, 1))


@pytest.mark.parametrize("noise", [b"HTTP/1.1 100 Continue\r\n\r\n", None])
def test_a_server_that_says_much_and_nothing_is_given_up(connect: Connect, noise: bytes | None) -> None:
    """Amid a head, or by heartbeats amid a session."""
    with socket.create_server(("127.0.0.1", 0)) as noisy:

        def serve() -> None:
            near, _ = noisy.accept()
            with near, contextlib.suppress(OSError):
                if noise is None:
                    near.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: s2s/proto\r\n\r\n")
                while True:
                    near.sendall(_frames(StreamPosition(9, 1)) if noise is None else noise)

        thread = threading.Thread(target=serve)
        thread.start()
        client = connect(noisy.getsockname()[1], request_seconds=0.1, recover_seconds=0.0)
        with pytest.raises(OperationFailed, match=r"nothing came in 0\.1 s"):
            list(client.read(STREAM, 0, 1))
        client.close()
        thread.join(10)
        assert not thread.is_alive()


# ---- servers that misbehave ------------------------------------------------------------------------------------------


def test_sessions_that_end_too_early_are_gone_on_with(connect: Connect) -> None:
    unavailable = Failure(FailureCode.UNAVAILABLE, "not now")
    answers = [
        _session(StreamPosition(9, 1), _batch(0, 2)),
        KEPT_FROM_0,  # why? nothing was trimmed,
        _tail(9),  # and there is enough
        _session(_batch(2, 1), unavailable),
        _session(_batch(3, 1), _batch(4, 1), cut=3),
        _session(_batch(4, 9)),
    ]
    with Scripted(answers) as server:
        client = connect(server.port)
        numbers = [number for rows in client.read(STREAM, 0, 7) for number in rows.columns.seq_nums]
        assert numbers == list(range(7)), "and what is sent beyond the end is not given out"
        asked = [head.split(b" ")[1].partition(b"?")[2] for head in server.heads if b"s2s/proto" in head]
        assert asked == [b"seq_num=0&count=7", b"seq_num=2&count=5", b"seq_num=3&count=4", b"seq_num=4&count=3"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (_session(_batch(3, 1)), "sent record 3, asked for 5"),
        (_session(_batch(5, 2), _batch(5, 2)), "sent sequence number 5 after 6"),
        (_session(Failure(FailureCode.STORAGE, "broken disk")), "broken disk"),
        (_answer(b"\x00\x00\x00", "s2s/proto"), "Failed to decode S2S frame: empty frame payload"),
        (_answer(b"\xff\xff\xff\x00", "s2s/proto"), "frame exceeds decode limit"),
        (_answer(b"{}"), "answers with 'application/json', not with S2S"),
        (_answer(b"<html>", "text/html", "404 Not Found"), "HTTP status 404: <html>"),
        (b"SSH-2.0-x\r\n\r\n!close", "HTTP/1.1: "),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: s2s/proto\r\n\r\nzz\r\n!close",
            "malformed chunk header",
        ),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, "Receive buffer too long"),
    ],
)
def test_nonsense_is_an_error_that_says_what_is_wrong(connect: Connect, answer: bytes, message: str) -> None:
    with Scripted([answer] * 2) as server:
        client = connect(server.port, recover_seconds=0.0)
        with pytest.raises(OperationFailed, match=message):
            for _ in client.read(STREAM, 5, 9):
                pass


def test_a_session_that_never_gets_on_is_given_up(connect: Connect) -> None:
    with Scripted([_session(), KEPT_FROM_0, _tail(9)] * 1000) as server:
        client = connect(server.port, connect_seconds=0.3, recover_seconds=0.3)
        with pytest.raises(OperationFailed, match=f"{STREAM}: the server ended a read at 5") as raised:
            list(client.read(STREAM, 5, 9))
        assert raised.value.failure.code is FailureCode.UNAVAILABLE


def test_what_no_retry_mends_is_not_tried_again(connect: Connect) -> None:
    refusal = _answer(b'{"code":"permission_denied","message":"no"}', status="403 Forbidden")
    with Scripted([refusal] * 9) as server:
        client = connect(server.port)
        for number, work in enumerate((lambda: client.tail(STREAM), lambda: list(client.read(STREAM, 0, 1)))):
            with pytest.raises(OperationFailed) as raised:
                work()
            assert raised.value.failure.code is FailureCode.PERMISSION_DENIED
            assert raised.value.failure.message == f"http://127.0.0.1:{server.port}: no"
            assert len(server.heads) == number + 1
        assert server.accepted == 1, "an error does not cost the connection"


def test_a_server_says_when_to_come_back(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(
        "penstock_spark.clients.patience.time", SimpleNamespace(monotonic=time.monotonic, sleep=slept.append)
    )
    busy = (
        b'HTTP/1.1 503 x\r\nretry-after-ms: 700\r\ncontent-length: 42\r\n\r\n{"code":"server_draining","message":"bye"}'
    )
    with Scripted([busy, _tail(3)]) as server:
        assert connect(server.port).tail(STREAM) == 3
        assert slept == [0.7]


def test_pages_follow_each_other_and_must_get_on(connect: Connect) -> None:
    first = f'{{"streams":[{_info("a")},{_info("b", deleted=True)}],"has_more":true}}'
    last = f'{{"streams":[{_info("c d")}],"has_more":false}}'
    with Scripted([_answer(first.encode()), _answer(last.encode())]) as server:
        assert list(connect(server.port).streams("penstock/")) == ["penstock/a", "penstock/c d"]
        assert server.heads[1].startswith(b"GET /v1/streams?start_after=b HTTP/1.1")
    for stuck in (first, '{"streams":[],"has_more":true}'):
        with Scripted([_answer(stuck.encode())] * 3) as server, pytest.raises(OperationFailed, match="does not get on"):
            list(connect(server.port).streams("penstock/"))


def test_an_answer_is_bounded(connect: Connect) -> None:
    huge = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n" + bytes(17 << 20)
    with Scripted([huge]) as server, pytest.raises(OperationFailed, match="an answer of more than 16777216 bytes"):
        connect(server.port, recover_seconds=0.0).tail(STREAM)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (_frames(Failure(FailureCode.INVALID, "no such thing")), "no such thing"),
        (bytes.fromhex("00001100 0a00 1205 0801 10e807 1a05 0801 10e807"), "stored at 0 what was for 5"),
        (bytes.fromhex("00001100 0a00 1205 0802 10e807 1a05 0802 10e807"), "acknowledged 2 records of an input of 1"),
        (b"", "ended with 1 inputs unacknowledged"),
    ],
)
def test_acknowledgements_are_checked(connect: Connect, said: bytes, message: str) -> None:
    with Scripted([_answer(said, "s2s/proto")]) as server:
        appender = connect(server.port).appender(STREAM)
        with pytest.raises(OperationFailed, match=message):
            appender.append([b"x"], {}, None, 5)
            appender.flush()
        assert appender.acknowledged == 0
        appender.close()


def _ack(start: int, *, advised: bool = False) -> bytes:
    end = StreamPosition(start + 1, 1)
    ack = encode_append_ack(Appended(StreamPosition(start, 1), end, end))
    return _answer(b"".join(encode_frame([ack], reconnect_advised=advised)), "s2s/proto")


def test_a_server_that_wants_to_be_left_is_left_between_appends(connect: Connect) -> None:
    with Scripted([_ack(0, advised=True), _ack(1)]) as server:
        appender = connect(server.port).appender(STREAM)
        for number in range(2):
            appender.append([b"x"], {}, None, number)
            assert appender.flush() == StreamPosition(number + 1, 1)
        assert server.accepted == appender.acknowledged == 2
        appender.close()


def test_a_basin_may_have_a_host_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    dialled: list[object] = []
    connect = socket.create_connection
    with Scripted([_tail(3)] * 2) as server:

        def dial(address: tuple[str, int], **options: Any) -> socket.socket:
            dialled.append(address[0])
            return connect(("127.0.0.1", server.port), **options)

        monkeypatch.setattr("penstock_spark.clients.transport.socket.create_connection", dial)
        client = StreamClient(Endpoint("{basin}.b.example.com", 8080, token="t"))
        assert client.tail("my-basin/x") == client.tail("other-basin/x") == 3
        assert dialled == ["my-basin.b.example.com", "other-basin.b.example.com"]
        head = server.heads[0].decode().lower()
        assert "host: my-basin.b.example.com:8080\r\n" in head
        assert "s2-basin: my-basin\r\n" in head
        assert "authorization: bearer t\r\n" in head
        with pytest.raises(OperationFailed, match="name the basin"):
            list(client.streams("my"))
        client.close()
