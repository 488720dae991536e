"""A segment front on numbered records and bytes of a segment store, as the wiring puts them together."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import trio
from support.segment import draft_shapes
from support.segment.back import STREAM, append_of, opened
from support.segment.front import Client, WatchedBack, serving
from trio.testing import MockClock

from penstock.backends.combined import Combined
from penstock.backends.sequence_numbering import open_indexed
from penstock.model.operations import FromSeqNum, Read
from penstock_pravega.codec import Dialect, draft, join_events, released, split_events
from penstock_pravega.segment.front import SegmentFront

SEGMENT = f"{STREAM}/0.#epoch.0"


@pytest.fixture
async def back(store: WatchedBack, front: SegmentFront) -> AsyncIterator[Combined]:
    async with opened(front) as (behind, _), open_indexed(behind.native, "store", store) as records:
        yield Combined(records, behind.direct)


@pytest.fixture
async def client(back: Combined) -> AsyncIterator[Client]:
    async with serving(SegmentFront(back)) as connect:
        yield await connect()


async def test_a_large_event(client: Client, back: Combined, clock: MockClock) -> None:
    """One that is too large for one message: its transient segment is made, written, merged, and gone."""
    await client.create(SEGMENT)
    created = await client.expect(released.SegmentCreated, released.CreateTransientSegment(5, uuid4(), SEGMENT))
    assert re.fullmatch(re.escape(SEGMENT) + "#transient[.][0-9a-f]{32}", created.segment)
    writer = await client.writer(created.segment)
    content = join_events([bytes(300)])
    for start in range(0, len(content), 100):
        piece = released.ConditionalBlockEnd(writer, start + 1, start, content[start : start + 100], 6)
        await client.expect(released.DataAppended, piece)
    merged = await client.call(released.MergeSegments(7, SEGMENT, created.segment))
    assert merged == released.SegmentsMerged(7, SEGMENT, created.segment, 308)
    assert await client.content(SEGMENT) == content


async def test_both_kinds_of_clients_append_to_one_stream(client: Client, back: Combined, clock: MockClock) -> None:
    await client.create(SEGMENT)
    writer = await client.writer(SEGMENT)
    await client.append(writer, 2, b"event 0", b"event 1")
    done = await back.perform(append_of(b"record 2", create_if_missing=False))
    assert (done.start.seq_num, done.end.seq_num) == (2, 3)
    await client.append(writer, 3, b"event 3")
    expected = [b"event 0", b"event 1", b"record 2", b"event 3"]
    assert await client.content(SEGMENT) == join_events(expected)
    found: list[bytes] = []
    async with back.read_session(Read(STREAM, FromSeqNum(0), count=4)) as session:
        while (batch := await session.next()) is not None:
            found += getattr(getattr(batch, "columns", None), "bodies", [])
    assert found == expected


@pytest.mark.parametrize("step", [pytest.param(3, marks=pytest.mark.slow), 20], ids=["many cuts", "some cuts"])
@pytest.mark.parametrize("name", list(draft_shapes.ALL)[::5])
async def test_a_draft_client_that_comes_again_goes_on_where_it_is_told(
    back: Combined, clock: MockClock, name: str, step: int
) -> None:
    """Bytes sent on the earlier connection are passed on before the client gets its level, or never."""
    shape = draft_shapes.ALL[name]

    async with serving(SegmentFront(back)) as connect, trio.open_nursery() as nursery:

        async def converse(cut: int) -> None:
            segment = f"scope-of-streams/cut-{cut}/0.#epoch.0"
            one = await connect(Dialect.DRAFT)
            await one.create(segment)
            writer = await one.writer(segment)
            await one.send(raw=shape.said_by(writer)[:cut])
            await one.stream.aclose()
            two = await connect(Dialect.DRAFT)
            level = (
                await two.expect(draft.AppendSetup, draft.SetupAppend(writer, segment))
            ).connection_offset_ack_level
            left, end = shape.content[level:], len(shape.content)
            if left:
                events = map(draft.Event, split_events(left))
                begin, finish = (
                    draft.BeginAppendBlock(writer, level, len(left)),
                    draft.EndAppendBlock(writer, end, len(left)),
                )
                await two.send(begin, *events, finish)
                reply = await two.reply()
                assert isinstance(reply, draft.DataAppended), (cut, reply)
            assert await (await connect()).content(segment) == shape.content

        for cut in range(0, len(shape.data) + 1, step):
            nursery.start_soon(converse, cut)
