"""An S3P server as a back: the commands sent to it, and the translation of its records and errors."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from msgspec.structs import replace
from support.store import Fails, acknowledged, appending, bodies, command, records
from trio.testing import MockClock

from penstock.core.delivery import Delivery
from penstock.core.marks import START
from penstock.model.envelope import wrap
from penstock.model.failures import FailureCode
from penstock.model.limits import KIB
from penstock.model.operations import (
    Append,
    Capability,
    CheckTail,
    CreateStream,
    DeleteStream,
    FromRecordId,
    FromSeqNum,
    ListStreams,
    Read,
    Trim,
)
from penstock.model.records import Header, StreamRef
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock_s3p.back import S3PBackSettings
from penstock_s3p.codec.limits import S3PLimits

STREAM = StreamRef("penstock", "orders")
ENVELOPE = LossPolicy(headers=Loss.ENVELOPE, empty_body=Loss.ENVELOPE, command_records=Loss.ENVELOPE)
FROM_START = FromSeqNum(0)
KEY = (Header(b"k", b"v"),)


def batch(*bodies: bytes, **options: Any) -> Append:
    return appending(*bodies, stream=STREAM, **options)


async def read(back: Any, start: Any = FROM_START, **options: Any) -> list[bytes]:
    return await bodies(back, start, stream=STREAM, **options)


async def test_records_of_others_lie_between(server: Any) -> None:
    async with server.back() as back:
        assert (await back.perform(batch(b"a", b"b"))).start.seq_num == 0
        await server.store.perform(batch(b"other"))
        appended = await back.perform(batch(b"c"))
        assert (appended.start.seq_num, appended.end.seq_num) == (3, 4)
        assert await read(back) == [b"a", b"b", b"other", b"c"]
        theirs = [record async for record in aiter_ids(server.store)]
        assert [record async for record in aiter_ids(back)] == theirs


async def aiter_ids(back: Any) -> Any:
    async with back.read_session(Read(STREAM, FromSeqNum(0), wait=0)) as session:
        while (found := await session.next()) is not None:
            for record_id in found.record_ids():
                yield record_id


async def test_a_session_is_pipelined(server: Any) -> None:
    async with server.back(exclusive=True) as back, back.append_session(STREAM) as session:
        for number in range(500):
            await session.send(batch(b"%d" % number))
        acks = await acknowledged(session, 500)
    assert [one.start.seq_num for one in acks] == list(range(500))
    assert server.dialled <= 3


async def test_exact_timestamps_are_sent_as_id(server: Any) -> None:
    async with server.back() as back:
        assert (await back.perform(batch(b"a", exact=5))).last_id == (5, 0)
        with Fails(FailureCode.NON_MONOTONIC_TIMESTAMP):
            await back.perform(batch(b"b", exact=4))
        async with back.append_session(STREAM) as session:
            for body, exact in ((b"c", 7), (b"d", 6), (b"e", None)):
                await session.send(batch(body, exact=exact))
            await acknowledged(session, 1)
            with Fails(FailureCode.NON_MONOTONIC_TIMESTAMP):
                await session.receive()
        assert await read(back) == [b"a", b"c"]


async def test_what_cannot_be_carried_is_refused(server: Any) -> None:
    async with server.back() as back:
        for append in (batch(b"x", headers={0: KEY}), batch(b""), command(b"fence", b"t", stream=STREAM)):
            with Fails(FailureCode.NOT_REPRESENTABLE, "record 1"):
                await back.perform(append)
        assert await read(back) == []


async def test_or_enveloped(server: Any) -> None:
    marked = wrap((), b"looks like one")
    async with server.back(loss=ENVELOPE) as back:
        assert {Capability.HEADERS, Capability.EMPTY_BODIES} <= back.capabilities
        await back.perform(batch(b"plain", b"", b"x", marked, headers={2: KEY}))
        found = await records(back, FromSeqNum(0), stream=STREAM)
        told = [(record.body, record.headers) for record in found]
        assert told == [(b"plain", ()), (b"", ()), (b"x", KEY), (marked, ())]


async def test_or_dropped(server: Any) -> None:
    policy = LossPolicy(headers=Loss.DROP, empty_body=Loss.REFUSE, command_records=Loss.REFUSE)
    async with server.back(loss=policy) as back:
        await back.perform(batch(b"x", headers={0: KEY}))
        (found,) = await records(back, FromSeqNum(0), stream=STREAM)
        assert (found.body, found.headers) == (b"x", ())


async def test_what_is_no_envelope_is_a_plain_body(server: Any) -> None:
    broken = wrap((), b"x")[:-1]
    await server.store.perform(batch(broken))
    async with server.back(loss=ENVELOPE) as back:
        assert await read(back) == [broken]


async def test_limits_of_the_server(server: Any) -> None:
    limits = S3PLimits(max_records_per_append=2, max_record_bytes=10, max_append_bytes=15)
    async with server.back(limits=limits) as back:
        for append, word in ((batch(b"x" * 11), "record 1"), (batch(b"x", b"y", b"z"), "3 records")):
            with Fails(FailureCode.LIMIT_EXCEEDED, word):
                await back.perform(append)
    async with server.back(limits=limits, split_appends=True) as back:
        appended = await back.perform(batch(b"a" * 9, b"b" * 9, b"c", b"d", b"e"))
        assert (appended.start.seq_num, appended.end.seq_num) == (0, 5)
        assert await read(back) == [b"a" * 9, b"b" * 9, b"c", b"d", b"e"]


async def test_large_records_are_asked_for_a_few_at_a_time(server: Any) -> None:
    for number in range(8):
        await server.store.perform(batch(bytes([number]) * (100 * KIB)))
    limits = replace(S3PLimits(), max_record_bytes=100 * KIB)
    async with server.back(limits=limits, max_reply_bytes=250 * KIB) as back:
        assert [len(body) for body in await read(back)] == [100 * KIB] * 8


async def test_records_of_which_one_is_asked_for_at_a_time_are_all_read(server: Any) -> None:
    """A reader resumes behind the last record that it read, with which the next reply begins."""
    numbers = range(5)
    for number in numbers:
        await server.store.perform(batch(bytes([number]) * (600 * KIB)))
    async with server.back() as back:
        for start in numbers:
            assert [body[0] for body in await read(back, FromSeqNum(start))] == list(numbers[start:])


async def test_trim_keeps_what_it_must(server: Any) -> None:
    async with server.back(trim_keeps_last=True) as back:
        await back.perform(batch(b"a", b"b"))
        await back.perform(Trim(STREAM, FromSeqNum(9)))
        assert await read(server.store) == [b"b"]
        async with back.read_session(Read(STREAM, FromSeqNum(0))) as session:
            await session.next()
            await back.perform(batch(b"c"))
            found = await session.next()
            assert (found.first_seq_num, found.columns.bodies) == (2, [b"c"])


async def test_streams(server: Any) -> None:
    other = StreamRef("penstock", "other")
    async with server.back() as back:
        with Fails(FailureCode.STREAM_NOT_FOUND, "back s3p"):
            await back.perform(CheckTail(other))
        await back.perform(CreateStream(other))
        with Fails(FailureCode.RESOURCE_ALREADY_EXISTS):
            await back.perform(CreateStream(other))
        await back.perform(DeleteStream(other))
        with Fails(FailureCode.STREAM_NOT_FOUND):
            await back.perform(DeleteStream(other))
        with Fails(FailureCode.NOT_IMPLEMENTED):
            await back.perform(ListStreams("penstock"))
        with Fails(FailureCode.NOT_REPRESENTABLE):
            await back.perform(CheckTail(StreamRef("elsewhere", "orders")))


async def test_a_scan_waits_as_long_as_it_is_told(server: Any, clock: MockClock) -> None:
    async with server.native() as native:
        started = trio.current_time()
        found = await native.scan(STREAM, START, max_records=9, max_bytes=9, wait=23.0)
        assert not found.bodies and found.at_tail
        assert 23.0 <= trio.current_time() - started < 24


async def test_a_follower_goes_on_after_a_short_loss(server: Any, clock: MockClock) -> None:
    async with server.back() as back, back.read_session(Read(STREAM, FromSeqNum(0))) as session:
        server.cuts = [(None, 0)]
        await session.next()
        await server.store.perform(batch(b"a"))
        assert (await session.next()).columns.bodies == [b"a"]


async def test_a_server_that_is_not_there(server: Any) -> None:
    server.down = True
    async with server.back() as back:
        with Fails(FailureCode.HOT_SERVER, "back s3p at 127.0.0.1:7500: cannot connect"):
            await back.perform(batch(b"a"))


def test_exactly_once_is_not_to_be_had() -> None:
    with pytest.raises(ValueError, match="neither conditions nor writers"):
        S3PBackSettings(delivery=Delivery.EXACTLY_ONCE)


def test_records_that_are_counted_cannot_be_dropped() -> None:
    with pytest.raises(ValueError, match="cannot be dropped"):
        S3PBackSettings(loss=LossPolicy())


async def test_reads_by_identifier_agree_with_the_server(server: Any) -> None:
    async with server.back() as back:
        first = await back.perform(batch(b"a", exact=5))
        await back.perform(batch(b"b", b"c", exact=9))
        assert first.last_id is not None
        for ms in (0, 5, 6, 9):
            start = FromRecordId(first.last_id._replace(ms=ms))
            assert await read(back, start) == await read(server.store, start)
