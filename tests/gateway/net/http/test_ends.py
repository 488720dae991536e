"""The HTTP server: deadlines, draining, floods and many connections."""

import math
from collections import Counter
from typing import Any

import pytest
import trio
import trio.testing
from hyperframe.frame import DataFrame, SettingsFrame
from structlog.testing import capture_logs
from support.http import h2_frames
from support.http.client import HttpClient, StreamPair, memory_pair, serving, socket_pair
from support.http.handlers import Follower, count, echo, hello

from penstock.net.draining import Draining
from penstock.net.http.exchange import Exchange
from penstock.net.http.server.connection import HttpServerConnection
from penstock.net.http.server.settings import TURN_SECONDS, WAKE_SECONDS
from penstock.net.http.serving import HttpSettings, serve_http
from penstock.wire.http import PREFACE, Body, End, Ended, GoAway, HttpLimits, Received, RequestHead, Reset

BOTH = pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
EVERYWHERE = pytest.mark.parametrize("pair", [memory_pair, socket_pair])
CHUNKED = [("transfer-encoding", "chunked")]
Clock = trio.testing.MockClock


# ---- deadlines ---------------------------------------------------------------------------------------------------


@BOTH
async def test_an_idle_connection_is_closed(alpn: str, autojump_clock: Clock) -> None:
    settings = HttpSettings(keep_alive=50)
    async with serving(hello, alpn, settings=settings) as client:
        await trio.sleep(29)  # the first bytes are not waited for as long
        for idle in (0, 49):
            await trio.sleep(idle)
            await client.ask("GET", "/")
        since = trio.current_time()
        assert await client.closed()
        assert trio.current_time() - since == pytest.approx(50)


@pytest.mark.parametrize("start", [b"G", b"GET / HTTP/1.1\r\nhost: ", PREFACE + b"\x00\x00\x04", PREFACE[:20]])
async def test_a_head_that_does_not_end_is_cut_off(start: bytes, autojump_clock: Clock) -> None:
    near, far = memory_pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, hello, HttpSettings(keep_alive=90, head_timeout=20))
        await near.send_all(start)
        since = trio.current_time()
        while await near.receive_some(65536):
            pass
        assert trio.current_time() - since < 95
        if start.startswith(b"G"):
            assert trio.current_time() - since < 25


async def test_a_later_head_has_its_own_time(autojump_clock: Clock) -> None:
    """One that begins when the client has long been idle is not cut off for that, nor given longer than the first."""
    near, far = memory_pair()
    request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, hello, HttpSettings(keep_alive=90, head_timeout=20))
        await near.send_all(request)
        assert (await near.receive_some(65536)).startswith(b"HTTP/1.1 200")
        await trio.sleep(89)
        await near.send_all(request[:5])
        await trio.sleep(19)
        await near.send_all(request[5:])
        assert (await near.receive_some(65536)).startswith(b"HTTP/1.1 200")
        await near.send_all(request[:5])
        since = trio.current_time()
        assert await near.receive_some(65536) == b""
        assert trio.current_time() - since == pytest.approx(20, abs=1.1)


@BOTH
@pytest.mark.parametrize("pair", [socket_pair, trio.testing.lockstep_stream_pair])
async def test_the_slow_reader_rule(alpn: str, pair: StreamPair, autojump_clock: Clock) -> None:
    cancelled_at = math.inf

    async def handler(exchange: Exchange) -> None:
        nonlocal cancelled_at
        await exchange.start(200, [])
        try:
            while True:
                await exchange.send([bytes(100_000)])
        finally:
            cancelled_at = trio.current_time()

    near, far = pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler, HttpSettings(slow_reader=30))
        client = HttpClient(near, alpn, HttpLimits(stream_window=1 << 30, connection_window=1 << 30))
        stream_id = await client.open("GET", "/")
        await client.say(End(stream_id))
        await client.head(stream_id)
        since = trio.current_time()
        with capture_logs() as logs:
            await trio.sleep(25)
            assert cancelled_at == math.inf
            await trio.sleep(25)
        assert cancelled_at - since == pytest.approx(30, abs=2)
        assert [log["reason"] for log in logs] == ["the client reads too slowly"]


