"""Bounded reads, one after another: what was read from the file is not read again."""

import pytest
from support.store import STREAM, appending, batches, bodies, records
from support.store.byte_reads import forget_recent
from support.store.hops import Hops

from penstock.backends.embedded import EmbeddedBack
from penstock.model.operations import CreateStream, DeleteStream, FromRecordId, FromSeqNum, FromTimestamp, Read, Trim
from penstock.model.records import Columns, RecordBatch, RecordId, StreamRef
from penstock.store.batch_windows import TURNS, BatchWindows
from penstock.store.heads import StoredStream
from penstock.store.tail_cache import memory_of

PER_APPEND = 100
OTHER = StreamRef(STREAM.basin, "other")


async def fill(back: EmbeddedBack, appends: int, stream: StreamRef = STREAM) -> None:
    """Append records 0, 1, 2, ..., whose bodies are their numbers, and one millisecond for each append."""
    for number in range(appends):
        first = number * PER_APPEND
        names = [b"%d" % index for index in range(first, first + PER_APPEND)]
        await back.perform(appending(*names, stream=stream, exact=1000 + number))
    forget_recent(back, stream)


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


async def test_pages_by_number_take_few_hops(back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(back, 300)
    hops = Hops(back, monkeypatch)
    for first in range(0, 25_000, 250):
        assert await bodies(back, FromSeqNum(first), count=250) == numbers(first, first + 250)
    assert len(hops.asked) < 15
    assert max(hops.asked) == 16


async def test_pages_by_identifier_take_few_hops(back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(back, 300)
    hops = Hops(back, monkeypatch)
    looked_up = 0
    find = back._store.reader.run

    async def run(query: object) -> object:
        nonlocal looked_up
        looked_up += 1
        return await find(query)  # type: ignore[arg-type]

    monkeypatch.setattr(back._store.reader, "run", run)
    least, seen = RecordId(0, 0), 0
    for _ in range(100):
        page = await records(back, FromRecordId(least), count=250)
        assert [record.body for record in page] == numbers(seen, seen + 250)
        seen += 250
        least = RecordId(page[-1].timestamp, (seen - 1) % PER_APPEND + 1)
    assert len(hops.asked) < 15
    assert looked_up <= len(hops.asked) + 1


async def test_the_same_read_again_and_again_takes_one_hop(back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(back, 30)
    hops = Hops(back, monkeypatch)
    for start in (FromSeqNum(150), FromTimestamp(1001), FromRecordId(RecordId(1001, 50)), FromSeqNum(199)):
        first = 100 if isinstance(start, FromTimestamp) else 199 if start == FromSeqNum(199) else 150
        for _ in range(3):
            assert await bodies(back, start, count=1) == numbers(first, first + 1)
    assert len(hops.asked) == 2  # records 100 to 149 were not in the first window


async def test_what_was_trimmed_is_not_read_from_a_window(back: EmbeddedBack) -> None:
    await fill(back, 30)
    assert await bodies(back, FromSeqNum(0), count=500) == numbers(0, 500)
    await back.perform(Trim(STREAM, FromSeqNum(250)))
    assert await bodies(back, FromSeqNum(0), count=10) == numbers(250, 260)
    assert await bodies(back, FromRecordId(RecordId(0, 0)), count=10) == numbers(250, 260)
    assert await bodies(back, FromTimestamp(1000), count=10) == numbers(250, 260)


async def test_a_stream_of_the_same_name_has_a_window_of_its_own(back: EmbeddedBack) -> None:
    await fill(back, 30)
    assert await bodies(back, FromSeqNum(0), count=500) == numbers(0, 500)
    await back.perform(DeleteStream(STREAM))
    await back.perform(CreateStream(STREAM))
    for _ in range(3):
        await back.perform(appending(*[b"new"] * 1000))
    forget_recent(back)
    assert await bodies(back, FromSeqNum(0), count=500) == [b"new"] * 500


async def test_two_clients_page_through_one_stream(back: EmbeddedBack) -> None:
    await fill(back, 100)
    for first in range(0, 4000, 400):
        assert await bodies(back, FromSeqNum(first), count=400) == numbers(first, first + 400)
        assert await bodies(back, FromSeqNum(first + 3000), count=300) == numbers(first + 3000, first + 3300)


async def test_a_batch_at_the_tail_is_read_again_with_the_tail_as_it_is_then(back: EmbeddedBack) -> None:
    await fill(back, 3)
    for tail in (300, 301, 302):
        (batch,) = await batches(back, FromSeqNum(200), count=500)
        assert batch.next_seq_num == tail
        assert batch.tail is not None and batch.tail.seq_num == tail
        await back.perform(appending(b"more"))
        forget_recent(back)


async def test_windows_have_a_bound_together(back: EmbeddedBack) -> None:
    await back.perform(CreateStream(OTHER))
    await fill(back, 1)
    await fill(back, 1, OTHER)
    found = [back._store.registry.stream(ref) for ref in (STREAM, OTHER)]
    streams = [stream for stream in found if stream is not None]
    windows = BatchWindows(16, capacity=15_000)
    for stream in streams:
        windows.keep(stream, [_batch(0, 10), _batch(10, 10)])
    assert [_kept(windows, stream) for stream in streams] == [False, True]
    windows.keep(streams[1], [_batch(0, 5000)])
    assert [_kept(windows, stream) for stream in streams] == [False, False]


def _batch(first: int, count: int) -> RecordBatch:
    columns = Columns(range(first, first + count), [7] * count, [b"body"] * count)
    return RecordBatch(columns, first_id=RecordId(7, first))


def _kept(windows: BatchWindows, stream: StoredStream) -> bool:
    return windows.take(stream, 5) is not None


async def test_streams_that_are_read_in_turn_keep_their_windows(
    back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a consumer of several topics: each page ends within a batch, whose rest is the next page's beginning."""
    streams = [StreamRef(STREAM.basin, f"turn-{number}") for number in range(TURNS)]
    for stream in streams:
        await back.perform(CreateStream(stream))
        await fill(back, 100, stream)
    monkeypatch.setattr(back._store.reads.windows, "_capacity", TURNS * memory_of(_batch(0, 1500)))
    hops = Hops(back, monkeypatch)
    for first in range(0, 8800, 1100):
        for stream in streams:
            assert await page(back, stream, first, 1100) == numbers(first, first + 1100)
    assert sum(hops.asked) <= 10 * TURNS


async def page(back: EmbeddedBack, stream: StreamRef, first: int, count: int) -> list[bytes]:
    """Return records as a client gets them that does not say how many it will take."""
    found: list[bytes] = []
    async with back.read_session(Read(stream, FromSeqNum(first), wait=1.0, paged=True)) as session:
        while len(found) < count:
            batch = await session.next()
            assert isinstance(batch, RecordBatch)
            found += batch.columns.bodies
    return found[:count]
