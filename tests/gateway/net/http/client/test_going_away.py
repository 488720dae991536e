"""The HTTP client and servers that take no more requests, or not as many at once."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from support.upstreams import WHERE, Script, Scripted, answer, answers, by, client_of, failed, ignores

from penstock.model.failures import FailureCode
from penstock.net.draining import Draining
from penstock.net.http.client import HttpClientSettings, HttpVersion
from penstock.net.http.exchange import Exchange
from penstock.wire.http import INTERNAL_ERROR, REFUSED_STREAM, End, GoAway, HttpLimits, RequestHead, Reset

Clock = trio.testing.MockClock
H1 = HttpClientSettings(version=HttpVersion.H1)
H2 = HttpClientSettings(version=HttpVersion.H2)
BOTH = pytest.mark.parametrize("settings", [H1, H2], ids=["h1", "h2"])
HOT, LOST = FailureCode.HOT_SERVER, FailureCode.UNAVAILABLE


async def goes_away(script: Script) -> None:
    """Answers its first request, says at the second that it was the last, and goes on with the first alone."""
    while not isinstance(await script.next(), End):
        pass
    while not isinstance(await script.next(), RequestHead):
        pass
    script.codec.send(GoAway())
    frame = bytearray(b"".join(script.codec.output(1 << 20)))
    frame[-8:-4] = (1).to_bytes(4, "big")  # the last stream that was looked at is the first
    await script.stream.send_all(bytes(frame))
    await trio.sleep(3)
    await answer(script, 1, b"first")
    await ignores(script)


async def test_h2_requests_after_a_goaway_go_elsewhere(autojump_clock: Clock) -> None:
    bodies: list[bytes] = []
    async with client_of(Scripted(H2, goes_away, answers), H2) as (client, far), trio.open_nursery() as nursery:

        async def ask() -> None:
            bodies.append((await client.request("POST", "/")).body)

        nursery.start_soon(ask)
        await trio.sleep(1)
        nursery.start_soon(ask)
        await trio.sleep(1)
        nursery.start_soon(ask)
        await trio.sleep(3)
        assert sorted(bodies) == [b"first", b"ok", b"ok"]
        assert (far.dials, far.open) == (2, 1)


async def test_h2_a_stream_above_a_goaway_was_not_processed(autojump_clock: Clock) -> None:
    async with client_of(Scripted(H2, goes_away, answers), H2) as (client, _), trio.open_nursery() as nursery:
        nursery.start_soon(client.request, "POST", "/")
        await trio.sleep(1)
        async with client.open("POST", "/", body=True) as stream:
            code, message = await failed(stream.receive_head())
            assert (code, message) == (HOT, f"{WHERE}: the server accepts no more requests on the connection")
            assert stream.unprocessed


@BOTH
async def test_a_server_that_drains_loses_no_request(settings: HttpClientSettings, autojump_clock: Clock) -> None:
    drain = Draining()

    async def slow(exchange: Exchange) -> None:
        await trio.sleep(2)
        await exchange.respond(200, [], b"done")

    async with client_of(by(slow, drain=drain), settings) as (client, far), trio.open_nursery() as nursery:

        async def ask() -> None:
            assert (await client.request("POST", "/")).body == b"done"

        for _ in range(5):
            nursery.start_soon(ask)
        await trio.sleep(1)
        drain.begin()
        await trio.sleep(1.5)
        assert far.open == 0


@pytest.mark.parametrize("error, attempts, code, text", [
    (REFUSED_STREAM, 3, HOT, "the server refused to begin the request"),
    (INTERNAL_ERROR, 1, LOST, "the server reset the request with error 0x2"),
])  # fmt: skip
async def test_h2_a_request_that_the_server_resets(
    error: int, attempts: int, code: FailureCode, text: str, autojump_clock: Clock
) -> None:
    heads: list[str] = []

    async def resets(script: Script) -> None:
        while True:
            event = await script.next()
            if isinstance(event, RequestHead):
                heads.append(event.target)
                await script.say(Reset(event.stream_id, error))

    async with client_of(Scripted(H2, resets), H2) as (client, far):
        assert await failed(client.request("POST", "/x", body=b"x")) == (code, f"{WHERE}: {text}")
        assert heads == ["/x"] * attempts
        assert far.dials == 1


async def test_h2_the_peers_limit_of_streams_is_kept(autojump_clock: Clock) -> None:
    most = 0

    async def two_at_once(script: Script) -> None:
        nonlocal most
        running: list[int] = []
        async with trio.open_nursery() as nursery:

            async def later(stream_id: int) -> None:
                await trio.sleep(1)
                running.remove(stream_id)
                await answer(script, stream_id)

            while True:
                event = await script.next()
                if isinstance(event, RequestHead):
                    running.append(event.stream_id)
                    most = max(most, len(running))
                elif isinstance(event, End):
                    nursery.start_soon(later, event.stream_id)

    server = Scripted(H2, two_at_once)
    server.limits = HttpLimits(max_streams=2)
    async with client_of(server, H2, max_connections=2) as (client, far):
        assert (await client.request("GET", "/")).status == 200  # now it is known

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(client.request, "GET", "/")
        assert (most, far.dials) == (2, 2)
