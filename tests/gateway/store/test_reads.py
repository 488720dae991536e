"""Reads that catch up: starts, bounds, and what cannot be satisfied (S2 fact sheet 5.4, S3P 8.3)."""

from typing import Any

import pytest
import trio
import trio.testing
from support.store import BASIN, NOW, STREAM, Fails, appending, batches, bodies, records, trim_record
from support.store.hops import Hops

from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import Following
from penstock.model.failures import FailureCode
from penstock.model.limits import MIB
from penstock.model.operations import (
    CheckTail,
    CreateBasin,
    DeleteStream,
    FromRecordId,
    FromSeqNum,
    FromTailOffset,
    FromTimestamp,
    GetStreamConfig,
    ListStreams,
    Locate,
    Located,
    Read,
    Start,
    Trim,
)
from penstock.model.record_encoding import RECORDS, decode_records
from penstock.model.records import U64_MAX, Columns, RecordBatch, RecordId, StreamPosition, StreamRef
from penstock.model.streams import BasinConfig, Retention, StreamConfig
from penstock.store import batches as store_batches
from penstock.store.reader import READ_BYTES

EVERY_WAY = pytest.mark.parametrize("forget", [False, True], ids=["memory", "file"])


async def fill(back: EmbeddedBack, forget: bool = False) -> None:
    """Records 0..9, in batches of 1, 2, 3 and 4, stamped 100, 200, 200, 300, 300, 300, then 400 four times."""
    number = 0
    for size in (1, 2, 3, 4):
        names = [b"%d" % (number + index) for index in range(size)]
        await back.perform(appending(*names, timestamps=[size * 100] * size))
        number += size
    if forget:
        forget_recent(back)


def forget_recent(back: EmbeddedBack) -> None:
    stream = back._store.registry.stream(STREAM)
    assert stream is not None
    stream.recent._batches.clear()
    stream.recent._joined.clear()


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


@EVERY_WAY
@pytest.mark.parametrize(
    ("start", "first"),
    [
        (FromSeqNum(0), 0),
        (FromSeqNum(4), 4),
        (FromSeqNum(9), 9),
        (FromTailOffset(1), 9),
        (FromTailOffset(7), 3),
        (FromTailOffset(U64_MAX), 0),
        (FromTimestamp(0), 0),
        (FromTimestamp(101), 1),
        (FromTimestamp(200), 1),
        (FromTimestamp(201), 3),
        (FromTimestamp(400), 6),
        (FromRecordId(RecordId(0, 0)), 0),
        (FromRecordId(RecordId(100, 1)), 1),
        (FromRecordId(RecordId(200, 1)), 2),
        (FromRecordId(RecordId(200, 2)), 3),
        (FromRecordId(RecordId(300, 2)), 5),
        (FromRecordId(RecordId(399, U64_MAX)), 6),
        (FromRecordId(RecordId(400, 3)), 9),
        (FromRecordId(RecordId(400, 4)), 10),
        (FromRecordId(RecordId(U64_MAX, U64_MAX)), 10),
    ],
)
async def test_starts(back: EmbeddedBack, start: Start, first: int, forget: bool) -> None:
    await fill(back, forget)
    assert await bodies(back, start) == numbers(first, 10)
    assert await bodies(back, start, count=1) == numbers(first, min(first + 1, 10))
    assert (await back.perform(Locate(STREAM, start))).seq_num == first


@EVERY_WAY
async def test_identifiers_of_every_batch_that_can_be_read(back: EmbeddedBack, forget: bool) -> None:
    await fill(back, forget)
    expected = [RecordId(size * 100, seq) for size in (1, 2, 3, 4) for seq in range(size)]
    for first in range(10):
        for count in range(1, 11 - first):
            found = await batches(back, FromSeqNum(first), count=count)
            assert [one for batch in found for one in batch.record_ids()] == expected[first : first + count]


async def test_beyond_the_tail_is_not_satisfiable(back: EmbeddedBack) -> None:
    await fill(back)
    bad: list[tuple[Start, dict[str, object]]] = [
        (FromSeqNum(11), {}),
        (FromSeqNum(U64_MAX), {"wait": 5}),
        (FromTimestamp(401), {}),
        (FromTimestamp(401), {"wait": 5}),
        (FromSeqNum(10), {"count": 5}),
        (FromSeqNum(10), {"until": 900, "wait": 0}),
        (FromTailOffset(0), {"max_bytes": 5}),
        (FromSeqNum(11), {"clamp": True, "count": 1}),
        (FromTimestamp(999), {"clamp": True, "count": 1, "wait": 0}),
    ]
    for start, options in bad:
        with Fails(FailureCode.RANGE_NOT_SATISFIABLE) as fails:
            async with back.read_session(Read(STREAM, start, **options)):  # type: ignore[arg-type]
                raise AssertionError(f"entered with {start}, {options}")
        assert fails.failure.details == {"tail": {"seq_num": 10, "timestamp": 400}}


