"""Streams by way of a controller: our own, over the same store as the segment front."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace
from support.controller import NAMES, settings
from support.controller import store as controlled_store
from support.segment.back import CONTROLLER, STORE, STREAM, append_of, opened
from support.store import Wall
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedBack
from penstock.core.marks import START
from penstock.model.byte_operations import ReadBytes
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import ListBasins, ListStreams
from penstock.model.records import StreamRef
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock_pravega.codec import Dialect
from penstock_pravega.controller.controller import Advertised, ControllerSettings
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.topology import KeyRange
from penstock_pravega.controller.front import ControllerFront
from penstock_pravega.segment.back import SegmentBackSettings, reader
from penstock_pravega.segment.front import SegmentFront, SegmentSettings


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[EmbeddedBack]:
    async with controlled_store(tmp_path / "data", Wall()) as back:
        yield back


@pytest.fixture
def managed(kept: EmbeddedBack) -> ControllerFront:
    where = ControllerSettings(names=NAMES, advertise=lambda: Advertised("127.0.0.1", STORE.port))
    return ControllerFront(Controller(kept, where, Wall()))


async def test_create_list_and_delete(kept: EmbeddedBack, managed: ControllerFront, clock: MockClock) -> None:
    """No address of a store is given: the controller says it."""
    async with opened(
        SegmentFront(kept, SegmentSettings(numbered=True)), managed, store=None, controller=CONTROLLER
    ) as (back, wires):
        native = back.native
        assert await native.create(STREAM)
        assert not await native.create(STREAM)
        for name in ("Tiny/one", "Tiny/two"):
            await native.create(StreamRef("penstock", name))
        for _ in range(2):
            async with native.append_session(STREAM) as session:
                await session.send(append_of(b"one"))
                assert [ack.end_offset for ack in await session.receive()] == [11]
            scanned = await native.scan(STREAM, START, max_records=9, max_bytes=999, wait=0)
            assert (scanned.bodies, scanned.at_tail) == ([b"one"], False)
            page = await native.list_streams(ListStreams(STREAM.basin))
            assert [item.name for item in page.items] == [STREAM.stream]
            await native.delete(STREAM)
            with pytest.raises(OperationFailed) as caught:
                await native.bounds(STREAM)
            assert caught.value.failure.code is FailureCode.STREAM_NOT_FOUND
            assert await native.create(STREAM)
        page = await native.list_streams(ListStreams("penstock", start_after="Tiny/one"))
        assert [item.name for item in page.items] == ["Tiny/two"]
        basins = await back.direct.perform(ListBasins(limit=1))
        assert ([item.name for item in basins.items], basins.has_more) == (["penstock"], True)
        basins = await back.direct.perform(ListBasins(start_after="penstock"))
        assert ([item.name for item in basins.items], basins.has_more) == ([STREAM.basin], False)
        assert set(wires.dialled) == {CONTROLLER.port, STORE.port}
        assert back.breaker.state.value == "closed"


async def test_a_stream_that_was_scaled(kept: EmbeddedBack, managed: ControllerFront, clock: MockClock) -> None:
    """An append to a segment that scaling has sealed fails with the segments that succeed it."""
    async with opened(
        SegmentFront(kept, SegmentSettings(numbered=True)), managed, store=None, controller=CONTROLLER
    ) as (back, _):
        await back.native.create(STREAM)
        controller = Controller(kept, settings(), Wall())
        await controller.scaling.scale(STREAM.basin, STREAM.stream, [0], [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)])
        async with back.native.append_session(STREAM) as session:
            await session.send(append_of(b"late"))
            with pytest.raises(OperationFailed) as caught:
                await session.receive()
        assert caught.value.failure.code is FailureCode.STREAM_SEALED
        for number in (1, 2):
            assert f"{STREAM}/{number}.#epoch.1" in caught.value.failure.message


async def test_a_controller_that_is_not_there(kept: EmbeddedBack, clock: MockClock) -> None:
    async with opened(SegmentFront(kept), None, store=None, controller=CONTROLLER, recover_seconds=1) as (back, _):
        with pytest.raises(OperationFailed) as caught:
            await back.native.create(STREAM)
        assert caught.value.failure.code is FailureCode.HOT_SERVER
        assert "back store at 127.0.0.1:9090" in caught.value.failure.message


async def test_lines_are_shared(kept: EmbeddedBack, clock: MockClock) -> None:
    """A hundred followers of a stream need one read, and one connection for it."""
    async with opened(SegmentFront(kept)) as (back, wires):
        await back.native.create(STREAM)
        found: list[bytes] = []

        async def follow() -> None:
            found.extend((await back.native.scan(STREAM, START, max_records=9, max_bytes=999, wait=1000)).bodies)

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(follow)
            await trio.sleep(1)
            before = len(wires.dialled)
            async with back.native.append_session(STREAM) as session:
                await session.send(append_of(b"news"))
                await session.receive()
        assert found == [b"news"] * 100
        assert before == 2  # one for what is asked, one for what waits
        await trio.sleep(200)
        assert wires.open == []


async def test_abandoned_reads_make_room(kept: EmbeddedBack, clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store cannot be told to cancel a read; later reads do not have to wait for it."""
    monkeypatch.setattr(reader, "_MOST_PARKED", 2)
    async with opened(SegmentFront(kept)) as (back, _):
        await back.native.create(STREAM)
        for offset in range(4):
            assert (await back.direct.perform(ReadBytes(STREAM, offset, 999, 0.5))).data == b""
        async with trio.open_nursery() as nursery:
            for offset in range(2):
                nursery.start_soon(back.direct.perform, ReadBytes(STREAM, offset, 999, 30))
            await trio.sleep(1)
            with pytest.raises(OperationFailed) as caught:
                await back.direct.perform(ReadBytes(STREAM, 2, 999, 1))
            assert caught.value.failure.code is FailureCode.HOT_SERVER


async def test_the_drafts_lines_have_one_user_each(kept: EmbeddedBack, clock: MockClock) -> None:
    """Their number is limited: a user that needs one more waits, and then fails."""
    few = replace(STORE, max_connections=3)
    async with opened(SegmentFront(kept), store=few, dialect=Dialect.DRAFT, recover_seconds=1) as (back, wires):
        await back.native.create(STREAM)
        async with trio.open_nursery() as nursery:
            for offset in range(3):
                nursery.start_soon(back.native._reader.read, "scope-of-streams/stream", offset, 9, 100)
            await trio.sleep(1)
            with pytest.raises(OperationFailed) as caught:
                await back.native.bounds(STREAM)
            assert caught.value.failure.code is FailureCode.HOT_SERVER
            assert "in use" in caught.value.failure.message
            nursery.cancel_scope.cancel()
        assert await back.native.bounds(STREAM)
        assert len(wires.dialled) <= 3 + 1


def test_settings_that_make_no_sense() -> None:
    dropping = LossPolicy(empty_body=Loss.DROP, command_records=Loss.REFUSE)
    for wrong in (
        {},
        {"controller": CONTROLLER, "dialect": Dialect.DRAFT},
        {"store": STORE, "username": "who"},
        {"store": STORE, "loss": dropping},
    ):
        with pytest.raises(ValueError, match=r"\w"):
            SegmentBackSettings(**wrong)  # type: ignore[arg-type]
