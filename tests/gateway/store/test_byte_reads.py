"""Reads of bytes: paging, waiting at the tail, ends, and what happens meanwhile (segment fact sheet, 1.5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing
from support.store import BASIN, STREAM, Fails, Wall, appending, bodies, command, fence

from penstock.backs.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.store import byte_reads, byte_rows, tail_cache
from penstock.store.rendering import Rendered
from penstock_codecs.byte_layout import Layout
from penstock_codecs.byte_operations import (
    AppendBytes,
    BytesRead,
    GetSegmentInfo,
    ReadBytes,
    Seal,
    SegmentInfo,
    Truncate,
)
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.features import Feature
from penstock_codecs.limits import MIB
from penstock_codecs.model import Header, StreamRef
from penstock_codecs.operations import (
    Capability,
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    FromByteOffset,
    FromSeqNum,
    ListBasins,
    Locate,
    Read,
    Trim,
)
from penstock_codecs.segment.events import join_events

KEY = (Header(b"k", b"v"),)
COMMANDS = frozenset({Feature.COMMAND})


def events(*bodies: bytes) -> AppendBytes:
    return AppendBytes(STREAM, join_events(bodies))


def forget_recent(back: EmbeddedBack) -> None:
    stream = back._store.registry.stream(STREAM)
    assert stream is not None
    while stream.recent._batches:
        stream.recent.drop_oldest()


async def read(back: EmbeddedBack, offset: int, max_bytes: int = MIB, **options: object) -> BytesRead:
    return await back.perform(ReadBytes(STREAM, offset, max_bytes, **options))


async def all_bytes(back: EmbeddedBack, max_bytes: int = MIB) -> bytes:
    pieces = []
    offset = 0
    while data := (await read(back, offset, max_bytes)).data:
        pieces.append(data)
        offset += len(data)
    return b"".join(pieces)


def nothing(offset: int, end: bool = False) -> BytesRead:
    return BytesRead(offset, b"", at_tail=True, end_of_segment=end, dropped={})


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
    for operation in (ReadBytes(missing, 0, 1), GetSegmentInfo(missing), Truncate(missing, 0)):
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
    info = await back.perform(GetSegmentInfo(STREAM))
    assert info.length == sum(map(len, appended))


async def test_who_reads_by_pieces_has_each_row_rendered_once(
    back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await back.perform(appending(*[b"%d" % number * 1000] * 1000))
    forget_recent(back)
    rendered = 0
    original = byte_rows._rendered

    def counting(*args: object) -> object:
        nonlocal rendered
        found = original(*args)
        rendered += len(found.data)
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
    """What is appended next follows what they have seen, so it is enough."""
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


class TestWait:
    """At the tail, by a clock that jumps as soon as everybody waits."""

    async def _waiting(self, back: EmbeddedBack, offset: int, happens: object, wait: float = 20) -> BytesRead | None:
        """What a read that waits gives, when this is carried out meanwhile."""
        results: list[BytesRead] = []

        async def wait_for_bytes() -> None:
            results.append(await read(back, offset, wait=wait))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_bytes)
            await trio.testing.wait_all_tasks_blocked()
            await back.perform(happens)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        return results[0] if results else None

    async def test_it_is_over_in_time(self, back: EmbeddedBack, autojump_clock: trio.testing.MockClock) -> None:
        started = trio.current_time()
        assert await read(back, 0, wait=20) == nothing(0)
        assert trio.current_time() == started + 20
        assert await read(back, 5, wait=20) == nothing(5)
        assert trio.current_time() == started + 40
        assert await read(back, 0, wait=0) == nothing(0)
        assert trio.current_time() == started + 40

    async def test_the_first_byte_ends_it(self, back: EmbeddedBack) -> None:
        await back.perform(events(b"old"))
        for operation in (events(b"new"), appending(b"new")):
            offset = (await back.perform(GetSegmentInfo(STREAM))).length
            found = await self._waiting(back, offset, operation)
            assert found == BytesRead(offset, join_events([b"new"]), True, False, {})

    async def test_records_without_bytes_do_not(self, back: EmbeddedBack) -> None:
        assert await self._waiting(back, 0, fence(b"")) is None
        assert await self._waiting(back, 0, appending(b"")) is None

    async def test_bytes_before_the_offset_do_not(self, back: EmbeddedBack) -> None:
        assert await self._waiting(back, 11, events(b"one")) is None
        assert await self._waiting(back, 12, events(b"two")) == BytesRead(
            12, join_events([b"two"])[1:], True, False, {}
        )

    async def test_sealing_ends_it(self, back: EmbeddedBack) -> None:
        await back.perform(events(b"old"))
        assert await self._waiting(back, 11, Seal(STREAM)) == nothing(11, end=True)

    async def test_sealed_before_the_offset(self, back: EmbeddedBack) -> None:
        failed = trio.Event()

        async def wait_for_bytes() -> None:
            with Fails(FailureCode.INVALID, "beyond the end"):
                await read(back, 1, wait=20)
            failed.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_bytes)
            await trio.testing.wait_all_tasks_blocked()
            await back.perform(Seal(STREAM))
            await failed.wait()

    async def test_truncation_of_what_was_appended_meanwhile_ends_it(self, back: EmbeddedBack) -> None:
        """The read waits for an offset that is gone when it comes."""
        failed = trio.Event()

        async def wait_for_bytes() -> None:
            with Fails(FailureCode.OFFSET_TRUNCATED) as caught:
                await read(back, 3, wait=20)
            assert caught.failure.details == {"offset": 11}
            failed.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_bytes)
            await trio.testing.wait_all_tasks_blocked()
            async with back.append_session(STREAM) as session:
                await session.send(events(b"one"))
                await session.send(command(b"trim", (1).to_bytes(8, "big")))
                session.close()
                while await session.receive():
                    pass
            await failed.wait()

    @pytest.mark.parametrize("whole_basin", [False, True])
    async def test_deletion_ends_it(self, back: EmbeddedBack, whole_basin: bool) -> None:
        failed = trio.Event()

        async def wait_for_bytes() -> None:
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await read(back, 0, wait=20)
            failed.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_bytes)
            await trio.testing.wait_all_tasks_blocked()
            await back.perform(DeleteBasin(BASIN) if whole_basin else DeleteStream(STREAM))
            with trio.fail_after(10):
                await failed.wait()

    async def test_a_stream_that_is_waited_at_is_not_forgotten(self, settings: EmbeddedSettings, wall: Wall) -> None:
        async with open_embedded(replace(settings, cached_streams=1), wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
            results: list[BytesRead] = []

            async def wait_for_bytes() -> None:
                results.append(await read(back, 0, wait=1000))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_for_bytes)
                for number in range(20):
                    await back.perform(CreateStream(StreamRef(BASIN, f"other {number}")))
                await back.perform(events(b"x"))
            assert results[0].data == join_events([b"x"])


async def test_the_end_of_a_sealed_stream(back: EmbeddedBack) -> None:
    await back.perform(events(b"one"))
    assert await back.perform(Seal(STREAM)) == 11
    assert await read(back, 0) == BytesRead(0, join_events([b"one"]), True, False, {})
    assert await read(back, 11, wait=20) == nothing(11, end=True)
    with Fails(FailureCode.INVALID, "beyond the end"):
        await read(back, 12, wait=20)


class TestLoss:
    """Records of others that do not stand in the bytes as they are (docs/loss.md)."""

    async def _fill(self, back: EmbeddedBack) -> None:
        """An event, a record with headers, an empty one, a command, an event."""
        await back.perform(events(b"1"))
        await back.perform(appending(b"2", headers={0: KEY}))
        await back.perform(appending(b"", b"3"))
        await back.perform(fence(b""))
        await back.perform(events(b"4"))

    @pytest.mark.parametrize("forget", [False, True], ids=["memory", "file"])
    async def test_what_is_left_out_is_counted(self, back: EmbeddedBack, forget: bool) -> None:
        await self._fill(back)
        if forget:
            forget_recent(back)
        found = await read(back, 0)
        assert found.data == join_events([b"1", b"2", b"3", b"4"])
        assert found.dropped == dict.fromkeys(Feature, 1)
        counted = [(await read(back, offset, 9)).dropped for offset in range(0, 36, 9)]
        assert counted == [{}, {Feature.HEADERS: 1}, {Feature.EMPTY_BODY: 1}, {Feature.COMMAND: 1}]

    @pytest.mark.parametrize("forget", [False, True], ids=["memory", "file"])
    @pytest.mark.parametrize(
        ("feature", "seq_num", "offset", "behind"),
        [(Feature.HEADERS, 1, 9, 18), (Feature.EMPTY_BODY, 2, 18, None), (Feature.COMMAND, 4, 27, None)],
    )
    async def test_what_is_refused_is_said(
        self, back: EmbeddedBack, forget: bool, feature: Feature, seq_num: int, offset: int, behind: int | None
    ) -> None:
        await self._fill(back)
        if forget:
            forget_recent(back)
        refuse = frozenset({feature})
        assert len((await read(back, 0, refuse=refuse)).data) == offset
        with Fails(FailureCode.NOT_REPRESENTABLE, feature.value) as caught:
            await read(back, offset, refuse=refuse)
        assert caught.failure.details == {"seq_num": seq_num}
        if behind is not None:
            assert f"offset {behind}" in caught.failure.message
            assert (await read(back, behind, refuse=refuse)).data == join_events([b"3", b"4"])

    async def test_at_the_tail_it_is_said_at_once(self, back: EmbeddedBack) -> None:
        """Not only when a byte follows, which may be never."""
        for forget in (False, True):
            await back.perform(events(b"x"))
            offset = (await back.perform(GetSegmentInfo(STREAM))).length
            assert await read(back, offset, refuse=COMMANDS) == nothing(offset)
            await back.perform(fence(b""))
            if forget:
                forget_recent(back)
            assert await read(back, offset) == nothing(offset)
            with Fails(FailureCode.NOT_REPRESENTABLE):
                await read(back, offset, refuse=COMMANDS, wait=20)

    async def test_what_was_left_out_behind_the_last_byte_is_counted_at_the_end(self, back: EmbeddedBack) -> None:
        await back.perform(appending(b"x", b""))
        await back.perform(fence(b""))
        await back.perform(Seal(STREAM))
        for _ in range(2):
            assert (await read(back, 0)).dropped == {}
            end = await read(back, 9)
            assert (end.end_of_segment, end.dropped) == (True, {Feature.EMPTY_BODY: 1, Feature.COMMAND: 1})
            with Fails(FailureCode.NOT_REPRESENTABLE):
                await read(back, 9, refuse=COMMANDS)
            forget_recent(back)

    async def test_envelopes_are_not_counted(self, settings: EmbeddedSettings, wall: Wall) -> None:
        layout = Layout.ENVELOPE_HEADERS | Layout.ENVELOPE_EMPTY | Layout.ENVELOPE_COMMANDS
        async with open_embedded(replace(settings, envelopes=layout), wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
            await self._fill(back)
            assert (await read(back, 0)).dropped == {}
            with Fails(FailureCode.NOT_REPRESENTABLE):
                await read(back, 9, refuse=frozenset({Feature.HEADERS}))


class TestTruncate:
    async def test_between_and_within_events(self, back: EmbeddedBack, wall: Wall) -> None:
        created = wall.now
        await back.perform(events(b"one", b"two", b"three"))
        wall.now += 5
        assert await back.perform(GetSegmentInfo(STREAM)) == SegmentInfo(0, 35, False, created)
        assert await back.perform(Truncate(STREAM, 11)) == 11
        assert await back.perform(GetSegmentInfo(STREAM)) == SegmentInfo(11, 35, False, created + 5)
        assert await back.perform(Truncate(STREAM, 15)) == 15
        assert await back.perform(Truncate(STREAM, 3)) == 15
        first = await back.perform(Locate(STREAM, FromByteOffset(0)))
        assert (first.seq_num, first.offset) == (1, 11)  # it is cut, and whole for others
        with Fails(FailureCode.OFFSET_TRUNCATED) as caught:
            await read(back, 14)
        assert caught.failure.details == {"offset": 15}
        assert (await read(back, 15)).data == join_events([b"two", b"three"])[4:]

    async def test_it_survives(self, settings: EmbeddedSettings, wall: Wall) -> None:
        async with open_embedded(settings, wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
            await back.perform(events(b"one", b"two"))
            await back.perform(Truncate(STREAM, 5))
        async with open_embedded(settings, wall) as back:
            assert (await back.perform(GetSegmentInfo(STREAM))).start_offset == 5
            assert (await back.perform(events(b"three"))).offset == 35

    async def test_all_of_it_also_sealed(self, settings: EmbeddedSettings, wall: Wall) -> None:
        async with open_embedded(settings, wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
            await back.perform(events(b"one"))
            await back.perform(Seal(STREAM))
            assert await back.perform(Truncate(STREAM, 11)) == 11
            await back._store.sweeper.purge()
        async with open_embedded(settings, wall) as back:
            assert await back.perform(GetSegmentInfo(STREAM)) == SegmentInfo(11, 11, True, wall.now)
            assert await read(back, 11) == nothing(11, end=True)

    async def test_beyond_the_length_counts_what_is_on_its_way(self, back: EmbeddedBack) -> None:
        async with back.append_session(STREAM) as session:
            await session.send(events(b"one"))
            assert await back.perform(Truncate(STREAM, 11)) == 11
        with Fails(FailureCode.INVALID, "beyond the end, 11"):
            await back.perform(Truncate(STREAM, 12))

    async def test_trims_of_others_move_the_start(self, back: EmbeddedBack) -> None:
        await back.perform(events(b"one", b"two", b"three"))
        await back.perform(Trim(STREAM, FromSeqNum(1)))
        assert (await back.perform(GetSegmentInfo(STREAM))).start_offset == 11
        assert await back.perform(Truncate(STREAM, 12)) == 12
        await back.perform(command(b"trim", (3).to_bytes(8, "big")))
        assert (await back.perform(GetSegmentInfo(STREAM))).start_offset == 35
        await back.perform(Trim(STREAM, FromSeqNum(4)))
        assert (await back.perform(GetSegmentInfo(STREAM))).start_offset == 35


async def test_purged_while_it_is_being_read(back: EmbeddedBack) -> None:
    """Whatever the interleaving: bytes as they were, or that they are gone."""
    some = [b"%04d" % number * 200 for number in range(1000)]
    data = join_events(some)
    for start in range(0, 1000, 100):
        await back.perform(events(*some[start : start + 100]))
    forget_recent(back)
    done = trio.Event()

    async def page(max_bytes: int) -> None:
        offset = 0
        while offset < len(data):
            try:
                found = (await read(back, offset, max_bytes)).data
            except OperationFailed as error:
                assert error.failure.code is FailureCode.OFFSET_TRUNCATED, error
                offset = error.failure.details["offset"]  # type: ignore[assignment]
                continue
            assert found == data[offset : offset + len(found)]
            assert found
            offset += len(found)

    async def purge() -> None:
        while not done.is_set():
            await back._store.sweeper.purge()
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(purge)
        async with trio.open_nursery() as readers:
            for max_bytes in (10_000, 33_333, 200_000):
                readers.start_soon(page, max_bytes)
            for offset in range(0, len(data), 20_011):
                await back.perform(Truncate(STREAM, offset))
        done.set()


async def test_bytes_that_are_missing_are_said(back: EmbeddedBack) -> None:
    await back.perform(events(b"one", b"two"))
    await back.perform(events(b"three"))
    forget_recent(back)
    back._store.committer._db.execute("DELETE FROM batches WHERE first_seq = 0")
    with Fails(FailureCode.STORAGE, "bytes at offset 3"):
        await read(back, 3)
    assert (await read(back, 22)).data == join_events([b"three"])


async def test_a_row_that_is_not_what_it_was_is_said(back: EmbeddedBack) -> None:
    await back.perform(appending(b"one"))
    await back.perform(events(b"two", b"three"))
    forget_recent(back)
    write = back._store.committer._db.execute
    write("UPDATE batches SET first_offset = first_offset + 1, end_offset = end_offset + 1 WHERE first_seq = 1")
    write("UPDATE batches SET end_offset = end_offset + 1 WHERE first_seq = 0")
    with Fails(FailureCode.STORAGE, "a stored batch is broken: it has 11 bytes instead of 12"):
        await read(back, 0)
    for payload, why in (
        (b"\xff", "the block ends inside"),
        (join_events([b"two", b"three", b""]), "it has 3 records instead of 2"),
    ):
        write("UPDATE batches SET payload = ? WHERE first_seq = 1", (payload,))
        with Fails(FailureCode.STORAGE, f"a stored batch is broken: {why}"):
            await bodies(back, FromSeqNum(1))
    write("UPDATE batches SET payload = x'ff'")
    for offset, why in ((0, "not a valid ReadBatch"), (13, "it has 1 bytes instead of 24")):
        with Fails(FailureCode.STORAGE, f"a stored batch is broken: {why}"):
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
