"""Appends after servers that went silent, refuse what they took before, or have another stream now."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest
import trio
import trio.testing
from support.s2.model import ModelServer, model_server
from support.store import STREAM, appending
from support.upstreams import by, far_server

from penstock.core.delivery import Delivery
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.operations import Appended
from penstock.model.records import StreamPosition
from penstock.net.http.client import HttpVersion
from penstock.net.http.exchange import Exchange
from penstock_s2.back.back import open_s2
from penstock_s2.back.settings import S2BackSettings
from penstock_s2.codec.s2s.sessions import AppendServer

Clock = trio.testing.MockClock


def bodies(server: ModelServer) -> list[bytes]:
    return [record.body for record in server.back.streams[STREAM].records]


async def outcome(doing: Awaitable[Appended]) -> Appended | Failure:
    try:
        return await doing
    except OperationFailed as error:
        return error.failure


@pytest.mark.parametrize("version", [HttpVersion.H1, HttpVersion.H2])
async def test_a_server_that_does_not_end_its_sessions(version: HttpVersion, autojump_clock: Clock) -> None:
    """The back ends an idle session; a server that does not end its side blocks no later append."""
    received = []

    async def handler(exchange: Exchange) -> None:
        if exchange.request.path.endswith("/tail"):
            body = b'{"tail": {"seq_num": %d, "timestamp": 0}}' % len(received)
            await exchange.respond(200, [("content-type", "application/json")], body)
            return
        await exchange.start(200, [("content-type", "s2s/proto")])
        codec = AppendServer(STREAM)
        while data := await exchange.receive():
            codec.receive(data)
            while hasattr(event := codec.next_event(), "bodies"):
                start, end = StreamPosition(len(received), 7), StreamPosition(len(received) + 1, 7)
                received.append(event.bodies[0])
                await exchange.send(codec.send(Appended(start, end, end)))
        await trio.sleep_forever()

    settings = S2BackSettings(http=version)
    async with far_server(by(handler)) as far, open_s2(settings, far.upstream()) as back:
        for body in (b"a", b"b", b"c"):
            with trio.fail_after(60):
                assert isinstance(await outcome(back.perform(appending(body))), Appended)
            await trio.sleep(settings.linger_seconds + 0.1)
        assert received == [b"a", b"b", b"c"]


@pytest.mark.parametrize("status", [401, 403, 422])
async def test_a_refusal_does_not_say_that_what_was_sent_before_was_not_applied(
    status: int, autojump_clock: Clock
) -> None:
    """The acknowledgement is lost, and then the server does not let the gateway in any more."""
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM)
        front = server.front.handle

        async def refuse(exchange: Exchange) -> None:
            await exchange.respond(status, [("content-type", "application/json")], b'{"message": "no"}')

        def cut() -> None:
            server.back.before_append = lambda: None
            server.front.handle = refuse  # type: ignore[method-assign]
            server.cut()

        server.back.before_append = cut
        got = await outcome(back.perform(appending(b"a")))
        assert isinstance(got, Failure)
        told = FailureCode.UPSTREAM_FAULT if status == 422 else FailureCode.UNAVAILABLE
        assert (got.code, got.side_effect_possible) == (told, True)
        assert bodies(server) == [b"a"]
        server.front.handle = front  # type: ignore[method-assign]
        assert isinstance(await outcome(back.perform(appending(b"b"))), Appended)


async def test_the_server_says_why_a_condition_cannot_be_met_any_more(autojump_clock: Clock) -> None:
    """The connection is lost, and the stream has got other records and a seal meanwhile: that goes first."""
    async with model_server() as server, server.opened() as back:
        stream = server.back.make(STREAM)

        def cut() -> None:
            server.back.before_append = lambda: None
            server.cut()
            server.back.append(appending(b"foreign"))
            stream.head = stream.head._replace(sealed=True)

        server.back.before_append = cut
        got = await outcome(back.perform(appending(b"a", match=0)))
        assert isinstance(got, Failure)
        assert got.message == "the stream is sealed"
        assert bodies(server) == [b"foreign"]


async def test_at_least_once_may_have_been_once_too(autojump_clock: Clock) -> None:
    settings: dict[str, Any] = {"delivery": Delivery.AT_LEAST_ONCE, "recover_seconds": 5.0}
    async with model_server() as server, server.opened(**settings) as back:
        server.back.make(STREAM)

        def cut() -> None:
            server.back.before_append = lambda: None
            server.far.up = False
            server.cut()

        server.back.before_append = cut
        got = await outcome(back.perform(appending(b"a")))
        assert bodies(server) == [b"a"]
        assert isinstance(got, Failure) and got.side_effect_possible, got


async def test_others_append_to_a_stream_that_was_made_anew(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM)
        for number in range(5):
            await back.perform(appending(b"%d" % number))
        server.back.make(STREAM)
        server.cut()
        assert isinstance(await outcome(back.perform(appending(b"anew"))), Appended)
        server.back.append(appending(b"foreign"))
        assert isinstance(await outcome(back.perform(appending(b"more"))), Appended)
        assert bodies(server) == [b"anew", b"foreign", b"more"]


async def test_a_server_that_ends_without_having_acknowledged(autojump_clock: Clock) -> None:
    """The next session does not take unacknowledged appends for acknowledged."""
    sessions = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal sessions
        if exchange.request.path.endswith("/tail"):
            body = b'{"tail": {"seq_num": 0, "timestamp": 0}}'
            await exchange.respond(200, [("content-type", "application/json")], body)
            return
        sessions += 1
        await exchange.start(200, [("content-type", "s2s/proto")])
        codec = AppendServer(STREAM)
        received = []
        while len(received) < 2:
            codec.receive(await exchange.receive())
            while hasattr(event := codec.next_event(), "bodies"):
                received.append(event)
                if sessions == 1:
                    await exchange.finish()
                    return
        first = received[0].match_seq_num
        for at in (first, first + 1):
            end = StreamPosition(at + 1, 7)
            await exchange.send(codec.send(Appended(StreamPosition(at, 7), end, end)))
        await exchange.finish()

    got: dict[bytes, Appended | Failure] = {}
    async with far_server(by(handler)) as far, open_s2(S2BackSettings(), far.upstream()) as back:

        async def append(body: bytes) -> None:
            got[body] = await outcome(back.perform(appending(body)))

        with trio.fail_after(100):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(append, b"a")
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(append, b"b")
    starts = [some.start.seq_num for _, some in sorted(got.items()) if isinstance(some, Appended)]
    assert starts == [0, 1]
