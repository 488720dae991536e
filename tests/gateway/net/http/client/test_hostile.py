"""The HTTP client against hostile and broken servers: nothing grows without a bound, and no request waits for ever."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from support.upstreams import Script, Scripted, answer, client_of, failed

from penstock.model.failures import FailureCode
from penstock.net.http.client import HttpClientSettings, HttpVersion
from penstock.wire.http import End, GoAway, RequestHead

Clock = trio.testing.MockClock
H1 = HttpClientSettings(version=HttpVersion.H1)
H2 = HttpClientSettings(version=HttpVersion.H2)
BOTH = pytest.mark.parametrize("settings", [H1, H2], ids=["h1", "h2"])


async def test_a_server_that_goes_on_after_its_answer_is_left(autojump_clock: Clock) -> None:
    """Although the request goes on, and the response is not read."""
    taken = 0

    async def floods(script: Script) -> None:
        nonlocal taken
        while not isinstance(await script.next(), RequestHead):
            pass
        await script.stream.send_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")
        while taken < 100_000_000:
            await script.stream.send_all(bytes(1 << 16))
            taken += 1 << 16

    async with client_of(Scripted(H1, floods), H1) as (client, far), client.open("POST", "/", body=True) as stream:
        assert (await stream.receive_head()).status == 200
        await trio.testing.wait_all_tasks_blocked()
        assert far.open == 0
    assert taken < 10_000_000


@BOTH
async def test_a_server_that_closes_what_it_accepts(settings: HttpClientSettings, autojump_clock: Clock) -> None:
    async def closes(script: Script) -> None:
        await trio.lowlevel.checkpoint()

    async with client_of(Scripted(settings, closes), settings, breaker_failures=3) as (client, far):
        with trio.move_on_after(60) as late:
            for _ in range(20):
                code, _ = await failed(client.request("GET", "/"))
                assert code in (FailureCode.UNAVAILABLE, FailureCode.HOT_SERVER)
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(failed, client.request("GET", "/"))
        assert not late.cancelled_caught
        assert far.dials < 200


async def test_a_server_that_goes_away_at_once(autojump_clock: Clock) -> None:
    async def goes(script: Script) -> None:
        script.codec.send(GoAway())
        await script.say()
        while True:
            await script.next()

    async with client_of(Scripted(H2, goes), H2) as (client, far):
        with trio.move_on_after(60) as late:
            for _ in range(20):
                code, _ = await failed(client.request("GET", "/"))
                assert code in (FailureCode.UNAVAILABLE, FailureCode.HOT_SERVER)
        assert not late.cancelled_caught
        assert far.dials < 200


async def test_a_flood_of_answers_that_are_none(autojump_clock: Clock) -> None:
    async def floods(script: Script) -> None:
        while not isinstance(await script.next(), End):
            pass
        while True:
            await script.stream.send_all(b"HTTP/1.1 102 Processing\r\n\r\n" * 1000)
            await trio.sleep(0.01)

    async with client_of(Scripted(H1, floods), H1) as (client, _):
        assert (await failed(client.request("GET", "/")))[0] is FailureCode.UPSTREAM_TIMEOUT
        assert trio.current_time() < 10


@pytest.mark.parametrize(
    "dribble", [b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100, b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n" + b"z" * 50]
)
async def test_an_answer_byte_by_byte(dribble: bytes, autojump_clock: Clock) -> None:
    async def dribbles(script: Script) -> None:
        while not isinstance(await script.next(), End):
            pass
        for at in range(len(dribble)):
            await script.stream.send_all(dribble[at : at + 1])
            await trio.sleep(1)

    async with client_of(Scripted(H1, dribbles), H1) as (client, far):
        assert (await failed(client.request("GET", "/")))[0] is FailureCode.UPSTREAM_TIMEOUT
        assert trio.current_time() < 10
        await trio.sleep(3)
        assert far.open == 0


@pytest.mark.parametrize("bad", [("x", "a\r\nb: c"), ("x", "secret\x0b"), ("x y", "secret")])
@BOTH
async def test_a_head_that_cannot_be_said(
    bad: tuple[str, str], settings: HttpClientSettings, autojump_clock: Clock
) -> None:
    async def answers(script: Script) -> None:
        while True:
            event = await script.next()
            if isinstance(event, End):
                await answer(script, event.stream_id)

    async with client_of(Scripted(settings, answers), settings) as (client, far):
        if settings is H2 and bad[1] != "a\r\nb: c":
            return
        code, message = await failed(client.request("GET", "/", [bad]))
        assert code is FailureCode.INVALID
        assert "secret" not in message and bad[1] not in message
        assert (await client.request("GET", "/")).status == 200
        assert far.dials == 1
