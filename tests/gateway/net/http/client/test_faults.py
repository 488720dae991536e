"""The HTTP client and servers that fail: lost, late, going away, breaking the protocol. Servers follow a script."""

from __future__ import annotations

import itertools

import pytest
import trio
import trio.testing
from support.http.client import socket_pair
from support.http.handlers import hello
from support.upstreams import (
    WHERE,
    Script,
    Scripted,
    answer,
    answers,
    answers_once,
    by,
    client_of,
    failed,
    far_server,
    hangs_up,
    ignores,
)

from penstock.model.failures import FailureCode
from penstock.model.limits import MIB
from penstock.net.http.client import HttpClient, HttpClientSettings, HttpVersion
from penstock.net.http.client.connection import HttpStream
from penstock.net.upstream import BreakerState
from penstock.wire.http import Body, End, RequestHead, Reset, ResponseHead

Clock = trio.testing.MockClock
H1 = HttpClientSettings(version=HttpVersion.H1)
H2 = HttpClientSettings(version=HttpVersion.H2)
BOTH = pytest.mark.parametrize("settings", [H1, H2], ids=["h1", "h2"])
HOT, LOST, LATE = FailureCode.HOT_SERVER, FailureCode.UNAVAILABLE, FailureCode.UPSTREAM_TIMEOUT


# ---- lost --------------------------------------------------------------------------------------------------------
@BOTH
async def test_a_server_that_is_not_there(settings: HttpClientSettings, autojump_clock: Clock) -> None:
    async with client_of(by(hello), settings, breaker_failures=3) as (client, far):
        far.up = False
        for _ in range(3):
            assert await failed(client.request("GET", "/")) == (HOT, f"{WHERE}: cannot connect: connection refused")
        assert "the circuit is open" in (await failed(client.request("GET", "/")))[1]
        assert far.dials == 3
        far.up = True
        await trio.sleep(1.0)
        assert (await client.request("GET", "/")).status == 200
        assert client.upstream.breaker.state is BreakerState.CLOSED


@BOTH
async def test_all_who_wait_for_a_connection_are_told_that_there_is_none(
    settings: HttpClientSettings, autojump_clock: Clock
) -> None:
    async with client_of(by(hello), settings) as (client, far), trio.open_nursery() as nursery:
        far.silent = True
        start = trio.current_time()

        async def ask() -> None:
            told = await failed(client.request("GET", "/"))
            assert told == (HOT, f"{WHERE}: cannot connect: no connection in 3 s")
            assert trio.current_time() - start == 3.0

        for _ in range(4):
            nursery.start_soon(ask)


@BOTH
async def test_a_server_lost_before_its_answer(settings: HttpClientSettings, autojump_clock: Clock) -> None:
    server = Scripted(settings, hangs_up)
    async with client_of(server, settings, breaker_failures=3) as (client, far):
        for _ in range(3):
            assert client.upstream.breaker.state is BreakerState.CLOSED
            code, message = await failed(client.request("GET", "/"))
            assert (code, message) == (LOST, f"{WHERE}: the server closed the connection")
        assert client.upstream.breaker.state is BreakerState.OPEN
        assert far.dials == 3


@BOTH
async def test_a_server_that_accepts_and_never_answers(settings: HttpClientSettings, autojump_clock: Clock) -> None:
    async def listens(script: Script) -> None:
        await trio.sleep_forever()

    async with client_of(Scripted(settings, listens), settings, breaker_failures=3) as (client, _):
        for _ in range(3):
            assert client.upstream.breaker.state is BreakerState.CLOSED
            await failed(client.request("GET", "/"))
        assert client.upstream.breaker.state is BreakerState.OPEN


@BOTH
async def test_a_server_lost_amid_its_answer(settings: HttpClientSettings, autojump_clock: Clock) -> None:
    async def halfway(script: Script) -> None:
        await hangs_up(script)
        stream_id = 1
        await script.say(ResponseHead(stream_id, 200, [("content-length", "10")]), Body(stream_id, [b"first"]))

    async with client_of(Scripted(settings, halfway), settings) as (client, far):
        async with client.open("GET", "/", body=False) as stream:
            assert (await stream.receive_head()).status == 200
            await trio.testing.wait_all_tasks_blocked()
            assert await stream.receive() == b"first"
            for _ in range(2):
                assert await failed(stream.receive()) == (LOST, f"{WHERE}: the server closed the connection")
            assert (await failed(stream.send([b"x"])))[0] is LOST
        assert (await failed(client.request("GET", "/")))[0] is LOST
        assert far.dials == 2  # it is not asked again: some of the answer had come
        assert client.upstream.breaker.state is BreakerState.CLOSED


async def test_a_real_reset_is_told_by_the_systems_words() -> None:
    async def reset(script: Script) -> None:
        await script.stream.receive_some(10)  # closing with something unread resets

    async with client_of(Scripted(H1, reset), H1, socket_pair) as (client, _):
        code, message = await failed(client.request("POST", "/", body=bytes(100_000)))
        assert (code, message) in [
            (LOST, f"{WHERE}: connection reset by peer"),
            (LOST, f"{WHERE}: the server closed the connection"),
        ]


