"""Servers that are lost, and gateways that crash, in the middle of appends: each byte once, and none that was
acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress

import pytest
from support.records_only import RecordsOnly
from support.store import STREAM, Fails, acknowledged, appending, sending

from penstock.backends.byte_view import BytesOnRecords
from penstock.core.back import Back
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import (
    NO_ATTRIBUTE,
    AppendBytes,
    GetAttribute,
    GetByteStreamInfo,
    ReadBytes,
    WriterPosition,
)
from penstock.model.failures import FailureCode, OperationFailed

ONE, TWO = b"one-" * 4, b"two-" * 4
EVENTS = [b"%05d" % number for number in range(2500)]
"""Of three batches."""

Reopen = Callable[[], AbstractAsyncContextManager[BytesOnRecords]]


async def content(back: Back) -> bytes:
    length = (await back.perform(GetByteStreamInfo(STREAM))).length
    data = b""
    while len(data) < length:
        data += (await back.perform(ReadBytes(STREAM, len(data), 1 << 20))).data
    return data


async def position(back: Back, writer: bytes = bytes(16)) -> int:
    return await back.perform(GetAttribute(STREAM, writer))


class TestAnAcknowledgementIsLost:
    async def test_what_the_server_has_is_acknowledged(self, back: BytesOnRecords, records: RecordsOnly) -> None:
        await back.perform(sending(b"a", position=1))
        records.after = 0
        assert (await back.perform(sending(b"b", position=2))).offset == 18
        assert await position(back) == 2
        with Fails(FailureCode.STALE_WRITER_POSITION):
            await back.perform(sending(b"b", position=2))
        assert await content(back) == join_events([b"a", b"b"])

    async def test_what_it_does_not_have_may_be_sent_again(self, back: BytesOnRecords, records: RecordsOnly) -> None:
        await back.perform(sending(b"a", position=1))
        records.before = 0
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(sending(b"b", position=2))
        assert await position(back) == 1
        assert (await back.perform(sending(b"b", position=2))).offset == 18

    async def test_of_several_the_first_ones(self, back: BytesOnRecords, records: RecordsOnly) -> None:
        records.after = 1
        async with back.append_session(STREAM, create_if_missing=False) as session:
            for number in range(1, 9):
                await session.send(sending(b"%d" % number, position=number))
            session.close()
            done = []
            with suppress(OperationFailed):
                while acknowledgements := await session.receive():
                    done += acknowledgements
        reached = await position(back)
        assert 2 <= len(done) == reached <= 8
        for number in range(reached + 1, 9):
            await back.perform(sending(b"%d" % number, position=number))
        assert await content(back) == join_events([b"%d" % number for number in range(1, 9)])

    async def test_beside_what_others_append(self, back: BytesOnRecords, records: RecordsOnly, server: Back) -> None:
        await back.perform(sending(b"a", position=1))
        await server.perform(appending(b"x", b"yy"))
        records.after = 0
        assert (await back.perform(sending(b"b", b"cc", position=2))).offset == 9 + 19 + 19
        await server.perform(appending(b"z"))
        assert (await back.perform(sending(b"d", position=3))).offset == 9 + 19 + 19 + 18

    async def test_no_server_can_be_asked(self, back: BytesOnRecords, records: RecordsOnly) -> None:
        """Then it stays open whether it was applied, and nothing is taken before that is known."""
        await back.perform(sending(b"a", position=1))
        records.after = 0
        records.dies = True
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(sending(b"b", position=2))
        for _ in range(2):
            with Fails(FailureCode.HOT_SERVER):
                await position(back)
            with Fails(FailureCode.HOT_SERVER):
                await back.perform(sending(b"b", position=2))
        records.lost = False
        with Fails(FailureCode.STALE_WRITER_POSITION):
            await back.perform(sending(b"b", position=2))
        assert await position(back) == 2
        assert await content(back) == join_events([b"a", b"b"])


class TestAPartOfALargeAppend:
    @pytest.mark.parametrize("batches", [0, 1, 2])
    async def test_the_rest_of_it_is_sent(self, back: BytesOnRecords, records: RecordsOnly, batches: int) -> None:
        records.before = batches
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(sending(*EVENTS, position=5))
        assert await position(back) == NO_ATTRIBUTE
        records.sent.clear()
        assert (await back.perform(sending(*EVENTS, position=5))).offset == 2500 * 13
        assert sum(len(append.bodies) for append in records.sent) == 2500 - 1000 * batches
        assert await content(back) == join_events(EVENTS)

    async def test_sent_again_in_other_pieces(self, back: BytesOnRecords, records: RecordsOnly) -> None:
        records.before = 2
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(sending(*EVENTS, position=2500))
        at = 0
        for size in (300, 900, 1300):
            at += size
            appended = await back.perform(sending(*EVENTS[at - size : at], position=at))
            assert appended.offset == max(at, 0) * 13
        assert await content(back) == join_events(EVENTS)

    async def test_something_else_is_sent_instead(self, back: BytesOnRecords, records: RecordsOnly) -> None:
        records.before = 1
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(sending(*EVENTS, position=5))
        await back.perform(sending(b"other", position=1))
        await back.perform(sending(b"more", position=2))
        assert await content(back) == join_events([*EVENTS[:1000], b"other", b"more"])


class TestTheGatewayCrashes:
    @pytest.mark.parametrize("has_it", [True, False])
    async def test_between_intent_and_acknowledgement(
        self, gateway: Reopen, records: RecordsOnly, has_it: bool
    ) -> None:
        async with gateway() as back:
            await back.perform(sending(b"a", position=1))
            await self.crash(back, records, sending(b"b", position=2), has_it)
        async with gateway() as back:
            assert await position(back) == (2 if has_it else 1)
            if not has_it:
                await back.perform(sending(b"b", position=2))
            assert (await back.perform(sending(b"c", position=3))).offset == 27
            assert await content(back) == join_events([b"a", b"b", b"c"])

    async def test_in_the_middle_of_a_large_append(self, gateway: Reopen, records: RecordsOnly) -> None:
        async with gateway() as back:
            records.before = 2
            await self.crash(back, records, sending(*EVENTS, position=7), None)
        records.sent.clear()
        for again in (True, False):
            async with gateway() as back:
                assert await position(back) == NO_ATTRIBUTE
                if not again:
                    await back.perform(sending(*EVENTS, position=7))
                    assert await content(back) == join_events(EVENTS)
        assert sum(len(append.bodies) for append in records.sent) == 500

    async def test_again_and_again(self, gateway: Reopen, records: RecordsOnly) -> None:
        sent = []
        for number in range(12):
            async with gateway() as back:
                reached = max(await position(back), 0)
                assert reached in (number, number - 1) or number == 0
                if reached < number:
                    await back.perform(sending(b"%d" % number, position=number))
                sent.append(b"%d" % (number + 1))
                await self.crash(back, records, sending(sent[-1], position=number + 1), number % 3 > 0)
        async with gateway() as back:
            if await position(back) < 12:
                await back.perform(sending(sent[-1], position=12))
            assert await content(back) == join_events(sent)

    async def test_positions_survive_without_one(self, gateway: Reopen) -> None:
        async with gateway() as back, back.append_session(STREAM, create_if_missing=False) as session:
            for number in range(1, 50):
                await session.send(sending(b"x", writer=(ONE, TWO)[number % 2], position=number))
            await acknowledged(session, 49)
        async with gateway() as back:
            assert [await position(back, ONE), await position(back, TWO)] == [48, 49]
            with Fails(FailureCode.STALE_WRITER_POSITION):
                await back.perform(AppendBytes(STREAM, b"x", WriterPosition(ONE, 50, after=47)))
            await back.perform(AppendBytes(STREAM, b"x", WriterPosition(ONE, 50, after=48)))

    async def crash(self, back: BytesOnRecords, records: RecordsOnly, append: AppendBytes, has_it: bool | None) -> None:
        """The append is sent, the server has it or not, and nothing is heard of it nor written of it."""
        if has_it is not None:
            records.after, records.before = (0, None) if has_it else (None, 0)
        records.dies = True
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(append)
        records.dies = records.lost = False


class TestWhatComesLate:
    """The server was still reading what a gateway had sent when the next one asked where the writer is."""

    @pytest.mark.parametrize("applied", [0, 1, 2, 3])
    async def test_it_is_not_sent_again(self, gateway: Reopen, records: RecordsOnly, applied: int) -> None:
        crashed = TestTheGatewayCrashes()
        async with gateway() as back:
            await back.perform(sending(b"before", position=1))
            await crashed.crash(back, records, sending(*EVENTS, position=7), has_it=False)
        async with gateway() as back:
            assert await position(back) == 1
            late = [EVENTS[at : at + 1000] for at in range(0, 2500, 1000)]
            records.before_sending = [appending(*some) for some in reversed(late[:applied])]
            await back.perform(sending(*EVENTS[:1700], position=5))
            await back.perform(sending(*EVENTS[1700:], position=7))
            await back.perform(sending(b"after", position=8))
            assert not records.before_sending
            assert await content(back) == join_events([b"before", *EVENTS, b"after"])
