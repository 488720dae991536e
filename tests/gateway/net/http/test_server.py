"""The HTTP server: both versions, over memory and over real sockets, on a clock that jumps."""

import gc
from contextvars import ContextVar

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs
from support.http.client import HttpClient, StreamPair, memory_pair, serving, socket_pair
from support.http.handlers import count, echo, hello

from penstock.core.identity import CLIENT, Client
from penstock.net.http.exchange import Exchange
from penstock.net.http.server import connection
from penstock.net.http.serving import serve_http
from penstock.wire.http import PREFACE, Body, Continue, End, RequestHead, Reset

BOTH = pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
EVERYWHERE = pytest.mark.parametrize("pair", [memory_pair, socket_pair])
CHUNKED = [("transfer-encoding", "chunked")]
Clock = trio.testing.MockClock


# ---- exchanges ---------------------------------------------------------------------------------------------------


@BOTH
@EVERYWHERE
async def test_requests_follow_each_other(alpn: str, pair: StreamPair, autojump_clock: Clock) -> None:
    requests = []

    async def handler(exchange: Exchange) -> None:
        requests.append(exchange.request)
        await exchange.respond(200, [("content-type", "text/plain")], b"hello")

    async with serving(handler, alpn, pair) as client:
        for _ in range(3):
            answer = await client.ask("GET", "/v1/a%2Fb?x=1&y", [("accept", "a, b"), ("accept", "c")])
            assert answer.status == 200
            assert answer.body == b"hello"
            assert answer.headers["content-length"] == "5"
            assert answer.headers["date"].endswith(" GMT")
    request = requests[0]
    assert (request.method, request.path, request.query) == ("GET", "/v1/a%2Fb", "x=1&y")
    assert (request.authority, request.scheme) == ("test:1", "http")
    assert request.http_version == ("2" if alpn == "h2" else "1.1")
    assert request.header_values("accept") == ["a", "b", "c"]


@BOTH
@EVERYWHERE
async def test_full_duplex(alpn: str, pair: StreamPair, autojump_clock: Clock) -> None:
    async with serving(echo, alpn, pair) as client:
        stream_id = await client.open("POST", "/", CHUNKED)
        assert (await client.head(stream_id)).status == 200  # before there is any body
        for i in range(20):
            piece = b"piece %02d" % i
            await client.say(Body(stream_id, [piece]))
            assert await client.data(stream_id, len(piece)) == piece
        await client.say(End(stream_id))
        assert await client.next(stream_id) == End(stream_id)
        assert (await client.ask("GET", "/again")).status == 200


@BOTH
async def test_receiving_may_be_cancelled_and_goes_on(alpn: str, autojump_clock: Clock) -> None:
    async def patient(exchange: Exchange) -> None:
        for _ in range(3):
            with trio.move_on_after(1):
                await exchange.receive()
        await exchange.respond(200, [], await exchange.receive())

    async with serving(patient, alpn) as client:
        stream_id = await client.open("POST", "/", CHUNKED)
        await trio.sleep(10)
        await client.say(Body(stream_id, [b"late"], end=True))
        assert (await client.answer(stream_id)).body == b"late"


