"""A mirror keeps up with clients that do not pause, and a cut-over waits for the records there when it is requested."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from support.backs import DecodedBack
from support.bridges.mirror import PRIMARY, ROUTE, SECONDARY, Fragile, Two, append, running, settled
from support.store import BASIN, STREAM

from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import Back, Following, ReadSession, ReadSessionWrapper
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import Append, Operation
from penstock.model.records import RecordBatch, StreamRef
from penstock.routing.mirror.mirror import Mirror
from penstock.routing.mirror.settings import MirrorSettings
from penstock.routing.target import Target

Clock = trio.testing.MockClock
LOAD = 200
"""Of more records than a turn takes in batches of one."""


class Overtaken(Fragile):
    """Before each append of the mirror is carried out, a client appends to the primary: the stream is never level."""

    def __init__(self, back: EmbeddedBack, stream: StreamRef = STREAM) -> None:
        super().__init__(back)
        self.left = LOAD
        self.stream = stream
        self.client: Back | None = None
        self.under_way = trio.Event()

    async def perform(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, Append) and operation.stream == self.stream and self.left:
            assert self.client is not None
            self.left -= 1
            await append(self.client, b"more", stream=self.stream)
        if self.left < LOAD - 5:
            self.under_way.set()
        return await super().perform(operation)


async def test_a_stream_that_is_never_level_is_nearly_settled(two: Two) -> None:
    overtaken = two.secondary = Overtaken(two.secondary.back)
    mirror = two.mirror()
    overtaken.client = mirror.tap
    async with running(mirror):
        await append(mirror.tap, b"first")
        await overtaken.under_way.wait()
        before = LOAD - overtaken.left
        await mirror.settle(nearly=True)
        assert overtaken.left, "it was settled only when the client paused"
        assert mirror.status()["records_compared"] >= before
        await settled(mirror)
    ours, theirs = await two.both()
    assert theirs == ours and len(ours) == LOAD + 1


async def test_another_stream_is_waited_for_all_the_same(two: Two, clock: Clock) -> None:
    """One that is behind when it is asked, and cannot be copied for a while."""
    other = StreamRef(BASIN, "other")
    overtaken = two.secondary = Overtaken(two.secondary.back)
    mirror = two.mirror()
    overtaken.client = mirror.tap
    async with running(mirror):
        await append(mirror.tap, b"one", stream=other)
        await settled(mirror)
        overtaken.down = True
        await append(mirror.tap, b"two", stream=other)
        with trio.move_on_after(20) as time:
            await mirror.settle(nearly=True)
        assert time.cancelled_caught
        overtaken.down = False
        with trio.fail_after(100):
            await mirror.settle(nearly=True)
    assert (await two.state(other)).compared == 2


async def test_clients_do_not_wait_where_the_secondary_is_lost_while_nothing_is_appended(
    two: Two, clock: Clock
) -> None:
    """All is copied, and still followed: that is no reason to begin with a cut-over."""
    route, holder = two.route()
    await route.open()
    async with running(route):
        await append(holder.target.back, b"one")
        await trio.sleep(1)
        status = route.status()
        assert (status["records_compared"], status["streams_followed"]) == (1, 1)
        two.secondary.down = True
        done = await route.cut_over(wait_seconds=20)
        assert not done.swapped
        assert "connection refused" in done.reasons[0]
        assert done.held_ms < 1000


class Gated(Fragile):
    """Its first append waits; it counts them."""

    def __init__(self, back: EmbeddedBack) -> None:
        super().__init__(back)
        self.appends = 0
        self.first, self.go = trio.Event(), trio.Event()

    async def perform(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, Append):
            self.appends += 1
            self.first.set()
            await self.go.wait()
        return await super().perform(operation)


class SingleRead(ReadSessionWrapper):
    """A read of `Single`."""

    def __init__(self, inner: ReadSession, bad: int | None, waits: bool) -> None:
        super().__init__(inner)
        self._bad = bad
        self._waits = waits
        self._left: RecordBatch | None = None

    def behind(self) -> bool:
        return self._left is not None or self._inner.behind()

    async def next(self) -> RecordBatch | Following | None:
        if self._left is None:
            event = await self._inner.next()
            if not isinstance(event, RecordBatch):
                return event
            self._left = event
        batch = self._left
        if batch.first_seq_num == self._bad:
            if self._waits:
                await trio.sleep_forever()
            raise fail(FailureCode.STORAGE, f"record {self._bad} is damaged")
        self._left = batch.part(1, batch.count) if batch.count > 1 else None
        return batch.part(0, 1)


class Single(DecodedBack):
    """A primary that gives one record at a time, and fails at the one of number `bad`; or waits for it without end."""

    def __init__(self, back: Back, bad: int | None = None, waits: bool = False) -> None:
        super().__init__(back)
        self._bad = bad
        self._waits = waits

    @asynccontextmanager
    async def read_session(self, read: Any) -> AsyncIterator[SingleRead]:
        async with self._inner.read_session(read) as session:
            yield SingleRead(session, self._bad, self._waits)


def mirror_of(primary: Single, two: Two) -> Mirror:
    sides = (Target(PRIMARY, "embedded", primary), Target(SECONDARY, "embedded", two.secondary))
    return Mirror(ROUTE, *sides, two.states, MirrorSettings(), lambda _stream: True)


async def test_what_came_meanwhile_goes_into_one_append(two: Two) -> None:
    """Also where the primary gives it record by record."""
    gated = two.secondary = Gated(two.secondary.back)
    await append(two.primary, b"first")
    mirror = mirror_of(Single(two.primary), two)
    async with running(mirror):
        await gated.first.wait()
        for number in range(50):
            await append(mirror.tap, b"%d" % number)
        gated.go.set()
        await settled(mirror)
        assert gated.appends <= 3
    ours, theirs = await two.both()
    assert theirs == ours and len(ours) == 51


@pytest.mark.parametrize("waits", [False, True], ids=["fails", "is silent"])
async def test_what_was_read_before_the_primary_is_lost_is_copied(two: Two, clock: Clock, waits: bool) -> None:
    await append(two.primary, *(b"%d" % number for number in range(5)))
    mirror = mirror_of(Single(two.primary, 3, waits), two)
    async with running(mirror):
        await trio.sleep(60)
        assert mirror.status()["records_compared"] == 3
        assert mirror.status()["last_failure"] == ("" if waits else "record 3 is damaged")
    _, theirs = await two.both()
    assert [record.body for record in theirs] == [b"0", b"1", b"2"]
