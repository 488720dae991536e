"""Reads of bytes: paging, positions, and records that cannot be read (segment fact sheet, 1.5)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.store import BASIN, STREAM, Fails, Wall, appending, bodies, fence
from support.store.byte_reads import all_bytes, events, forget_recent, nothing, read

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import AppendBytes, BytesRead, GetByteStreamInfo, ReadBytes, Seal, Truncate
from penstock.model.byte_rendering import Rendered
from penstock.model.failures import FailureCode
from penstock.model.features import Feature
from penstock.model.limits import MIB
from penstock.model.operations import (
    Capability,
    CreateBasin,
    CreateStream,
    FromByteOffset,
    FromSeqNum,
    ListBasins,
    Read,
)
from penstock.model.records import StreamRef
from penstock.store import byte_reads, tail_cache
from penstock.store import byte_reads as byte_rows


async def test_the_back_can_do_it(back: EmbeddedBack) -> None:
    assert Capability.BYTES in back.capabilities


async def test_bytes_and_records_are_the_same_stream(back: EmbeddedBack) -> None:
    assert (await back.perform(events(b"one", b"two"))).offset == 22
    assert (await back.perform(appending(b"three"))).offset == 35
    found = await read(back, 0)
    assert found == BytesRead(0, join_events([b"one", b"two", b"three"]), True, False, {})
    assert await read(back, 12, 3) == BytesRead(12, found.data[12:15], False, False, {})
    assert await read(back, 35) == nothing(35)
    assert await read(back, 99) == nothing(99)


async def test_what_cannot_be_read(back: EmbeddedBack) -> None:
    for offset, max_bytes in ((-1, 1), (0, 0), (0, -1)):
        with Fails(FailureCode.INVALID):
            await read(back, offset, max_bytes)
    missing = StreamRef(BASIN, "missing")
    for operation in (ReadBytes(missing, 0, 1), GetByteStreamInfo(missing), Truncate(missing, 0)):
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await back.perform(operation)
    with Fails(FailureCode.INVALID):
        await back.perform(Truncate(STREAM, -1))


@pytest.mark.parametrize("forget", [False, True], ids=["memory", "file"])
@pytest.mark.parametrize("max_bytes", [256 * 1024, MIB, 8 * MIB])
async def test_large_streams_come_back_whole(back: EmbeddedBack, forget: bool, max_bytes: int) -> None:
    """Of all kinds: many small events, large ones, events too large for a record, and no events at all."""
    appended = [
        join_events([b"event %d" % number for number in range(10_000)]),
        join_events([bytes([number]) * 300_000 for number in range(8)]),
        join_events([b"L" * (3 * MIB)]),
        bytes(range(256)) * 8 * 1024,
    ]
    for data in appended:
        await back.perform(AppendBytes(STREAM, data))
    if forget:
        forget_recent(back)
    assert (await read(back, 0, max_bytes)).data == b"".join(appended)[: min(max_bytes, byte_reads.MOST_BYTES)]
    assert await all_bytes(back, max_bytes) == b"".join(appended)
    info = await back.perform(GetByteStreamInfo(STREAM))
    assert info.length == sum(map(len, appended))


async def test_who_reads_by_pieces_has_each_row_rendered_once(
    back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await back.perform(appending(*[b"%d" % number * 1000] * 1000))
    forget_recent(back)
    rendered = 0
    original = byte_rows._rendered

    def counting(*args: Any) -> list[Rendered]:
        nonlocal rendered
        found = original(*args)
        rendered += sum(len(piece.data) for piece in found)
        return found

    monkeypatch.setattr(byte_rows, "_rendered", counting)
    total = len(await all_bytes(back, 64 * 1024))
    assert rendered == total == 3 * 1008 * 1000


async def test_what_is_kept_of_rows_is_bounded(back: EmbeddedBack) -> None:
    for _ in range(20):
        await back.perform(events(b"x" * (MIB - 8)))
    forget_recent(back)
    for number in range(20):
        for _ in range(2):  # the second time it is there
            await read(back, number * MIB + 8, 10)
    remainders = back._store.byte_reads._remainders
    assert len(remainders._kept) == 16
    assert sum(len(rest.data) for _, rest in remainders._kept) <= byte_reads.REMAINDER_BYTES


def test_remainders_are_found_while_there_is_room() -> None:
    remainders = byte_reads.Remainders(capacity=100)
    for stream in range(200):
        remainders.keep(stream, Rendered(10, b"x", ()))
    kept = [stream for stream in range(200) if remainders.find(stream, 10) is not None]
    assert kept == list(range(200 - byte_reads.MOST_REMAINDERS, 200))
    remainders.keep(7, Rendered(20, b"y" * 99, ()))
    assert remainders.find(199, 10) is not None
    assert remainders.find(198, 10) is None
    assert remainders.find(7, 19) is remainders.find(7, 119) is None
    assert remainders.find(7, 118) is remainders.find(7, 20) is not None
    assert remainders.find(8, 20) is None
    remainders.keep(9, Rendered(0, b"z" * 101, ()))  # larger than all the room
    assert remainders.find(9, 0) is remainders.find(7, 20) is None


async def test_followers_share_the_bytes(back: EmbeddedBack) -> None:
    found: list[bytes] = []

    async def follow() -> None:
        found.append((await read(back, 0, wait=5)).data)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        await back.perform(appending(b"x" * 1000))
    assert len(found) == 50
    assert {id(data) for data in found} == {id(found[0])}


async def test_followers_of_a_stream_that_fell_out_of_memory_do_not_read_the_file(
    settings: EmbeddedSettings, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next append continues what they have seen, so it is enough."""
    async with open_embedded(replace(settings, tail_cache_bytes=20_000), wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        other = StreamRef(BASIN, "other")
        await back.perform(CreateStream(other))
        await back.perform(events(b"one"))
        offset = 11
        for number in range(3):
            for _ in range(10):
                await back.perform(appending(b"x" * 1000, stream=other))
            stream = back._store.registry.stream(STREAM)
            assert stream is not None
            assert not stream.recent._batches
            await back.perform(events(b"%d" % number))

            async def fails(*_args: object) -> None:
                raise AssertionError("the file was read")

            with monkeypatch.context() as patch:
                patch.setattr(back._store.reader, "run", fails)
                assert (await read(back, offset)).data == join_events([b"%d" % number])
            offset += 9


async def test_many_small_batches_are_given_in_several_reads(
    back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read looks at a bounded number of them, also where they have no bytes."""
    monkeypatch.setattr(tail_cache, "MOST_RENDERED", 3)
    for _ in range(8):
        await back.perform(fence(b""))
    for number in range(8):
        await back.perform(appending(b"%d" % number))
    assert len((await read(back, 0)).data) == 9
    assert (await all_bytes(back)) == join_events([b"%d" % number for number in range(8)])


@pytest.mark.parametrize(("name", "value"), [("MOST_RECORDS", 2), ("MOST_METERED", 20)])
async def test_a_read_of_the_file_is_bounded(
    back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    monkeypatch.setattr(byte_rows, name, value)
    for _ in range(5):
        await back.perform(fence(b""))
    for number in range(8):
        await back.perform(appending(b"%d" % number))
    forget_recent(back)
    found = await read(back, 0)
    assert 0 < len(found.data) < 72
    assert found.dropped == {Feature.COMMAND: 5}
    assert await all_bytes(back) == join_events([b"%d" % number for number in range(8)])


async def test_rows_without_bytes_are_passed_in_bounded_steps(
    back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_rows, "_ROWS", byte_rows._ROWS.replace(str(byte_rows.MOST_ROWS), "3"))
    for _ in range(10):
        await back.perform(fence(b""))
    await back.perform(events(b"x"))
    forget_recent(back)
    assert await read(back, 0) == BytesRead(0, join_events([b"x"]), True, False, {Feature.COMMAND: 10})


async def test_the_end_of_a_sealed_stream(back: EmbeddedBack) -> None:
    await back.perform(events(b"one"))
    assert await back.perform(Seal(STREAM)) == 11
    assert await read(back, 0) == BytesRead(0, join_events([b"one"]), True, False, {})
    assert await read(back, 11, wait=20) == nothing(11, end=True)
    with Fails(FailureCode.INVALID, "beyond the end"):
        await read(back, 12, wait=20)


async def test_bytes_that_are_missing_are_said(back: EmbeddedBack) -> None:
    await back.perform(events(b"one", b"two"))
    await back.perform(events(b"three"))
    forget_recent(back)
    back._store.committer._db.execute("DELETE FROM batches WHERE first_seq = 0")
    with Fails(FailureCode.STORAGE, "bytes at offset 3"):
        await read(back, 3)
    assert (await read(back, 22)).data == join_events([b"three"])


async def test_a_row_that_is_not_what_it_was_is_said(back: EmbeddedBack) -> None:
    """Rows of older gateways have no checksum."""
    await back.perform(appending(b"one"))
    await back.perform(events(b"two", b"three"))
    forget_recent(back)
    write = back._store.committer._db.execute
    write("UPDATE batches SET first_offset = first_offset + 1, end_offset = end_offset + 1 WHERE first_seq = 1")
    write("UPDATE batches SET end_offset = end_offset + 1 WHERE first_seq = 0")
    with Fails(FailureCode.DAMAGED, "a stored batch is damaged: it has 11 bytes instead of 12"):
        await read(back, 0)
    for payload, why in (
        (b"\xff", "the block ends inside"),
        (join_events([b"two", b"three", b""]), "it has 3 records instead of 2"),
    ):
        write("UPDATE batches SET payload = ?, checksum = NULL WHERE first_seq = 1", (payload,))
        with Fails(FailureCode.DAMAGED, f"a stored batch is damaged: {why}"):
            await bodies(back, FromSeqNum(1))
    write("UPDATE batches SET payload = x'ff', checksum = NULL")
    for offset, why in ((0, "not a valid ReadBatch"), (13, "it has 1 bytes instead of 24")):
        with Fails(FailureCode.DAMAGED, f"a stored batch is damaged: {why}"):
            await read(back, offset)


async def test_reads_that_start_at_a_byte(back: EmbeddedBack) -> None:
    await back.perform(events(b"one", b"two"))
    for offset, first in ((0, b"one"), (1, b"two"), (11, b"two")):
        async with back.read_session(Read(STREAM, FromByteOffset(offset), wait=0)) as session:
            batch = await session.next()
            assert batch.columns.bodies[0] == first  # type: ignore[union-attr]
    for offset in (12, 22, 23):
        with Fails(FailureCode.RANGE_NOT_SATISFIABLE):
            async with back.read_session(Read(STREAM, FromByteOffset(offset), count=1)):
                pass
    async with back.read_session(Read(STREAM, FromByteOffset(23), clamp=True, wait=5)) as session:
        await session.next()
        await back.perform(events(b"three"))
        batch = await session.next()
        assert batch.columns.bodies == [b"three"]  # type: ignore[union-attr]


async def test_basins_of_the_gateway_are_not_listed(back: EmbeddedBack) -> None:
    await back.perform(CreateBasin("_internal"))
    page = await back.perform(ListBasins(limit=1))
    assert ([basin.name for basin in page.items], page.has_more) == ([BASIN], False)
    assert (await back.perform(ListBasins(prefix="_"))).items == []