async def test_at_the_tail_what_may_follow_is_satisfiable(back: EmbeddedBack) -> None:
    await fill(back)
    tail = StreamPosition(10, 400)
    good: list[tuple[Start, dict[str, object]]] = [
        (FromSeqNum(10), {}),
        (FromSeqNum(10), {"wait": 1}),
        (FromTailOffset(0), {"count": 1, "wait": 1}),
        (FromSeqNum(99), {"clamp": True}),
        (FromTimestamp(999), {"clamp": True, "count": 1, "wait": 2}),
    ]
    for start, options in good:
        async with back.read_session(Read(STREAM, start, **options)) as session:  # type: ignore[arg-type]
            assert await session.next() == Following(tail)
    for ended in ({"wait": 0}, {"wait": 0, "clamp": True}):
        assert await bodies(back, FromSeqNum(10), **ended) == []


async def test_an_empty_stream(back: EmbeddedBack) -> None:
    assert await bodies(back, FromRecordId(RecordId(5, 5)), count=1) == []
    assert await bodies(back, FromSeqNum(0), wait=0) == []
    assert await bodies(back, FromTimestamp(0), wait=0) == []
    for start in (FromSeqNum(0), FromTailOffset(0), FromTimestamp(0), FromTimestamp(1)):
        with Fails(FailureCode.RANGE_NOT_SATISFIABLE):
            await bodies(back, start, count=1)
    assert await back.perform(Locate(STREAM, FromSeqNum(0))) == Located(0, 0, RecordId(0, 0), at_tail=True, offset=0)


