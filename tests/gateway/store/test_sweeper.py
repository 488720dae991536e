"""Retention by age, empty streams, purging in pieces (S2 fact sheet, 1.3 and 5.3)."""

from contextlib import closing
from itertools import pairwise

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.store import BASIN, NOW, STREAM, Fails, Wall, appending, bodies, eventually, trim_record

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.failures import FailureCode
from penstock.model.operations import (
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteStream,
    FromSeqNum,
    ListStreams,
    ReconfigureStream,
    Trim,
)
from penstock.model.records import StreamRef
from penstock.model.streams import INFINITE, BasinConfig, Retention, StreamConfig, StreamConfigPatch
from penstock.store import sweeps
from penstock.store.schema import connect_writer
from penstock.store.sweeper import LEAST_STEP_MS

WEEK = 7 * 24 * 3600 * 1000


async def expire(back: EmbeddedBack) -> None:
    await back._store.sweeper.expire(back._store.sweeper._clock())
    await back._store.sweeper.purge()


def rows(back: EmbeddedBack) -> int:
    found: int = back._store._look_ups.execute("SELECT count(*) FROM batches").fetchone()[0]
    return found


async def test_retention_counts_from_arrival(back: EmbeddedBack, wall: Wall) -> None:
    await back.perform(appending(b"stamped just after the epoch", timestamps=[50]))
    await expire(back)
    assert len(await bodies(back, FromSeqNum(0))) == 1
    wall.now += WEEK // 2
    await back.perform(appending(b"later", timestamps=[60]))
    wall.now += WEEK // 2
    await expire(back)
    assert len(await bodies(back, FromSeqNum(0))) == 2
    wall.now += 1
    await expire(back)
    assert await bodies(back, FromSeqNum(0)) == [b"later"]
    assert rows(back) == 1
    wall.now += WEEK
    await expire(back)
    assert rows(back) == 0 and await back.perform(CheckTail(STREAM)) == (2, 60)


async def test_each_stream_has_its_own_age(back: EmbeddedBack, wall: Wall) -> None:
    await back.perform(
        CreateBasin("basin-two", BasinConfig(default_stream_config=StreamConfig(retention=Retention(5))))
    )
    by_basin, for_ever = StreamRef("basin-two", "short"), StreamRef("basin-two", "for ever")
    await back.perform(CreateStream(by_basin))
    await back.perform(CreateStream(for_ever, StreamConfig(retention=INFINITE)))
    for stream in (STREAM, by_basin, for_ever):
        await back.perform(appending(b"x", stream=stream))
    wall.now += 5001
    await expire(back)
    assert [len(await bodies(back, FromSeqNum(0), stream)) for stream in (STREAM, by_basin, for_ever)] == [1, 0, 1]
    wall.now += 100 * WEEK
    await back.perform(ReconfigureStream(STREAM, StreamConfigPatch(retention=INFINITE)))
    await expire(back)
    assert [len(await bodies(back, FromSeqNum(0), stream)) for stream in (STREAM, for_ever)] == [1, 1]


async def test_a_stream_keeps_the_bytes_that_it_is_to_keep(
    back: EmbeddedBack, settings: EmbeddedSettings, wall: Wall
) -> None:
    """By size alone, where each record has 8 bytes beside its body, or by age as well. A configuration of before has no
    bound."""
    small, large = StreamRef("basin-one", "small"), StreamRef("basin-one", "large")
    await back.perform(CreateStream(small, StreamConfig(retention=INFINITE, retention_bytes=3 * 18 - 9)))
    await back.perform(CreateStream(large, StreamConfig(retention_bytes=2**62)))
    old = StreamRef("basin-one", "old")
    await back.perform(CreateStream(old, StreamConfig()))
    for number in range(10):
        for stream in (small, large, old):
            await back.perform(appending(b"%010d" % number, stream=stream))
    with closing(connect_writer(settings.directory)) as db:
        db.execute("UPDATE streams SET config = json_remove(config, '$.retention_bytes') WHERE name = 'old'")
    await expire(back)
    assert await bodies(back, FromSeqNum(0), small) == [b"%010d" % number for number in (7, 8, 9)]
    assert [len(await bodies(back, FromSeqNum(0), stream)) for stream in (large, old)] == [10, 10]
    await back.perform(appending(b"x" * 1000, stream=small))
    await expire(back)
    assert await bodies(back, FromSeqNum(0), small) == [b"x" * 1000]
    wall.now += WEEK + 1
    await expire(back)
    assert [len(await bodies(back, FromSeqNum(0), stream)) for stream in (small, large)] == [1, 0]


