"""A target that is held, swapped and released while clients are at work."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from support.routing import made, refusal, routed
from support.store import appending, bodies

from penstock.backs.base import Back
from penstock.backs.embedded import EmbeddedBack
from penstock.config import RouteTable
from penstock.routing.target import Target
from penstock_codecs.failures import OperationFailed
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import (
    Append,
    CheckTail,
    FromSeqNum,
    Read,
)


async def test_a_cut_over_holds_changes_and_moves_sessions(here: EmbeddedBack, there: EmbeddedBack) -> None:
    router = routed(here, there, RouteTable(name="all"))
    view = router.for_listener("s2")
    route = router.route("all")
    assert route is not None and router.route("none") is None
    holder = route.holder
    stream = StreamRef("telemetry", "orders")
    for back in (here, there):
        await made(back, "telemetry", "orders")
    acked: list[int] = []

    async def append() -> None:
        acked.append((await view.perform(appending(b"later", stream=stream))).end.seq_num)

    async with trio.open_nursery() as nursery, view.append_session(stream) as session:
        async with view.read_session(Read(stream, FromSeqNum(0))) as reading:
            await session.send(appending(b"first", stream=stream))
            assert holder.under_way == 1
            nursery.start_soon(holder.hold, 5.0)
            await session.receive()
            while not holder.held or holder.under_way:
                await trio.lowlevel.checkpoint()
            nursery.start_soon(append)
            await trio.testing.wait_all_tasks_blocked()
            assert acked == [] and (await view.perform(CheckTail(stream))).seq_num == 1
            holder.swap(Target("far", "s2", there))
            holder.release()
            with pytest.raises(OperationFailed, match="on another server now") as caught:
                while True:
                    await reading.next()
            assert caught.value.failure.retryable and not caught.value.failure.side_effect_possible
        await session.send(appending(b"lost", stream=stream))
        with pytest.raises(OperationFailed, match="on another server now"):
            await session.receive()
    assert acked == [1]
    assert await bodies(view, FromSeqNum(0), stream) == [b"later"]
    assert await bodies(here, FromSeqNum(0), stream) == [b"first"]


class Slow:
    """A back whose appends end when they are told to."""

    def __init__(self, back: Back) -> None:
        self._back = back
        self.capabilities = back.capabilities
        self.go = trio.Event()

    async def perform(self, operation: Any) -> Any:
        if isinstance(operation, Append):
            await self.go.wait()
        return await self._back.perform(operation)

    def read_session(self, read: Read) -> Any:
        return self._back.read_session(read)


async def test_a_hold_that_takes_too_long_is_given_up(
    here: EmbeddedBack, there: EmbeddedBack, autojump_clock: object
) -> None:
    slow = Slow(here)
    router = routed(slow, there, RouteTable(name="all"))  # type: ignore[arg-type]
    view, holder = router.for_listener("s2"), router.routes[0].holder
    stream = StreamRef("telemetry", "orders")
    await made(here, "telemetry", "orders")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(view.perform, appending(b"x", stream=stream))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OperationFailed, match="1 changes are not acknowledged after 3 s"):
            await holder.hold(3.0)
        assert not holder.held
        slow.go.set()
    await holder.hold(3.0)
    with pytest.raises(OperationFailed, match="held already"):
        await holder.hold(3.0)
    begun = trio.current_time()
    error = await refusal(view, appending(b"y", stream=stream))
    assert trio.current_time() - begun == 30
    assert error.failure.retryable and not error.failure.side_effect_possible
    holder.release()
    await view.perform(appending(b"z", stream=stream))
    assert await bodies(view, FromSeqNum(0), stream) == [b"x", b"z"]
