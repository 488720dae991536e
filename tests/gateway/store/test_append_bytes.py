"""Bytes that segment clients append: their records, deduplication, and replies (segment fact sheet, 1.4)."""

import pytest
import trio
from msgspec.structs import replace
from support.store import (
    BASIN,
    NOW,
    STREAM,
    Blocked,
    Fails,
    FullDisk,
    Wall,
    acknowledged,
    appending,
    bodies,
    records,
    sending,
    stored_bytes,
)

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Following
from penstock.model.byte_events import join_events
from penstock.model.byte_layout import Layout
from penstock.model.byte_operations import NO_ATTRIBUTE, AppendBytes, GetAttribute, WriterPosition
from penstock.model.envelope import wrap
from penstock.model.failures import FailureCode
from penstock.model.operations import (
    Appended,
    CheckTail,
    CreateBasin,
    CreateStream,
    DeleteStream,
    FromSeqNum,
    Read,
    ReconfigureStream,
)
from penstock.model.records import Header, RecordId, StreamPosition, StreamRef
from penstock.model.streams import BasinConfig, StreamConfigPatch, TimestampingMode

ONE, TWO = b"one-" * 4, b"two-" * 4
MANY = [b"%05d" % number for number in range(2500)]
"""Events of several batches."""


async def position(back: EmbeddedBack, writer: bytes = bytes(16), stream: StreamRef = STREAM) -> int:
    """A writer's last position."""
    return await back.perform(GetAttribute(stream, writer))