@BOTH
async def test_trailers_follow_the_body(alpn: str, autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.start(200, [("x-head", "1")])
        await exchange.send([bytes(300_000)])
        await exchange.finish([("x-trailer", "2")])

    async with serving(handler, alpn) as client:
        for _ in range(2):
            answer = await client.ask("GET", "/")
            assert (len(answer.body), answer.headers["x-head"], answer.trailers) == (300_000, "1", {"x-trailer": "2"})


async def test_trailers_that_http_1_0_cannot_carry_are_the_handlers_failure(autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.start(200, [])
        await exchange.send([b"body"])
        await exchange.finish([("x-trailer", "2")])

    near, far = memory_pair()
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery, near:
            nursery.start_soon(serve_http, far, handler)
            await near.send_all(b"GET / HTTP/1.0\r\n\r\n")
            got = b""
            while piece := await near.receive_some(65536):
                got += piece
    assert got.endswith(b"\r\n\r\nbody")
    assert [log["event"] for log in logs if log["log_level"] == "error"] == ["handler_failed"]


@BOTH
@EVERYWHERE
async def test_large_bodies_both_ways_at_once(alpn: str, pair: StreamPair, autojump_clock: Clock) -> None:
    body = bytes(range(256)) * 20_000
    async with serving(echo, alpn, pair) as client:
        stream_id = await client.open("POST", "/", CHUNKED)

        async def upload() -> None:
            for at in range(0, len(body), 100_000):
                await client.say(Body(stream_id, [body[at : at + 100_000]]))
            await client.say(End(stream_id))

        async with trio.open_nursery() as nursery:
            if alpn == "http/1.1":
                nursery.start_soon(upload)
            else:  # one task: windows hold back what does not fit
                client.codec.send(Body(stream_id, [body], end=True))
                await client.write()
            answer = await client.answer(stream_id)
        assert answer.body == body


@BOTH
async def test_answers_without_a_body(alpn: str, autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.respond(int(exchange.request.path[1:]), [], b"12345" if exchange.request.path == "/200" else b"")

    async with serving(handler, alpn) as client:
        head = await client.ask("HEAD", "/200")
        assert (head.body, head.headers["content-length"]) == (b"", "5")
        accepted = await client.ask("POST", "/202")
        assert (accepted.body, accepted.headers["content-length"]) == (b"", "0")
        empty = await client.ask("GET", "/204")
        assert empty.body == b""
        assert "content-length" not in empty.headers


@BOTH
async def test_a_streamed_answer_to_head(alpn: str, autojump_clock: Clock) -> None:
    async with serving(echo, alpn) as client:
        assert (await client.ask("HEAD", "/")).body == b""
        assert (await client.ask("GET", "/")).status == 200


async def test_pipelined_requests_are_answered_in_order(autojump_clock: Clock) -> None:
    near, far = memory_pair()
    delays = {"/0": 3, "/1": 0, "/2": 1}

    async def handler(exchange: Exchange) -> None:
        await trio.sleep(delays[exchange.request.path])
        await hello(exchange)

    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler)
        await near.send_all(b"".join(b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n" % i for i in range(3)))
        got = b""
        while got.count(b"hello") < 3:
            got += await near.receive_some(65536)
        assert [got.index(b"hello /%d" % i) for i in range(3)] == sorted(got.index(b"hello /%d" % i) for i in range(3))


async def test_who_a_client_was_for_one_request_it_is_not_for_the_next(autojump_clock: Clock) -> None:
    """Also where that was received before the one in front of it was answered. What the connection is known by holds
    from the next request on."""
    near, far = memory_pair()
    seen = []
    connections: list[trio.lowlevel.Task] = []

    async def handler(exchange: Exchange) -> None:
        seen.append(CLIENT.get().identity)
        CLIENT.set(Client("by its token"))
        await hello(exchange)
        if len(seen) == 2:
            connections[0].context.run(CLIENT.set, Client("another by now"))

    async def serve() -> None:
        CLIENT.set(Client("by its address"))
        connections.append(trio.lowlevel.current_task())
        await serve_http(far, handler)

    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve)
        await near.send_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 3)
        got = b""
        while got.count(b"hello") < 3:
            got += await near.receive_some(65536)
    assert seen == ["by its address", "by its address", "another by now"]


async def test_what_is_noted_of_one_request_is_not_noted_of_the_next(autojump_clock: Clock) -> None:
    """Route, protocol, trace: everything that its handler puts into its context."""
    near, far = memory_pair()
    noted: ContextVar[str] = ContextVar("noted", default="")
    seen = []

    async def handler(exchange: Exchange) -> None:
        seen.append(noted.get())
        noted.set(exchange.request.path)
        await hello(exchange)

    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler)
        await near.send_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 3)
        got = b""
        while got.count(b"hello") < 3:
            got += await near.receive_some(65536)
    assert seen == ["", "", ""]