async def test_a_slow_but_steady_reader_is_kept(autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.respond(200, [], bytes(3_000_000))

    near, far = socket_pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler, HttpSettings(slow_reader=30))
        await near.send_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        size = 0
        while size < 3_000_000:
            await trio.sleep(10)
            size += len(await near.receive_some(200_000))


async def test_a_stream_without_window_is_reset_and_its_connection_lives(autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.respond(200, [], bytes(int(exchange.request.query)))

    near, far = memory_pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler, HttpSettings(slow_reader=30))
        client = HttpClient(near, "h2", HttpLimits(stream_window=100_000))
        stalled = await client.open("GET", "/?200000")
        await client.say(End(stalled))
        await client.head(stalled)
        await trio.sleep(40)
        assert (await client.ask("GET", "/?5")).status == 200
        await client.data(stalled, 100_000)
        assert await client.next(stalled) == Reset(stalled, 8)


# ---- draining ----------------------------------------------------------------------------------------------------


@BOTH
@EVERYWHERE
async def test_draining_closes_idle_connections(alpn: str, pair: StreamPair, autojump_clock: Clock) -> None:
    drain = Draining()
    async with serving(hello, alpn, pair, drain=drain) as client:
        await client.ask("GET", "/")
        await trio.sleep(1)
        since = trio.current_time()
        drain.begin()
        await client.closed()
        assert trio.current_time() == since


@BOTH
@EVERYWHERE
async def test_draining_finishes_what_runs(alpn: str, pair: StreamPair, autojump_clock: Clock) -> None:
    drain = Draining()
    async with serving(echo, alpn, pair, drain=drain) as client:
        stream_id = await client.open("POST", "/", CHUNKED)
        await client.head(stream_id)
        drain.begin()
        await trio.sleep(1)
        await client.say(Body(stream_id, [b"still "]))
        assert await client.data(stream_id, 6) == b"still "
        await client.say(Body(stream_id, [b"here"], end=True))
        assert await client.data(stream_id, 4) == b"here"
        assert await client.next(stream_id) == End(stream_id)
        if alpn == "h2":
            assert await client.next() == GoAway(0, stream_id)
        assert await client.next() == Ended()


async def test_draining_before_the_answer_says_close(autojump_clock: Clock) -> None:
    drain = Draining()
    waiting = trio.Event()

    async def handler(exchange: Exchange) -> None:
        waiting.set()
        await trio.sleep(1)
        await hello(exchange)

    async with serving(handler, "http/1.1", drain=drain) as client:
        stream_id = await client.open("GET", "/")
        await client.say(End(stream_id))
        await waiting.wait()
        drain.begin()
        assert (await client.answer(stream_id)).headers["connection"] == "close"
        await client.closed()


@BOTH
async def test_a_connection_that_comes_while_draining_is_not_served(alpn: str, autojump_clock: Clock) -> None:
    drain = Draining()
    drain.begin()
    async with serving(hello, alpn, drain=drain) as client:
        await client.say(RequestHead(client.codec.new_stream(), "GET", "/", [], "a"))
        got = b""
        while data := await client.stream.receive_some(65536):
            got += data
        assert b"hello" not in got


# ---- floods ------------------------------------------------------------------------------------------------------


async def test_rapid_resets_end_the_connection_and_all_handlers(autojump_clock: Clock) -> None:
    running = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal running
        running += 1
        try:
            await trio.sleep_forever()
        finally:
            running -= 1

    async with serving(handler, "h2") as client:
        with capture_logs():
            for _ in range(300):
                stream_id = await client.open("GET", "/")
                await client.say(Reset(stream_id))
            event = await client.next()
        assert isinstance(event, GoAway)
        assert event.code == 0xB
        assert running == 0


