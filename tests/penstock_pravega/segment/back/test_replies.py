"""Replies of stores that our own front never sends, from scripted stores."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace
from support.controller import NAMES
from support.controller import store as controlled_store
from support.segment.back import CONTROLLER, STORE, STREAM, append_of, opened
from support.segment.scripts import scripted
from support.store import Wall
from trio.testing import MockClock

from penstock.core.marks import START
from penstock.model.byte_operations import AppendBytes, GetAttribute, ReadBytes, UpdateAttribute, WriterPosition
from penstock.model.failures import FailureCode, OperationFailed
from penstock.net.http.exchange import Exchange
from penstock_pravega.codec import SegmentMessage, join_events, released
from penstock_pravega.controller.controller import Advertised, ControllerSettings
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.front import ControllerFront
from penstock_pravega.segment.front import SegmentFront

SEGMENT = "scope-of-streams/stream/0.#epoch.0"
WRITER = bytes(range(16))


async def fails(code: FailureCode, work: Awaitable[object]) -> OperationFailed:
    with pytest.raises(OperationFailed) as caught:
        await work
    assert caught.value.failure.code is code, caught.value.failure
    return caught.value


REFUSALS = [
    (released.WrongHost(1, SEGMENT, "elsewhere:7"), FailureCode.HOT_SERVER, "served by elsewhere:7"),
    (released.SegmentIsSealed(1, SEGMENT), FailureCode.STREAM_SEALED, "is sealed"),
    (released.NoSuchSegment(1, SEGMENT), FailureCode.STREAM_NOT_FOUND, "does not exist"),
    (released.OperationUnsupported(1, "what"), FailureCode.NOT_IMPLEMENTED, "does not support what"),
    (released.AuthTokenCheckFailed(1, "", 0), FailureCode.PERMISSION_DENIED, "delegation token"),
    (released.ErrorMessage(1, SEGMENT, "so wrong", 0), FailureCode.INVALID, "so wrong"),
    (released.ErrorMessage(1, SEGMENT, "so odd", -1), FailureCode.OTHER, "so odd"),
]


@pytest.mark.parametrize(("reply", "code", "text"), REFUSALS)
async def test_refusals_of_requests(clock: MockClock, reply: Any, code: FailureCode, text: str) -> None:
    def answer(request: Any) -> list[SegmentMessage]:
        return [replace(reply, request_id=request.request_id)]

    async with opened(scripted(answer), recover_seconds=1) as (back, _):
        error = await fails(code, back.direct.perform(UpdateAttribute(STREAM, WRITER, 1, 2)))
        assert text in error.failure.message
        assert "back store at 127.0.0.1:6000" in error.failure.message


async def test_a_request_with_an_effect_is_not_asked_again(clock: MockClock) -> None:
    asked: list[Any] = []

    def answer(request: Any) -> None:
        asked.append(request)

    async with opened(scripted(answer), recover_seconds=5) as (back, _):
        await fails(FailureCode.UNAVAILABLE, back.direct.perform(UpdateAttribute(STREAM, WRITER, 1, 2)))
        assert len(asked) == 1
        await fails(FailureCode.UNAVAILABLE, back.direct.perform(GetAttribute(STREAM, WRITER)))
        assert len(asked) > 2


@pytest.mark.parametrize(("start", "first"), [(7, [None, None]), (273, [282, 291])])
async def test_one_acknowledgement_for_several_appends(clock: MockClock, start: int, first: list[int | None]) -> None:
    """Their end offsets are known as far as no other client can have appended in between."""
    places = {3: 300, 4: 309, 6: 327, 8: 1000}

    def answer(request: Any) -> list[SegmentMessage]:
        if isinstance(request, released.SetupAppend):
            return [released.AppendSetup(request.request_id, request.segment, request.writer_id, -(1 << 63))]
        if isinstance(request, released.GetStreamSegmentInfo):
            return [released.StreamSegmentInfo(request.request_id, request.segment, True, False, False, 0, start)]
        number = request.last_event_number
        if number not in places:
            return []
        return [released.DataAppended(request.writer_id, number, -1, request.request_id, places[number])]

    async with opened(scripted(answer)) as (back, _):
        async with back.native.append_session(STREAM) as session:
            ends: list[int | None] = []
            sent = 0
            for batch in (3, 1, 2, 2):
                for _ in range(batch):
                    await session.send(append_of(b"x"))
                sent += batch
                while len(ends) < sent:
                    ends += [ack.end_offset for ack in await session.receive()]
        assert ends == [*first, 300, 309, 318, 327, None, 1000]


async def test_a_lost_acknowledgement_of_another_client(clock: MockClock) -> None:
    """The server knows an event number of the client's writer that was never sent: another client uses that writer."""
    levels = iter([5, 8])

    def answer(request: Any) -> list[SegmentMessage] | None:
        if isinstance(request, released.SetupAppend):
            return [released.AppendSetup(request.request_id, request.segment, request.writer_id, next(levels))]
        if isinstance(request, released.GetStreamSegmentInfo):
            return [released.StreamSegmentInfo(request.request_id, request.segment, True, False, False, 0, 100)]
        return None

    async with opened(scripted(answer)) as (back, _):
        append = AppendBytes(STREAM, b"x", WriterPosition(WRITER, 10, 5))
        error = await fails(FailureCode.STALE_WRITER_POSITION, back.direct.perform(append))
        assert error.failure.details == {"position": 8}


