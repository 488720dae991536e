"""Connections that break anywhere: appended events are there exactly once and in order."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clocks import threads_hold
from support.segment.back import STREAM, Wires, append_of, opened
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.core.delivery import Delivery
from penstock.core.marks import START, Mark
from penstock.core.native import NativeAck, NativeAppendSession
from penstock.model.byte_operations import AppendBytes, WriterPosition
from penstock.model.failures import FailureCode, OperationFailed
from penstock_pravega.codec import Dialect, join_events
from penstock_pravega.segment.back import SegmentBack
from penstock_pravega.segment.back.stores import SegmentStores
from penstock_pravega.segment.front import SegmentFront

CUTS = st.lists(st.tuples(st.sampled_from(["out", "in"]), st.integers(0, 600)), max_size=6)
BATCHES = st.lists(st.lists(st.binary(max_size=100).map(lambda body: b"x" + body), min_size=1, max_size=4), max_size=8)


async def receive_all(session: NativeAppendSession) -> list[NativeAck]:
    acks: list[NativeAck] = []
    while some := await session.receive():
        acks += some
    return acks


@asynccontextmanager
async def over_a_new_store(**more: Any) -> AsyncIterator[tuple[SegmentBack, Wires]]:
    """For each example one of its own."""
    with tempfile.TemporaryDirectory() as directory:
        async with (
            open_embedded(EmbeddedSettings(directory=Path(directory))) as store,
            opened(SegmentFront(store), recover_seconds=1000, **more) as (back, wires),
        ):
            await back.native.create(STREAM)
            yield back, wires


def run(main: Callable[[], Awaitable[None]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        trio.run(main, clock=threads_hold(MockClock(), patch))


async def append_all(back: SegmentBack, batches: list[list[bytes]]) -> list[NativeAck]:
    async with back.native.append_session(STREAM) as session:
        for batch in batches:
            await session.send(append_of(*batch))
        session.close()
        return await receive_all(session)


async def scan_all(back: SegmentBack, offset: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while True:
        scanned = await back.native.scan(STREAM, Mark(0, 0, 0, offset), max_records=3, max_bytes=200, wait=0)
        if not scanned.bodies:
            return found
        found += scanned.bodies
        assert scanned.offsets is not None
        offset = scanned.offsets[-1]


@pytest.mark.parametrize("dialect", list(Dialect))
@settings(max_examples=12, deadline=None)
@given(CUTS, BATCHES)
def test_cut_anywhere(dialect: Dialect, cuts: list[tuple[str, int]], batches: list[list[bytes]]) -> None:
    async def main() -> None:
        async with over_a_new_store(dialect=dialect) as (back, wires):
            wires.cuts = list(cuts)
            acks = await append_all(back, batches)
            assert [ack.count for ack in acks] == [len(batch) for batch in batches]
            ends = list(accumulate(len(join_events(batch)) for batch in batches))
            known = [(ack.end_offset, end) for ack, end in zip(acks, ends, strict=True)]
            assert all(said in (None, end) for said, end in known)
            wires.cuts.clear()
            assert await scan_all(back) == [body for batch in batches for body in batch]

    run(main)


@settings(max_examples=8, deadline=None)
@given(CUTS, st.lists(st.binary(max_size=50), min_size=1, max_size=6))
def test_conditions_hold_however_often_they_are_asked(cuts: list[tuple[str, int]], bodies: list[bytes]) -> None:
    """A conditional append whose acknowledgement got lost is not refused for having been applied."""
    bodies = [b"x" + body for body in bodies]

    async def main() -> None:
        async with over_a_new_store() as (back, wires):
            wires.cuts = list(cuts)
            end = 0
            for body in bodies:
                ack = await back.native.append_at(STREAM, append_of(body), Mark(0, 0, 0, end))
                end += 8 + len(body)
                assert ack.end_offset == end
            wires.cuts.clear()
            assert await scan_all(back) == bodies

    run(main)


@settings(max_examples=20, deadline=None)
@given(CUTS, st.lists(st.booleans(), min_size=2, max_size=8))
def test_failed_conditions_among_appends_in_flight(cuts: list[tuple[str, int]], holds: list[bool]) -> None:
    """An append whose condition fails is refused, also if later ones of the same writer are stored."""
    bodies = [b"%d" % number for number in range(len(holds))]
    answers: dict[bytes, FailureCode | None] = {}

    async def main() -> None:
        async with over_a_new_store() as (back, wires):
            await append_all(back, [[b"first"]])
            wires.cuts = list(cuts)

            async def append(body: bytes, fails: bool) -> None:
                answers[body] = None
                try:
                    if fails:
                        await back.native.append_at(STREAM, append_of(body), START)
                    else:
                        await append_all(back, [[body]])
                except OperationFailed as error:
                    answers[body] = error.failure.code

            async with trio.open_nursery() as nursery:
                for body, fine in zip(bodies, holds, strict=True):
                    nursery.start_soon(append, body, not fine)
            wires.cuts.clear()
            stored = [body for body, fine in zip(bodies, holds, strict=True) if fine]
            assert sorted(await scan_all(back)) == sorted([b"first", *stored])

    run(main)
    expected = {body: None if fine else FailureCode.OFFSET_MISMATCH for body, fine in zip(bodies, holds, strict=True)}
    assert answers == expected


async def test_a_store_that_is_not_there(front: SegmentFront, clock: MockClock) -> None:
    async with opened(front, recover_seconds=2) as (back, wires):
        await back.native.create(STREAM)
        async with back.native.append_session(STREAM) as session:
            serve = wires.listeners.popitem()
            await wires.cut_all()
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(OperationFailed) as caught:
                await back.native.bounds(STREAM)
            assert caught.value.failure.code is FailureCode.HOT_SERVER
            assert "back store at 127.0.0.1:6000" in caught.value.failure.message
            await session.send(append_of(b"one"))
            with pytest.raises(OperationFailed) as caught:
                await session.receive()
            assert caught.value.failure.code is FailureCode.HOT_SERVER
            await session.send(append_of(b"never"))
            wires.listeners.update([serve])
        await trio.sleep(5)
        assert [ack.end_offset for ack in await append_all(back, [[b"two"]])] == [11]
        assert await scan_all(back) == [b"two"]


class _Late(trio.abc.HalfCloseableStream):
    """A server's end of a connection, on which some bodies arrive late."""

    def __init__(self, stream: Any, late: dict[bytes, trio.Event]) -> None:
        self._stream = stream
        self._late = late

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data: bytes = await self._stream.receive_some(max_bytes)
        for body, arrives in self._late.items():
            if body in data:
                await arrives.wait()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


