"""A target that is held, swapped and released while clients are at work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from support.backs import DecodedBack
from support.routing import Without, made, refusal, routed
from support.store import appending, bodies

from penstock.app.config import RouteTable
from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import Back, BackWrapper
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import AppendBytes, GetByteStreamInfo
from penstock.model.failures import OperationFailed
from penstock.model.operations import Append, Capability, CheckTail, CreateStream, FromSeqNum, Read
from penstock.model.records import StreamRef
from penstock.routing.target import Target
from penstock_pravega.segment.names import SegmentNames


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
            with pytest.raises(OperationFailed, match="now on another server") as caught:
                while True:
                    await reading.next()
            assert caught.value.failure.retryable and not caught.value.failure.side_effect_possible
        await session.send(appending(b"lost", stream=stream))
        with pytest.raises(OperationFailed, match="now on another server"):
            await session.receive()
    assert acked == [1]
    assert await bodies(view, FromSeqNum(0), stream) == [b"later"]
    assert await bodies(here, FromSeqNum(0), stream) == [b"first"]


class Slow(BackWrapper):
    """A back whose appends end when they are told to."""

    def __init__(self, back: Back) -> None:
        super().__init__(back)
        self.go = trio.Event()

    async def perform(self, operation: Any) -> Any:
        if isinstance(operation, Append):
            await self.go.wait()
        return await self._inner.perform(operation)


async def test_a_hold_that_takes_too_long_is_given_up(
    here: EmbeddedBack, there: EmbeddedBack, autojump_clock: object
) -> None:
    slow = Slow(here)
    router = routed(slow, there, RouteTable(name="all"))
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
    with pytest.raises(OperationFailed, match="already held"):
        await holder.hold(3.0)
    begun = trio.current_time()
    error = await refusal(view, appending(b"y", stream=stream))
    assert trio.current_time() - begun == 30
    assert error.failure.retryable and not error.failure.side_effect_possible
    holder.release()
    await view.perform(appending(b"z", stream=stream))
    assert await bodies(view, FromSeqNum(0), stream) == [b"x", b"z"]


class SlowToOpen(DecodedBack):
    """A back whose sessions are opened when they are told to."""

    def __init__(self, back: Back) -> None:
        super().__init__(back)
        self.go = trio.Event()

    @asynccontextmanager
    async def append_session(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        await self.go.wait()
        async with self._inner.append_session(*arguments, **options) as session:
            yield session

    @asynccontextmanager
    async def read_session(self, read: Read) -> AsyncIterator[Any]:
        await self.go.wait()
        async with self._inner.read_session(read) as session:
            yield session


async def test_sessions_that_are_being_opened_while_it_is_swapped(here: EmbeddedBack, there: EmbeddedBack) -> None:
    """They are sessions of the old target: their appends would be lost."""
    slow = SlowToOpen(here)
    router = routed(slow, there, RouteTable(name="all"))
    view, holder = router.for_listener("s2"), router.routes[0].holder
    stream = StreamRef("telemetry", "orders")
    for back in (here, there):
        await made(back, "telemetry", "orders")
    over = []

    async def write() -> None:
        async with view.append_session(stream) as session:
            await session.send(appending(b"lost", stream=stream))
            with pytest.raises(OperationFailed, match="now on another server"):
                await session.receive()
            over.append("write")

    async def read() -> None:
        async with view.read_session(Read(stream, FromSeqNum(0))) as session:
            with pytest.raises(OperationFailed, match="now on another server"):
                await session.next()
            over.append("read")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        await holder.hold(1.0)
        holder.swap(Target("far", "s2", there))
        holder.release()
        slow.go.set()
    assert sorted(over) == ["read", "write"]
    assert await bodies(here, FromSeqNum(0), stream) == []


async def test_changes_of_who_has_gone_are_over_when_their_session_is(here: EmbeddedBack, there: EmbeddedBack) -> None:
    """Appends of a client that has gone may be applied until its session ends, so a hold waits for that."""
    under_way = []

    class Watched(DecodedBack):
        @asynccontextmanager
        async def append_session(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
            async with here.append_session(*arguments, **options) as session:
                yield session
            under_way.append(holder.under_way)

    router = routed(Watched(here), there, RouteTable(name="all"))
    view, holder = router.for_listener("s2"), router.routes[0].holder
    stream = StreamRef("telemetry", "orders")
    await made(here, "telemetry", "orders")
    async with view.append_session(stream) as session:
        await session.send(appending(b"sent", stream=stream))
    assert (under_way, holder.under_way) == ([1], 0)


async def test_what_pravega_keeps_for_itself_goes_along(here: EmbeddedBack, there: EmbeddedBack) -> None:
    """If the new target cannot hold internal streams, the embedded store does from then on, and vice versa."""
    router = routed(here, there, RouteTable(name="all", back="far", mirror="embedded"))
    view, holder = router.for_listener("segment", SegmentNames()), router.routes[0].holder
    group = StreamRef(INTERNAL_BASIN, "telemetry/_RGreaders/0.#epoch.0")
    await view.perform(CreateStream(group))
    await there.perform(GetByteStreamInfo(group))
    holder.swap(Target("plain", "s2", Without(there, Capability.TABLES)))
    await view.perform(CreateStream(group))
    await here.perform(GetByteStreamInfo(group))
    holder.swap(Target("far", "segment", there))
    await view.perform(AppendBytes(group, join_events([b"one"])))
    assert (await there.perform(GetByteStreamInfo(group))).length > 0