async def test_a_store_that_does_not_park(clock: MockClock) -> None:
    """It answers reads at the tail at once, and without bytes: it is not asked more than once a second."""
    asked = 0

    def answer(request: Any) -> list[SegmentMessage]:
        nonlocal asked
        if isinstance(request, released.GetStreamSegmentInfo):
            return [released.StreamSegmentInfo(request.request_id, request.segment, True, False, False, 0, 0)]
        asked += 1
        return [released.SegmentRead(request.segment, request.offset, True, False, b"", request.request_id)]

    async with opened(scripted(answer)) as (back, _):
        scanned = await back.native.scan(STREAM, START, max_records=1, max_bytes=1, wait=20.5)
        assert (scanned.bodies, scanned.at_tail) == ([], True)
        assert asked == 21


async def test_bytes_that_are_no_events(front: SegmentFront, clock: MockClock) -> None:
    """They cannot be read as records; the segment protocol reads them unchanged."""
    async with opened(front) as (back, _):
        await back.native.create(STREAM)
        events = join_events([b"one"])
        await back.direct.perform(AppendBytes(STREAM, events + b"junk and more of it", WriterPosition(WRITER, 1)))
        scanned = await back.native.scan(STREAM, START, max_records=9, max_bytes=999, wait=0)
        assert (scanned.bodies, scanned.at_tail) == ([b"one"], False)
        error = await fails(
            FailureCode.NOT_REPRESENTABLE,
            back.native.scan(STREAM, START._replace(offset=11), max_records=9, max_bytes=999, wait=0),
        )
        assert error.failure.details == {"offset": 11}
        assert "at offset 11" in error.failure.message
        assert (await back.direct.perform(ReadBytes(STREAM, 11, 4))).data == b"junk"


async def test_an_event_that_comes_in_pieces(front: SegmentFront, clock: MockClock) -> None:
    async with opened(front) as (back, _):
        await back.native.create(STREAM)
        event = join_events([b"whole"])
        await back.direct.perform(AppendBytes(STREAM, event[:3], WriterPosition(WRITER, 1)))
        nothing = await back.native.scan(STREAM, START, max_records=9, max_bytes=999, wait=0)
        assert (nothing.bodies, nothing.at_tail) == ([], True)
        async with trio.open_nursery() as nursery:

            async def follow() -> None:
                scanned = await back.native.scan(STREAM, START, max_records=9, max_bytes=999, wait=99)
                assert scanned.bodies == [b"whole"]

            nursery.start_soon(follow)
            for number, part in enumerate((event[3:9], event[9:]), 2):
                await trio.sleep(1)
                await back.direct.perform(AppendBytes(STREAM, part, WriterPosition(WRITER, number)))


async def test_credentials_and_tokens(tmp_path: Path, clock: MockClock) -> None:
    """The controller is shown who asks, and what it gives for that is shown to the stores; anew where it is too old."""
    shown: list[str | None] = []
    tokens: list[str] = []

    def answer(request: Any) -> list[SegmentMessage]:
        tokens.append(request.delegation_token)
        if len(tokens) == 2:
            return [released.AuthTokenCheckFailed(request.request_id, "", 1)]
        return [released.StreamSegmentInfo(request.request_id, request.segment, True, False, False, 0, 100)]

    async with controlled_store(tmp_path / "data", Wall()) as kept:
        where = ControllerSettings(names=NAMES, advertise=lambda: Advertised("127.0.0.1", STORE.port))
        managed = ControllerFront(Controller(kept, where, Wall()))
        serve = managed.handle

        async def handle(exchange: Exchange) -> None:
            shown.append(exchange.request.header("authorization"))
            await serve(exchange)

        managed.handle = handle  # type: ignore[method-assign]
        asking = {"store": None, "controller": CONTROLLER, "username": "who", "password": "secret"}
        async with opened(scripted(answer), managed, **asking) as (back, _):
            for _ in range(3):
                assert (await back.native.bounds(STREAM)).end_offset == 100
        assert set(shown) == {"Basic d2hvOnNlY3JldA=="}
        assert len(tokens) == 4
