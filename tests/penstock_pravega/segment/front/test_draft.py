"""The segment front: appends of the draft dialect (the seed, and the readings of the segment fact sheet, section 2)."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog
import trio
from support.segment import draft_shapes
from support.segment.front import SEGMENT, Client, Connect, WatchedBack, bytes_of
from trio.testing import MockClock

from penstock.model.byte_operations import AppendBytes, Seal
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import DeleteStream
from penstock.model.records import StreamRef
from penstock_pravega.codec import Dialect, draft, join_events, released, split_events
from penstock_pravega.codec.encoder import Fill

STREAM = StreamRef("penstock", "scope/stream")
MIB = 1 << 20
Begin, End, Event = draft.BeginAppendBlock, draft.EndAppendBlock, draft.Event


@pytest.fixture
async def client(connect: Connect, clock: MockClock) -> Client:
    """A draft connection, and a segment without anything in it."""
    client: Client = await connect(Dialect.DRAFT)
    await client.create()
    return client


def block(connection: UUID, offset: int, *bodies: bytes) -> list[Any]:
    """A block of whole events that was announced as long as it is."""
    size = len(join_events(bodies))
    return [Begin(connection, offset, size), *map(Event, bodies), End(connection, offset + size, size)]


async def acknowledged(client: Client, connection: UUID, level: int) -> None:
    """Wait until all before this offset is acknowledged, in one step or several."""
    while True:
        reply = await client.reply()
        assert isinstance(reply, draft.DataAppended) and reply.connection_id == connection, reply
        if reply.connection_offset_ack_level >= level:
            assert reply.connection_offset_ack_level == level
            return


async def content(connect: Connect, segment: str = SEGMENT) -> bytes:
    reader: Client = await connect()
    return await reader.content(segment)


async def test_blocks(client: Client, clock: MockClock, connect: Connect) -> None:
    """Nothing has to be waited for between them."""
    connection = uuid4()
    assert await client.call(draft.SetupAppend(connection, SEGMENT)) == draft.AppendSetup(SEGMENT, connection, 0)
    await client.send(*block(connection, 0, b"hello"), *block(connection, 13, b"world", b"", b"wide"))
    await acknowledged(client, connection, 46)
    assert await content(connect) == join_events([b"hello", b"world", b"", b"wide"])


async def test_empty_blocks_are_acknowledged_after_all_before_them(
    client: Client, clock: MockClock, connect: Connect
) -> None:
    """Also one of padding alone, the first one of a connection, and one whose end comes in Partials."""
    connection = await client.writer()
    padded = [Begin(connection, 13, 9), Fill(9), End(connection, 13, 0)]
    in_parts = [Begin(connection, 13, 0), *draft.partials(End(connection, 13, 0), [9])]
    await client.send(*block(connection, 0), *block(connection, 0, b"hello"), *padded, *in_parts)
    levels = [(await client.reply()).connection_offset_ack_level for _ in range(4)]
    assert levels == [0, 13, 13, 13]
    assert await content(connect) == join_events([b"hello"])


async def test_connections_share_a_connection(client: Client, clock: MockClock, connect: Connect) -> None:
    """There can be multiple appends set up (seed)."""
    await client.create("scope/other/0.#epoch.0")
    one, other = await client.writer(), await client.writer("scope/other/0.#epoch.0")
    await client.send(*block(one, 0, b"hello"), *block(other, 0, b"worldwide"), *block(one, 13, b"again"))
    levels: dict[UUID, int] = {}
    while levels != {one: 26, other: 17}:
        reply = await client.reply()
        levels[reply.connection_id] = reply.connection_offset_ack_level
    assert await content(connect) == join_events([b"hello", b"again"])
    assert await content(connect, "scope/other/0.#epoch.0") == join_events([b"worldwide"])


async def test_the_pieces_of_a_block_are_stored_as_they_come(
    client: Client, clock: MockClock, connect: Connect
) -> None:
    """Announced at 1 GiB and trickled: received pieces are stored and acknowledged, and not held."""
    connection = await client.writer()
    events = join_events([bytes(1000)] * 3000)
    await client.send(raw=bytes_of(Begin(connection, 0, 1 << 30)))
    for at in range(0, len(events), 50_000):
        await client.send(raw=events[at : at + 50_000])
    level = 0
    while level < len(events) - 2 * MIB // 2 - 1008:
        level = (await client.reply()).connection_offset_ack_level
    assert level % 1008 == 0
    assert await content(connect) == events[:level]
    await client.stream.aclose()
    again = await connect(Dialect.DRAFT)
    reply = await again.expect(draft.AppendSetup, draft.SetupAppend(connection, SEGMENT))
    await again.send(*block(connection, reply.connection_offset_ack_level, b"on"))
    await acknowledged(again, connection, reply.connection_offset_ack_level + 10)
    assert await content(connect) == events[: reply.connection_offset_ack_level] + join_events([b"on"])


# ---- every shape, at every cut -------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 10], ids=["every cut", "some cuts"])
@pytest.mark.parametrize("name", draft_shapes.ALL)
async def test_shapes_at_every_cut(client: Client, clock: MockClock, connect: Connect, name: str, step: int) -> None:
    """However the bytes arrive, the same is stored and answered."""
    shape = draft_shapes.ALL[name]
    for segment in ("seg", "other"):
        await client.create(segment)
    reader = await client.writer("seg")
    await client.send(*block(reader, 0, b"hello"))
    await acknowledged(client, reader, 13)

    async def converse(cut: int) -> None:
        one: Client = await connect(Dialect.DRAFT)
        connection = await one.writer(writer=UUID(int=1000 + cut))
        said = shape.said_by(connection)
        await one.send(raw=said[:cut])
        await trio.testing.wait_all_tasks_blocked()
        await one.stream.send_all(said[cut:])
        await one.stream.send_eof()
        one.codec.send(draft.SetupAppend(draft_shapes.SETUP.connection_id, "other"))
        replies: Counter[type] = Counter()
        level = empty = 0
        while (reply := await one.reply()) is not None:
            if isinstance(reply, draft.DataAppended):
                assert reply.connection_id == connection and reply.connection_offset_ack_level >= level
                empty += reply.connection_offset_ack_level == level
                level = reply.connection_offset_ack_level
            else:
                replies[type(reply)] += 1
        assert (level, empty, replies) == (len(shape.content), shape.empty, shape.others), cut

    cuts = range(0, len(shape.data) + 1, step)
    async with trio.open_nursery() as nursery:
        for cut in cuts:
            nursery.start_soon(converse, cut)
    assert Counter(split_events(await content(connect))) == Counter(split_events(shape.content) * len(cuts))


PARAGRAPH = [
    "split",
    "split, nothing but that",
    "split into three",
    "ended early",
    "two blocks",
    "empty events around a split",
]
"""Shapes of the seed's last paragraph, and what may stand around them."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAGRAPH)
async def test_exactly_once_wherever_the_connection_breaks(
    client: Client, clock: MockClock, connect: Connect, name: str
) -> None:
    """The client goes on at the level that it is told, and nothing is lost or there twice."""
    shape = draft_shapes.ALL[name]

    async def converse(cut: int) -> None:
        segment = f"scope/cut-{cut}/0.#epoch.0"
        one: Client = await connect(Dialect.DRAFT)
        await one.create(segment)
        connection = await one.writer(segment)
        await one.send(raw=shape.said_by(connection)[:cut])
        await one.stream.aclose()
        while not await goes_on(segment, connection):
            pass
        assert await content(connect, segment) == shape.content, cut

    async def goes_on(segment: str, connection: UUID) -> bool:
        """Send the rest on a second connection and return whether it was stored.

        It is not if bytes of the first connection were applied only after the second had asked for the level; the
        second is then closed.
        """
        two: Client = await connect(Dialect.DRAFT)
        reply = await two.expect(draft.AppendSetup, draft.SetupAppend(connection, segment))
        level = reply.connection_offset_ack_level
        left = split_events(shape.content[level:])
        if not left:
            return True
        await two.send(*block(connection, level, *left))
        while isinstance(reply := await two.reply(), draft.DataAppended):
            if reply.connection_offset_ack_level == len(shape.content):
                return True
        assert reply is None, reply
        return False

    async with trio.open_nursery() as nursery:
        for cut in range(len(shape.data) + 1):
            nursery.start_soon(converse, cut)


