"""Watermarks: times that writers note, and the entries of the stream that readers get them from."""

from __future__ import annotations

import struct

import pytest
from support.controller import SCOPE, RefusedWith, content, event, segments, write
from support.store import Wall

from penstock.backends.embedded import EmbeddedBack
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock_pravega.codec import split_events
from penstock_pravega.controller.controller import watermarks as module
from penstock_pravega.controller.controller.catalog import watermarks_in, writers_of
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.controller.records import TransactionState
from penstock_pravega.controller.controller.topology import KeyRange, Segment
from penstock_pravega.controller.controller.watermarks import _compact, _spell

HALVES = [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)]
S1, S2 = (1 << 32) + 1, (1 << 32) + 2
GOLDEN = bytes.fromhex(
    "0000010000000061"
    "00000000000003e800000000000007d002"
    "000001000000001800000000000000053fe00000000000003ff00000000000000000000000000007"
    "000001000000001800000001000000020000000000000000"
    "3fe0000000000000000000000000012c"
)
"""As Pravega's class Watermark 0.13.0 encodes it."""


def test_the_format_is_pravegas() -> None:
    cut = [(Segment(5, 0, 0.5, 1.0), 7), (Segment(2, 1, 0.0, 0.5), 300)]
    assert _spell(1000, 2000, cut) == GOLDEN
    assert [_compact(count).hex() for count in (0, 127, 128, 16383, 16384)] == ["00", "7f", "8080", "bfff", "c0004000"]


async def watermarks(back: EmbeddedBack) -> list[tuple[int, int, dict[int, int]]]:
    """Lower and upper time, and offsets by segments' ids, of all watermarks of the stream."""
    found = []
    for body in split_events(await content(back, SCOPE, "_MARKstream")):
        lower, upper = struct.unpack_from(">qq", body, 8)
        entries = [body[25 + 40 * index :][:40] for index in range(body[24])]
        found.append(
            (lower, upper, {struct.unpack_from(">q", one, 8)[0]: struct.unpack(">q", one[32:])[0] for one in entries})
        )
    return found


async def note(controller: Controller, writer: str, time: int, cut: dict[int, int]) -> None:
    await controller.times.note(SCOPE, "stream", writer, time, cut)


@pytest.fixture
async def noting(controller: Controller) -> Controller:
    await controller.streams.create(SCOPE, "stream", segments(1))
    await controller.queries.current(SCOPE, "_MARKstream")
    return controller


async def test_the_lowest_time_and_the_highest_position(back: EmbeddedBack, noting: Controller) -> None:
    await note(noting, "a", 5, {0: 100})
    await note(noting, "b", 9, {0: 70})
    await noting.times.enforce()
    await noting.times.enforce()
    assert await watermarks(back) == [(5, 9, {0: 100})]
    await note(noting, "a", 12, {0: 110})
    await noting.times.enforce()
    assert await watermarks(back) == [(5, 9, {0: 100}), (9, 12, {0: 110})]


async def test_a_writer_that_stands_still_is_waited_for_and_then_forgotten(
    back: EmbeddedBack, noting: Controller
) -> None:
    for time in (1, 2, 3):
        await note(noting, "silent", time, {0: 0})
        await note(noting, "busy", time, {0: time})
        await noting.times.enforce()
    await note(noting, "busy", 4, {0: 4})
    await noting.times.enforce()
    assert len(await watermarks(back)) == 3
    for _ in range(3):
        await noting.times.enforce()
    assert (await watermarks(back))[3:] == [(4, 4, {0: 4})]
    names = [name async for name, _ in noting.times._table.each(writers_of(SCOPE, "stream"))]
    assert "silent" not in names


async def test_the_aggregation_timeout_waits_for_longer(back: EmbeddedBack, controller: Controller, wall: Wall) -> None:
    await controller.streams.create(SCOPE, "stream", segments(1, timestamp_aggregation_timeout=60_000))
    for time in (1, 2, 3):
        await note(controller, "slow", time, {0: 0})
        await note(controller, "busy", time, {0: time})
        await controller.times.enforce()
    await note(controller, "busy", 4, {0: 4})
    for _ in range(9):
        await controller.times.enforce()
    assert len(await watermarks(back)) == 3
    wall.now += 60_001
    await note(controller, "busy", 5, {0: 5})
    for _ in range(3):
        await controller.times.enforce()
    assert (await watermarks(back))[3:] == [(5, 5, {0: 5})]


