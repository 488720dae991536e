"""Recorded clients of the segment protocol, played to a fresh segment front: the same bytes, with the same writers."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import trio
import trio.testing
from support.captures.dialogues import CLIENT, SERVER, RecordedStream, Said, conversation, events
from support.s3p.front import store_with_basin
from support.segment.front import Client

from penstock.tools.replay.replaying import Replay, ReplaySettings
from penstock.tools.replay.report import ReplaySummary
from penstock.tools.target.url import parse_target
from penstock_pravega.codec import Dialect, join_events, released
from penstock_pravega.segment.front import SegmentFront

BODIES = [bytes([number]) * size for number, size in enumerate((1, 300, 5000, 20))]


async def recorded(directory: Path) -> Said:
    """Two appends that are waited for, two that are not, a read, and a segment that is not there."""
    ours, theirs = trio.testing.memory_stream_pair()
    stream = RecordedStream(ours)
    client = Client(stream, Dialect.RELEASED)
    async with store_with_basin(directory) as back, trio.open_nursery() as nursery:
        nursery.start_soon(SegmentFront(back).serve, theirs)
        await client.greet()
        await client.create()
        writer = await client.writer()
        await client.append(writer, 2, *BODIES[:2])
        await client.append(writer, 4, *BODIES[2:])
        assert await client.content() == join_events(BODIES)
        await client.call(released.GetStreamSegmentInfo(5, "none/none/0.#epoch.0"))
        await stream.send_eof()
        nursery.cancel_scope.cancel()
    return stream.said


async def play(said: Said, directory: Path, loops: int = 1) -> tuple[ReplaySummary, bytes]:
    """Replay a conversation against a segment front, and return the summary and the segment's content."""

    async def again() -> AsyncGenerator:  # type: ignore[type-arg]
        for event in events(conversation("segment"), said):
            yield event

    async with store_with_basin(directory) as back, trio.open_nursery() as nursery:
        front = SegmentFront(back)

        async def dial(_host: str, _port: int) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            near, far = trio.testing.memory_stream_pair()
            nursery.start_soon(front.serve, far)
            return near

        target = parse_target("segment://127.0.0.1:12345")
        summary = await Replay(target, again, ReplaySettings(speed=math.inf, loops=loops), dial).run()
        near, far = trio.testing.memory_stream_pair()
        nursery.start_soon(front.serve, far)
        client = Client(near, Dialect.RELEASED)
        await client.greet()
        content = await client.content()
        nursery.cancel_scope.cancel()
    return summary, content


async def test_the_segment_holds_the_same_bytes(tmp_path: Path) -> None:
    said = await recorded(tmp_path / "one")
    summary, content = await play(said, tmp_path / "two")
    assert content == join_events(BODIES)
    assert summary.same, list(summary.lines())
    assert (summary.totals["appended"], summary.totals["delivered"]) == (len(BODIES), len(BODIES))


async def test_a_second_run_appends_again(tmp_path: Path) -> None:
    """Its writers are others: those of the first run have these events already."""
    said = await recorded(tmp_path / "one")
    _, content = await play(said, tmp_path / "two", loops=2)
    assert content == join_events(BODIES) * 2


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_however_it_was_cut(tmp_path: Path, size: int) -> None:
    said = await recorded(tmp_path / "one")
    cut = [(sender, data[at : at + size]) for sender, data in said for at in range(0, len(data), size)]
    summary, content = await play(cut, tmp_path / "two")
    assert content == join_events(BODIES) and summary.same


async def test_appends_that_are_not_acknowledged_are_told(tmp_path: Path) -> None:
    """The server is lost when it has read the last of them, and nothing more is said."""
    said = await recorded(tmp_path / "one")
    last = max(place for place, (sender, data) in enumerate(said) if sender is CLIENT and BODIES[2] in data)
    said = said[: last + 2]

    async def again() -> AsyncGenerator:  # type: ignore[type-arg]
        for event in events(conversation("segment"), said):
            yield event

    async with trio.open_nursery() as nursery:

        async def lose(stream: trio.abc.Stream) -> None:
            answers = iter([data for sender, data in said[:last] if sender is SERVER])
            heard = b""
            while BODIES[2] not in heard:
                heard += await stream.receive_some()
                await stream.send_all(next(answers, b""))
            await stream.aclose()

        async def dial(_host: str, _port: int) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            near, far = trio.testing.memory_stream_pair()
            nursery.start_soon(lose, far)
            return near

        target = parse_target("segment://127.0.0.1:12345")
        summary = await Replay(target, again, ReplaySettings(speed=math.inf, patience=0.5), dial).run()
    [report] = summary.conversations
    assert not summary.same
    assert "2 of 4 records did not come: the server closed the connection" in report.waits, list(summary.lines())
