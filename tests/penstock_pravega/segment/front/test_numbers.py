"""Segments of streams that were deleted and made again, where a controller numbers them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trio
from support.controller import segments as config
from support.controller import settings
from support.records_only import RecordsOnly, WithTables
from support.segment.back import opened as opened_back
from support.segment.front import Connect, WatchedBack, serving
from support.store import Wall
from trio.testing import MockClock

from penstock.backends.byte_view import open_bytes_on_records
from penstock.backends.combined import Combined
from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.backends.sequence_numbering import open_indexed
from penstock.core.back import BackWrapper
from penstock.model.operations import CreateStream, DeleteStream
from penstock.model.records import StreamRef
from penstock_pravega.codec import append_messages, join_events, released
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.segment.front import SegmentFront, SegmentSettings

STREAM = StreamRef("penstock", "scope/stream")
DATA = join_events([b"one", b"two"])


def segment(number: int, epoch: int = 0) -> str:
    return f"scope/stream/{number}.#epoch.{epoch}"


class Beside(BackWrapper):
    """A server of segments, and the store with what the gateway knows of its streams, as routes have it."""

    def __init__(self, store: EmbeddedBack, server: Combined) -> None:
        super().__init__(server)
        self._store = store

    async def perform(self, operation: Any) -> Any:
        ours = getattr(operation, "table", "").startswith("#")
        return await (self._store if ours else self._inner).perform(operation)


@pytest.fixture(params=["embedded", "bytes on records", "segment store"])
async def back(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[WatchedBack]:
    async with open_embedded(EmbeddedSettings(directory=tmp_path)) as store:
        if request.param == "embedded":
            yield WatchedBack(store)
        elif request.param == "bytes on records":
            async with open_bytes_on_records(RecordsOnly(store), "other", store) as opened:
                yield WatchedBack(WithTables(opened, store))
        else:
            async with (
                opened_back(SegmentFront(store)) as (behind, _),
                open_indexed(behind.native, "other", store) as records,
            ):
                yield WatchedBack(Beside(store, Combined(records, behind.direct)))


@pytest.fixture
async def controller(back: WatchedBack) -> Controller:
    made = Controller(back, settings(), Wall())
    await made.scopes.create("scope")
    await made.streams.create("scope", "stream", config(1))
    return made


@pytest.fixture
async def connect(back: WatchedBack) -> AsyncIterator[Connect]:
    async with serving(SegmentFront(back, SegmentSettings(numbered=True))) as connecting:
        yield connecting


async def delete_and_create(controller: Controller) -> None:
    await controller.streams.seal("scope", "stream")
    await controller.streams.delete("scope", "stream")
    await controller.streams.create("scope", "stream", config(1))


async def by_another_protocol(back: WatchedBack) -> None:
    await back.perform(DeleteStream(STREAM))
    await back.perform(CreateStream(STREAM))


@pytest.mark.parametrize("by_controller", [True, False])
async def test_positions_of_before_mean_nothing(
    back: WatchedBack, controller: Controller, connect: Connect, clock: MockClock, by_controller: bool
) -> None:
    """By clients that are connected all the time, and ask before the controller has seen what happened."""
    await controller.queries.current("scope", "stream")
    client = await connect()
    await client.writer(segment(0))
    await client.call(released.ReadSegment(segment(0), 0, 100, "", 5))
    for number in (1, 2):
        await (delete_and_create(controller) if by_controller else by_another_protocol(back))
        gone = released.NoSuchSegment
        for offset in (0, 7, 1000):
            await client.expect(gone, released.ReadSegment(segment(number - 1), offset, 100, "", 5))
        await client.expect(gone, released.GetStreamSegmentInfo(1, segment(number - 1), ""))
        await client.expect(gone, released.SetupAppend(1, uuid4(), segment(number - 1), ""))
        await client.expect(gone, released.TruncateSegment(1, segment(number - 1), 0, ""))
        await client.expect(gone, released.SealSegment(1, segment(number - 1), ""))
        (current,) = await controller.queries.current("scope", "stream")
        assert current.id == number
        await client.append(await client.writer(segment(number)), 2, b"one", b"two")
        found = await client.expect(released.SegmentRead, released.ReadSegment(segment(number), 0, 100, "", 5))
        assert found.data == DATA
        await client.expect(gone, released.ReadSegment(segment(0), 0, 100, "", 5))


async def test_a_writer_that_has_not_written_yet(
    back: WatchedBack, controller: Controller, connect: Connect, clock: MockClock
) -> None:
    await controller.queries.current("scope", "stream")
    client = await connect()
    writer = await client.writer(segment(0))
    await by_another_protocol(back)
    await client.send(*append_messages(writer, [b"one", b"two"], 2, 9))
    assert isinstance(await client.reply(), released.NoSuchSegment)
    await controller.queries.current("scope", "stream")
    reply = await (await connect()).expect(released.SegmentRead, released.ReadSegment(segment(1), 0, 100, "", 5))
    assert reply.data == b""


async def test_a_parked_read_ends(
    back: WatchedBack, controller: Controller, connect: Connect, clock: MockClock
) -> None:
    await controller.queries.current("scope", "stream")
    client = await connect()
    await client.send(released.ReadSegment(segment(0), 0, 100, "", 5))
    await trio.sleep(1)
    await by_another_protocol(back)
    assert isinstance(await client.reply(), released.NoSuchSegment)


async def test_names_without_a_number(
    back: WatchedBack, controller: Controller, connect: Connect, clock: MockClock
) -> None:
    """Clients without a controller may leave the number out: they mean the stream of that name."""
    await delete_and_create(controller)
    client = await connect()
    info = await client.expect(released.StreamSegmentInfo, released.GetStreamSegmentInfo(1, "scope/stream", ""))
    assert info.segment == "scope/stream"


async def test_a_client_that_creates_the_segment_itself(
    back: WatchedBack, controller: Controller, connect: Connect, clock: MockClock
) -> None:
    """As a segment store has it: it may name a segment as one that it deleted."""
    client = await connect()
    for _ in range(2):
        await client.expect(released.SegmentDeleted, released.DeleteSegment(1, segment(0), ""))
        await client.expect(released.NoSuchSegment, released.GetStreamSegmentInfo(1, segment(0), ""))
        await client.create(segment(0))
        await client.expect(released.StreamSegmentInfo, released.GetStreamSegmentInfo(1, segment(0), ""))
        assert [one.id for one in await controller.queries.current("scope", "stream")] == [0]