async def test_a_writer_that_has_ended_is_not_waited_for(back: EmbeddedBack, noting: Controller) -> None:
    await note(noting, "a", 5, {0: 10})
    await note(noting, "b", 5, {0: 10})
    await noting.times.enforce()
    await noting.times.remove(SCOPE, "stream", "b")
    await note(noting, "a", 6, {0: 20})
    await noting.times.enforce()
    assert (await watermarks(back))[1:] == [(6, 6, {0: 20})]
    with RefusedWith(ControllerProblem.WRITER_NOT_FOUND):
        await noting.times.remove(SCOPE, "stream", "b")


async def test_positions_across_a_split(back: EmbeddedBack, noting: Controller) -> None:
    """Keys that no writer has a position of come from the beginning of the segments that have them."""
    await note(noting, "a", 5, {0: 10})
    await noting.times.enforce()
    await noting.scaling.scale(SCOPE, "stream", [0], HALVES)
    await note(noting, "a", 6, {S1: 3, 0: 10})
    await noting.times.enforce()
    assert (await watermarks(back))[1:] == [(6, 6, {S1: 3, S2: 0})]


async def test_times_and_positions_do_not_go_back(noting: Controller) -> None:
    await note(noting, "a", 5, {0: 10})
    await note(noting, "a", 5, {0: 10})
    with RefusedWith(ControllerProblem.INVALID_TIME):
        await note(noting, "a", 4, {0: 20})
    for cut in ({0: 9}, {1: 0}, {}):
        with RefusedWith(ControllerProblem.INVALID_CUT):
            await note(noting, "a", 6, cut)
    with RefusedWith(ControllerProblem.STREAM_NOT_FOUND):
        await noting.times.note(SCOPE, "missing", "a", 5, {0: 0})


async def test_commits_note_times(back: EmbeddedBack, noting: Controller) -> None:
    """Each has its events before the cut. A time before the writer's last one, as any that cannot be noted, fails no
    commit, and without a time there is nothing to note."""
    ends = []
    for number, time in enumerate((5, None, 4, 9)):
        transaction, _ = await noting.transactions.create(SCOPE, "stream", 30_000)
        await write(back, SCOPE, "stream", event(b"event"), 0, f"#transaction.{transaction}")
        await noting.transactions.commit(SCOPE, "stream", transaction, "flink", time)
        assert await noting.transactions.state(SCOPE, "stream", transaction) is TransactionState.COMMITTED
        ends.append((number + 1) * len(event(b"event")))
        await noting.times.enforce()
    assert await watermarks(back) == [(5, 5, {0: ends[0]}), (9, 9, {0: ends[3]})]


async def test_a_commit_that_is_resumed_notes_its_time(
    back: EmbeddedBack, noting: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction, _ = await noting.transactions.create(SCOPE, "stream", 30_000)
    await write(back, SCOPE, "stream", event(b"event"), 0, f"#transaction.{transaction}")
    with monkeypatch.context() as patch:
        patch.setattr(noting.times, "note", lambda *_: fail_at_once())
        with pytest.raises(OperationFailed):
            await noting.transactions.commit(SCOPE, "stream", transaction, "flink", 7)
    await noting.transactions.sweep()
    await noting.times.enforce()
    assert await watermarks(back) == [(7, 7, {0: len(event(b"event"))})]


async def fail_at_once() -> None:
    raise fail(FailureCode.UNAVAILABLE, "the process ends here")


async def test_writers_are_bounded(noting: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WRITERS", 2)
    for writer in ("a", "b", "a"):
        await note(noting, writer, 5, {0: 10})
    with RefusedWith(ControllerProblem.TOO_MANY_WRITERS):
        await note(noting, "c", 5, {0: 10})


async def test_a_deleted_stream_leaves_nothing(back: EmbeddedBack, noting: Controller) -> None:
    await note(noting, "a", 5, {0: 10})
    await noting.times.enforce()
    await noting.streams.seal(SCOPE, "stream")
    await noting.streams.delete(SCOPE, "stream")
    assert await noting.times._table.page(writers_of(SCOPE, "stream")) == ([], False)
    assert await noting.times._table.get(watermarks_in(SCOPE).key("stream")) is None
    await noting.times.enforce()
