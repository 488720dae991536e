"""Merges: the bytes of some streams in another, all or nothing (segment fact sheet 3.1: large events, transactions)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from msgspec.structs import replace
from support.store import (
    BASIN,
    STREAM,
    Blocked,
    Fails,
    FullDisk,
    Wall,
    appending,
    bodies,
    records,
    sending,
    stored_bytes,
)

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Following
from penstock.model.attributes import updated
from penstock.model.byte_events import join_events
from penstock.model.byte_layout import MAX_BODY
from penstock.model.byte_operations import (
    NO_ATTRIBUTE,
    AppendBytes,
    AttributeUpdate,
    GetAttribute,
    Merge,
    Merged,
    ReadBytes,
    Seal,
    Truncate,
    UpdateType,
)
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import MIB
from penstock.model.operations import (
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteStream,
    FromSeqNum,
    Operation,
    Read,
    Trim,
)
from penstock.model.records import Header, StreamRef

SOURCE, OTHER = StreamRef(BASIN, "source"), StreamRef(BASIN, "other")
NAME = bytes(range(16))


@pytest.fixture
async def back(settings: EmbeddedSettings, wall: Wall) -> AsyncIterator[EmbeddedBack]:
    """With a target that has an event in it, and two empty sources."""
    async with open_embedded(settings, wall) as opened:
        await prepare(opened)
        yield opened


async def prepare(back: EmbeddedBack) -> None:
    await back.perform(CreateBasin(BASIN))
    for stream in (STREAM, SOURCE, OTHER):
        await back.perform(CreateStream(stream))
    await back.perform(sending(b"before"))


BEFORE = join_events([b"before"])


async def exists(back: EmbeddedBack, stream: StreamRef) -> bool:
    try:
        await back.perform(CheckTail(stream, create_if_missing=False))
    except OperationFailed as error:
        assert error.failure.code is FailureCode.STREAM_NOT_FOUND
        return False
    return True


class TestWhole:
    async def test_a_transaction(self, back: EmbeddedBack) -> None:
        await back.perform(sending(b"a", b"bc", stream=SOURCE, position=1))
        await back.perform(sending(b"d", stream=SOURCE, position=2))
        async with back.read_session(Read(STREAM, FromSeqNum(1))) as session:
            assert isinstance(await session.next(), Following)
            assert await back.perform(Merge(STREAM, (SOURCE,))) == Merged((14 + 28,))
            batch = await session.next()
        assert batch is not None and not isinstance(batch, Following)
        assert [record.body for record in batch.records()] == [b"a", b"bc", b"d"]
        assert stored_bytes(back) == BEFORE + join_events([b"a", b"bc", b"d"])
        assert not await exists(back, SOURCE)
        assert await back.perform(GetAttribute(STREAM, bytes(16))) == NO_ATTRIBUTE  # a writer's position stays behind
        assert (await back.perform(sending(b"after", offset=42))).start.seq_num == 4

    async def test_several_in_order(self, back: EmbeddedBack) -> None:
        await back.perform(sending(b"one", stream=OTHER))
        await back.perform(sending(b"two", stream=SOURCE))
        await back.perform(CreateStream(StreamRef(BASIN, "empty")))
        sources = (OTHER, StreamRef(BASIN, "empty"), SOURCE)
        assert await back.perform(Merge(STREAM, sources)) == Merged((25, 25, 36))
        assert await bodies(back, FromSeqNum(0)) == [b"before", b"one", b"two"]
        assert not any([await exists(back, source) for source in sources])

    async def test_none(self, back: EmbeddedBack) -> None:
        update = AttributeUpdate(NAME, UpdateType.NONE, 5)
        assert await back.perform(Merge(STREAM, (), (update,))) == Merged(())
        assert await back.perform(GetAttribute(STREAM, NAME)) == 5

    async def test_pieces_become_events(self, back: EmbeddedBack) -> None:
        data = join_events([b"first", b"second"])
        for at in range(0, len(data), 5):
            await back.perform(AppendBytes(SOURCE, data[at : at + 5], match_offset=at))
        await back.perform(Merge(STREAM, (SOURCE,)))
        assert await bodies(back, FromSeqNum(0)) == [b"before", b"first", b"second"]

    async def test_a_very_large_event(self, back: EmbeddedBack) -> None:
        """As real clients write it: in pieces of a transient segment."""
        event = join_events([bytes(range(256)) * (20 * MIB // 256)])
        for at in range(0, len(event), 8 * MIB):
            await back.perform(AppendBytes(SOURCE, event[at : at + 8 * MIB], match_offset=at))
        assert await back.perform(Merge(STREAM, (SOURCE,))) == Merged((14 + len(event),))
        await back.perform(sending(b"after"))
        assert stored_bytes(back) == BEFORE + event + join_events([b"after"])
        found = await bodies(back, FromSeqNum(1))
        assert b"".join(found[:-1]) == event and max(map(len, found)) <= MAX_BODY
        read = bytearray()
        while len(read) < len(event):
            read += (await back.perform(ReadBytes(STREAM, 14 + len(read), 3 * MIB))).data
        assert read.startswith(event)
        assert back._store.appends.admission.in_flight == 0

    async def test_records_of_other_protocols_go_as_events(self, back: EmbeddedBack) -> None:
        headers = {1: (Header(b"name", b"value"),)}
        await back.perform(appending(b"x", b"y", b"", stream=SOURCE, headers=headers))
        await back.perform(Merge(STREAM, (SOURCE,)))
        found = await records(back, FromSeqNum(1))
        assert [(record.headers, record.body) for record in found] == [((), b"x"), ((), b"y")]

    async def test_the_target_stays_in_memory(self, settings: EmbeddedSettings, wall: Wall) -> None:
        """Otherwise an append in between would be numbered by a second copy of it."""
        async with open_embedded(replace(settings, cached_streams=1), wall) as back:
            await prepare(back)
            await back.perform(sending(b"merged", stream=SOURCE))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(back.perform, Merge(STREAM, (SOURCE,)))
                await trio.testing.wait_all_tasks_blocked()
                await back.perform(appending(b"appended"))
            found = await records(back, FromSeqNum(0))
            assert sorted(record.body for record in found) == [b"appended", b"before", b"merged"]
            assert [record.seq_num for record in found] == [0, 1, 2]
            assert (await back.perform(CheckTail(STREAM))).seq_num == 3

    async def test_it_survives_a_restart(self, settings: EmbeddedSettings, wall: Wall) -> None:
        async with open_embedded(settings, wall) as back:
            await prepare(back)
            await back.perform(sending(*[b"%05d" % number for number in range(3000)], stream=SOURCE))
            await back.perform(Merge(STREAM, (SOURCE,), (AttributeUpdate(NAME, UpdateType.REPLACE, 7),)))
        async with open_embedded(settings, wall) as back:
            assert not await exists(back, SOURCE)
            assert stored_bytes(back) == BEFORE + join_events([b"%05d" % number for number in range(3000)])
            assert await back.perform(GetAttribute(STREAM, NAME)) == 7

    async def test_it_is_one_transaction_however_small_groups_are(self, settings: EmbeddedSettings, wall: Wall) -> None:
        settings = EmbeddedSettings(directory=settings.directory, group_bytes=1)
        async with open_embedded(settings, wall) as back:
            await prepare(back)
            await back.perform(sending(*[b"x" * 900] * 3000, stream=SOURCE))
            begun: list[str] = []
            back._store._writer.set_trace_callback(lambda sql: begun.append(sql.split()[0]))
            await back.perform(Seal(SOURCE))
            del begun[:]
            await back.perform(Merge(STREAM, (SOURCE,)))
            assert (begun.count("BEGIN"), begun.count("COMMIT")) == (1, 1)
            assert begun.count("INSERT") > 1


class TestRefused:
    """Nothing has changed then, not even that the source is sealed, where it could be known beforehand."""

    async def refused(self, back: EmbeddedBack, code: FailureCode, operation: Merge, text: str = "") -> None:
        before = stored_bytes(back)
        with Fails(code, text):
            await back.perform(operation)
        assert stored_bytes(back) == before
        assert await exists(back, SOURCE)
        assert (await back.perform(sending(b"still", stream=SOURCE))).offset is not None

    async def test_what_is_not_there(self, back: EmbeddedBack) -> None:
        missing = StreamRef(BASIN, "missing")
        for operation in (Merge(missing, (SOURCE,)), Merge(STREAM, (SOURCE, missing))):
            await self.refused(back, FailureCode.STREAM_NOT_FOUND, operation, "missing")

    async def test_a_sealed_target(self, back: EmbeddedBack) -> None:
        await back.perform(Seal(STREAM))
        await self.refused(back, FailureCode.STREAM_SEALED, Merge(STREAM, (SOURCE,)))

    async def test_oneself_and_twice(self, back: EmbeddedBack) -> None:
        for sources in ((SOURCE, STREAM), (SOURCE, OTHER, SOURCE)):
            await self.refused(back, FailureCode.INVALID, Merge(STREAM, sources), "merged")

    @pytest.mark.parametrize("cut", [Truncate(SOURCE, 1), Trim(SOURCE, FromSeqNum(1))], ids=["bytes", "records"])
    async def test_a_truncated_source(self, back: EmbeddedBack, cut: Operation[object]) -> None:
        await back.perform(sending(b"x", stream=SOURCE))
        await back.perform(cut)
        await self.refused(back, FailureCode.INVALID, Merge(STREAM, (SOURCE,)), "truncated")

    async def test_more_than_one_append_may_be(self, settings: EmbeddedSettings, wall: Wall) -> None:
        settings = EmbeddedSettings(directory=settings.directory, append_inflight_bytes=1000)
        async with open_embedded(settings, wall) as back:
            await prepare(back)
            for stream in (SOURCE, OTHER):
                await back.perform(sending(b"x" * 600, stream=stream))
            await self.refused(back, FailureCode.LIMIT_EXCEEDED, Merge(STREAM, (SOURCE, OTHER)), "1000")
            assert await back.perform(Merge(STREAM, (OTHER,))) == Merged((14 + 608,))

    async def test_an_update_whose_condition_does_not_hold(self, back: EmbeddedBack) -> None:
        updates = (
            AttributeUpdate(NAME, UpdateType.REPLACE, 7),
            AttributeUpdate(bytes(16), UpdateType.REPLACE_IF_EQUALS, 8, expected=1),
        )
        await self.refused(back, FailureCode.TRANSACTION_CONFLICT, Merge(STREAM, (SOURCE,), updates))
        assert await back.perform(GetAttribute(STREAM, NAME)) == NO_ATTRIBUTE

    async def test_bytes_that_are_missing_in_the_file(self, back: EmbeddedBack) -> None:
        await back.perform(sending(b"x", stream=SOURCE))
        back._store._writer.execute("DELETE FROM batches WHERE id = 2")
        with Fails(FailureCode.STORAGE, "missing"):
            await back.perform(Merge(STREAM, (SOURCE,)))
        assert await exists(back, SOURCE)


class TestUpdates:
    @pytest.mark.parametrize(
        ("kind", "value", "expected", "before", "after"),
        [
            (UpdateType.NONE, 5, 0, NO_ATTRIBUTE, 5),
            (UpdateType.NONE, 5, 0, 0, None),
            (UpdateType.REPLACE, 5, 0, NO_ATTRIBUTE, 5),
            (UpdateType.REPLACE, 5, 0, 9, 5),
            (UpdateType.REPLACE_IF_GREATER, 5, 0, NO_ATTRIBUTE, 5),
            (UpdateType.REPLACE_IF_GREATER, 5, 0, 4, 5),
            (UpdateType.REPLACE_IF_GREATER, 5, 0, 5, None),
            (UpdateType.ACCUMULATE, 5, 0, NO_ATTRIBUTE, 5),
            (UpdateType.ACCUMULATE, -5, 0, 2, -3),
            (UpdateType.REPLACE_IF_EQUALS, 5, 2, 2, 5),
            (UpdateType.REPLACE_IF_EQUALS, 5, 2, 3, None),
            (UpdateType.REPLACE_IF_EQUALS, 5, 2, NO_ATTRIBUTE, None),
            (UpdateType.REPLACE_IF_EQUALS, 5, NO_ATTRIBUTE, NO_ATTRIBUTE, 5),
        ],
    )
    def test_each_kind(self, kind: UpdateType, value: int, expected: int, before: int, after: int | None) -> None:
        update = AttributeUpdate(NAME, kind, value, expected)
        if after is None:
            with Fails(FailureCode.TRANSACTION_CONFLICT, NAME.hex()):
                updated(update, before)
        else:
            assert updated(update, before) == after

    async def test_one_after_the_other(self, back: EmbeddedBack) -> None:
        updates = tuple(AttributeUpdate(NAME, UpdateType.ACCUMULATE, value) for value in (5, 6))
        await back.perform(Merge(STREAM, (SOURCE,), (*updates, AttributeUpdate(bytes(16), UpdateType.NONE, 1))))
        assert await back.perform(GetAttribute(STREAM, NAME)) == 11
        assert await back.perform(GetAttribute(STREAM, bytes(16))) == 1

    async def test_a_sum_beyond_64_bits(self, back: EmbeddedBack) -> None:
        updates = tuple(AttributeUpdate(NAME, UpdateType.ACCUMULATE, 2**62) for _ in range(2))
        with Fails(FailureCode.INVALID, "64 bits"):
            await back.perform(Merge(STREAM, (SOURCE,), updates))
        assert await exists(back, SOURCE)
        assert await bodies(back, FromSeqNum(0)) == [b"before"]


class Paused:
    """The next merge waits, when it has read its sources, until it is let go on."""

    def __init__(self, back: EmbeddedBack) -> None:
        self.has_read = trio.Event()
        self.go_on = trio.Event()
        merges: Any = back._store.merges
        read = merges._read

        async def paused(source: object) -> object:
            found = await read(source)
            self.has_read.set()
            await self.go_on.wait()
            return found

        merges._read = paused


class TestWhatComesBetween:
    """While the sources are read, all others go on."""

    @pytest.mark.parametrize(
        ("operation", "code"),
        [
            (sending(b"between"), None),
            (appending(b"between"), None),
            (Seal(STREAM), FailureCode.STREAM_SEALED),
            (DeleteStream(STREAM), FailureCode.STREAM_NOT_FOUND),
            (DeleteStream(SOURCE), FailureCode.STREAM_NOT_FOUND),
            (Truncate(SOURCE, 3), FailureCode.INVALID),
            (Trim(SOURCE, FromSeqNum(1)), FailureCode.INVALID),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Operation) else "",
    )
    async def test_it_counts(self, back: EmbeddedBack, operation: Operation[object], code: FailureCode | None) -> None:
        await back.perform(sending(b"merged", stream=SOURCE))
        paused = Paused(back)
        failed: list[FailureCode] = []

        async def merge() -> None:
            try:
                assert await back.perform(Merge(STREAM, (SOURCE,))) == Merged((14 + 15 + 14,))
            except OperationFailed as error:
                failed.append(error.failure.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(merge)
            await paused.has_read.wait()
            with Fails(FailureCode.STREAM_SEALED):
                await back.perform(sending(b"too late", stream=SOURCE))
            await back.perform(operation)
            paused.go_on.set()
        if code is None:
            assert not failed
            assert await bodies(back, FromSeqNum(0)) == [b"before", b"between", b"merged"]
            assert not await exists(back, SOURCE)
        else:
            assert failed == [code]
            if operation != DeleteStream(STREAM):
                assert stored_bytes(back) == BEFORE
        assert back._store.appends.admission.in_flight == 0

    async def test_one_of_two_merges_has_the_source(self, back: EmbeddedBack) -> None:
        await back.perform(sending(b"merged", stream=SOURCE))
        failed: list[FailureCode] = []

        async def merge(target: StreamRef) -> None:
            try:
                await back.perform(Merge(target, (SOURCE,)))
            except OperationFailed as error:
                failed.append(error.failure.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(merge, STREAM)
            nursery.start_soon(merge, OTHER)
        assert failed == [FailureCode.STREAM_NOT_FOUND]
        assert len(await bodies(back, FromSeqNum(0)) + await bodies(back, FromSeqNum(0), OTHER)) == 2

    async def test_it_takes_its_turn_for_room(self, settings: EmbeddedSettings, wall: Wall) -> None:
        settings = EmbeddedSettings(directory=settings.directory, append_inflight_bytes=1000)
        async with open_embedded(settings, wall) as back:
            await prepare(back)
            await back.perform(sending(b"x" * 600, stream=SOURCE))
            admission = back._store.appends.admission
            async with trio.open_nursery() as nursery, Blocked(back):
                nursery.start_soon(back.perform, sending(b"y" * 600))
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(back.perform, Merge(STREAM, (SOURCE,)))
                await trio.testing.wait_all_tasks_blocked()
                assert admission.waiting == 1
            assert await bodies(back, FromSeqNum(1)) == [b"y" * 600, b"x" * 600]
            assert (admission.in_flight, admission.waiting) == (0, 0)

    @pytest.mark.parametrize("waits_for", ["room", "reading"])
    async def test_it_may_be_given_up(self, settings: EmbeddedSettings, wall: Wall, waits_for: str) -> None:
        settings = EmbeddedSettings(directory=settings.directory, append_inflight_bytes=1000)
        async with open_embedded(settings, wall) as back:
            await prepare(back)
            await back.perform(sending(b"x" * 600, stream=SOURCE))
            admission = back._store.appends.admission
            paused = Paused(back)
            async with trio.open_nursery() as nursery:
                if waits_for == "room":
                    admission.in_flight += 900  # another client's
                nursery.start_soon(back.perform, Merge(STREAM, (SOURCE,)))
                if waits_for == "room":
                    await trio.testing.wait_all_tasks_blocked()
                    assert admission.waiting == 1
                else:
                    await paused.has_read.wait()
                nursery.cancel_scope.cancel()
            if waits_for == "room":
                admission.leave(900)
            assert (admission.in_flight, admission.waiting) == (0, 0)
            assert stored_bytes(back) == BEFORE
            assert await back.perform(CheckTail(SOURCE)) == (1, wall.now)


async def test_one_that_could_not_be_written_never_was_and_may_be_repeated(back: EmbeddedBack) -> None:
    await back.perform(sending(*[b"x" * 1000] * 500, stream=SOURCE))
    await back.perform(Seal(SOURCE))
    merge = Merge(STREAM, (SOURCE,), (AttributeUpdate(NAME, UpdateType.NONE, 7),))
    with FullDisk(back), Fails(FailureCode.STORAGE):
        await back.perform(merge)
    assert stored_bytes(back) == BEFORE
    assert await exists(back, SOURCE)
    assert await back.perform(GetAttribute(STREAM, NAME)) == NO_ATTRIBUTE
    assert (await back.perform(sending(b"after", offset=14))).offset == 27
    assert await back.perform(merge) == Merged((27 + 500 * 1008,))
    assert await back.perform(GetAttribute(STREAM, NAME)) == 7