@BOTH
async def test_one_task_serves_requests_that_follow_each_other(alpn: str, autojump_clock: Clock) -> None:
    """Each in a context of its own."""
    noted: ContextVar[str] = ContextVar("noted", default="")
    seen: list[str] = []
    tasks: list[trio.lowlevel.Task] = []

    async def handler(exchange: Exchange) -> None:
        tasks.append(trio.lowlevel.current_task())
        seen.append(noted.get())
        noted.set(exchange.request.path)
        await hello(exchange)

    async with serving(handler, alpn) as client:
        for _ in range(3):
            assert (await client.ask("GET", "/x")).body == b"hello /x"
            await trio.testing.wait_all_tasks_blocked()
    assert seen == ["", "", ""]
    assert len(set(tasks)) == 1


async def test_requests_that_are_reset_leave_the_next_ones_alone(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Clock
) -> None:
    """While they are handled, or before the task that waits for them has begun."""
    monkeypatch.setattr(connection, "TURN_SECONDS", 60.0)  # what comes at once is delivered at once
    handled: list[str] = []

    async def handler(exchange: Exchange) -> None:
        handled.append(exchange.request.path)
        if exchange.request.path == "/wait":
            await trio.sleep_forever()
        await hello(exchange)

    async with serving(handler, "h2") as client:
        for path in ("/a", "/b"):
            assert (await client.ask("GET", path)).status == 200
            stream_id = await client.open("GET", "/wait")
            await trio.testing.wait_all_tasks_blocked()
            await client.say(Reset(stream_id))
            await trio.testing.wait_all_tasks_blocked()
        for path in ("/c", "/d"):
            assert (await client.ask("GET", path)).status == 200
            await trio.testing.wait_all_tasks_blocked()
            early = client.codec.new_stream()
            client.codec.send(RequestHead(early, "GET", "/early", [], "test:1", "http"))
            head = b"".join(client.codec.output(1 << 20))
            client.codec.send(Reset(early))
            await client.stream.send_all(head + b"".join(client.codec.output(1 << 20)))
            await trio.testing.wait_all_tasks_blocked()
    assert handled == ["/a", "/wait", "/b", "/wait", "/c", "/d"]


@BOTH
async def test_no_exchange_is_kept_until_the_next(alpn: str, autojump_clock: Clock) -> None:
    """The task that has served it may wait for long, and its body may be unread."""
    async with serving(hello, alpn) as client:
        for path in ("/a", "/b"):
            assert (await client.ask("POST", path, body=b"x" * 1000)).body == b"hello " + path.encode()
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            kept = [each for each in gc.get_objects() if isinstance(each, connection.HttpExchange)]
            assert not kept


@BOTH
async def test_requests_at_once_beside_the_task_that_waits(alpn: str, autojump_clock: Clock) -> None:
    """The second of two is not kept from its answer by the first."""
    go_on = trio.Event()

    async def handler(exchange: Exchange) -> None:
        await hello(exchange)
        if exchange.request.path == "/slow":  # goes on after its answer
            await go_on.wait()

    async with serving(handler, alpn) as client:
        for path in ("/a", "/slow", "/b", "/c"):
            assert (await client.ask("GET", path)).body == b"hello " + path.encode()
        go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (await client.ask("GET", "/d")).status == 200


@BOTH
async def test_expect_continue_is_answered_by_reading(alpn: str, autojump_clock: Clock) -> None:
    async with serving(count, alpn) as client:
        stream_id = await client.open("PUT", "/", [("content-length", "3"), ("expect", "100-continue")])
        assert await client.next(stream_id) == Continue(stream_id)
        await client.say(Body(stream_id, [b"abc"], end=True))
        assert (await client.answer(stream_id)).body == b"3"
        assert (await client.ask("POST", "/", body=b"12")).body == b"2"


