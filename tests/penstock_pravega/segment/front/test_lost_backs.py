"""The segment front before a server that is lost: connections end as if it were the server's own, and come again."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from support.segment.front import SEGMENT, Client, Connect, WatchedBack
from trio.testing import MockClock

from penstock.model.byte_operations import AppendBytes, GetAttribute, GetByteStreamInfo, ReadBytes
from penstock.model.failures import FailureCode, fail
from penstock_pravega.codec import append_messages, released

LOST = [FailureCode.HOT_SERVER, FailureCode.UNAVAILABLE, FailureCode.UPSTREAM_TIMEOUT]

REQUESTS: list[tuple[type, Any]] = [
    (GetAttribute, released.SetupAppend(7, uuid4(), SEGMENT)),
    (ReadBytes, released.ReadSegment(SEGMENT, 0, 100, "", 7)),
    (GetByteStreamInfo, released.GetStreamSegmentInfo(7, SEGMENT)),
]


@pytest.mark.parametrize("code", LOST)
@pytest.mark.parametrize(("operation", "request_"), REQUESTS, ids=[kind.__name__ for kind, _ in REQUESTS])
async def test_a_request_is_not_answered_and_can_be_made_again(
    connect: Connect, clock: MockClock, back: WatchedBack, code: FailureCode, operation: type, request_: Any
) -> None:
    first = await connect()
    await first.create()
    writer = await first.writer()
    await first.send(*append_messages(writer, [b"hello"], 1, 9))
    assert isinstance(await first.reply(), released.DataAppended)
    back.fails[operation] = fail(code, "back far: connection refused")
    await first.send(request_)
    assert await first.ended()
    back.fails.clear()
    second = await connect()
    assert not isinstance(await second.call(request_), released.ErrorMessage)


@pytest.mark.parametrize("code", LOST)
async def test_appends_are_not_answered_and_their_writer_learns_where_it_was(
    connect: Connect, clock: MockClock, back: WatchedBack, code: FailureCode
) -> None:
    first: Client = await connect()
    await first.create()
    writer = await first.writer()
    await first.send(*append_messages(writer, [b"one"], 1, 9))
    assert isinstance(await first.reply(), released.DataAppended)
    back.fails[AppendBytes] = fail(code, "back far: connection lost")
    await first.send(*append_messages(writer, [b"two"], 2, 9), *append_messages(writer, [b"three"], 3, 9))
    assert await first.ended()
    back.fails.clear()
    second: Client = await connect()
    reply = await second.call(released.SetupAppend(7, writer, SEGMENT))
    assert reply == released.AppendSetup(7, SEGMENT, writer, 1)
