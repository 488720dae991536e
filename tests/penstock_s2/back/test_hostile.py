"""Hostile and broken S2 servers: no operation waits for ever or is retried without a pause, and no append gets lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.store import STREAM, appending
from support.upstreams import by, far_server

from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.limits import MIB
from penstock.model.operations import Append, Appended, FromSeqNum, Read
from penstock.model.records import StreamPosition
from penstock.net.http.exchange import Exchange
from penstock.store.admission import ByteBudget
from penstock_s2.back.append_queue import AppendQueue
from penstock_s2.back.back import open_s2
from penstock_s2.back.pending import PendingAppend, S2AppendChain
from penstock_s2.back.places import PlaceCache
from penstock_s2.back.settings import S2BackSettings
from penstock_s2.codec.s2s.sessions import AppendServer, ReadServer

Clock = trio.testing.MockClock


async def test_a_refusal_that_never_ends(autojump_clock: Clock) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.start(403, [("content-type", "application/json")])
        await exchange.send([b"no"])
        await trio.sleep_forever()

    async with far_server(by(handler)) as far, open_s2(S2BackSettings(), far.upstream()) as back:
        with trio.fail_after(20), pytest.raises(OperationFailed) as failed:
            async with back.read_session(Read(STREAM, FromSeqNum(0))):
                raise AssertionError("entered")
        assert failed.value.failure.code is FailureCode.PERMISSION_DENIED and "no" in failed.value.failure.message
        with trio.fail_after(20), pytest.raises(OperationFailed) as failed:
            async with back.append_session(STREAM):
                raise AssertionError("entered")
        assert failed.value.failure.code is FailureCode.PERMISSION_DENIED


async def test_a_server_that_ends_each_read_after_a_beat_is_not_asked_without_a_pause(autojump_clock: Clock) -> None:
    asked = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal asked
        asked += 1
        if asked > 500:
            await trio.sleep_forever()
        await exchange.start(200, [("content-type", "s2s/proto")])
        await exchange.send(ReadServer().send(StreamPosition(0, 0)))
        await exchange.finish()

    async with far_server(by(handler)) as far, open_s2(S2BackSettings(), far.upstream()) as back:
        with trio.move_on_after(10):
            async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
                while True:
                    await session.next()
        assert 5 < asked < 100


async def test_a_refusal_while_nothing_is_in_flight_is_not_that_of_the_next_append(autojump_clock: Clock) -> None:
    acknowledgement = Appended(StreamPosition(0, 1), StreamPosition(1, 1), StreamPosition(1, 1))

    async def handler(exchange: Exchange) -> None:
        if exchange.request.method == "GET":
            await exchange.respond(200, [], b'{"tail": {"seq_num": 0, "timestamp": 0}}')
            return
        session = AppendServer(STREAM)
        await exchange.start(200, [("content-type", "s2s/proto")])
        while not isinstance(session.next_event(), Append):
            session.receive(await exchange.receive())
        mismatch = Failure(FailureCode.SEQ_NUM_MISMATCH, "the next is 1", {"seq_num_mismatch": 1})
        await exchange.send([*session.send(acknowledgement), *session.send(mismatch)])
        await exchange.finish()

    async with far_server(by(handler)) as far, open_s2(S2BackSettings(), far.upstream()) as back:
        async with back.append_session(STREAM) as session:
            await session.send(appending(b"acknowledged"))
            await session.send(replace(appending(b"not sent yet"), exact_timestamp=5))
            assert len(await session.receive()) == 1
            with pytest.raises(OperationFailed) as failed:
                await session.receive()
        assert failed.value.failure.code is FailureCode.UPSTREAM_FAULT
        assert "while no append was in flight" in failed.value.failure.message


async def test_an_acknowledgement_is_not_lost_while_its_identifier_is_looked_for(autojump_clock: Clock) -> None:
    """The connection may be closed meanwhile, which cancels the lookup."""

    class Locating:
        async def record_id(self, *_place: object) -> Any:
            await trio.sleep_forever()

    admission = ByteBudget(MIB)
    shared: Any = SimpleNamespace(
        settings=S2BackSettings(), admission=admission, places=PlaceCache(10), locating=Locating()
    )
    queue = AppendQueue(shared, STREAM)
    append = replace(appending(b"x"), create_if_missing=False)
    settled = trio.Event()
    pending = PendingAppend(append, S2AppendChain(), queue, settled.set)
    queue.saw_tail(StreamPosition(5, 1))
    queue.hand_over(pending)
    assert queue.take() is pending
    with trio.move_on_after(1):
        await queue.acknowledge(Appended(StreamPosition(5, 7), StreamPosition(6, 7), StreamPosition(6, 7), None))
    assert settled.is_set() and pending.result is not None
    assert pending.result.end == StreamPosition(6, 7)