# ---- connections that were used before ---------------------------------------------------------------------------
@BOTH
@pytest.mark.parametrize("method, idempotent, again", [
    ("GET", None, True), ("DELETE", None, True), ("POST", None, False), ("POST", True, True), ("GET", False, False),
])  # fmt: skip
async def test_a_used_connection_found_dead(
    settings: HttpClientSettings, method: str, idempotent: bool | None, again: bool, autojump_clock: Clock
) -> None:
    async with client_of(Scripted(settings, answers_once), settings, breaker_failures=1) as (client, far):
        assert (await client.request("GET", "/")).status == 200
        if again:
            assert (await client.request(method, "/", idempotent=idempotent)).status == 200
            assert far.dials == 2
        else:
            assert (await failed(client.request(method, "/", idempotent=idempotent)))[0] is LOST
            assert far.dials == 1
        assert client.upstream.breaker.state is BreakerState.CLOSED


@BOTH
async def test_attempts_on_used_connections_are_bounded(settings: HttpClientSettings, autojump_clock: Clock) -> None:
    async with client_of(Scripted(settings, answers_once, hangs_up), settings) as (client, far):
        assert (await client.request("GET", "/")).status == 200
        assert (await failed(client.request("GET", "/")))[0] is LOST
        assert far.dials == 2


@BOTH
async def test_an_idle_connection_that_the_server_closes_is_not_used_again(
    settings: HttpClientSettings, autojump_clock: Clock
) -> None:
    async def closes(script: Script) -> None:
        with trio.move_on_after(5):
            await answers(script)

    async with client_of(Scripted(settings, closes), settings) as (client, far):
        for dials in (1, 2, 3):
            assert (await client.request("POST", "/")).status == 200
            assert far.dials == dials
            await trio.sleep(6)