async def test_pings_of_a_client_that_does_not_read_are_bounded(autojump_clock: Clock) -> None:
    near, far = socket_pair()
    ping = b"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"
    sent = 0
    async with trio.open_nursery() as nursery, near:
        with capture_logs():
            nursery.start_soon(serve_http, far, hello)
            await near.send_all(PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
            with trio.move_on_after(300), pytest.raises(trio.BrokenResourceError):
                while True:
                    await near.send_all(ping * 10_000)
                    sent += 10_000 * len(ping)
            assert sent < 6_000_000


@pytest.mark.parametrize("kind", ["pings", "chunks", "unwanted chunks"])
async def test_a_flood_of_tiny_pieces_leaves_others_their_turn(kind: str, autojump_clock: Clock) -> None:
    post = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    start, piece = {
        "pings": (PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", b"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"),
        "chunks": (post, b"1\r\nx\r\n"),
        "unwanted chunks": (post, b"1\r\nx\r\n"),
    }[kind]
    near, far = memory_pair()
    reading: list[HttpServerConnection] = []

    async def handler(exchange: Exchange) -> None:
        if kind == "chunks":
            while await exchange.receive():
                pass
        await hello(exchange)

    class Watched(HttpServerConnection):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            reading.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.net.http.serving.HttpServerConnection", Watched)
        async with trio.open_nursery() as nursery, near:
            nursery.start_soon(serve_http, far, handler)
            await near.send_all(start)
            await trio.testing.wait_all_tasks_blocked()
            async with serving(hello, "http/1.1") as other:
                assert (await other.ask("GET", "/")).status == 200
                await near.send_all(piece * (200_000 // len(piece)))
                assert (await other.ask("GET", "/")).status == 200
            assert reading[0]._codec.buffered > 10_000, "the flood has not been read to its end"


async def test_a_body_in_very_many_small_frames_is_no_flood(autojump_clock: Clock) -> None:
    """Each is read alone, as from a client that appends often on one session."""
    async with serving(count, "h2") as client:
        stream_id = await client.open("POST", "/")
        for _ in range(3000):
            await client.say(Body(stream_id, [b"x"]))
            await trio.testing.wait_all_tasks_blocked()
        await client.say(End(stream_id))
        assert (await client.head(stream_id)).status == 200


async def test_handlers_that_a_flood_wakes_are_spread_over_turns() -> None:
    """Running each handler costs more than the input that woke it."""
    near, far = memory_pair()
    passes, woken = 0, Counter[int]()

    async def count_passes() -> None:
        nonlocal passes
        while True:
            await trio.lowlevel.checkpoint()
            passes += 1

    async def handler(exchange: Exchange) -> None:
        while await exchange.receive():
            woken[passes] += 1

    fields = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "a")]
    streams = range(1, 121, 2)
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler)
        await near.send_all(h2_frames.wire(SettingsFrame(), *(h2_frames.headers(n, fields) for n in streams)))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(count_passes)
        await near.send_all(b"".join(DataFrame(n, b"x" * 16).serialize() for n in streams))
        with trio.fail_after(10):
            while woken.total() < len(streams):
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert max(woken.values()) <= TURN_SECONDS / WAKE_SECONDS + 1


async def test_a_request_that_has_come_whole_is_delivered_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer amid its request would be left to h11."""
    now = 0.0
    turns: list[float] = []

    class Slow(HttpServerConnection):
        def _deliver(self, event: Received) -> None:
            nonlocal now
            now += 2 * TURN_SECONDS
            super()._deliver(event)

        async def _take_turn(self) -> None:
            turns.append(now)
            await super()._take_turn()

    monkeypatch.setattr("penstock.net.http.serving.HttpServerConnection", Slow)
    monkeypatch.setattr("penstock.net.http.server.connection.perf_counter", lambda: now)
    async with serving(hello, "http/1.1") as client:
        for _ in range(4):
            assert (await client.ask("GET", "/")).status == 200
    assert now
    assert not turns


async def test_many_followers_over_tcp() -> None:
    handler = Follower()
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, lambda stream: serve_http(stream, handler), 0)
        port = listeners[0].socket.getsockname()[1]
        streams = []
        for _ in range(200):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await stream.receive_some(4096)).startswith(b"HTTP/1.1 200")
            streams.append(stream)
        assert handler.started == 200
        handler.ended = trio.Event()
        for stream in streams:
            await stream.aclose()
        with trio.fail_after(10):
            await handler.ended.wait()
        nursery.cancel_scope.cancel()
