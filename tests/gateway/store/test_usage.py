"""The store's account of its use."""

from collections.abc import AsyncIterator

import pytest
import trio
from support.store import BASIN, NOW, STREAM, Wall, appending, batches

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Back
from penstock.model.byte_operations import AppendBytes, ReadBytes
from penstock.model.failures import OperationFailed
from penstock.model.operations import (
    CreateBasin,
    CreateStream,
    DeleteBasin,
    DeleteStream,
    FromSeqNum,
    ListStreams,
)
from penstock.model.records import StreamRef
from penstock.model.streams import StreamConfig
from penstock.model.usage_operations import GetStorage, GetUsage, ListActiveBasins, UsageKind
from penstock.store import usage
from penstock.store.schema import connect_writer
from penstock.store.usage import Usage

SECONDS = NOW // 1000
DAY = 86_400


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits ten seconds for the file."""
    monkeypatch.setattr(Usage, "FLUSH_SECONDS", 0.01)


async def sums(back: Back, kind: UsageKind, basin: str = BASIN) -> dict[str, int]:
    """Return the sums of the day before and the day after, by name."""
    found = await back.perform(GetUsage(basin, kind, SECONDS - DAY, SECONDS + DAY, DAY))
    return {name: sum(value for _, value in points) for name, points in found.items()}


async def test_appends_are_counted_by_storage_class(back: EmbeddedBack, wall: Wall) -> None:
    gold = StreamRef(BASIN, "gold")
    await back.perform(CreateStream(gold, StreamConfig(storage_class="gold")))
    await back.perform(appending(b"x" * 92, b"y" * 92))
    await back.perform(appending(b"x" * 42, stream=gold))
    async with back.append_session(STREAM) as session:
        for _ in range(3):
            await session.send(appending(b"z" * 2))
        session.close()
        while await session.receive():
            pass
    await back.perform(AppendBytes(STREAM, b"\0\0\0\1a"))
    assert await sums(back, UsageKind.APPENDS) == {"express": 5, "gold": 1}
    assert (await sums(back, UsageKind.APPENDED_BYTES))["gold"] == 50
    assert (await sums(back, UsageKind.APPENDED_BYTES))["express"] >= 200 + 30
    assert await sums(back, UsageKind.APPENDS, "another-basin") == {}


async def test_points_are_sums_by_interval(back: EmbeddedBack, wall: Wall) -> None:
    minute = SECONDS // 60 * 60
    for after in (0, 59, 60, 3600):
        wall.now = (minute + after) * 1000
        await back.perform(appending(b"x"))
    for interval in (60, 3600, DAY):
        found = await back.perform(GetUsage(BASIN, UsageKind.APPENDS, minute, minute + 7200, interval))
        expected: dict[int, int] = {}
        for after in (0, 59, 60, 3600):
            at = (minute + after) // interval * interval
            expected[at] = expected.get(at, 0) + 1
        assert found == {"express": sorted(expected.items())}
    assert await back.perform(GetUsage(BASIN, UsageKind.APPENDS, minute - 9000, minute - 5000, 60)) == {}


async def test_reads_are_counted_where_they_are_carried_out(back: EmbeddedBack) -> None:
    await back.perform(appending(*[b"x" * 92] * 10))
    assert len(await batches(back, FromSeqNum(0))) == 1
    await batches(back, FromSeqNum(0), count=5, max_bytes=1000, wait=0)
    assert await sums(back, UsageKind.READ_BYTES) == {"": 1500}
    assert await sums(back, UsageKind.READS) == {"streaming": 1, "unary": 1}


async def test_reads_of_bytes_are_counted(back: EmbeddedBack) -> None:
    await back.perform(AppendBytes(STREAM, b"\0\0\0\1a"))
    await back.perform(ReadBytes(STREAM, 0, 100, 0))
    assert await sums(back, UsageKind.READ_BYTES) == {"": 5}


async def test_operations_are_counted_for_the_account_or_the_basin(back: EmbeddedBack) -> None:
    await back.perform(CreateBasin("basin-two"))
    await back.perform(ListStreams("basin-two"))
    await back.perform(ListStreams("basin-two"))
    assert await sums(back, UsageKind.OPERATIONS, "") == {"create_basin": 2}
    assert await sums(back, UsageKind.OPERATIONS, "basin-two") == {"list_streams": 2}
    assert await sums(back, UsageKind.OPERATIONS, BASIN) == {"create_stream": 1}


async def test_storage_is_what_was_there_of_what_is_there_now(back: EmbeddedBack, wall: Wall) -> None:
    other, start = StreamRef(BASIN, "other"), SECONDS // 3600 * 3600 + 3600
    await back.perform(CreateStream(other))
    for after, stream in ((0, STREAM), (90, STREAM), (100, other), (4000, STREAM)):
        wall.now = (start + after) * 1000
        await back.perform(appending(b"x" * 92, stream=stream))

    async def stored(stream: StreamRef, first: int, last: int, interval: int = 60) -> list[tuple[int, int]]:
        points = await back.perform(GetStorage(stream, start + first, start + last, interval))
        return [(at - start, value) for at, value in points]

    assert await stored(STREAM, -60, 180) == [(-60, 0), (0, 0), (60, 100), (120, 200), (180, 200)]
    assert await stored(STREAM, 4020, 4080) == [(4020, 300), (4080, 300)]
    long_ago = await back.perform(GetStorage(STREAM, 0, 2, 1))
    assert long_ago == [(0, 0), (1, 0), (2, 0)], "without a step for each second since"
    assert await stored(other, 100, 130) == [(120, 100)]
    whole = StreamRef(BASIN, "")
    assert await stored(whole, -3600, 7200, 3600) == [(-3600, 0), (0, 0), (3600, 300), (7200, 400)]
    assert await stored(StreamRef(BASIN, "missing"), 0, 600) == []
    assert await stored(StreamRef("no-basin", ""), 0, 600) == []
    await back.perform(DeleteStream(other))
    assert await stored(whole, 7200, 7200, 3600) == [(7200, 300)]


async def test_active_basins_had_a_stream_then(back: EmbeddedBack, wall: Wall) -> None:
    await back.perform(CreateBasin("basin-empty"))
    assert await back.perform(ListActiveBasins(SECONDS - 10, SECONDS + 10)) == [BASIN]
    assert await back.perform(ListActiveBasins(SECONDS - 100, SECONDS - 10)) == []
    assert await back.perform(ListActiveBasins(SECONDS + 100, SECONDS + 200)) == [BASIN]
    wall.now += 50_000
    await back.perform(DeleteBasin(BASIN))
    assert await back.perform(ListActiveBasins(SECONDS + 100, SECONDS + 200)) == []


@pytest.fixture
async def again(settings: EmbeddedSettings, wall: Wall) -> AsyncIterator[EmbeddedBack]:
    """A store that was closed after an append, opened again."""
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        await back.perform(appending(b"x" * 92))
    async with open_embedded(settings, wall) as back:
        yield back


async def test_a_restart_keeps_the_account(again: EmbeddedBack) -> None:
    await again.perform(appending(b"x" * 92))
    assert await sums(again, UsageKind.APPENDED_BYTES) == {"express": 200}


async def test_a_killed_store_keeps_all_but_the_last_seconds(settings: EmbeddedSettings, again: EmbeddedBack) -> None:
    await again.perform(appending(b"x" * 92))
    db = connect_writer(settings.directory)
    with trio.fail_after(20):
        while db.execute("SELECT sum(value) FROM usage WHERE series = 'append_bytes/express'").fetchone() != (200,):  # noqa: ASYNC110
            await trio.sleep(0.01)
    db.close()


async def test_old_minutes_become_hours_and_old_hours_go(settings: EmbeddedSettings, wall: Wall) -> None:
    now = SECONDS // 60
    hour = (now - usage.MINUTES_KEPT - 300) // 60 * 60
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
    db = connect_writer(settings.directory)
    rows = [(hour + minute, BASIN, "append_ops/express", 1) for minute in (0, 1, 59, 60)]
    rows += [(now - usage.HOURS_KEPT - 1, BASIN, "append_ops/express", 1), (now - 1, BASIN, "append_ops/express", 1)]
    db.executemany("INSERT INTO usage (minute, basin, series, value) VALUES (?, ?, ?, ?)", rows)
    db.close()
    async with open_embedded(settings, wall) as back:
        await back.perform(ListStreams(BASIN))
        start, end = (now - 90 * 1440) * 60, now * 60
        found = await back.perform(GetUsage(BASIN, UsageKind.APPENDS, start, end, 60))
        found = await back.perform(GetUsage(BASIN, UsageKind.APPENDS, start, end, 60))
    assert found == {"express": [(hour * 60, 3), ((hour + 60) * 60, 1), ((now - 1) * 60, 1)]}


async def test_an_account_that_cannot_be_written_is_kept(settings: EmbeddedSettings, wall: Wall) -> None:
    """Sums whose transaction fails are added with the next one."""
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        db = connect_writer(settings.directory)
        db.execute("ALTER TABLE usage RENAME TO elsewhere")
        with pytest.raises(OperationFailed):
            await sums(back, UsageKind.OPERATIONS, "")
        db.execute("ALTER TABLE elsewhere RENAME TO usage")
        db.close()
        assert await sums(back, UsageKind.OPERATIONS, "") == {"create_basin": 1}
