"""Whole bodies within the limits of their connection."""

from __future__ import annotations

import pytest
import trio
from support.http.client import serving
from trio.testing import MockClock

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import KIB, MIB
from penstock.net.http.exchange import Exchange
from penstock.net.http.paced import whole_body
from penstock.net.limits import CONNECTION_QUOTA, Limiter
from penstock.net.limits.limiter import ConnectionQuota
from penstock.net.limits.settings import Limits
from penstock.wire.http import Body, End, Reset

TIGHT = Limits(max_inflight_bytes=64 * MIB, max_inflight_bytes_per_client=32 * MIB, inflight_wait_seconds=5)
LARGE = b"x" * (200 * KIB)


def new_quota(limiter: Limiter) -> ConnectionQuota:
    quota = limiter.enter("listeners.s2", 100, "10.0.0.1")
    assert isinstance(quota, ConnectionQuota)
    quota.admit()
    return quota


async def test_a_body_that_has_come_whole_waits_for_room_as_others_do(autojump_clock: MockClock) -> None:
    limiter = Limiter(TIGHT)
    quota, leader = new_quota(limiter), new_quota(limiter)
    CONNECTION_QUOTA.set(quota)
    outcomes: list[object] = []

    async def handler(exchange: Exchange) -> None:
        while not exchange.arrived:
            await trio.lowlevel.checkpoint()
        if exchange.request.path == "/crowded":
            leader.charge(40 * MIB)
            await leader.room()
        began = trio.current_time()
        try:
            outcomes.append(len(await whole_body(exchange, MIB, 60, FailureCode.BAD_JSON)))
        except OperationFailed as error:
            outcomes.append(error.failure.code)
        outcomes.append(round(trio.current_time() - began))
        await exchange.respond(200, [])

    async with serving(handler, "http/1.1") as client:
        for path in ("/", "/crowded"):
            assert (await client.ask("POST", path, body=LARGE)).status == 200
    assert outcomes == [len(LARGE), 0, FailureCode.RATE_LIMITED, 5]


@pytest.mark.parametrize(("most", "outcome"), [(4, b"abcd"), (3, FailureCode.BAD_JSON)])
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_body_is_taken_up_to_its_bound(
    most: int, outcome: object, at_once: bool, autojump_clock: MockClock
) -> None:
    outcomes: list[object] = []

    async def handler(exchange: Exchange) -> None:
        try:
            outcomes.append(await whole_body(exchange, most, 60, FailureCode.BAD_JSON))
        except OperationFailed as error:
            outcomes.append(error.failure.code)
        await exchange.respond(200, [])

    async with serving(handler, "http/1.1") as client:
        if at_once:
            await client.ask("POST", "/", body=b"abcd")
        else:
            stream_id = await client.open("POST", "/", [("content-length", "4")])
            await client.say(Body(stream_id, [b"ab"]))
            await trio.sleep(1)
            await client.say(Body(stream_id, [b"cd"], end=True))
            await client.answer(stream_id)
    assert outcomes == [outcome]


async def test_a_body_that_does_not_come_in_time_is_refused(autojump_clock: MockClock) -> None:
    outcomes: list[object] = []

    async def handler(exchange: Exchange) -> None:
        try:
            await whole_body(exchange, 4, 7, FailureCode.BAD_JSON)
        except OperationFailed as error:
            outcomes.append((error.failure.code, trio.current_time()))
        await exchange.respond(408, [])

    async with serving(handler, "http/1.1") as client:
        began = trio.current_time()
        stream_id = await client.open("POST", "/", [("content-length", "4")])
        assert (await client.answer(stream_id)).status == 408
    assert outcomes == [(FailureCode.REQUEST_TIMEOUT, pytest.approx(began + 7))]


@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
@pytest.mark.parametrize("seconds", [60, 5])
async def test_a_slow_sender_is_not_waited_for_once_it_is_refused(
    seconds: int, alpn: str, autojump_clock: MockClock
) -> None:
    """The bound of a body's time is the lower one in the second case, that of its rate in the first."""

    async def handler(exchange: Exchange) -> None:
        try:
            await whole_body(exchange, MIB, seconds, FailureCode.BAD_JSON)
        except OperationFailed as error:
            assert error.failure.code is FailureCode.REQUEST_TIMEOUT
            await exchange.respond(408, [])

    async with serving(handler, alpn) as client:
        stream_id = await client.open("POST", "/", [("content-length", "99999")])
        ends = min(seconds, Limits().receive_grace_seconds)
        while trio.current_time() <= ends and not client.gone:
            await client.say(Body(stream_id, [b"x"]))
            await trio.sleep(1)
        head = await client.head(stream_id)
        assert head.status == 408
        if alpn == "h2":
            assert isinstance(await client.next(stream_id), End)
            assert isinstance(await client.next(stream_id), Reset)
        else:
            assert dict(head.headers)["connection"] == "close"
            assert await client.closed() is False
        assert trio.current_time() <= ends + 2
