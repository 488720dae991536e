"""Reads of bytes that wait at the tail, and what ends the wait (segment fact sheet, 1.5)."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from support.store import BASIN, STREAM, Fails, Wall, appending, command, fence
from support.store.byte_reads import events, nothing, read

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import BytesRead, GetByteStreamInfo, Seal
from penstock.model.failures import FailureCode
from penstock.model.operations import CreateBasin, CreateStream, DeleteBasin, DeleteStream
from penstock.model.records import StreamRef


class TestWait:
    """At the tail, by a clock that jumps as soon as everybody waits."""

    async def _waiting(self, back: EmbeddedBack, offset: int, happens: object, wait: float = 20) -> BytesRead | None:
        """Perform an operation while a read waits, and return the read's result (None if it still waits)."""
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
            offset = (await back.perform(GetByteStreamInfo(STREAM))).length
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
