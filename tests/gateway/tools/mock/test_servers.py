"""Mock servers of a run, and recordings played to them: each request finds its answer, whatever carries it."""

from __future__ import annotations

import json
import math
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from support.captures.dialogues import CLIENT, SERVER, conversation, events
from support.captures.replay import ACK, Recording, append, create, two_clients
from support.captures.replay import talk as s3p_talk
from support.s2.whole_api import talk
from support.tls.certificates import needs_openssl, self_signed

from penstock.capture.pcapng import CaptureEvent
from penstock.core.address import Address
from penstock.core.errors import CannotStart
from penstock.net.tls import tls_context
from penstock.protocols.plugin import listener_kinds
from penstock.tools.mock.answers import AnswerBook
from penstock.tools.mock.origins import Origins
from penstock.tools.mock.report import MockReport
from penstock.tools.mock.servers import LOOPBACK, mocked, open_mock_servers
from penstock.tools.mock.state import MockState
from penstock.tools.replay.replaying import Replay, ReplaySettings
from penstock.tools.replay.report import ReplaySummary
from penstock.tools.target.back import TargetOptions
from penstock.tools.target.url import parse_target
from penstock_s3p.codec import Command, ErrorReply, Ok
from penstock_s3p.codec.encoding import encode_command


class Served:
    """The servers, and their state."""

    def __init__(self, state: MockState, addresses: dict[str, Address], control: Address) -> None:
        self.state = state
        self.addresses = addresses
        self.control = control

    async def play(self, recorded: Sequence[CaptureEvent], scheme: str, tls_ca: str | None = None) -> ReplaySummary:
        """Play the clients of a recording to the server for a scheme, over TLS if `tls_ca` is its authority."""

        async def again() -> AsyncGenerator[CaptureEvent, None]:
            for event in recorded:
                yield event

        target = parse_target(f"{scheme}{'+tls' if tls_ca else ''}://{self.addresses[scheme]}")
        return await Replay(target, again, ReplaySettings(speed=math.inf, options=TargetOptions(tls_ca=tls_ca))).run()

    async def s3p(self, *commands: Command) -> bytes:
        """Send commands on a connection of their own, without waiting; return all replies."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.addresses["s3p"].port)
        async with stream:
            await stream.send_all(b"".join(b"".join(encode_command(command)) for command in commands))
            await stream.send_eof()
            return b"".join([bytes(data) async for data in stream])

    async def http(self, request: bytes, port: int | None = None) -> tuple[int, bytes]:
        """Send one request of HTTP/1.1; return the status and the body of the answer."""
        stream = await trio.open_tcp_stream("127.0.0.1", port or self.addresses["s2"].port)
        async with stream:
            await stream.send_all(request)
            answer = b"".join([bytes(data) async for data in stream])
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), body


@asynccontextmanager
async def serving(
    *recordings: tuple[str, Sequence[CaptureEvent]], tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[Served]:
    """Mock servers of recordings, each of a test."""
    with AnswerBook(**options) as book:
        for test, recorded in recordings:
            book.load(recorded, test)
        state = MockState(book, MockReport())
        async with open_mock_servers(state, dict.fromkeys(listener_kinds(), LOOPBACK), tls) as (addresses, control):
            yield Served(state, addresses, control)


@pytest.fixture(params=["http/1.1", "h2"])
def all_of_s2(request: pytest.FixtureRequest) -> list[CaptureEvent]:
    return list(events(conversation("s2"), talk(request.param).said))


async def test_all_of_s2(all_of_s2: list[CaptureEvent]) -> None:
    recorded = all_of_s2
    async with serving(("", recorded)) as served:
        summary = await served.play(recorded, "s2")
        report = served.state.report_now()
        assert report.answered == served.state.book.size >= 15 and not report.missed_count, list(report.lines())
    assert summary.same, list(summary.lines())
    assert not report.never_asked, list(report.lines())


@needs_openssl
async def test_clients_over_tls(all_of_s2: list[CaptureEvent], tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    for recorded, scheme in ((all_of_s2, "s2"), (s3p_talk().events, "s3p")):
        async with serving(("", recorded), tls=tls_context(certificate, key)) as served:
            summary = await served.play(recorded, scheme, certificate)
            report = served.state.report_now()
        assert summary.same, list(summary.lines())
        assert report.answered and not report.missed_count, list(report.lines())


async def test_an_address_that_is_not_of_this_machine() -> None:
    with AnswerBook() as book:
        state = MockState(book, MockReport())
        with pytest.RaisesGroup(pytest.RaisesExc(CannotStart, match=r"cannot listen on 192\.0\.2\.1:1")):
            async with open_mock_servers(state, {"s3p": Address("192.0.2.1", 1)}):
                pytest.fail("it listens")


async def test_s3p() -> None:
    for recorded in (s3p_talk().events, two_clients().events):
        async with serving(("", recorded)) as served:
            summary = await served.play(recorded, "s3p")
            report = served.state.report_now()
        assert summary.same, list(summary.lines())
        assert report.answered and not report.missed_count and not report.never_asked, list(report.lines())


def s3p_recording(*pairs: tuple[Command, Any]) -> Sequence[CaptureEvent]:
    recording = Recording()
    for command, reply in pairs:
        recording.asked(command)
        recording.answered(reply)
    recording.closed()
    return recording.events


async def test_neither_order_nor_connection_matters() -> None:
    recorded = s3p_recording(
        (create("a"), Ok()), (create("b"), ErrorReply("ERR_STREAM_EXISTS", "b")), (append(b"x"), ACK)
    )
    async with serving(("", recorded)) as served:
        assert await served.s3p(append(b"x"), create("b")) == b"$3\r\n1-0\r\n-ERR_STREAM_EXISTS b\r\n"
        assert await served.s3p(create("a")) == b"+OK\r\n"
        assert not served.state.report_now().never_asked


async def test_each_answer_is_given_once_in_the_recorded_order() -> None:
    recorded = s3p_recording((create("a"), Ok()), (create("a"), ErrorReply("ERR_STREAM_EXISTS", "a")))
    async with serving(("", recorded)) as served:
        replies = await served.s3p(create("a"), create("a"), create("a"))
        assert replies.split(b"\r\n")[:2] == [b"+OK", b"-ERR_STREAM_EXISTS a"]
        assert replies.split(b"\r\n")[2] == b"-ERR_NOT_RECORDED penstock mock: CREATE a is not in the recording"
        assert served.state.report_now().missed == [("", "CREATE a")]
    async with serving(("", recorded), repeats=True) as served:
        replies = await served.s3p(*[create("a")] * 4)
        assert replies == b"+OK\r\n" + b"-ERR_STREAM_EXISTS a\r\n" * 3, "the last one again"


async def test_a_test_is_given_its_own_answers_and_those_for_all() -> None:
    own = s3p_recording((create("a"), ErrorReply("ERR_STREAM_EXISTS", "own")))
    others = s3p_recording((create("a"), ErrorReply("ERR_STREAM_EXISTS", "other's")), (append(b"x"), ACK))
    everyone = s3p_recording((create("a"), Ok()))
    async with serving(("", everyone), ("tests/test_it.py/test_own", own), ("other", others)) as served:
        put = b"PUT /test HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s"
        name = b"tests/test_it.py::test_own (call)"
        assert await served.http(put % (len(name), name), served.control.port) == (204, b"")
        replies = await served.s3p(create("a"), create("a"), append(b"x"))
        assert replies.splitlines()[:2] == [b"-ERR_STREAM_EXISTS own", b"+OK"]
        assert replies.splitlines()[2].startswith(b"-ERR_NOT_RECORDED"), "that is another test's"
        report = await served.http(b"GET /report HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", served.control.port)
    said = json.loads(report[1])
    assert said["missed"] == [{"test": "tests/test_it.py/test_own", "request": "APPEND orders"}]
    assert said["never_asked"] == [], "tests that did not run are not told"


async def test_the_control_listener_refuses_what_it_does_not_know() -> None:
    async with serving() as served:
        port = served.control.port
        get = b"GET /test HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        assert (await served.http(get, port))[0] == 404
        long = b"PUT /test HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 20000\r\n\r\n" + b"x" * 20_000
        assert (await served.http(long, port))[0] == 413


async def test_a_miss_over_http_is_an_error_that_names_the_request() -> None:
    async with serving() as served:
        request = b"GET /v1/streams?limit=3 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        status, body = await served.http(request)
        assert status == 400 and json.loads(body)["code"] == "not_recorded"
        assert "GET /v1/streams?limit=3 is not in the recording" in json.loads(body)["message"]
        assert served.state.report.missed == [("", "GET /v1/streams?limit=3")]


POST = (
    b"POST /v1/streams/orders/records HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
OK = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
SESSION = [
    (CLIENT, POST),
    (SERVER, OK),
    (CLIENT, b"3\r\none\r\n"),
    (SERVER, b"4\r\nack1\r\n"),
    (CLIENT, b"3\r\ntwo\r\n"),
    (SERVER, b"4\r\nack2\r\n"),
    (CLIENT, b"0\r\n\r\n"),
    (SERVER, b"0\r\n\r\n"),
]


async def until(stream: trio.SocketStream, end: bytes) -> bytes:
    """Return what comes up to these bytes."""
    got = b""
    while not got.endswith(end):
        data = await stream.receive_some(1)
        assert data, got
        got += data
    return got


async def test_a_session_is_answered_step_by_step() -> None:
    """Up to where its client goes on differently: there its answer ends."""
    async with serving(("", list(events(conversation("s2"), SESSION * 2)))) as served:
        stream = await trio.open_tcp_stream("127.0.0.1", served.addresses["s2"].port)
        async with stream:
            await stream.send_all(POST)
            assert (await until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            for asked, answer in ((b"one", b"ack1"), (b"two", b"ack2")):
                await stream.send_all(b"3\r\n%s\r\n" % asked)
                assert await until(stream, answer + b"\r\n") == b"4\r\n%s\r\n" % answer
            await stream.send_all(b"0\r\n\r\n")
            assert await until(stream, b"0\r\n\r\n") == b"0\r\n\r\n"
            await stream.send_all(POST + b"3\r\none\r\n3\r\nTWO\r\n")
            assert (await until(stream, b"0\r\n\r\n")).endswith(b"\r\n\r\n4\r\nack1\r\n0\r\n\r\n")
        report = served.state.report
        assert report.missed == [("", "POST /v1/streams/orders/records (the client went on differently)")]


async def test_a_session_that_deviates_at_once_is_passed_to_a_server() -> None:
    """Though the head of its answer was sent: the server's is the same."""
    taken = b""

    async def answer(stream: trio.SocketStream) -> None:
        nonlocal taken
        taken = await until(stream, b"0\r\n\r\n")
        await stream.send_all(OK + b"5\r\nother\r\n0\r\n\r\n")

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"s2://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    async with serving(("", list(events(conversation("s2"), SESSION)))) as served, trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, answer, listeners)
        async with Origins([parse_target(url)], None, None) as served.state.origins:
            stream = await trio.open_tcp_stream("127.0.0.1", served.addresses["s2"].port)
            async with stream:
                await stream.send_all(POST)
                assert (await until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                await stream.send_all(b"3\r\nuno\r\n")
                await stream.send_all(b"3\r\ndue\r\n0\r\n\r\n")
                assert await until(stream, b"0\r\n\r\n") == b"5\r\nother\r\n0\r\n\r\n"
        assert b"uno" in taken and b"due" in taken
        assert served.state.report.passed_count == 1 and not served.state.report.missed_count
        nursery.cancel_scope.cancel()


async def test_a_server_that_leaves_without_an_answer_is_a_miss() -> None:
    """Over HTTP after it has the request, and over S3P."""

    async def leave(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.aclose()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with serving() as served, trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, leave, listeners)
        urls = (f"s2://127.0.0.1:{port}", f"s3p://127.0.0.1:{port}")
        async with Origins([parse_target(url) for url in urls], None, None) as served.state.origins:
            request = b"POST /v1/streams HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"
            status, body = await served.http(request)
            assert status == 502 and json.loads(body)["code"] == "unavailable"
            assert (
                await served.s3p(create("a")) == b"-ERR_NOT_RECORDED penstock mock: CREATE a: the server has left\r\n"
            )
        report = served.state.report
        assert report.missed_count == 2 and report.passed_count == 0, report
        nursery.cancel_scope.cancel()


async def test_bytes_that_break_the_protocol_end_the_connection() -> None:
    async with serving() as served:
        stream = await trio.open_tcp_stream("127.0.0.1", served.addresses["s3p"].port)
        async with stream:
            await stream.send_all(b"hello there\r\n")
            replies = b"".join([bytes(data) async for data in stream])
        assert replies.startswith(b"-ERR_NOT_RECORDED") and served.state.report.missed_count == 1


async def test_clients_that_make_up_identifiers_are_turned_away() -> None:
    assert all(map(mocked, ("s2", "s3p", "durable")))
    assert not any(map(mocked, ("segment", "controller", "kafka")))
    async with serving() as served:
        stream = await trio.open_tcp_stream("127.0.0.1", served.addresses["segment"].port)
        async with stream:
            assert await stream.receive_some(1) == b""
        assert served.state.report.missed == [("", "a connection of Segments, which only --fork serves")]