@BOTH
async def test_a_request_while_the_end_of_the_connection_is_read(
    settings: HttpClientSettings, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine others have their turn between the events of one read: here after each."""
    monkeypatch.setattr("penstock.net.http.client.connection.perf_counter", itertools.count().__next__)

    async def closes(script: Script) -> None:
        while not isinstance(event := await script.next(), End):
            pass
        await answer(script, event.stream_id)

    async with client_of(Scripted(settings, closes), settings) as (client, _):
        for turns in range(100):
            for _ in range(turns % 10):
                await trio.lowlevel.checkpoint()
            assert (await client.request("GET", "/")).status == 200


async def test_h1_answers_that_end_the_connection(autojump_clock: Clock) -> None:
    async def last(script: Script) -> None:
        while not isinstance(event := await script.next(), End):
            pass
        await script.say(ResponseHead(event.stream_id, 200, [("connection", "close")]))
        await script.say(Body(event.stream_id, [b"until it closes"], end=True))

    async with client_of(Scripted(H1, last), H1) as (client, far):
        for dials in (1, 2):
            assert (await client.request("POST", "/")).body == b"until it closes"
            assert far.dials == dials


# ---- late --------------------------------------------------------------------------------------------------------
@BOTH
async def test_an_answer_that_does_not_come(settings: HttpClientSettings, autojump_clock: Clock) -> None:
    async with client_of(Scripted(settings, ignores, answers), settings) as (client, far):
        start = trio.current_time()
        assert await failed(client.request("GET", "/")) == (LATE, f"{WHERE}: no answer in 5 s")
        assert trio.current_time() - start == 5.0
        await trio.testing.wait_all_tasks_blocked()
        assert far.open == 0  # no byte came at all: the server may be gone
        assert (await client.request("GET", "/", seconds=0.5)).status == 200


@BOTH
async def test_a_head_that_does_not_come(settings: HttpClientSettings, autojump_clock: Clock) -> None:
    async with (
        client_of(Scripted(settings, ignores), settings, request_seconds=2.0) as (client, _),
        client.open("POST", "/", body=True) as stream,
    ):
        assert await failed(stream.receive_head()) == (LATE, f"{WHERE}: no answer in 2 s")
        assert await failed(stream.receive_head(0.5)) == (LATE, f"{WHERE}: no answer in 0.5 s")


@BOTH
async def test_an_answer_whose_body_does_not_end(settings: HttpClientSettings, autojump_clock: Clock) -> None:
    async def trickles(script: Script) -> None:
        while not isinstance(event := await script.next(), End):
            pass
        await script.say(ResponseHead(event.stream_id, 200, [("content-length", "1000")]))
        for _ in range(1000):
            await script.say(Body(event.stream_id, [b"x"]))
            await trio.sleep(1)

    async with client_of(Scripted(settings, trickles), settings) as (client, _):
        assert await failed(client.request("GET", "/", seconds=3)) == (LATE, f"{WHERE}: no answer in 3 s")


async def test_h2_a_late_answer_harms_no_other_request(autojump_clock: Clock) -> None:
    resets: list[Reset] = []

    async def slow(script: Script) -> None:
        paths: dict[int, str] = {}
        while True:
            event = await script.next()
            if isinstance(event, RequestHead):
                paths[event.stream_id] = event.target
            elif isinstance(event, End) and paths[event.stream_id] == "/fast":
                await answer(script, event.stream_id)
            elif isinstance(event, Reset):
                resets.append(event)

    async with client_of(Scripted(H2, slow), H2) as (client, far), trio.open_nursery() as nursery:
        nursery.start_soon(failed, client.request("GET", "/slow"))
        await trio.sleep(2)
        assert (await client.request("GET", "/fast")).status == 200
        await trio.sleep(4)
        assert [reset.stream_id for reset in resets] == [1]
        assert (await client.request("GET", "/fast")).status == 200
        assert far.dials == 1


@BOTH
async def test_a_server_that_takes_nothing(settings: HttpClientSettings, autojump_clock: Clock) -> None:
    async def deaf(stream: trio.abc.Stream) -> None:
        await trio.sleep_forever()

    patient = HttpClientSettings(version=settings.version, write_seconds=7.0)

    async with client_of(deaf, patient, lambda: trio.testing.lockstep_stream_pair()) as (client, far):
        async with client.open("POST", "/", body=True) as stream:
            start = trio.current_time()
            await trio.sleep(0.5)
            await stream.send([bytes(100)])
            assert await failed(stream.receive()) == (LOST, f"{WHERE}: the server accepted no data for 7 s")
            assert trio.current_time() - start == 7.0
        assert far.dials == 1


# ---- breaking the protocol ---------------------------------------------------------------------------------------
@BOTH
async def test_a_server_that_breaks_the_protocol(settings: HttpClientSettings, autojump_clock: Clock) -> None:
    async def nonsense(script: Script) -> None:
        while not isinstance(await script.next(), End):
            pass
        await script.stream.send_all(b"\x00\x00\x00nonsense\r\n\r\n" * 100)
        await ignores(script)

    async with client_of(Scripted(settings, nonsense), settings) as (client, far):
        code, message = await failed(client.request("GET", "/"))
        assert code is FailureCode.UPSTREAM_FAULT
        assert message.startswith(f"{WHERE}: the server violated the protocol: HTTP/")
        await trio.testing.wait_all_tasks_blocked()
        assert far.open == 0


@pytest.mark.parametrize("more", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 20", b"ok"])
async def test_h1_more_than_the_answer(autojump_clock: Clock, more: bytes) -> None:
    async def too_much(script: Script) -> None:
        while not isinstance(await script.next(), End):
            pass
        await script.stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok" + more)
        await ignores(script)

    async with client_of(Scripted(H1, too_much), H1) as (client, far):
        for dials in (1, 2):
            assert (await client.request("GET", "/")).body == b"ok"
            await trio.testing.wait_all_tasks_blocked()
            assert (far.dials, far.open) == (dials, 0)


async def test_h1_a_head_without_end_is_refused(autojump_clock: Clock) -> None:
    async def endless(script: Script) -> None:
        await script.next()
        await script.stream.send_all(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000)
        await ignores(script)

    async with client_of(Scripted(H1, endless), H1) as (client, _):
        assert (await failed(client.request("GET", "/")))[0] is FailureCode.UPSTREAM_FAULT


async def test_h1_a_refusal_that_comes_while_the_body_still_goes(autojump_clock: Clock) -> None:
    async def hasty(script: Script) -> None:
        await script.next()
        await script.say(ResponseHead(1, 413, [("content-length", "3"), ("connection", "close")]))
        await script.say(Body(1, [b"big"], end=True))

    async with client_of(Scripted(H1, hasty), H1) as (client, far):
        response = await client.request("POST", "/", body=bytes(8 * MIB))
        assert (response.status, response.body) == (413, b"big")
        await trio.testing.wait_all_tasks_blocked()
        assert far.open == 0


# ---- the gateway's own end ---------------------------------------------------------------------------------------
@BOTH
async def test_closing_the_client_breaks_off_what_runs(settings: HttpClientSettings, autojump_clock: Clock) -> None:
    streams: list[HttpStream] = []

    async def follow(client: HttpClient) -> None:
        async with client.open("GET", "/", body=False) as stream:
            streams.append(stream)
            assert await failed(stream.receive()) == (LOST, f"{WHERE}: the gateway closed the connection")

    async with trio.open_nursery() as nursery, far_server(Scripted(settings, ignores)) as far:
        upstream = far.upstream(breaker_failures=1)
        async with HttpClient(upstream, settings) as client:
            nursery.start_soon(follow, client)
            await trio.testing.wait_all_tasks_blocked()
            assert streams
        assert upstream.breaker.state is BreakerState.CLOSED
