"""Byte operations on one stream through several gateways with the same state: each by the one that owns the stream."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from support.records_only import RecordsOnly
from support.store import STREAM, Fails, Wall, appending, sending
from support.store.shared_log import SharedLog, SharedLogEnd

from penstock.backends import owners
from penstock.backends.byte_view import BytesOnRecords, BytesSettings, open_bytes_on_records
from penstock.backends.byte_view.streams import TENURE
from penstock.backends.embedded import EmbeddedBack
from penstock.backends.logged_tables import open_logged_tables
from penstock.core.back import Back
from penstock.model.byte_events import join_events
from penstock.model.byte_operations import GetAttribute, GetByteStreamInfo, ReadBytes, Seal, Truncate
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Append, CheckTail, CreateStream, DeleteStream, Operation

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
    info = await back.perform(GetByteStreamInfo(STREAM))
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
    assert (await one.perform(GetByteStreamInfo(STREAM))).start_offset == 9
    assert await other.perform(Seal(STREAM)) == 18
    for back in gateways:
        assert (await back.perform(GetByteStreamInfo(STREAM))).sealed
        with Fails(FailureCode.STREAM_SEALED):
            await back.perform(sending(b"c", position=3))
        with Fails(FailureCode.STREAM_SEALED):
            await back.perform(appending(b"record"))


@pytest.mark.parametrize("in_session", [False, True])
async def test_nothing_is_acknowledged_behind_a_seal_of_another_gateway(
    gateways: list[BytesOnRecords], server: EmbeddedBack, monkeypatch: pytest.MonkeyPatch, in_session: bool
) -> None:
    """An append that another gateway has admitted may come to the server before the seal counts its records, while it
    does, or behind it."""
    one, other, third = gateways
    await one.perform(sending(b"a", position=1))
    dice = random.Random(7)
    perform, session = RecordsOnly.perform, RecordsOnly.append_session

    async def slowly(self: RecordsOnly, operation: Operation[object]) -> object:
        if isinstance(operation, Append | CheckTail):
            await trio.sleep(dice.random() / 20)
        return await perform(self, operation)

    @asynccontextmanager
    async def slow_session(self: RecordsOnly, *args: object, **options: object) -> AsyncIterator[object]:
        async with session(self, *args, **options) as inner:
            send = inner.send

            async def slow_send(append: Append) -> None:
                await trio.sleep(dice.random() / 20)
                await send(append)

            inner.send = slow_send
            yield inner

    monkeypatch.setattr(RecordsOnly, "perform", slowly)
    monkeypatch.setattr(RecordsOnly, "append_session", slow_session)
    ends: list[int] = []
    begun = trio.Event()

    async def append(back: BytesOnRecords) -> None:
        with Fails(FailureCode.STREAM_SEALED):
            while True:
                ends.append((await back.perform(appending(b"x"))).end.seq_num)
                if len(ends) > 5:
                    begun.set()

    async def append_in_session(back: BytesOnRecords) -> None:
        with Fails(FailureCode.STREAM_SEALED):
            async with back.append_session(STREAM) as appends:
                while True:
                    await appends.send(appending(b"x"))
                    await appends.send(appending(b"x"))
                    ends.extend(appended.end.seq_num for appended in await appends.receive())
                    if len(ends) > 5:
                        begun.set()

    async with trio.open_nursery() as nursery:
        for back in (other, third, other, third):
            nursery.start_soon(append_in_session if in_session else append, back)
        await begun.wait()
        length = await one.perform(Seal(STREAM))
    assert max(ends) <= length // 9, "each event has nine bytes"
    assert {(await back.perform(GetByteStreamInfo(STREAM))).length for back in gateways} == {length}


async def test_a_seal_is_finished_before_another_gateway_gets_the_stream(
    gateways: list[BytesOnRecords], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append through another gateway, which waits for the seal, wants the stream."""
    one, other, _ = gateways
    await one.perform(sending(b"a", position=1))
    begun = trio.Event()

    async def settle_slowly(*_: object) -> None:
        begun.set()
        await trio.sleep(4 * TENURE)

    monkeypatch.setattr(one._appends, "settle_records", settle_slowly)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.perform, Seal(STREAM))
        await begun.wait()
        with Fails(FailureCode.STREAM_SEALED):
            await other.perform(appending(b"record"))


async def test_a_gateway_that_dies_while_it_seals(
    gateways: list[BytesOnRecords], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream stays open, and appends through others wait no longer than for any owner that is dead."""
    one, other, _ = gateways
    monkeypatch.setattr(owners, "PATIENCE", 0.3)
    await one.perform(sending(b"a", position=1))

    begun = trio.Event()

    async def stop(*_: object) -> None:
        begun.set()
        await trio.sleep_forever()

    monkeypatch.setattr(one._appends, "settle_records", stop)
    monkeypatch.setattr(one._streams, "_give_up", stop)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.perform, Seal(STREAM))
        await begun.wait()
        assert (await other.perform(appending(b"record"))).end.seq_num == 2
        nursery.cancel_scope.cancel()
    monkeypatch.undo()
    for back in (other, one):
        assert await back.perform(GetAttribute(STREAM, WRITER)) == 1
        assert not (await back.perform(GetByteStreamInfo(STREAM))).sealed


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
