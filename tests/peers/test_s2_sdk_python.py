"""The official Python client, `s2-sdk`, unmodified: unary calls, conditions, append sessions."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import s2_sdk as s2
from s2_sdk import AppendInput, CommandRecord, Compression, ReadLimit, Record, SeqNum, TailOffset, Timestamp
from support.peers import finish
from support.s2.sdk import EVERY_COMPRESSION, Connect, bodies

# ---- unary ---------------------------------------------------------------------------------------------------


@EVERY_COMPRESSION
def test_unary_append_and_read_keep_bytes_headers_and_order(
    connect: Connect, basin: str, stream: str, compression: Compression
) -> None:
    async def main() -> None:
        async with connect(compression) as client:
            events = client.basin(basin).stream(stream)
            sent = [
                Record(b"plain"),
                Record(b""),
                Record(bytes(range(256)) * 40, headers=[(b"k", b"v"), (b"k", b"\xff\x00")]),
                Record(b"z" * 5000),
            ]
            ack = await events.append(AppendInput(sent))
            assert (ack.start.seq_num, ack.end.seq_num, ack.tail.seq_num) == (0, 4, 4)
            assert await events.check_tail() == ack.tail
            got = await events.read(start=SeqNum(0))
            assert [(r.seq_num, r.body, r.headers) for r in got.records] == [
                (index, record.body, record.headers) for index, record in enumerate(sent)
            ]
            assert got.records[-1].timestamp == ack.tail.timestamp

    finish(main())


def test_a_new_stream_has_its_tail_at_zero(connect: Connect, basin: str, stream: str) -> None:
    async def main() -> None:
        async with connect() as client:
            assert await client.basin(basin).stream(stream).check_tail() == s2.StreamPosition(0, 0)

    finish(main())


def test_unary_reads_start_anywhere_and_stop_at_limits(connect: Connect, basin: str, stream: str) -> None:
    async def main() -> None:
        async with connect() as client:
            events = client.basin(basin).stream(stream)
            await events.append(AppendInput([Record(b"%d" % n, timestamp=1000 + n) for n in range(10)]))
            assert bodies(await events.read(start=SeqNum(7))) == [b"7", b"8", b"9"]
            assert bodies(await events.read(start=TailOffset(2))) == [b"8", b"9"]
            assert bodies(await events.read(start=TailOffset(1000)))[0] == b"0"
            assert bodies(await events.read(start=Timestamp(1004), limit=ReadLimit(count=2))) == [b"4", b"5"]
            assert bodies(await events.read(start=SeqNum(0), until_timestamp=1003)) == [b"0", b"1", b"2"]
            assert bodies(await events.read(start=SeqNum(0), limit=ReadLimit(bytes=18))) == [b"0", b"1"]
            assert bodies(await events.read(start=SeqNum(99), clamp_to_tail=True, wait=1)) == []

    finish(main())


def test_a_unary_read_waits_for_the_next_record(connect: Connect, basin: str, stream: str) -> None:
    async def main() -> None:
        async with connect() as client:
            events = client.basin(basin).stream(stream)
            waiting = asyncio.create_task(events.read(start=SeqNum(0), wait=4))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await events.append(AppendInput([Record(b"at last")]))
            assert bodies(await waiting) == [b"at last"]

    finish(main())


def test_a_batch_of_one_mebibyte_and_one_of_a_thousand_records(connect: Connect, basin: str, stream: str) -> None:
    async def main() -> None:
        async with connect() as client:
            events = client.basin(basin).stream(stream)
            await events.append(AppendInput([Record(b"x" * (1024 * 1024 - 8))]))
            ack = await events.append(AppendInput([Record(b"%d" % n) for n in range(1000)]))
            assert ack.end.seq_num == 1001
            assert len((await events.read(start=SeqNum(0))).records[0].body) == 1024 * 1024 - 8
            assert bodies(await events.read(start=SeqNum(1))) == [b"%d" % n for n in range(1000)]

    finish(main())


# ---- conditions and commands ---------------------------------------------------------------------------------


def test_match_seq_num(connect: Connect, basin: str, stream: str) -> None:
    async def main() -> None:
        async with connect() as client:
            events = client.basin(basin).stream(stream)
            await events.append(AppendInput([Record(b"0"), Record(b"1")], match_seq_num=0))
            with pytest.raises(s2.SeqNumMismatchError) as caught:
                await events.append(AppendInput([Record(b"no")], match_seq_num=1))
            assert caught.value.expected_seq_num == 2
            assert (await events.check_tail()).seq_num == 2
            assert (await events.append(AppendInput([Record(b"2")], match_seq_num=2))).end.seq_num == 3

    finish(main())


def test_fencing(connect: Connect, basin: str, stream: str) -> None:
    async def main() -> None:
        async with connect() as client:
            events = client.basin(basin).stream(stream)
            await events.append(AppendInput([CommandRecord.fence("writer-a")]))
            await events.append(AppendInput([Record(b"a")], fencing_token="writer-a"))
            with pytest.raises(s2.FencingTokenMismatchError) as caught:
                await events.append(AppendInput([Record(b"b")], fencing_token="writer-b"))
            assert caught.value.expected_fencing_token == "writer-a"
            await events.append(AppendInput([Record(b"unconditional")]))
            await events.append(AppendInput([CommandRecord.fence("")], fencing_token="writer-a"))
            await events.append(AppendInput([Record(b"c")], fencing_token=""))
            kept = await events.read(start=SeqNum(0), ignore_command_records=True)
            assert bodies(kept) == [b"a", b"unconditional", b"c"]

    finish(main())


def test_trim(connect: Connect, basin: str, stream: str) -> None:
    async def main() -> None:
        async with connect() as client:
            events = client.basin(basin).stream(stream)
            await events.append(AppendInput([Record(b"%d" % n) for n in range(10)]))
            ack = await events.append(AppendInput([CommandRecord.trim(6)]))
            assert ack.tail.seq_num == 11
            for _ in range(100):  # a trim is applied some time after its acknowledgement (S2 fact sheet, 5.3)
                first = (await events.read(start=SeqNum(0))).records[0]
                if first.seq_num != 0:
                    break
                await asyncio.sleep(0.05)
            assert (first.seq_num, first.body) == (6, b"6")
            assert (await events.check_tail()).seq_num == 11

    finish(main())


# ---- append sessions -----------------------------------------------------------------------------------------


@EVERY_COMPRESSION
def test_a_pipelined_append_session_is_acknowledged_in_order(
    connect: Connect, basin: str, stream: str, compression: Compression
) -> None:
    """Small and large batches mixed, so that raw and compressed frames alternate."""

    async def main() -> None:
        async with connect(compression) as client:
            events = client.basin(basin).stream(stream)
            sent = [[Record(b"%d/%d " % (n, i) * (1 if n % 3 else 400)) for i in range(1 + n % 7)] for n in range(200)]
            async with events.append_session() as session:
                tickets = [await session.submit(AppendInput(records)) for records in sent]
                acks = [await ticket for ticket in tickets]
            position = 0
            for records, ack in zip(sent, acks, strict=True):
                assert (ack.start.seq_num, ack.end.seq_num) == (position, position + len(records))
                position = ack.end.seq_num
            read: list[bytes] = []
            async with events.read_session(start=SeqNum(0), limit=ReadLimit(count=position)) as session:
                async for batch in session:
                    read += bodies(batch)
            assert read == [record.body for records in sent for record in records]

    finish(main())


def test_more_in_flight_than_any_flow_control_window(connect: Connect, basin: str, stream: str) -> None:
    """12 MiB in batches of 1 MiB: windows must be replenished, and nothing may stall."""

    async def main() -> None:
        async with connect() as client:
            events = client.basin(basin).stream(stream)
            async with events.append_session(max_unacked_bytes=16 * 1024 * 1024) as session:
                tickets = [await session.submit(AppendInput([Record(bytes([n]) * 1_000_000)])) for n in range(12)]
                assert [(await ticket).start.seq_num for ticket in tickets] == list(range(12))
            seen = 0
            async with events.read_session(start=SeqNum(0), limit=ReadLimit(count=12)) as session:
                async for batch in session:
                    for record in batch.records:
                        assert record.body == bytes([record.seq_num]) * 1_000_000
                        seen += 1
            assert seen == 12

    finish(main())


def test_a_failed_condition_ends_an_append_session_after_the_acks_before_it(
    connect: Connect, basin: str, stream: str
) -> None:
    async def main() -> None:
        async with connect() as client:
            events = client.basin(basin).stream(stream)
            session = events.append_session()
            expected = [0, 1, 7, 3]  # the third is wrong; the fourth would be right without it
            tickets = [await session.submit(AppendInput([Record(b"%d" % n)], match_seq_num=n)) for n in expected]
            assert [(await ticket).start.seq_num for ticket in tickets[:2]] == [0, 1]
            for ticket in tickets[2:]:
                with pytest.raises(s2.SeqNumMismatchError) as caught:
                    await ticket
                assert caught.value.expected_seq_num == 2
            with pytest.raises(s2.SeqNumMismatchError):
                await session.close()
            assert (await events.check_tail()).seq_num == 2

    finish(main())


def test_a_producer_batches_single_records(connect: Connect, basin: str, stream: str) -> None:
    async def main() -> None:
        async with connect() as client:
            events = client.basin(basin).stream(stream)
            batching = s2.Batching(max_records=50, linger=timedelta(milliseconds=2))
            async with events.producer(match_seq_num=0, batching=batching) as producer:
                tickets = [await producer.submit(Record(b"%d" % n)) for n in range(1000)]
                assert [(await ticket).seq_num for ticket in tickets] == list(range(1000))

    finish(main())


def test_sessions_of_one_connection_do_not_disturb_each_other(connect: Connect, basin: str) -> None:
    async def main() -> None:
        async with connect() as client:
            home = client.basin(basin)

            async def one(name: str) -> None:
                await home.create_stream(name)
                events = home.stream(name)
                async with events.append_session() as session:
                    tickets = [await session.submit(AppendInput([Record(name.encode() * 100)])) for _ in range(50)]
                    assert [(await ticket).start.seq_num for ticket in tickets] == list(range(50))
                read: list[bytes] = []
                async with events.read_session(start=SeqNum(0), limit=ReadLimit(count=50)) as reading:
                    async for batch in reading:
                        read += bodies(batch)
                assert read == [name.encode() * 100] * 50

            async with asyncio.TaskGroup() as group:
                for n in range(20):
                    group.create_task(one(f"stream-{n}"))

    finish(main())