# ---- refusals ------------------------------------------------------------------------------------------------------


async def test_a_segment_that_is_not_there(client: Client, clock: MockClock) -> None:
    """Reading 13; without an AppendSetup no block may begin."""
    connection = uuid4()
    missing = "scope/missing/0.#epoch.0"
    assert await client.call(draft.SetupAppend(connection, missing)) == draft.NoSuchSegment(missing)
    assert await client.call(draft.KeepAlive(b"still here")) == draft.KeepAlive(b"still here")
    await client.send(raw=bytes_of(*block(connection, 0, b"hello")))
    assert await client.ended()


@pytest.mark.parametrize(("operation", "reply"), [(Seal, draft.SegmentIsSealed), (DeleteStream, draft.NoSuchSegment)])
async def test_what_is_appended_too_late(
    client: Client, clock: MockClock, back: WatchedBack, operation: Any, reply: Any
) -> None:
    """The client is told once; the blocks that were on their way go nowhere."""
    connection = await client.writer()
    await client.send(*block(connection, 0, b"hello"))
    await acknowledged(client, connection, 13)
    await back.perform(operation(STREAM))
    await client.send(*block(connection, 13, b"no"), *block(connection, 23, b"no"))
    await client.send(draft.KeepAlive(b"x"))
    assert Counter(await client.replies(2)) == Counter([reply(SEGMENT), draft.KeepAlive(b"x")])
    again = await client.call(draft.SetupAppend(connection, SEGMENT))
    if operation is Seal:
        assert again == draft.AppendSetup(SEGMENT, connection, 13)
    else:
        assert again == draft.NoSuchSegment(SEGMENT)