@EVERY_WAY
async def test_count_bytes_and_until_cut_exactly(back: EmbeddedBack, forget: bool) -> None:
    await fill(back, forget)
    for count in range(12):
        assert await bodies(back, FromSeqNum(2), count=count) == numbers(2, min(2 + count, 10))
    for size in range(0, 90, 4):
        assert await bodies(back, FromSeqNum(1), max_bytes=size) == numbers(1, min(1 + size // 9, 10))
    for until, stop in ((0, 0), (100, 0), (101, 1), (200, 1), (300, 3), (301, 6), (400, 6), (401, 10), (U64_MAX, 10)):
        assert await bodies(back, FromSeqNum(0), until=until) == numbers(0, stop)
    assert await bodies(back, FromSeqNum(0), count=7, max_bytes=27, until=400) == numbers(0, 3)


async def test_a_bound_that_is_reached_already_ends_at_once(back: EmbeddedBack) -> None:
    await fill(back)
    for bound in ({"count": 0}, {"max_bytes": 0}, {"until": 300}):
        async with back.read_session(Read(STREAM, FromSeqNum(10), wait=60, **bound)) as session:  # type: ignore[arg-type]
            assert await session.next() is None
            assert await session.next() is None


@EVERY_WAY
@pytest.mark.parametrize("bound", ["count", "max_bytes", "until"])
async def test_a_read_is_behind_until_its_bound_is_met(back: EmbeddedBack, bound: str, forget: bool) -> None:
    await fill(back, forget)
    read = Read(STREAM, FromSeqNum(0), **{bound: {"count": 3, "max_bytes": 27, "until": 300}[bound]})
    async with back.read_session(read) as session:
        seen = 0
        while seen < 3:
            assert session.behind()
            batch = await session.next()
            assert isinstance(batch, RecordBatch)
            seen += batch.count
        assert seen == 3
        assert not session.behind()


async def test_a_timestamp_at_or_after_until_is_refused_before_any_look_up(back: EmbeddedBack) -> None:
    nowhere = StreamRef("no-such-basin", "s")
    with Fails(FailureCode.INVALID, "start `timestamp` exceeds or equal to `until`"):
        await bodies(back, FromTimestamp(5), nowhere, until=5)


@EVERY_WAY
async def test_nothing_from_below_the_trim_point(back: EmbeddedBack, forget: bool) -> None:
    await fill(back, forget)
    await back.perform(trim_record(4))
    if forget:
        forget_recent(back)
    for start in (FromSeqNum(0), FromTimestamp(0), FromTimestamp(200), FromRecordId(RecordId(0, 0)), FromTailOffset(9)):
        assert (await bodies(back, start))[:-1] == numbers(4, 10)
        assert (await back.perform(Locate(STREAM, start))).seq_num == 4
    assert await bodies(back, FromSeqNum(2), count=2) == numbers(4, 6)


async def test_trim_operation(back: EmbeddedBack) -> None:
    await fill(back)
    assert await back.perform(Trim(STREAM, FromRecordId(RecordId(200, 1)))) == (2, 200)
    assert await back.perform(Trim(STREAM, FromSeqNum(1))) == (2, 200), "it never goes back"
    assert await back.perform(Trim(STREAM, FromTimestamp(300))) == (3, 300)
    assert await bodies(back, FromSeqNum(0)) == numbers(3, 10)
    assert await back.perform(Trim(STREAM, FromSeqNum(U64_MAX))) == (10, 400)
    assert await back.perform(CheckTail(STREAM)) == (10, 400)
    assert await bodies(back, FromSeqNum(0), count=5) == [], "before the tail, and nothing retained"
    assert await bodies(back, FromTimestamp(400), wait=0) == []
    with Fails(FailureCode.RANGE_NOT_SATISFIABLE) as refused:
        await bodies(back, FromTimestamp(400), count=5)
    assert refused.failure.details == {"tail": {"seq_num": 10, "timestamp": 400}}
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await back.perform(Trim(StreamRef(BASIN, "nope"), FromSeqNum(1)))


async def test_batches_are_joined_up_to_the_limits_and_not_decoded(back: EmbeddedBack) -> None:
    for _ in range(30):
        await back.perform(appending(*[b"x" * 1000] * 100))
    forget_recent(back)
    found = await batches(back, FromSeqNum(0))
    assert [batch.count for batch in found] == [1000] * 3
    assert found[-1].tail == (3000, NOW) and found[0].tail is found[1].tail is None
    for batch in found:
        assert batch.wire is not None and batch.wire.encoding == RECORDS
        assert batch._columns is None
        assert list(batch.columns.seq_nums) == list(range(batch.first_seq_num, batch.next_seq_num))
    for _ in range(3):
        await back.perform(appending(*[b"y" * 4000] * 100))
    forget_recent(back)
    found = await batches(back, FromSeqNum(3000))
    assert [batch.metered for batch in found] == [2 * 400_800, 400_800]


async def test_what_is_larger_than_a_batch_may_be_comes_in_pieces(back: EmbeddedBack) -> None:
    """S3P's limits are configurable and do not count the 8 bytes of S2's metering."""
    many = [b"%d" % number for number in range(2500)]
    large = [bytes(MIB), b"between", bytes(MIB - 8), bytes(MIB - 7)]
    await back.perform(appending(*many))
    await back.perform(appending(*large))
    for forget in (False, True):
        if forget:
            forget_recent(back)
        found = await batches(back, FromSeqNum(0))
        assert [body for batch in found for body in batch.columns.bodies] == many + large
        assert all(batch.count == 1 or (batch.count <= 1000 and batch.metered <= MIB) for batch in found)


async def test_reading_may_create_where_the_basin_says_so(back: EmbeddedBack) -> None:
    await back.perform(CreateBasin("basin-two", BasinConfig(create_stream_on_read=True)))
    layer = StreamConfig(retention=Retention(77))
    made, read, neither = (StreamRef("basin-two", name) for name in ("made", "read", "neither"))
    assert await back.perform(CheckTail(made)) == (0, 0)
    with Fails(FailureCode.RANGE_NOT_SATISFIABLE):
        await bodies(back, FromSeqNum(0), read, count=1, create_config=layer)
    assert (await back.perform(GetStreamConfig(read))).retention == Retention(77)
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await bodies(back, FromSeqNum(0), neither, create_if_missing=False)
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await back.perform(CheckTail(neither, create_if_missing=False))
    assert [info.name for info in (await back.perform(ListStreams("basin-two"))).items] == ["made", "read"]
    for stream, code in (
        (StreamRef("no-such-basin", "s"), FailureCode.BASIN_NOT_FOUND),
        (StreamRef(BASIN, "nope"), FailureCode.STREAM_NOT_FOUND),
    ):
        with Fails(code):
            await bodies(back, FromSeqNum(0), stream)
        with Fails(code):
            await back.perform(CheckTail(stream))
        with Fails(code):
            await back.perform(Locate(stream, FromSeqNum(0)))


async def test_timestamps_beyond_what_sqlite_calls_an_integer(back: EmbeddedBack) -> None:
    for timestamp in (5, 2**63 - 1, 2**63, U64_MAX - 1, U64_MAX, U64_MAX):
        await back.perform(appending(b"x", exact=timestamp))
    forget_recent(back)
    assert [record.seq_num for record in await records(back, FromTimestamp(2**63))] == [2, 3, 4, 5]
    assert [record.seq_num for record in await records(back, FromRecordId(RecordId(U64_MAX, 1)))] == [5]
    found = await back.perform(Locate(STREAM, FromTimestamp(6)))
    assert found == Located(1, 2**63 - 1, RecordId(2**63 - 1, 0), False, 9)
    assert (await back.perform(CheckTail(STREAM))).timestamp == U64_MAX


async def test_reads_that_are_given_up_leave_room_for_reading_ahead(back: EmbeddedBack) -> None:
    for _ in range(20):
        await back.perform(appending(*[b"x" * 1000] * 1000))
    forget_recent(back)
    reads = back._store.reads
    room = reads._ahead_left
    for _ in range(5):
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            await session.next()
            assert reads._ahead_left == room, "its client may never take the first batch"
            await session.next()
            with trio.CancelScope() as scope:
                scope.cancel()
                await session.next()
            assert reads._ahead_left == room - 5
    assert reads._ahead_left == room
    async with back.read_session(Read(STREAM, FromSeqNum(0), wait=0)) as session:
        seen = []
        while True:
            with trio.CancelScope() as scope:
                if len(seen) % 2:
                    scope.cancel()
                found = await session.next()
                if found is None:
                    break
                assert not isinstance(found, Following)
                seen.append(found.first_seq_num)
            if scope.cancelled_caught:
                found = await session.next()
                assert found is not None and not isinstance(found, Following)
                seen.append(found.first_seq_num)
    assert seen == list(range(0, 20_000, 1000))


async def test_a_batch_is_decoded_once_for_all_reads_that_begin_within_it(
    back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    await back.perform(appending(*numbers(0, 1000)))
    decodings = 0
    decode = store_batches.decode_records

    def count_decodings(payload: bytes) -> Columns:
        nonlocal decodings
        decodings += 1
        return decode(payload)

    monkeypatch.setattr(store_batches, "decode_records", count_decodings)
    for first in (1, 200, 999):
        assert await bodies(back, FromSeqNum(first)) == numbers(first, 1000)
    assert decodings <= 1


async def test_reads_that_are_given_up_do_not_wait_for_a_thread(
    back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, each of them still read up to 4 MiB, ahead of those that clients wait for."""
    await back.perform(appending(*[b"x"] * 1000))
    forget_recent(back)
    reader = back._store.reads.reader
    read, begun, waiting = reader.batches, 0, 0

    async def count_reads(*arguments: Any) -> list[RecordBatch]:  # the sweeper takes threads, too
        nonlocal begun, waiting
        begun += 1
        waiting += 1
        try:
            return await read(*arguments)
        finally:
            waiting -= 1

    monkeypatch.setattr(reader, "batches", count_reads)
    limiter = reader._limiter
    busy = [object() for _ in range(int(limiter.total_tokens))]
    for borrower in busy:
        await limiter.acquire_on_behalf_of(borrower)
    for _ in range(50):
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            with trio.move_on_after(0.002):
                await session.next()
    await trio.testing.wait_all_tasks_blocked()
    assert (begun, waiting) == (50, 0)
    for borrower in busy:
        limiter.release_on_behalf_of(borrower)
    assert len(await bodies(back, FromSeqNum(0))) == 1000


async def test_a_client_that_reads_on_gets_more_batches_with_each_hop(
    back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(40):
        await back.perform(appending(*[b"small"] * 1000))
    forget_recent(back)
    hops = Hops(back, monkeypatch)
    found = await batches(back, FromSeqNum(500))
    assert [batch.first_seq_num for batch in found] == [500, *range(1000, 40_000, 1000)]
    assert hops.asked == [1, 2, 4, 8, 16, 16]
    assert hops.found == [1, 2, 4, 8, 16, 9]
    hops.asked.clear()
    assert len(await bodies(back, FromSeqNum(0), count=2500)) == 2500
    assert hops.asked == [1, 2]
    assert back._store.reads._ahead_left == 64


async def test_a_hop_reads_a_bounded_number_of_bytes(back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(30):
        await back.perform(appending(*[bytes(MIB // 2 - 100)] * 2))
    forget_recent(back)
    hops = Hops(back, monkeypatch)
    found = await batches(back, FromSeqNum(0))
    assert [batch.first_seq_num for batch in found] == list(range(0, 60, 2))
    most = READ_BYTES // MIB + 1
    assert hops.asked[:4] == [1, 2, 4, 8] and max(hops.found) == most
    assert max(hops.asked[4:]) <= 2 * most  # what it cannot get takes no room for reading ahead


async def test_readers_share_the_room_for_reading_ahead(back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        await back.perform(appending(*[b"small"] * 1000))
    forget_recent(back)
    reads = back._store.reads
    monkeypatch.setattr(reads, "_ahead_left", 3)
    hops = Hops(back, monkeypatch)
    seen: list[list[int]] = [[], []]
    async with (
        back.read_session(Read(STREAM, FromSeqNum(0))) as first,
        back.read_session(Read(STREAM, FromSeqNum(0))) as second,
    ):
        for _ in range(20):
            for session, numbers_seen in zip((first, second), seen, strict=True):
                batch = await session.next()
                assert isinstance(batch, RecordBatch)
                numbers_seen.append(batch.first_seq_num)
    assert seen == [list(range(0, 20_000, 1000))] * 2
    assert max(hops.asked) <= 4
    assert reads._ahead_left == 3


@pytest.mark.parametrize("bound", ["none", "count", "max_bytes"])
async def test_what_is_ready_is_what_comes_next(back: EmbeddedBack, bound: str) -> None:
    """Read by `ready` as far as it goes, and by `next` from there on."""
    for _ in range(40):
        await back.perform(appending(*[b"x" * 900] * 900))
    forget_recent(back)
    bounds = {"none": {"wait": 0}, "count": {"count": 20_007}, "max_bytes": {"max_bytes": 9_000_000}}
    options: dict[str, object] = {**bounds[bound]}
    expected = await records(back, FromSeqNum(3), **options)
    found, ready = [], 0
    async with back.read_session(Read(STREAM, FromSeqNum(3), **options)) as session:  # type: ignore[arg-type]
        assert session.ready() is None, "nothing was read yet"
        while (batch := await session.next()) is not None:
            while isinstance(batch, RecordBatch):
                found += batch.records()
                batch = session.ready()
                ready += batch is not None
        assert session.ready() is None
    assert found == expected and ready > 3


async def test_nothing_is_ready_of_what_was_trimmed_or_deleted(back: EmbeddedBack) -> None:
    for _ in range(40):
        await back.perform(appending(*[b"x" * 900] * 900))
    forget_recent(back)
    async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
        while not (isinstance(batch := await session.next(), RecordBatch) and session._ready):  # type: ignore[attr-defined]
            assert isinstance(batch, RecordBatch)
        await back.perform(Trim(STREAM, FromSeqNum(batch.next_seq_num + 5)))
        assert session.ready() is None
        found = await session.next()
        assert isinstance(found, RecordBatch) and found.first_seq_num == batch.next_seq_num + 5
        await session.next()
        await back.perform(DeleteStream(STREAM))
        assert session.ready() is None
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await session.next()


async def test_batches_read_ahead_are_dropped_if_they_are_trimmed(back: EmbeddedBack) -> None:
    for _ in range(20):
        await back.perform(appending(*[b"small"] * 1000))
    forget_recent(back)
    async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
        for _ in range(3):
            await session.next()
        await back.perform(Trim(STREAM, FromSeqNum(5500)))
        batch = await session.next()
        assert isinstance(batch, RecordBatch)
        assert batch.first_seq_num == 5500
        after = await session.next()
        assert isinstance(after, RecordBatch)
        assert after.first_seq_num == 6000
    assert back._store.reads._ahead_left == 64


def test_joined_payloads_decode_as_one() -> None:
    assert list(decode_records(b"").seq_nums) == []


@pytest.mark.parametrize("trimmed", [0, 4, 9])
@pytest.mark.parametrize(
    "start", [FromSeqNum(0), FromRecordId(RecordId(0, 0)), FromTimestamp(0), FromTailOffset(U64_MAX)]
)
async def test_the_first_record_of_a_short_stream_is_found_in_memory(
    back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch, trimmed: int, start: Start
) -> None:
    await fill(back)
    if trimmed:
        await back.perform(Trim(STREAM, FromSeqNum(trimmed)))

    run, here = back._store.reader.run, trio.lowlevel.current_task()

    async def from_the_file(query: Any) -> object:
        assert trio.lowlevel.current_task() is not here, "the file was asked"
        return await run(query)  # by the sweeper

    monkeypatch.setattr(back._store.reader, "run", from_the_file)
    assert (await back.perform(Locate(STREAM, start))).seq_num == trimmed
    assert await bodies(back, start) == numbers(trimmed, 10)
