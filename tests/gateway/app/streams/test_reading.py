"""Reads by a command: bounds, ends, and records that arrive between two reads of one that follows."""

from __future__ import annotations

from contextlib import aclosing

import pytest
import trio
from support.store import STREAM, appending

from penstock.app.streams import reading
from penstock.app.streams.reading import ReadSettings, batches_of
from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import FromSeqNum, FromTailOffset, FromTimestamp, Start


@pytest.fixture
async def filled(back: Back) -> Back:
    """Records 0 to 5, at 1000, 2000, ... ms, two in a batch."""
    for number in (0, 2, 4):
        times = [1000 * (number + 1), 1000 * (number + 2)]
        await back.perform(appending(b"%d" % number, b"%d" % (number + 1), timestamps=times))
    return back


async def read(back: Back, **settings: object) -> list[int]:
    async with aclosing(batches_of(back, STREAM, ReadSettings(**settings))) as found:  # type: ignore[arg-type]
        return [record.seq_num async for batch in found for record in batch.records()]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, range(6)),
        ({"start": FromSeqNum(3)}, range(3, 6)),
        ({"start": FromTailOffset(2)}, range(4, 6)),
        ({"start": FromTimestamp(2500)}, range(2, 6)),
        ({"count": 3}, range(3)),
        ({"end": FromSeqNum(3)}, range(3)),
        ({"end": FromSeqNum(4)}, range(4)),
        ({"end": FromSeqNum(99)}, range(6)),
        ({"end": FromSeqNum(0)}, range(0)),
        ({"end": FromTimestamp(3000)}, range(2)),
        ({"end": FromTimestamp(1)}, range(0)),
        ({"start": FromSeqNum(1), "end": FromSeqNum(5), "count": 2}, range(1, 3)),
        ({"start": FromSeqNum(6), "count": 2}, range(0)),
        ({"start": FromTailOffset(0), "count": 2}, range(0)),
        ({"start": FromTimestamp(99_000), "count": 2}, range(0)),
    ],
)
async def test_bounds(filled: Back, settings: dict[str, object], expected: range) -> None:
    assert await read(filled, **{"start": FromSeqNum(0), **settings}) == list(expected)


@pytest.mark.parametrize("count", [None, 1])
async def test_a_start_beyond_the_tail(filled: Back, count: int | None) -> None:
    with pytest.raises(OperationFailed) as caught:
        await read(filled, start=FromSeqNum(7), count=count)
    assert caught.value.failure.code is FailureCode.RANGE_NOT_SATISFIABLE


@pytest.mark.parametrize(("start", "first"), [(FromSeqNum(0), 0), (FromTailOffset(0), 6)])
async def test_following(filled: Back, start: Start, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One read after another waits at the tail; nothing is lost between them."""
    monkeypatch.setattr(reading, "_FOLLOW_SECONDS", 0.02)
    seen: list[int] = []

    async def follow() -> None:
        settings = ReadSettings(start=start, count=16 - first, follow=True)
        async with aclosing(batches_of(filled, STREAM, settings)) as found:
            async for batch in found:
                seen.extend(record.seq_num for record in batch.records())

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await trio.sleep(0.1)
            for number in range(10):
                await filled.perform(appending(b"%d" % number))
                await trio.sleep(0.015)
    assert seen == list(range(first, 16))