async def test_what_the_draft_has_no_word_for(client: Client, clock: MockClock, back: WatchedBack) -> None:
    connection = await client.writer()
    back.fails[AppendBytes] = fail(FailureCode.STORAGE, "the disk is full")
    with structlog.testing.capture_logs() as logs:
        await client.send(*block(connection, 0, b"hello"))
        assert await client.ended()
    assert [(line["event"], line["code"]) for line in logs] == [("append_refused", "storage")]


async def test_a_level_that_is_not_the_servers(client: Client, clock: MockClock) -> None:
    """Reading 9: there is no error message."""
    connection = await client.writer()
    await client.send(raw=bytes_of(*block(connection, 13, b"hello")))
    assert await client.ended()


async def test_padding_is_not_stored(client: Client, clock: MockClock, connect: Connect) -> None:
    """A block that ends early is filled with zero bytes; one that is nothing else appends nothing."""
    connection = await client.writer()
    await client.send(Begin(connection, 0, 5000), Fill(5000), End(connection, 0, 0))
    await client.send(Begin(connection, 0, 5000), Event(b"hello"), Fill(4987), End(connection, 13, 13))
    await acknowledged(client, connection, 13)
    assert await content(connect) == join_events([b"hello"])


async def test_both_dialects_know_one_writer(client: Client, clock: MockClock, connect: Connect) -> None:
    """A position is an attribute of the segment."""
    connection = await client.writer()
    await client.send(*block(connection, 0, b"hello"))
    await acknowledged(client, connection, 13)
    other = await connect()
    reply = await other.call(released.GetSegmentAttribute(5, SEGMENT, connection))
    assert reply == released.SegmentAttribute(5, 13)
