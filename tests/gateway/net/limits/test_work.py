"""Work on long requests in turns."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from penstock.net.limits import Limiter, work
from penstock.net.limits.limiter import ConnectionQuota
from penstock.net.limits.settings import Limits
from penstock.net.limits.work import FREE_TURNS, TURN_SECONDS, Work

COUNT = 100


def new_quota(limiter: Limiter, host: str = "10.0.0.1") -> ConnectionQuota:
    quota = limiter.enter("listeners.kafka", 100, host)
    assert isinstance(quota, ConnectionQuota), quota
    return quota


class Processor:
    """A clock that only work moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(work, "perf_counter", lambda: self.now)

    def work(self) -> None:
        self.now += 1.1 * TURN_SECONDS


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Processor:
    return Processor(monkeypatch)


async def test_others_run_after_each_turn(processor: Processor) -> None:
    passes = 0

    async def run() -> None:
        nonlocal passes
        while True:
            passes += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        elements = []
        async for element in Work(new_quota(Limiter())).each(range(COUNT)):
            elements.append(element)
            processor.work()
        nursery.cancel_scope.cancel()
    assert elements == list(range(COUNT))
    assert passes >= COUNT


async def test_long_requests_of_a_client_rest_one_after_the_other_while_others_are_served(
    processor: Processor, autojump_clock: MockClock
) -> None:
    limiter = Limiter()
    quotas = [new_quota(limiter), new_quota(limiter)]
    other = new_quota(limiter, "10.0.0.2")
    began = trio.current_time()

    async def carry_out(quota: ConnectionQuota) -> None:
        async for _ in Work(quota).each(range(COUNT)):
            processor.work()
            other.received(10)

    async with trio.open_nursery() as nursery:
        for quota in quotas:
            nursery.start_soon(carry_out, quota)
    rests = 2 * (COUNT - 1 - FREE_TURNS)
    assert trio.current_time() - began == pytest.approx(0.001 * rests, rel=0.1)


async def test_the_work_of_a_long_request_counts_as_further_requests(
    processor: Processor, autojump_clock: MockClock
) -> None:
    limiter = Limiter(Limits(requests_per_second=1, burst_seconds=2))
    began = trio.current_time()
    async for _ in Work(new_quota(limiter)).each(range(10 * FREE_TURNS + 2)):
        processor.work()
    assert trio.current_time() - began == pytest.approx(9 - 2, abs=0.1), "the first turns are the request itself"


async def test_waits_are_no_work(processor: Processor) -> None:
    request = Work(new_quota(Limiter()))
    wake = trio.lowlevel.ParkingLot()

    async def handler() -> str:
        async for _ in request.each(range(COUNT)):
            await wake.park()
        return "done"

    async with trio.open_nursery() as nursery:

        async def others() -> None:
            while True:
                processor.work()
                wake.unpark_all()
                await trio.lowlevel.checkpoint()

        nursery.start_soon(others)
        assert await request.carry_out(handler()) == "done"
        nursery.cancel_scope.cancel()
    assert not request.turns


async def test_errors_and_cancellation_reach_the_handler_and_its_caller() -> None:
    request, ends = Work(new_quota(Limiter())), list[str]()

    async def handler() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ends.append("handler")

    with trio.move_on_after(0) as scope:
        await request.carry_out(handler())
    assert scope.cancelled_caught

    async def failing() -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("x")

    with pytest.raises(KeyError):
        await request.carry_out(failing())
    assert ends == ["handler"]
