"""The HTTP client in full duplex, wired to our own server: back-pressure, breaking off, in both versions."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from support.http.client import StreamPair, memory_pair, socket_pair
from support.http.handlers import count, echo
from support.upstreams import by, client_of

from penstock.model.limits import MIB
from penstock.net.http.client import HttpClientSettings, HttpVersion
from penstock.net.http.exchange import Exchange

H1 = HttpClientSettings(version=HttpVersion.H1)
H2 = HttpClientSettings(version=HttpVersion.H2)
BOTH = pytest.mark.parametrize("settings", [H1, H2], ids=["h1", "h2"])
PAIRS = pytest.mark.parametrize("pair", [memory_pair, socket_pair], ids=["memory", "socket"])


@BOTH
@PAIRS
async def test_an_answer_comes_while_its_request_still_goes(settings: HttpClientSettings, pair: StreamPair) -> None:
    async with client_of(by(echo), settings, pair) as (client, far):
        async with client.open("POST", "/", body=True) as stream:
            assert (await stream.receive_head()).status == 200
            for number in range(20):
                await stream.send([b"piece ", b"%d" % number])
                got = b""
                while len(got) < len(b"piece %d" % number):
                    got += await stream.receive()
                assert got == b"piece %d" % number
            await stream.finish()
            await stream.finish()
            assert await stream.receive() == b""
            assert await stream.receive() == b""
        assert (await client.request("POST", "/", body=b"x")).body == b"x"
        assert far.dials == 1


@BOTH
async def test_much_goes_both_ways_at_once(settings: HttpClientSettings) -> None:
    piece = bytes(range(256)) * 4096
    async with (
        client_of(by(echo), settings, socket_pair) as (client, _),
        client.open("POST", "/", body=True) as stream,
        trio.open_nursery() as nursery,
    ):

        async def send() -> None:
            for _ in range(20):
                await stream.send([piece[:7], piece[7:]])
            await stream.finish()

        nursery.start_soon(send)
        got = bytearray()
        while data := await stream.receive():
            got += data
        assert got == piece * 20


@BOTH
async def test_a_request_without_a_body_and_a_long_answer(settings: HttpClientSettings) -> None:
    async def long(exchange: Exchange) -> None:
        await exchange.start(200, [])
        for number in range(1000):
            await exchange.send([b"%d\n" % number])
        await exchange.finish()

    async with client_of(by(long), settings) as (client, _), client.open("GET", "/", body=False) as stream:
        lines = b""
        while data := await stream.receive():
            lines += data
        assert lines == b"".join(b"%d\n" % number for number in range(1000))


class Source:
    """A handler that sends as much as is taken."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended = trio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        try:
            await exchange.start(200, [])
            while True:
                await exchange.send([bytes(100_000)])
                self.sent += 100_000
        finally:
            self.ended.set()


@BOTH
async def test_an_answer_that_is_not_read_is_not_taken(settings: HttpClientSettings) -> None:
    source = Source()
    async with client_of(by(source), settings, socket_pair) as (client, _):
        async with client.open("GET", "/", body=False) as stream:
            await stream.receive_head()
            await trio.testing.wait_all_tasks_blocked(0.05)
            held = source.sent
            assert held < 4 * MIB  # one in our buffer or window, one in the server's, and what the kernel has
            taken = 0
            while taken < 8 * MIB:
                taken += len(await stream.receive())
            assert source.sent > held
        await source.ended.wait()


@BOTH
async def test_a_server_that_does_not_read_makes_the_sender_wait(settings: HttpClientSettings) -> None:
    async def deaf(exchange: Exchange) -> None:
        await trio.sleep_forever()

    async with (
        client_of(by(deaf), settings, socket_pair) as (client, _),
        client.open("POST", "/", body=True) as stream,
    ):
        sent = 0
        with trio.move_on_after(0.2):
            while sent < 50 * MIB:
                await stream.send([bytes(100_000)])
                sent += 100_000
        assert sent < 5 * MIB


async def test_an_h2_answer_that_is_not_read_does_not_hold_up_the_others() -> None:
    source = Source()

    async def handler(exchange: Exchange) -> None:
        await (source if exchange.request.path == "/endless" else echo)(exchange)

    async with client_of(by(handler), H2, socket_pair) as (client, far), trio.open_nursery() as nursery:

        async def ignore() -> None:
            async with client.open("GET", "/endless", body=False) as stream:
                await stream.receive_head()
                await trio.sleep_forever()

        for _ in range(8):
            nursery.start_soon(ignore)
        await trio.testing.wait_all_tasks_blocked(0.05)
        body = bytes(3 * MIB)
        assert (await client.request("POST", "/", body=body)).body == body
        assert far.dials == 1
        nursery.cancel_scope.cancel()


async def test_h2_the_unread_part_of_a_response_gives_its_window_back() -> None:
    source = Source()

    async def handler(exchange: Exchange) -> None:
        await (source if exchange.request.path == "/endless" else echo)(exchange)

    one = HttpClientSettings(version=HttpVersion.H2, streams_per_connection=1)  # so the connection has no more window
    async with client_of(by(handler), one, socket_pair) as (client, far):
        for _ in range(3):
            async with client.open("GET", "/endless", body=False) as stream:
                await stream.receive_head()
                await trio.testing.wait_all_tasks_blocked(0.02)
        body = bytes(3 * MIB)
        assert (await client.request("POST", "/", body=body)).body == body
        assert far.dials == 1


@BOTH
async def test_receiving_may_be_cancelled_and_goes_on(
    settings: HttpClientSettings, autojump_clock: trio.testing.MockClock
) -> None:
    async def slow(exchange: Exchange) -> None:
        await exchange.start(200, [])
        for number in range(5):
            await trio.sleep(1.0)
            await exchange.send([b"%d" % number])
        await exchange.finish()

    async with client_of(by(slow), settings) as (client, _), client.open("GET", "/", body=False) as stream:
        got, ended = b"", False
        while not ended:
            with trio.move_on_after(0.3):
                data = await stream.receive()
                got, ended = got + data, not data
        assert got == b"01234"


@BOTH
async def test_leaving_early_ends_it_on_the_server_too(
    settings: HttpClientSettings, autojump_clock: trio.testing.MockClock
) -> None:
    source = Source()

    async def handler(exchange: Exchange) -> None:
        await (source if exchange.request.path == "/endless" else count)(exchange)

    async with client_of(by(handler), settings, socket_pair) as (client, far):
        with trio.move_on_after(1.0):
            async with client.open("POST", "/endless", body=True) as stream:
                await stream.receive_head()
                await trio.sleep_forever()
        await source.ended.wait()
        assert (await client.request("POST", "/", body=b"abc")).body == b"3"
        assert far.dials == (1 if settings is H2 else 2)


@BOTH
async def test_what_is_sent_after_the_answer_has_ended_is_dropped(settings: HttpClientSettings) -> None:
    async def hasty(exchange: Exchange) -> None:
        await exchange.respond(403, [], b"no")

    async with client_of(by(hasty), settings) as (client, _), client.open("POST", "/", body=True) as stream:
        assert (await stream.receive_head()).status == 403
        assert await stream.receive() == b"no"
        assert await stream.receive() == b""
        for _ in range(30):
            await stream.send([bytes(1 * MIB)])
        await stream.finish()
