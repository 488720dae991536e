"""The HTTP server: clients that go away, and back-pressure both ways."""

import gc
import tracemalloc

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs
from support.http.client import HttpClient, StreamPair, memory_pair, serving, socket_pair
from support.http.handlers import Follower, count, hello

from penstock.net.http.exchange import Exchange
from penstock.net.http.serving import HttpSettings, serve_http
from penstock.wire.http import Body, End, HttpLimits, Reset

BOTH = pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
EVERYWHERE = pytest.mark.parametrize("pair", [memory_pair, socket_pair])
CHUNKED = [("transfer-encoding", "chunked")]
Clock = trio.testing.MockClock


# ---- clients that go away ----------------------------------------------------------------------------------------


@BOTH
@EVERYWHERE
async def test_an_idle_handler_is_cancelled_when_its_client_closes(
    alpn: str, pair: StreamPair, autojump_clock: Clock
) -> None:
    handler = Follower()
    async with serving(handler, alpn, pair) as client:
        stream_id = await client.open("GET", "/")
        await client.say(End(stream_id))
        await client.head(stream_id)
        await client.data(stream_id, 6)
        assert handler.started == 1
        await trio.sleep(3600)
        assert handler.cancelled_at == []
        closed_at = trio.current_time()
    assert handler.cancelled_at[0] - closed_at <= HttpSettings().half_close


async def test_a_reset_cancels_its_own_handler_only(autojump_clock: Clock) -> None:
    handler = Follower()
    async with serving(handler, "h2") as client:
        streams = [await client.open("GET", "/") for _ in range(3)]
        for stream_id in streams:
            await client.say(End(stream_id))
            await client.data((await client.head(stream_id)).stream_id, 6)
        for n, code in enumerate([0, 8]):
            await client.say(Reset(streams[n], code))
            await trio.sleep(1)
            assert len(handler.cancelled_at) == n + 1
    assert len(handler.cancelled_at) == 3


@EVERYWHERE
async def test_a_client_that_half_closes_is_answered(pair: StreamPair, autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        await trio.sleep(0.5)
        await hello(exchange)

    near, far = pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler)
        await near.send_all(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n")
        await near.send_eof()  # type: ignore[attr-defined]
        got = b""
        while piece := await near.receive_some(65536):
            got += piece
        assert got.endswith(b"hello /x")


@BOTH
async def test_a_client_that_leaves_amid_its_request(alpn: str, autojump_clock: Clock) -> None:
    outcome: list[str] = []

    async def handler(exchange: Exchange) -> None:
        try:
            await count(exchange)
        except trio.Cancelled:
            outcome.append("cancelled")
            raise

    with capture_logs() as logs:
        async with serving(handler, alpn) as client:
            stream_id = await client.open("POST", "/", CHUNKED)
            await client.say(Body(stream_id, [b"some"]))
            await trio.sleep(1)
    assert outcome == ["cancelled"]
    assert [log for log in logs if log["log_level"] == "error"] == []


# ---- back-pressure -----------------------------------------------------------------------------------------------


@BOTH
async def test_send_waits_for_a_client_that_does_not_read(alpn: str, autojump_clock: Clock) -> None:
    sent = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.start(200, [])
        for _ in range(100):
            await exchange.send([bytes(100_000)])
            sent += 100_000
        await exchange.finish()

    async with serving(handler, alpn, socket_pair) as client:
        stream_id = await client.open("GET", "/")
        await client.say(End(stream_id))
        await trio.sleep(10)
        settings = HttpSettings()
        assert 0 < sent < settings.send_buffer + settings.limits.stream_window + 1_000_000
        assert len((await client.answer(stream_id)).body) == 10_000_000


@BOTH
async def test_a_handler_that_does_not_read_holds_the_upload_back(alpn: str, autojump_clock: Clock) -> None:
    go_on = trio.Event()

    async def handler(exchange: Exchange) -> None:
        await go_on.wait()
        await count(exchange)

    async with serving(handler, alpn, socket_pair) as client:
        stream_id = await client.open("POST", "/", CHUNKED)
        sent = 0

        async def upload() -> None:
            nonlocal sent
            for _ in range(100):
                await client.say(Body(stream_id, [bytes(100_000)]))
                sent += 100_000 if alpn == "http/1.1" else 0
            await client.say(End(stream_id))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(upload)
            await trio.sleep(10)
            if alpn == "h2":
                sent = 10_000_000 - client.codec.unsent(stream_id)
            assert 0 < sent <= 2_000_000
            go_on.set()
            assert (await client.answer(stream_id)).body == b"10000000"


async def test_tiny_pieces_of_unread_body_cost_no_more_than_large_ones(autojump_clock: Clock) -> None:
    """A piece of two bytes takes sixty as an object of its own."""
    size = 200_000
    go_on = trio.Event()

    async def handler(exchange: Exchange) -> None:
        await go_on.wait()
        await count(exchange)

    near, far = memory_pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler)
        await near.send_all(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked()
        tracemalloc.start()
        try:
            await near.send_all(b"2\r\nxy\r\n" * (size // 2))
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < 3 * size
        finally:
            tracemalloc.stop()
        go_on.set()
        await near.send_all(b"0\r\n\r\n")
        assert (await near.receive_some(65536)).endswith(b"\r\n\r\n%d" % size)


async def test_one_stalled_stream_blocks_no_other(autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.start(200, [])
        for _ in range(int(exchange.request.query)):
            await exchange.send([bytes(100_000)])
        await exchange.finish()

    near, far = socket_pair()
    async with trio.open_nursery() as nursery, near:
        nursery.start_soon(serve_http, far, handler)
        client = HttpClient(near, "h2", HttpLimits(stream_window=200_000))
        stalled = await client.open("GET", "/?100")
        await client.say(End(stalled))
        await client.head(stalled)
        for _ in range(5):
            other = await client.open("GET", "/?20")
            await client.say(End(other))
            assert len((await client.answer(other)).body) == 2_000_000


@BOTH
async def test_an_unread_body_is_dropped_for_the_sake_of_the_connection(alpn: str, autojump_clock: Clock) -> None:
    async with serving(hello, alpn) as client:
        for size in (10, 300_000, 1_000_000):
            stream_id = await client.open("POST", "/x", [("content-length", str(size))])
            assert (await client.answer(stream_id)).body == b"hello /x"
            await client.say(Body(stream_id, [bytes(size)], end=True))
        assert (await client.ask("GET", "/y")).body == b"hello /y"


async def test_an_unread_body_that_is_too_long_ends_the_connection(autojump_clock: Clock) -> None:
    async with serving(hello, "http/1.1", settings=HttpSettings(HttpLimits(max_discard=100_000))) as client:
        stream_id = await client.open("POST", "/x", CHUNKED)
        assert (await client.answer(stream_id)).body == b"hello /x"
        await client.say(Body(stream_id, [bytes(200_000)]))
        assert await client.closed()
