"""A deletion whose answer was lost may be repeated."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from support.backs import PartialBack
from support.store import Fails
from trio.testing import MockClock

from penstock.core.identity import CLIENT, Client
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import DeleteBasin, Operation
from penstock.model.records import StreamRef
from penstock_s2.front.control import ControlEndpoints


class Back(PartialBack):
    """Has the names in `there`: basins, and streams of any basin."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.seconds = 0.0
        self.failure: FailureCode | None = None

    async def perform(self, operation: Operation[Any]) -> Any:
        await trio.sleep(self.seconds)
        is_basin = isinstance(operation, DeleteBasin)
        name = operation.basin if isinstance(operation, DeleteBasin) else operation.stream.stream  # type: ignore[attr-defined]
        if self.failure is not None:
            raise fail(self.failure, "planted")
        if name not in self.there:
            raise fail(FailureCode.BASIN_NOT_FOUND if is_basin else FailureCode.STREAM_NOT_FOUND, name)
        self.there.discard(name)


class Call:
    """The request to delete a stream of this basin, or the basin itself."""

    def __init__(self, stream: str = "s") -> None:
        self.name = StreamRef("basin-one", stream)
        self.status = 0

    def basin(self) -> str:
        return self.name.basin

    def stream(self) -> StreamRef:
        return self.name

    async def respond_empty(self, status: int) -> None:
        self.status = status


async def deleted(endpoints: ControlEndpoints, stream: str | None = "s") -> int:
    call: Any = Call(stream or "")
    await (endpoints.delete_basin(call) if stream is None else endpoints.delete_stream(call))
    return int(call.status)


@pytest.mark.parametrize("stream", ["s", None], ids=["stream", "basin"])
async def test_a_repetition_succeeds_for_a_minute(autojump_clock: MockClock, stream: str | None) -> None:
    endpoints = ControlEndpoints(Back("s", "basin-one"))
    assert await deleted(endpoints, stream) == 202
    for _ in range(3):
        await trio.sleep(59)
        assert await deleted(endpoints, stream) == 202
    await trio.sleep(61)
    for _ in range(2):
        with Fails(FailureCode.STREAM_NOT_FOUND if stream else FailureCode.BASIN_NOT_FOUND):
            await deleted(endpoints, stream)


async def test_a_client_that_left_while_its_deletion_went_on_may_repeat_it(autojump_clock: MockClock) -> None:
    back = Back("s")
    back.seconds = 5
    endpoints = ControlEndpoints(back)
    with trio.move_on_after(1) as scope:
        await deleted(endpoints)
    assert scope.cancelled_caught
    back.there.clear()  # it was carried out
    assert await deleted(endpoints) == 202


async def test_a_deletion_that_failed_otherwise_may_have_been_carried_out() -> None:
    back = Back()
    back.failure = FailureCode.UNAVAILABLE
    endpoints = ControlEndpoints(back)
    for _ in range(2):
        with Fails(FailureCode.UNAVAILABLE):
            await deleted(endpoints)
    back.failure = None
    assert await deleted(endpoints) == 202


async def test_what_others_have_deleted_is_not_told() -> None:
    endpoints = ControlEndpoints(Back("s"))
    assert await deleted(endpoints) == 202
    CLIENT.set(Client(identity="another"))
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await deleted(endpoints)


async def test_the_memory_of_deletions_is_bounded() -> None:
    names = [f"s{number}" for number in range(1001)]
    endpoints = ControlEndpoints(Back(*names))
    for name in names:
        assert await deleted(endpoints, name) == 202
    assert await deleted(endpoints, "s1") == 202
    with Fails(FailureCode.STREAM_NOT_FOUND):
        await deleted(endpoints, "s0")