async def test_it_works_in_pieces_over_many_rows_and_streams(
    back: EmbeddedBack, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(sweeps, "STREAMS_AT_ONCE", 2)
    streams = [StreamRef(BASIN, f"s{number}") for number in range(7)]
    for stream in streams:
        await back.perform(CreateStream(stream))
    async with trio.open_nursery() as nursery:
        for stream in [*streams, STREAM]:
            for number in range(10):
                nursery.start_soon(back.perform, appending(b"%d" % number, stream=stream))
    wall.now += WEEK + 1
    for stream in [*streams, STREAM]:
        await back.perform(appending(b"new", stream=stream))
    await expire(back)
    assert rows(back) == 8
    for stream in streams:
        assert await bodies(back, FromSeqNum(0), stream) == [b"new"]
        await back.perform(DeleteStream(stream))
    await expire(back)
    assert rows(back) == 1
    assert back._store._look_ups.execute("SELECT count(*) FROM streams").fetchone() == (1,)


async def test_purging_goes_by_bytes_too(back: EmbeddedBack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "BYTES_AT_ONCE", 10_000)
    monkeypatch.setattr(sweeps, "BYTES_PER_ROW", 0)
    for _ in range(12):
        await back.perform(appending(b"x" * 4000))
    db = back._store._look_ups
    stream = back._store.registry.stream(STREAM)
    assert stream is not None
    assert sweeps.purge_chunk(db, 0) is None
    back._store.trims.move(stream, 11)
    back._store.sweeper.nudge = lambda: None  # type: ignore[method-assign]
    await back.perform(appending(b"y"))
    chunk = sweeps.purge_chunk(db, 0)
    assert chunk is not None and chunk[0][-1][1] == (stream.id, 2), "three rows of 4008 bytes"
    await back._store.sweeper.purge()
    assert rows(back) == 2


async def test_trimmed_rows_go_by_themselves(back: EmbeddedBack) -> None:
    for number in range(5):
        await back.perform(appending(b"%d" % number, b"x"))
    await back.perform(trim_record(5))
    await eventually(lambda: rows(back) == 4)
    assert await bodies(back, FromSeqNum(0)) == [b"x", b"3", b"x", b"4", b"x", (5).to_bytes(8, "big")]


async def test_leftovers_are_purged_after_a_restart(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(settings, wall) as back:
        back._store.sweeper.nudge = lambda: None  # type: ignore[method-assign]
        await back.perform(CreateBasin(BASIN))
        for stream in (STREAM, StreamRef(BASIN, "deleted")):
            await back.perform(CreateStream(stream))
            await back.perform(appending(b"x", stream=stream))
            await back.perform(appending(b"y", stream=stream))
        await back.perform(Trim(STREAM, FromSeqNum(1)))
        await back.perform(DeleteStream(StreamRef(BASIN, "deleted")))
        assert rows(back) == 4
    async with open_embedded(settings, wall) as back:
        await eventually(lambda: rows(back) == 1)


async def test_empty_streams_are_deleted_after_their_time(back: EmbeddedBack, wall: Wall) -> None:
    layer = StreamConfig(delete_on_empty_seconds=60)
    names = ("never written", "trimmed", "in use")
    never, trimmed, used = (StreamRef(BASIN, name) for name in names)
    for stream in (never, trimmed, used):
        await back.perform(CreateStream(stream, layer))
    for stream in (trimmed, used):
        await back.perform(appending(b"x", stream=stream))
    wall.now += 59_999
    await expire(back)
    assert len((await back.perform(ListStreams(BASIN))).items) == 4
    await back.perform(Trim(trimmed, FromSeqNum(1)))
    wall.now += 1
    await expire(back)
    assert [info.name for info in (await back.perform(ListStreams(BASIN))).items] == ["in use", "stream", "trimmed"]
    wall.now += 59_998
    await expire(back)
    await back.perform(CheckTail(trimmed))
    wall.now += 1
    await expire(back)
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await back.perform(CheckTail(trimmed))
    assert [info.name for info in (await back.perform(ListStreams(BASIN))).items] == ["in use", "stream"]


async def test_one_purge_deletes_few_rows_however_small_they_are_and_of_however_many_streams(
    back: EmbeddedBack, settings: EmbeddedSettings
) -> None:
    refs = [StreamRef(BASIN, f"s{number}") for number in range(10)]
    for ref in refs:
        await back.perform(CreateStream(ref))
    async with trio.open_nursery() as nursery:
        for ref in refs:
            for _ in range(100):
                nursery.start_soon(back.perform, appending(b"x", stream=ref))
    marked = "UPDATE streams SET deleted_at = 1 WHERE name GLOB 's[0-9]'"
    back._store._writer.execute(marked)
    pieces = [1000]
    while (chunk := sweeps.purge_chunk(back._store._look_ups, 0)) is not None:
        for sql, parameters in chunk[0]:
            back._store._writer.execute(sql, parameters)
        pieces.append(rows(back))
    assert pieces[-1] == 0
    assert max(before - after for before, after in pairwise(pieces)) <= 512
    names = back._store._look_ups.execute("SELECT name FROM streams").fetchall()
    assert names == [(STREAM.stream,)]


async def test_what_is_due_for_many_streams_is_one_commit(
    back: EmbeddedBack, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(50):
            ref = StreamRef(BASIN, f"s{number}")
            await back.perform(CreateStream(ref, StreamConfig(delete_on_empty_seconds=1)))
            if number % 2:
                nursery.start_soon(back.perform, appending(b"x", stream=ref))
    commits: list[int] = []
    monkeypatch.setattr(back._store.committer, "after_commit", lambda: commits.append(1))
    wall.now += WEEK + 1
    await back._store.sweeper.expire(back._store.sweeper._clock())
    assert len((await back.perform(ListStreams(BASIN))).items) == 1 + 25, "those trimmed have been empty for no time"
    assert len(commits) <= 3


async def test_deletions_and_trims_do_not_put_off_retention(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(replace(settings, sweep_interval_seconds=0.2), wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        busy = StreamRef(BASIN, "busy")
        await back.perform(CreateStream(busy, StreamConfig(retention=INFINITE)))
        await back.perform(appending(b"x"))
        wall.now += WEEK + 1
        with trio.fail_after(10):
            number = 0
            while await bodies(back, FromSeqNum(0)):
                number += 1
                await back.perform(trim_record(number, stream=busy))
                await trio.sleep(0.02)


async def test_the_sweeper_runs_by_itself(settings: EmbeddedSettings, wall: Wall) -> None:
    async with open_embedded(replace(settings, sweep_interval_seconds=0.02), wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        await back.perform(appending(b"x"))
        wall.now = NOW + WEEK + 1
        await eventually(lambda: rows(back) == 0)


# ---- a clock that is wrong -------------------------------------------------------------------------------------------

YEAR = 365 * 24 * 3600 * 1000


async def sweep(back: EmbeddedBack) -> None:
    sweeper = back._store.sweeper
    await sweeper.expire(await sweeper._sweep_time())


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_clock_that_is_a_year_ahead_for_some_sweeps(
    settings: EmbeddedSettings, wall: Wall, restarted: bool
) -> None:
    """Records of the last minutes before their end go at most; also if the gateway starts meanwhile. If the clock stays
    so, it is believed in the end."""
    async with open_embedded(settings, wall) as back:
        await back.perform(CreateBasin(BASIN))
        await back.perform(CreateStream(STREAM))
        await back.perform(appending(b"old"))
        wall.now += WEEK - 2 * LEAST_STEP_MS
        await back.perform(appending(b"new"))
        await sweep(back)
    async with open_embedded(settings, wall) as back:
        if not restarted:
            await sweep(back)
        wall.now += YEAR
        await sweep(back)
        assert await bodies(back, FromSeqNum(0)) == [b"old", b"new"]
        for _ in range(3):
            await sweep(back)
        assert await bodies(back, FromSeqNum(0)) == [b"new"]
        assert (back._store.sweeper.delay or "").endswith(" s behind it")
        wall.now -= YEAR
        await sweep(back)
        assert back._store.sweeper.delay is None
        wall.now += YEAR
        for _ in range(20):
            await sweep(back)
        await back._store.sweeper.purge()
        assert (back._store.sweeper.delay, rows(back)) == (None, 0)