@pytest.mark.parametrize("waiting", [b"short", b"longer than the one before"])
@pytest.mark.parametrize("dialect", list(Dialect))
async def test_an_append_that_was_given_up_comes_late(
    front: SegmentFront, clock: MockClock, dialect: Dialect, waiting: bytes
) -> None:
    """Its number says nothing of the append that waited behind it: that one is stored too."""
    late = {b"given up": trio.Event(), waiting: trio.Event()}

    async def serve(stream: Any) -> None:
        await front.serve(_Late(stream, late))

    async with opened(serve, dialect=dialect, recover_seconds=0.1, append_inflight_bytes=1) as (back, wires):
        await back.native.create(STREAM)
        async with trio.open_nursery() as nursery, back.native.append_session(STREAM) as session:
            await session.send(append_of(b"given up"))
            nursery.start_soon(append_all, back, [[waiting]])
            await trio.testing.wait_all_tasks_blocked()
            listens = wires.listeners.popitem()
            await wires.cut_all()
            with pytest.raises(OperationFailed) as caught:
                await session.receive()
            assert caught.value.failure.code is FailureCode.UNAVAILABLE
            wires.listeners.update([listens])
            await trio.sleep(1)
            late[b"given up"].set()
            await trio.sleep(1)
            assert await scan_all(back) == [b"given up"]
            late[waiting].set()
        assert await scan_all(back) == [b"given up", waiting]


