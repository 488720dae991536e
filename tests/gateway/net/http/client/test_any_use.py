"""Requests that are cancelled, refused or fail in any combination leave the pool whole for later ones."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.examples import examples
from support.http.client import memory_pair, socket_pair
from support.upstreams import by, far_server

from penstock.model.failures import OperationFailed
from penstock.net.http.client import HttpClient, HttpClientSettings, HttpVersion
from penstock.net.http.exchange import Exchange

CONNECTIONS = 3
STREAMS = 2


@dataclass(frozen=True)
class Request:
    """One request: its begin, the server's behaviour, and its user's time-out; times in seconds."""

    start: float
    pause: float
    size: int
    fails: bool
    patience: float


times = st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.1, 2.0, 2.5])
requests = st.builds(Request, times, times, st.sampled_from([0, 10, 70_000]), st.booleans(), times)


async def handler(exchange: Exchange) -> None:
    """Pauses amid its answer, which is as long as the path says; or fails there."""
    pause, size, fails = exchange.request.path.strip("/").split("/")
    await exchange.start(200, [])
    await exchange.send([bytes(int(size))])
    await trio.sleep(float(pause))
    if fails == "True":
        raise ZeroDivisionError
    while data := await exchange.receive():
        await exchange.send([data])
    await exchange.finish()


async def use(client: HttpClient, request: Request) -> None:
    """Correct, failed or given up; never wrong."""
    await trio.sleep(request.start)
    body = bytes(range(256)) * (request.size // 256)
    with trio.move_on_after(request.patience):
        try:
            target = f"/{request.pause}/{request.size}/{request.fails}"
            answer = await client.request("POST", target, body=body, idempotent=True, seconds=3.0)
        except OperationFailed:
            return
        assert answer.body == bytes(request.size) + body and not request.fails


@pytest.mark.parametrize("version", [HttpVersion.H1, HttpVersion.H2], ids=lambda version: version.value)
@pytest.mark.parametrize("pair", [memory_pair, socket_pair], ids=["memory", "socket"])
def test_nothing_is_lost_for_those_after(version: HttpVersion, pair: object) -> None:
    @examples(share=8, least=5)
    @given(st.lists(requests, min_size=1, max_size=12))
    def run(story: list[Request]) -> None:
        async def main() -> None:
            async with far_server(by(handler), pair) as far:
                upstream = far.upstream(max_connections=CONNECTIONS, idle_seconds=1.0)
                chosen = HttpClientSettings(version=version, streams_per_connection=STREAMS)
                async with HttpClient(upstream, chosen) as client:
                    async with trio.open_nursery() as nursery:
                        for request in story:
                            nursery.start_soon(use, client, request)
                    async with trio.open_nursery() as nursery:
                        room = CONNECTIONS * (STREAMS if version is HttpVersion.H2 else 1)
                        for _ in range(room):
                            nursery.start_soon(client.request, "GET", "/2.9/10/False")

        with capture_logs():  # rendering what a handler failed of takes longer than all the rest
            trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    run()
