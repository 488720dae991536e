"""Appends whose acknowledgement got lost: the guarantees, and the errors that clients get for a lost server."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest
import trio
import trio.testing
from support.s2.model import ModelServer, model_server
from support.store import STREAM, appending

from penstock.core.delivery import Delivery
from penstock.model.failures import Failure, FailureCode, OperationFailed
from penstock.model.operations import Appended
from penstock.model.records import Header

Clock = trio.testing.MockClock


def bodies(server: ModelServer) -> list[bytes]:
    return [record.body for record in server.back.streams[STREAM].records]


async def outcome(doing: Awaitable[Appended]) -> Appended | Failure:
    try:
        return await doing
    except OperationFailed as error:
        return error.failure


def ack_lost(server: ModelServer) -> None:
    """The next append is applied, and its connection cut before the acknowledgement."""

    def cut() -> None:
        server.back.before_append = lambda: None
        server.cut()

    server.back.before_append = cut


@pytest.mark.parametrize(
    ("delivery", "there", "code"),
    [
        (Delivery.EXACTLY_ONCE, 1, None),
        (Delivery.AT_LEAST_ONCE, 2, None),
        (Delivery.REFUSE, 1, FailureCode.UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("in_session", [False, True])
async def test_what_is_done_after_a_lost_ack(
    delivery: Delivery, there: int, code: FailureCode | None, in_session: bool, autojump_clock: Clock
) -> None:
    async with model_server() as server, server.opened(delivery=delivery) as back:
        server.back.make(STREAM)
        ack_lost(server)
        if in_session:
            async with back.append_session(STREAM) as session:
                await session.send(appending(b"a"))
                try:
                    got: Appended | Failure = (await session.receive())[0]
                except OperationFailed as error:
                    got = error.failure
        else:
            got = await outcome(back.perform(appending(b"a")))
        assert bodies(server) == [b"a"] * there
        if code is None:
            assert isinstance(got, Appended)
            assert got.end.seq_num == there
        else:
            assert isinstance(got, Failure)
            assert got.code is code
        assert isinstance(await back.perform(appending(b"b")), Appended)


@pytest.mark.parametrize("delivery", [Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE])
async def test_a_condition_of_the_clients_own_is_not_failed_by_itself(
    delivery: Delivery, autojump_clock: Clock
) -> None:
    async with model_server() as server, server.opened(delivery=delivery) as back:
        server.back.make(STREAM)
        await back.perform(appending(b"a"))
        ack_lost(server)
        assert (await back.perform(appending(b"b", match=1))).start.seq_num == 1
        ack_lost(server)
        fence = appending(b"mine", headers={0: (Header(b"", b"fence"),)}, token="", match=2)
        assert (await back.perform(fence)).start.seq_num == 2
        assert bodies(server) == [b"a", b"b", b"mine"]
        got = await outcome(back.perform(appending(b"c", match=2)))
        assert isinstance(got, Failure)
        assert got.details == {"seq_num_mismatch": 3}


async def test_records_that_were_trimmed_meanwhile_leave_a_doubt(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        stream = server.back.make(STREAM)

        def cut() -> None:
            server.back.before_append = lambda: None
            server.cut()
            server.back.nursery.start_soon(trim)

        async def trim() -> None:
            stream.head = stream.head._replace(trim_point=1)

        server.back.before_append = cut
        got = await outcome(back.perform(appending(b"a")))
        assert isinstance(got, Failure)
        assert (got.code, "trimmed" in got.message) == (FailureCode.UNAVAILABLE, True)


async def test_what_came_after_a_doubt_is_not_sent_again(autojump_clock: Clock) -> None:
    """Of three appends in flight the first is applied and trimmed: its outcome is unknown, the others are dropped."""
    async with model_server() as server, server.opened() as back:
        stream = server.back.make(STREAM)
        server.back.delays = iter([0.0, 60.0])

        def cut() -> None:
            server.back.before_append = lambda: None
            server.back.nursery.start_soon(trim)

        async def trim() -> None:
            server.cut()
            stream.head = stream.head._replace(trim_point=1)

        async with back.append_session(STREAM) as session:
            server.back.before_append = cut
            for body in (b"a", b"b", b"c"):
                await session.send(appending(body))
            with pytest.raises(OperationFailed) as failed:
                await session.receive()
            assert failed.value.failure.code is FailureCode.UNAVAILABLE
            assert (await back.perform(appending(b"d"))).start.seq_num == 1
        assert bodies(server) == [b"a", b"d"]


async def test_after_long_enough_it_gives_up(autojump_clock: Clock) -> None:
    """An append that was sent may have been applied; later ones certainly were not."""
    async with model_server() as server, server.opened(recover_seconds=10.0) as back:
        server.back.make(STREAM)
        server.back.delays = iter([1.0])
        got: dict[bytes, Appended | Failure] = {}

        async def append(body: bytes) -> None:
            got[body] = await outcome(back.perform(appending(body)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(append, b"sent")
            await trio.sleep(0.5)
            server.far.up = False
            server.cut()
            await trio.sleep(1)
            nursery.start_soon(append, b"later")
        codes = {body: failure.code for body, failure in got.items() if isinstance(failure, Failure)}
        assert codes == {b"sent": FailureCode.UNAVAILABLE, b"later": FailureCode.HOT_SERVER}
        assert trio.current_time() < 20
        server.far.up = True
        await trio.sleep(5)
        assert isinstance(await back.perform(appending(b"c")), Appended)
        assert bodies(server) == [b"sent", b"c"]


async def test_a_server_that_is_not_there_is_told_of_at_once(autojump_clock: Clock) -> None:
    async with model_server() as server, server.opened() as back:
        server.back.make(STREAM)
        server.far.up = False
        got = await outcome(back.perform(appending(b"a")))
        assert isinstance(got, Failure)
        assert (got.code, trio.current_time()) == (FailureCode.HOT_SERVER, 0.0)
        with pytest.raises(OperationFailed) as failed:
            async with back.append_session(STREAM):
                raise AssertionError("entered")
        assert failed.value.failure.code is FailureCode.HOT_SERVER