class TestWhatBytesBecome:
    async def test_each_event_is_a_record(self, back: EmbeddedBack) -> None:
        await back.perform(appending(b"first"))
        appended = await back.perform(sending(b"ab", b"", b"c"))
        at = StreamPosition(4, NOW)
        assert appended == Appended(StreamPosition(1, NOW), at, at, RecordId(NOW, 3), offset=13 + 10 + 8 + 9)
        assert await bodies(back, FromSeqNum(0)) == [b"first", b"ab", b"", b"c"]
        assert stored_bytes(back) == join_events([b"first", b"ab", b"", b"c"])

    async def test_what_is_no_events_is_kept_as_it_is(self, back: EmbeddedBack) -> None:
        raw = join_events([b"whole"]) + b"\0\0\0"
        appended = await back.perform(AppendBytes(STREAM, raw))
        assert appended.offset == len(raw)
        assert await bodies(back, FromSeqNum(0)) == [raw]
        assert stored_bytes(back) == raw

    async def test_a_command_in_an_envelope_is_carried_out(self, settings: EmbeddedSettings, wall: Wall) -> None:
        """As one that S2 clients append, or S3P clients in an envelope: it stands among the records, so it counts."""
        fence, trim = (Header(b"", b"fence"),), (Header(b"", b"trim"),)
        data = join_events([b"a", b"b", wrap(fence, b"token"), wrap(trim, (1).to_bytes(8, "big")), b"c"])
        async with open_embedded(replace(settings, envelopes=Layout.ENVELOPE_COMMANDS), wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
            await back.perform(AppendBytes(STREAM, data))
        async with open_embedded(settings, wall) as back:
            assert [record.headers for record in await records(back, FromSeqNum(0))] == [(), fence, trim, ()]
            with Fails(FailureCode.FENCING_TOKEN_MISMATCH):
                await back.perform(appending(b"x", token="other"))
            await back.perform(appending(b"x", token="token"))

    async def test_a_large_append_is_several_batches_and_one_append(self, back: EmbeddedBack) -> None:
        seen: list[bytes] = []
        async with back.read_session(Read(STREAM, FromSeqNum(0), wait=None)) as session:
            assert isinstance(await session.next(), Following)
            appended = await back.perform(sending(*MANY))
            while len(seen) < len(MANY):
                batch = await session.next()
                assert batch is not None and not isinstance(batch, Following)
                assert (batch.first_seq_num, batch.tail) == (len(seen), appended.tail)
                seen += [record.body for record in batch.records()]
        assert seen == MANY == await bodies(back, FromSeqNum(0))
        assert (appended.start.seq_num, appended.end.seq_num) == (0, len(MANY))
        assert appended.offset == len(MANY) * 13
        assert stored_bytes(back) == join_events(MANY)

    async def test_all_of_a_large_append_or_nothing(self, back: EmbeddedBack) -> None:
        with FullDisk(back), Fails(FailureCode.STORAGE):
            await back.perform(sending(*[b"x" * 900] * 2500))
        assert await back.perform(CheckTail(STREAM)) == (0, 0)
        assert stored_bytes(back) == b""
        assert (await back.perform(sending(b"x", offset=0))).offset == 9

    async def test_envelopes_are_taken_apart_where_the_store_makes_them(
        self, settings: EmbeddedSettings, wall: Wall
    ) -> None:
        settings = EmbeddedSettings(directory=settings.directory, envelopes=Layout.ENVELOPE_HEADERS)
        headers = {0: (Header(b"name", b"value"),)}
        async with open_embedded(settings, wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
            appended = await back.perform(appending(b"x", headers=headers))
            data = stored_bytes(back)
            assert appended.offset == len(data) > 9 + len("namevalue")
            assert (await back.perform(AppendBytes(STREAM, data))).offset == 2 * len(data)
            assert stored_bytes(back) == 2 * data
            assert [record.headers for record in await records(back, FromSeqNum(0))] == [headers[0]] * 2

    @pytest.mark.parametrize("mode", TimestampingMode)
    async def test_time_is_that_of_arrival_and_never_falls(
        self, back: EmbeddedBack, wall: Wall, mode: TimestampingMode
    ) -> None:
        await back.perform(ReconfigureStream(STREAM, StreamConfigPatch(timestamping_mode=mode)))
        times = []
        for step in (5, -10, 20):
            wall.now += step
            times.append((await back.perform(sending(b"x", b"y"))).end.timestamp)
        assert times == [NOW + 5, NOW + 5, NOW + 15]


class TestRefused:
    async def test_streams_are_never_made_by_it(self, back: EmbeddedBack) -> None:
        await back.perform(CreateBasin("makes-streams", BasinConfig(create_stream_on_append=True)))
        for stream in (StreamRef("makes-streams", "s"), StreamRef("no-basin", "s"), StreamRef(BASIN, "other")):
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await back.perform(sending(b"x", stream=stream))

    async def test_nothing_cannot_be_appended(self, back: EmbeddedBack) -> None:
        with Fails(FailureCode.INVALID, "at least one"):
            await back.perform(AppendBytes(STREAM, b"", WriterPosition(ONE, 1)))
        assert await position(back, ONE) == NO_ATTRIBUTE

    async def test_an_offset_that_is_not_the_length(self, back: EmbeddedBack) -> None:
        await back.perform(sending(b"x", offset=0, position=1))
        for wrong in (0, 8, 10):
            with Fails(FailureCode.OFFSET_MISMATCH) as fails:
                await back.perform(sending(b"y", offset=wrong, position=2))
            assert fails.failure.details == {"offset": 9}
        assert await position(back) == 1
        assert (await back.perform(sending(b"y", offset=9, position=2))).offset == 18

    async def test_a_number_of_more_than_64_bits(self, back: EmbeddedBack) -> None:
        with Fails(FailureCode.INVALID, "64 bits"):
            await back.perform(sending(b"y", position=2**63))
        assert await back.perform(CheckTail(STREAM)) == (0, 0)
        assert (await back.perform(sending(b"y", position=2**63 - 1))).offset == 9


class TestOnceEach:
    async def test_a_position_only_rises(self, back: EmbeddedBack) -> None:
        await back.perform(sending(b"a", position=3))
        for stale in (3, 2, -7, NO_ATTRIBUTE):
            with Fails(FailureCode.STALE_WRITER_POSITION) as fails:
                await back.perform(sending(b"again", position=stale))
            assert fails.failure.details == {"position": 3}
        await back.perform(sending(b"b", position=100))
        assert await position(back) == 100
        assert await bodies(back, FromSeqNum(0)) == [b"a", b"b"]

    async def test_each_writer_and_each_stream_has_its_own(self, back: EmbeddedBack) -> None:
        other = StreamRef(BASIN, "other")
        await back.perform(CreateStream(other))
        await back.perform(sending(b"a", writer=ONE, position=5))
        await back.perform(sending(b"b", writer=TWO, position=4))
        await back.perform(sending(b"c", stream=other, writer=ONE, position=1))
        assert [await position(back, ONE), await position(back, TWO), await position(back, ONE, other)] == [5, 4, 1]

    async def test_it_survives_a_restart_and_the_records(self, settings: EmbeddedSettings, wall: Wall) -> None:
        async with open_embedded(settings, wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
            await back.perform(sending(b"a", position=3))
        async with open_embedded(settings, wall) as back:
            with Fails(FailureCode.STALE_WRITER_POSITION):
                await back.perform(sending(b"a", position=3))
            assert await position(back) == 3
            assert (await back.perform(sending(b"b", position=4, offset=9))).offset == 18

    async def test_a_stream_that_takes_the_name_begins_anew(self, back: EmbeddedBack) -> None:
        await back.perform(sending(b"a", position=3))
        await back.perform(DeleteStream(STREAM))
        await back.perform(CreateStream(STREAM))
        assert await position(back) == NO_ATTRIBUTE
        assert (await back.perform(sending(b"a", position=1))).offset == 9

    async def test_what_is_on_its_way_counts(self, back: EmbeddedBack) -> None:
        """A query of the position includes them too: it is answered once they are stored."""
        found: list[int] = []

        async def ask() -> None:
            found.append(await position(back))

        async with trio.open_nursery() as nursery, back.append_session(STREAM) as session:
            async with Blocked(back):
                await session.send(sending(b"a", position=1))
                await session.send(sending(b"b", position=2))
                nursery.start_soon(ask)
                nursery.start_soon(_stale, back, 2)
                await trio.testing.wait_all_tasks_blocked()
                assert not found
            assert [ack.offset for ack in await acknowledged(session, 2)] == [9, 18]
        assert found == [2]

    async def test_what_was_not_written_may_be_sent_again(self, back: EmbeddedBack) -> None:
        await back.perform(sending(b"before", position=1))
        with FullDisk(back):
            async with back.append_session(STREAM) as session:
                for number in range(2, 5):
                    await session.send(sending(b"x" * 300_000, position=number))
                await session.send(sending(b"z", writer=TWO, position=1))
                with Fails(FailureCode.STORAGE):
                    await session.receive()
            assert [await position(back), await position(back, TWO)] == [1, NO_ATTRIBUTE]
        async with back.append_session(STREAM) as session:
            for number in range(2, 5):
                await session.send(sending(b"x", position=number, offset=None))
            await acknowledged(session, 3)
        assert await position(back) == 4
        assert await bodies(back, FromSeqNum(0)) == [b"before", b"x", b"x", b"x"]
        attributes = back._store.appends._attributes
        assert not attributes._decided


async def _stale(back: EmbeddedBack, number: int) -> None:
    with Fails(FailureCode.STALE_WRITER_POSITION):
        await back.perform(sending(b"again", position=number))


class TestSessions:
    async def test_both_kinds_in_order(self, back: EmbeddedBack) -> None:
        async with back.append_session(STREAM) as session:
            await session.send(appending(b"a"))
            await session.send(sending(b"b", position=1))
            await session.send(appending(b"c", match=2))
            await session.send(sending(*MANY, position=2))
            acks = await acknowledged(session, 4)
        assert [ack.offset for ack in acks] == [9, 18, 27, 27 + 13 * len(MANY)]
        assert stored_bytes(back) == join_events([b"a", b"b", b"c", *MANY])

    async def test_an_offset_is_refused_and_nothing_else_happens(self, back: EmbeddedBack) -> None:
        async with back.append_session(STREAM) as session:
            with Fails(FailureCode.INVALID, "session"):
                await session.send(sending(b"x", offset=0))
            await session.send(sending(b"y"))
            assert (await acknowledged(session, 1))[0].offset == 9

    async def test_nothing_follows_a_stale_one(self, back: EmbeddedBack) -> None:
        async with back.append_session(STREAM) as session:
            await session.send(sending(b"a", position=2))
            await session.send(sending(b"b", position=1))
            await session.send(sending(b"c", position=3))
            await acknowledged(session, 1)
            with Fails(FailureCode.STALE_WRITER_POSITION) as fails:
                await session.receive()
        assert fails.failure.details == {"position": 2}
        assert await bodies(back, FromSeqNum(0)) == [b"a"]

    async def test_a_stream_that_was_deleted_meanwhile(self, back: EmbeddedBack) -> None:
        async with back.append_session(STREAM) as session:
            await back.perform(DeleteStream(STREAM))
            await session.send(sending(b"a"))
            with Fails(FailureCode.STREAM_NOT_FOUND):
                await session.receive()

    async def test_those_that_wait_for_room_keep_their_order(self, settings: EmbeddedSettings, wall: Wall) -> None:
        settings = EmbeddedSettings(directory=settings.directory, append_inflight_bytes=1000)
        async with open_embedded(settings, wall) as back:
            await back.perform(CreateBasin(BASIN))
            await back.perform(CreateStream(STREAM))
            async with trio.open_nursery() as nursery, back.append_session(STREAM) as session:
                async with Blocked(back):
                    await session.send(sending(b"x" * 900, position=1))
                    nursery.start_soon(session.send, sending(b"y" * 900, position=2))
                    await trio.testing.wait_all_tasks_blocked()
                    assert back._store.appends.admission.waiting == 1
                    nursery.start_soon(_stale, back, 2)
                await acknowledged(session, 2)
            assert stored_bytes(back) == join_events([b"x" * 900, b"y" * 900])
            assert back._store.appends.admission.in_flight == 0