async def test_a_connection_lost_while_the_writer_is_set_up(
    front: SegmentFront, clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer asks for its number again: numbers that began anew would be those of stored appends."""
    async with opened(front, dialect=Dialect.DRAFT) as (back, wires):
        await back.native.create(STREAM)
        length = SegmentStores.length

        async def cut_then_length(stores: SegmentStores, segment: str) -> int:
            monkeypatch.setattr(SegmentStores, "length", length)
            await wires.cut_all()
            await trio.testing.wait_all_tasks_blocked()
            return await length(stores, segment)

        async with back.native.append_session(STREAM) as session:
            await session.send(append_of(b"one", b"two"))
            await session.receive()
            monkeypatch.setattr(SegmentStores, "length", cut_then_length)
            await session.send(append_of(b"three"))
            await session.receive()
        assert await scan_all(back) == [b"one", b"two", b"three"]


async def test_what_may_have_been_stored_is_not_sent_again_where_that_is_wanted(
    front: SegmentFront, clock: MockClock
) -> None:
    async with opened(front, delivery=Delivery.REFUSE) as (back, wires):
        await back.native.create(STREAM)
        async with back.native.append_session(STREAM) as session:
            wires.cuts = [("in", 10)]
            await session.send(append_of(b"one"))
            with pytest.raises(OperationFailed) as caught:
                await session.receive()
        assert caught.value.failure.code is FailureCode.UNAVAILABLE
        assert await scan_all(back) == [b"one"]


async def test_a_store_that_says_nothing_any_more(front: SegmentFront, clock: MockClock) -> None:
    """The connection stands, and no acknowledgement comes: another one tells."""
    async with opened(front, recover_seconds=300) as (back, wires):
        await back.native.create(STREAM)
        await append_all(back, [[b"one"]])
        async with back.native.append_session(STREAM) as session:
            wires.muted.update(wires.open)
            await session.send(append_of(b"two"))
            session.close()
            assert [ack.end_offset for ack in await receive_all(session)] == [22]
        assert await scan_all(back) == [b"one", b"two"]


async def test_reads_that_wait_outlive_their_connection(front: SegmentFront, clock: MockClock) -> None:
    async with opened(front) as (back, wires):
        await back.native.create(STREAM)
        async with trio.open_nursery() as nursery:

            async def follow() -> None:
                scanned = await back.native.scan(STREAM, START, max_records=10, max_bytes=1000, wait=1000)
                assert scanned.bodies == [b"one"]

            nursery.start_soon(follow)
            await trio.sleep(100)
            await wires.cut_all()
            await trio.sleep(100)
            await append_all(back, [[b"one"]])


async def test_a_silent_server_is_found_out(front: SegmentFront, clock: MockClock) -> None:
    """A read may wait for as long as it likes, but the server has to show signs of life."""
    async with opened(front, recover_seconds=300) as (back, wires):
        await back.native.create(STREAM)
        async with trio.open_nursery() as nursery:
            found = []

            async def follow() -> None:
                scanned = await back.native.scan(STREAM, START, max_records=10, max_bytes=1000, wait=1000)
                found.extend(scanned.bodies)

            nursery.start_soon(follow)
            await trio.sleep(5)
            wires.muted.update(wires.open)
            await append_all(back, [[b"one"]])
            await trio.sleep(400)
            assert found == [b"one"]


WRITER = bytes(range(16))


@settings(max_examples=8, deadline=None)
@given(CUTS, st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=6))
def test_a_clients_own_writer(cuts: list[tuple[str, int]], pieces: list[bytes]) -> None:
    """Bytes in the name of a client's writer, each standing on the one before."""

    async def main() -> None:
        async with over_a_new_store() as (back, wires):
            wires.cuts = list(cuts)
            async with back.direct.append_session(STREAM) as session:
                before: int | None = None
                for number, piece in enumerate(pieces):
                    position = WriterPosition(WRITER, 10 * number, before)
                    await session.send(AppendBytes(STREAM, piece, position))
                    before = 10 * number
                session.close()
                acks = []
                while some := await session.receive():
                    acks += some
            ends = list(accumulate(map(len, pieces)))
            assert all(ack.offset in (None, end) for ack, end in zip(acks, ends, strict=True))
            with pytest.raises(OperationFailed) as caught:
                await back.direct.perform(AppendBytes(STREAM, b"late", WriterPosition(WRITER, before or 0)))
            assert caught.value.failure.code is FailureCode.STALE_WRITER_POSITION
            wires.cuts.clear()
            segment = "scope-of-streams/stream/0.#epoch.0"
            reader = back.native._reader
            assert (await reader.read(segment, 0, 1000, 0)).data == b"".join(pieces)

    run(main)
