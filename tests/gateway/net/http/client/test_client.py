"""The HTTP client wired to our own server: whole exchanges and the pool, in both versions."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing
from support.http.client import StreamPair, memory_pair, socket_pair
from support.http.handlers import echo, hello
from support.upstreams import WHERE, by, client_of

from penstock.core.identity import CLIENT, Client
from penstock.model.failures import FailureCode, OperationFailed
from penstock.net.http.client import HttpClient, HttpClientSettings, HttpVersion, Response
from penstock.net.http.exchange import Exchange
from penstock.net.upstream import Credentials, CredentialsMode

H1 = HttpClientSettings(version=HttpVersion.H1)
H2 = HttpClientSettings(version=HttpVersion.H2)
BOTH = pytest.mark.parametrize("settings", [H1, H2], ids=["h1", "h2"])
PAIRS = pytest.mark.parametrize("pair", [memory_pair, socket_pair], ids=["memory", "socket"])


async def show(exchange: Exchange) -> None:
    """Respond with the request."""
    request = exchange.request
    lines = [f"{request.http_version} {request.method} {request.path}?{request.query} {request.authority}"]
    lines += [f"{name}: {value}" for name, value in request.headers if name not in ("host", "transfer-encoding")]
    await exchange.respond(200, [], "\n".join(lines).encode())


# ---- whole exchanges ---------------------------------------------------------------------------------------------
@BOTH
@PAIRS
async def test_a_whole_exchange(settings: HttpClientSettings, pair: StreamPair) -> None:
    async with client_of(by(hello), settings, pair) as (client, far):
        for path in ("/a", "/b"):
            response = await client.request("GET", path)
            assert (response.status, response.body) == (200, b"hello " + path.encode())
            assert response.header("content-type") == "text/plain" and response.header("none") is None
        assert far.dials == 1


@BOTH
async def test_requests_say_what_they_should(settings: HttpClientSettings) -> None:
    async with client_of(by(show), settings) as (client, _):
        version = "2" if settings is H2 else "1.1"

        async def asked(*arguments: object, **named: object) -> str:
            return (await client.request(*arguments, **named)).body.decode()

        assert await asked("GET", "/p?q=1") == f"{version} GET /p?q=1 example:1"
        assert await asked("POST", "/p") == f"{version} POST /p? example:1\ncontent-length: 0"
        assert (
            await asked("POST", "/p", [("x", "y")], b"abc") == f"{version} POST /p? example:1\nx: y\ncontent-length: 3"
        )
        assert await asked("DELETE", "/p", authority="basin.test") == f"{version} DELETE /p? basin.test"


@BOTH
async def test_a_body_of_any_size_comes_back(settings: HttpClientSettings) -> None:
    body = bytes(range(256)) * 12_000
    async with client_of(by(echo), settings, socket_pair) as (client, _):
        assert (await client.request("POST", "/", body=body)).body == body
        assert (await client.request("POST", "/", body=memoryview(body)[5:])).body == body[5:]
        assert (await client.request("POST", "/", body=b"")).body == b""
        assert (await client.request("HEAD", "/")).body == b""


@BOTH
async def test_trailers(settings: HttpClientSettings) -> None:
    async def trailing(exchange: Exchange) -> None:
        await exchange.start(200, [])
        await exchange.send([b"body"])
        await exchange.finish([("grpc-status", "0")])

    async with client_of(by(trailing), settings) as (client, _):
        response = await client.request("POST", "/")
        assert response.body == b"body"
        assert list(response.trailers) == [("grpc-status", "0")]


@BOTH
async def test_an_answer_that_is_too_long_is_refused_and_harms_nothing(settings: HttpClientSettings) -> None:
    async def endless(exchange: Exchange) -> None:
        if exchange.request.path == "/hello":
            await hello(exchange)
            return
        await exchange.start(200, [])
        while True:
            await exchange.send([bytes(100_000)])

    async with client_of(by(endless), settings, socket_pair) as (client, far):
        with pytest.raises(OperationFailed) as caught:
            await client.request("GET", "/", max_body=1_000_000)
        assert caught.value.failure.code is FailureCode.UPSTREAM_FAULT
        assert caught.value.failure.message == f"{WHERE}: the answer is longer than 1000000 bytes"
        assert (await client.request("GET", "/hello")).status == 200
        assert far.dials == (1 if settings is H2 else 2)


@BOTH
async def test_credentials_are_those_for_the_client_of_the_task(settings: HttpClientSettings) -> None:
    credentials = Credentials(mode=CredentialsMode.SWAP, by_identity={"ann": "a", "bob": "b"})
    async with client_of(by(show), settings, credentials=credentials) as (client, _):

        async def asked(identity: str, headers: list[tuple[str, str]]) -> str:
            CLIENT.set(Client(identity=identity))
            return (await client.request("GET", "/", headers)).body.decode()

        assert (await asked("ann", [])).endswith("\nauthorization: Bearer a")
        assert (await asked("bob", [])).endswith("\nauthorization: Bearer b")
        assert (await asked("bob", [("authorization", "Basic x")])).endswith("\nauthorization: Basic x")
        with pytest.raises(OperationFailed, match="no credentials for identity 'eve'"):
            await asked("eve", [])


# ---- sharing connections -----------------------------------------------------------------------------------------
class Gate:
    """A handler that answers once the gate is open; counts those who wait."""

    def __init__(self) -> None:
        self.open = trio.Event()
        self.waiting = 0
        self.most = 0

    async def __call__(self, exchange: Exchange) -> None:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            await self.open.wait()
        finally:
            self.waiting -= 1
        await exchange.respond(200, [], b"")


async def ask_all(client: HttpClient, requests: int, gate: Gate) -> list[Response]:
    """Send that many requests at once, and open the gate when as many as possible are sent; return the responses."""
    answers: list[Response] = []

    async def one() -> None:
        answers.append(await client.request("GET", "/", seconds=1000))

    async with trio.open_nursery() as nursery:
        for _ in range(requests):
            nursery.start_soon(one)
        await trio.testing.wait_all_tasks_blocked()
        gate.open.set()
    return answers


async def test_h2_requests_share_a_connection(autojump_clock: trio.testing.MockClock) -> None:
    gate = Gate()
    async with client_of(by(gate), H2) as (client, far):
        assert len(await ask_all(client, 80, gate)) == 80
        assert (far.dials, gate.most) == (1, 80)


async def test_h2_makes_more_connections_where_one_is_full(autojump_clock: trio.testing.MockClock) -> None:
    gate = Gate()
    settings = HttpClientSettings(version=HttpVersion.H2, streams_per_connection=10)
    async with client_of(by(gate), settings) as (client, far):
        assert len(await ask_all(client, 35, gate)) == 35
        assert (far.dials, gate.most) == (4, 35)


async def test_h1_takes_turns_on_as_many_connections_as_there_may_be(autojump_clock: trio.testing.MockClock) -> None:
    gate = Gate()
    async with client_of(by(gate), H1, max_connections=5) as (client, far):
        assert len(await ask_all(client, 20, gate)) == 20
        assert (far.dials, gate.most) == (5, 5)


@pytest.mark.parametrize("settings, room", [
    (H1, 2), (HttpClientSettings(version=HttpVersion.H2, streams_per_connection=1), 2),
])  # fmt: skip
async def test_who_finds_no_connection_free_in_time_is_told(
    settings: HttpClientSettings, room: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with client_of(by(Gate()), settings, max_connections=room) as (client, far), trio.open_nursery() as nursery:
        for _ in range(room):
            nursery.start_soon(partial(client.request, "GET", "/", seconds=1000))
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        with pytest.raises(OperationFailed) as caught:
            await client.request("GET", "/")
        assert trio.current_time() - start == 3.0
        assert caught.value.failure.code is FailureCode.HOT_SERVER
        assert caught.value.failure.message == f"{WHERE}: all 2 connections are in use"
        assert far.dials == room
        nursery.cancel_scope.cancel()


async def test_who_waits_and_goes_away_leaves_the_connection_to_the_next(
    autojump_clock: trio.testing.MockClock,
) -> None:
    gate = Gate()
    async with client_of(by(gate), H1, max_connections=1) as (client, far), trio.open_nursery() as nursery:
        nursery.start_soon(partial(client.request, "GET", "/", seconds=1000))
        await trio.testing.wait_all_tasks_blocked()
        leaving = trio.CancelScope()

        async def leave() -> None:
            with leaving:
                await client.request("GET", "/")

        nursery.start_soon(leave)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(client.request, "GET", "/")
        await trio.testing.wait_all_tasks_blocked()
        gate.open.set()
        leaving.cancel()
    assert (far.dials, gate.most) == (1, 1)


@BOTH
async def test_who_goes_away_just_when_a_connection_is_free_gives_it_back(
    settings: HttpClientSettings, autojump_clock: trio.testing.MockClock
) -> None:
    single = HttpClientSettings(version=settings.version, streams_per_connection=1)
    async with client_of(by(hello), single, max_connections=1) as (client, far), trio.open_nursery() as nursery:
        leaving = trio.CancelScope()

        async def leave() -> None:
            with leaving:
                await client.request("GET", "/")

        async with client.open("GET", "/", body=False) as stream:
            while await stream.receive():
                pass
            nursery.start_soon(leave)
            await trio.testing.wait_all_tasks_blocked()
            leaving.cancel()
        assert (await client.request("GET", "/")).status == 200
        assert far.dials == 1


@BOTH
async def test_idle_connections_are_closed(
    settings: HttpClientSettings, autojump_clock: trio.testing.MockClock
) -> None:
    async with client_of(by(hello), settings, idle_seconds=10.0) as (client, far):
        for _ in range(3):
            await client.request("GET", "/")
            await trio.sleep(9.0)
        assert (far.dials, far.open) == (1, 1)
        await trio.sleep(1.1)
        assert far.open == 0
        assert (await client.request("GET", "/")).status == 200
        assert far.dials == 2


@BOTH
async def test_a_request_at_the_moment_when_an_idle_connection_ends(
    settings: HttpClientSettings, autojump_clock: trio.testing.MockClock
) -> None:
    async with client_of(by(hello), settings, idle_seconds=10.0) as (client, _):
        for _ in range(20):
            assert (await client.request("POST", "/")).status == 200
            await trio.sleep(10.0)


@BOTH
async def test_leaving_the_client_closes_all_and_raises_what_the_block_raised(settings: HttpClientSettings) -> None:
    async with client_of(by(hello), settings) as (_, far):
        with pytest.raises(ZeroDivisionError):
            async with HttpClient(far.upstream(), settings) as inner:
                await inner.request("GET", "/")
                assert far.open == 1
                raise ZeroDivisionError
        await trio.testing.wait_all_tasks_blocked()
        assert far.open == 0
