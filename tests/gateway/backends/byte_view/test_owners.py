"""Byte operations on one stream through several gateways with the same state: each by the one that owns the stream."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import trio
from support.records_only import RecordsOnly
from support.store import STREAM, Fails, Wall, appending, sending
from support.store.shared_log import SharedLog, SharedLogEnd

from penstock.backends import owners
from penstock.backends.byte_view import BytesOnRecords, BytesSettings, open_bytes_on_records
from penstock.backends.embedded import EmbeddedBack
from penstock.backends.logged_tables import open_logged_tables
from penstock.core.back import Back
from penstock_codecs.byte_events import join_events
from penstock_codecs.byte_operations import GetAttribute, GetSegmentInfo, ReadBytes, Seal, Truncate
from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.operations import CreateStream, DeleteStream

WRITER = bytes(16)


@pytest.fixture
async def gateways(server: EmbeddedBack, settings: BytesSettings, wall: Wall) -> AsyncIterator[list[BytesOnRecords]]:
    """Three gateways before one server."""
    shared = SharedLog()
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(3):
            state = await stack.enter_async_context(open_logged_tables(SharedLogEnd(shared), 1 << 20))
            back = open_bytes_on_records(RecordsOnly(server), "lite", state, settings, clock=wall)
            opened.append(await stack.enter_async_context(back))
        yield opened


async def content(back: Back) -> bytes:
    info = await back.perform(GetSegmentInfo(STREAM))
    data = b""
    while len(data) < info.length:
        data += (await back.perform(ReadBytes(STREAM, len(data), 1 << 20))).data
    return data


async def test_a_writer_goes_on_at_another_gateway_where_it_was(gateways: list[BytesOnRecords]) -> None:
    sent = []
    for number in range(12):
        back = gateways[number % 3]
        assert await back.perform(GetAttribute(STREAM, WRITER)) == (number - 1 if number else -(1 << 63))
        with_position = sending(b"%d" % number, position=number)
        await back.perform(with_position)
        sent.append(b"%d" % number)
        with Fails(FailureCode.STALE_WRITER_POSITION):
            await gateways[(number + 1) % 3].perform(with_position)
    assert [await content(back) for back in gateways] == [join_events(sent)] * 3


async def test_writers_at_several_gateways_at_once(gateways: list[BytesOnRecords]) -> None:
    """Each has its own position, and nothing is lost or there twice, however often the stream changes hands."""
    each = 10

    async def write(name: bytes, back: Back) -> None:
        for number in range(each):
            append = sending(b"%b-%d" % (name, number), writer=name * 16, position=number)
            while True:
                with trio.fail_after(60):
                    try:
                        await back.perform(append)
                        break
                    except Exception as error:
                        assert getattr(error, "failure").code is FailureCode.HOT_SERVER, error  # noqa: B009

    async with trio.open_nursery() as nursery:
        for name, back in zip((b"a", b"b", b"c"), gateways, strict=True):
            nursery.start_soon(write, name, back)
    found = await content(gateways[0])
    for name in (b"a", b"b", b"c"):
        places = [found.index(join_events([b"%b-%d" % (name, number)])) for number in range(each)]
        assert places == sorted(places)
    assert len(found) == sum(len(join_events([b"a-%d" % number])) for number in range(each)) * 3
    assert await content(gateways[1]) == found


async def test_a_stream_in_constant_use_changes_hands_in_time(gateways: list[BytesOnRecords]) -> None:
    """Before, a gateway whose operations overlapped gave nothing up, and others took the stream by force."""
    one, other, _ = gateways
    used = trio.lowlevel.ParkingLot()

    async def use() -> None:
        while True:
            await trio.sleep(random.random() / 500)
            try:
                await one.perform(GetAttribute(STREAM, WRITER))
            except OperationFailed as error:
                assert error.failure.code is FailureCode.HOT_SERVER, error
            used.unpark_all()

    async with trio.open_nursery() as nursery:
        for _ in range(60):
            nursery.start_soon(use)
        for position in range(3):
            with trio.fail_after(owners.PATIENCE / 2):
                while True:
                    try:
                        await other.perform(sending(b"y", position=position))
                        break
                    except OperationFailed as error:  # the first gateway has it again already
                        assert error.failure.code is FailureCode.HOT_SERVER, error
                await used.park()
        nursery.cancel_scope.cancel()


async def test_a_gateway_that_only_reads_leaves_the_stream_to_its_owner(gateways: list[BytesOnRecords]) -> None:
    one, other, _ = gateways
    for number in range(5):
        await one.perform(sending(b"%d" % number, position=number))
        owned = one._streams.peek(STREAM)
        assert await content(other) == await content(one)
        assert one._streams.peek(STREAM) is owned and owned is not None and not owned.leaving


async def test_a_seal_and_a_trim_hold_through_every_gateway(gateways: list[BytesOnRecords]) -> None:
    one, other, third = gateways
    await one.perform(sending(b"a", position=1))
    await other.perform(sending(b"b", position=2))
    assert await third.perform(Truncate(STREAM, 9)) == 9
    assert (await one.perform(GetSegmentInfo(STREAM))).start_offset == 9
    assert await other.perform(Seal(STREAM)) == 18
    for back in gateways:
        assert (await back.perform(GetSegmentInfo(STREAM))).sealed
        with Fails(FailureCode.STREAM_SEALED):
            await back.perform(sending(b"c", position=3))
        with Fails(FailureCode.STREAM_SEALED):
            await back.perform(appending(b"record"))


async def test_a_stream_that_was_created_again_is_new_everywhere(gateways: list[BytesOnRecords]) -> None:
    one, other, third = gateways
    await one.perform(sending(b"a", position=7))
    assert await content(other) == join_events([b"a"])
    await third.perform(DeleteStream(STREAM))
    await third.perform(CreateStream(STREAM))
    for back in (other, one):
        assert await back.perform(GetAttribute(STREAM, WRITER)) == -(1 << 63)
        assert await content(back) == b""
    await other.perform(sending(b"b", position=1))
    assert await content(one) == join_events([b"b"])


async def test_an_owner_that_does_not_answer_is_taken_for_dead_and_stores_nothing_any_more(
    gateways: list[BytesOnRecords], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, _ = gateways
    monkeypatch.setattr(owners, "PATIENCE", 0.3)
    await one.perform(sending(b"a", position=1))

    async def deaf(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(one._streams, "_give_up", deaf)
    owned = one._streams.peek(STREAM)
    assert owned is not None
    await other.perform(sending(b"b", position=2))
    with Fails(FailureCode.HOT_SERVER):
        await owned.writers.change({WRITER: 1})
    monkeypatch.undo()
    assert await one.perform(GetAttribute(STREAM, WRITER)) == 2
    assert await content(one) == join_events([b"a", b"b"])