@BOTH
async def test_expect_continue_is_not_answered_without_reading(alpn: str, autojump_clock: Clock) -> None:
    async with serving(hello, alpn) as client:
        stream_id = await client.open("PUT", "/x", [("content-length", "3"), ("expect", "100-continue")])
        assert (await client.answer(stream_id)).body == b"hello /x"
        if alpn == "http/1.1":
            assert await client.closed()
        else:
            assert (await client.ask("GET", "/y")).body == b"hello /y"


# ---- failures ----------------------------------------------------------------------------------------------------


@BOTH
@EVERYWHERE
async def test_a_handler_that_fails_gets_500(alpn: str, pair: StreamPair, autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        if exchange.request.path == "/fail":
            raise ValueError("broken")
        if exchange.request.path == "/bad-header":
            await exchange.respond(200, [("x", "a\r\nb: c")])
        if exchange.request.path != "/silent":
            await hello(exchange)

    async with serving(handler, alpn, pair) as client:
        with capture_logs() as logs:
            assert (await client.ask("GET", "/fail")).status == 500
            assert (await client.ask("GET", "/silent")).status == 500
        assert [log["event"] for log in logs] == ["handler_failed"] * 2
        assert (await client.ask("GET", "/")).status == 200
        with capture_logs():
            assert (await client.ask("GET", "/bad-header")).status == 500


@BOTH
@EVERYWHERE
async def test_a_handler_that_fails_amid_its_answer(alpn: str, pair: StreamPair, autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        if exchange.request.path == "/":
            return await echo(exchange)
        await exchange.start(200, [])
        await exchange.send([b"half"])
        raise ValueError("broken")

    async with serving(handler, alpn, pair) as client:
        other = await client.open("POST", "/", CHUNKED) if alpn == "h2" else 0
        with capture_logs() as logs:
            stream_id = await client.open("GET", "/fail")
            await client.say(End(stream_id))
            await client.head(stream_id)
            assert await client.data(stream_id, 4) == b"half"
            if alpn == "h2":
                assert await client.next(stream_id) == Reset(stream_id, 2)
                await client.say(Body(other, [b"lives"], end=True))
                assert (await client.answer(other)).body == b"lives"
            else:
                with pytest.raises(Exception, match="closed in the middle of a chunked body"):
                    await client.next(stream_id)
        assert [log["event"] for log in logs if log["log_level"] == "error"] == ["handler_failed"]


@pytest.mark.parametrize(
    "data, answer",
    [
        (b"GARBAGE\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 100_000, b"HTTP/1.1 431 "),
        (PREFACE + b"\x00\x00\x00\x00\x00\x00\x00\x00\x00", b"\x00\x00\x08\x07\x00\x00\x00\x00\x00"),
    ],
)
@EVERYWHERE
async def test_broken_protocols_are_answered_and_closed(
    data: bytes, answer: bytes, pair: StreamPair, autojump_clock: Clock
) -> None:
    near, far = pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, hello)
        got = b""
        with capture_logs() as logs:
            await near.send_all(data)
            while piece := await near.receive_some(65536):
                got += piece
        assert answer in got
        assert [log["event"] for log in logs] == ["protocol_error"]


@pytest.mark.parametrize("size", [1, 5])
async def test_either_version_may_trickle_in(size: int, autojump_clock: Clock) -> None:
    for alpn in ("http/1.1", "h2"):
        near, far = memory_pair()
        client = HttpClient(near, alpn)
        stream_id = client.codec.new_stream()
        client.codec.send(RequestHead(stream_id, "GET", "/x", [], "a"))
        client.codec.send(End(stream_id))
        data = b"".join(client.codec.output(1 << 20))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_http, far, hello)
            for at in range(0, len(data), size):
                await near.send_all(data[at : at + size])
                await trio.sleep(0.01)
            assert (await client.answer(stream_id)).body == b"hello /x"
