"""Bytes in flight, rates and paces."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import KIB, MIB
from penstock.net.limits import Limiter
from penstock.net.limits.limiter import (
    CONNECTION_QUOTA,
    Bucket,
    ConnectionQuota,
    Crowded,
    HeldBytes,
    count_operation,
)
from penstock.net.limits.settings import Limits
from penstock.net.transport import MessagePace

TIGHT = Limits(max_inflight_bytes=64 * MIB, max_inflight_bytes_per_client=32 * MIB, inflight_wait_seconds=5)


def new_quota(limiter: Limiter, host: str = "10.0.0.1") -> ConnectionQuota:
    quota = limiter.enter("listeners.s2", 100, host)
    assert isinstance(quota, ConnectionQuota), quota
    quota.admit()
    return quota


async def test_one_leads_and_others_wait_for_it(autojump_clock: MockClock) -> None:
    limiter = Limiter(TIGHT)
    quotas = [new_quota(limiter) for _ in range(3)]
    for quota in quotas:
        quota.charge(12 * MIB)
    went_on: list[int] = []

    async def wait(number: int) -> None:
        await quotas[number].room()
        went_on.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(wait, number)
        await trio.sleep(1)
        assert len(went_on) == 1, "the leader"
        quotas[went_on[0]].charge(-12 * MIB)
        await trio.sleep(1)
        assert len(went_on) == 3


async def test_who_waits_for_too_long_is_refused(autojump_clock: MockClock) -> None:
    limiter = Limiter(TIGHT)
    for _ in range(2):
        new_quota(limiter).charge(20 * MIB)
    leader, other = new_quota(limiter), new_quota(limiter)
    for quota in (leader, other):
        quota.charge(MIB)
    await leader.room()
    began = trio.current_time()
    with pytest.raises(Crowded, match="max_inflight_bytes_per_client"):
        await other.room()
    assert trio.current_time() - began == pytest.approx(5)
    with pytest.raises(OperationFailed) as refused:
        await other.answer_room()
    assert refused.value.failure.code is FailureCode.RATE_LIMITED


async def test_small_messages_always_have_room(autojump_clock: MockClock) -> None:
    limiter = Limiter(TIGHT)
    new_quota(limiter).charge(60 * MIB)
    small = new_quota(limiter)
    small.charge(64 * KIB)
    assert not small.crowded
    small.charge(1)
    assert small.crowded


async def test_what_others_hold_is_nothing_to_a_client_with_less_than_its_share(autojump_clock: MockClock) -> None:
    limiter = Limiter(TIGHT)
    for number in range(3):
        new_quota(limiter, f"10.0.0.{number}").charge(30 * MIB)
    modest = new_quota(limiter, "10.0.0.9")
    modest.charge(8 * MIB)
    assert not modest.crowded
    await modest.answer_room()
    modest.charge(10 * MIB)
    assert modest.crowded


async def test_what_is_held_is_given_back() -> None:
    limiter = Limiter()
    quota = new_quota(limiter)
    with HeldBytes(quota) as holding:
        holding.set(100)
        holding.set(40)
        assert limiter.held == quota.held == quota.account.held == 40
    assert limiter.held == quota.held == quota.account.held == 0


def test_a_bucket_gives_its_rate_and_a_burst() -> None:
    bucket = Bucket()
    taken = [bucket.take(1, 10, 2, 100.0) for _ in range(21)]
    assert taken[:20] == [0.0] * 20
    assert taken[20] == pytest.approx(0.1)
    assert bucket.take(1, 10, 2, 100.05) == pytest.approx(0.05)
    assert bucket.take(1, 10, 2, 100.11) == 0.0


def test_a_bucket_that_is_owed_says_for_how_long() -> None:
    bucket = Bucket()
    assert bucket.owe(200, 100, 2, 50.0) == 0.0
    assert bucket.owe(100, 100, 2, 50.0) == pytest.approx(1.0)
    assert bucket.owe(0, 100, 2, 51.0) == pytest.approx(0.0)


async def test_rates_are_those_of_the_table_and_of_the_client(autojump_clock: MockClock) -> None:
    limiter = Limiter()
    quota, sibling, other = new_quota(limiter), new_quota(limiter), new_quota(limiter, "10.0.0.2")
    assert not any(quota.request() or quota.received(MIB) for _ in range(1000)), "there are no rates by default"
    limiter.table = Limits(requests_per_second=2, bytes_per_second=1000, burst_seconds=1)
    assert [quota.request(), quota.request()] == [0.0, 0.0]
    assert sibling.request() == pytest.approx(0.5)
    assert other.request() == 0.0
    assert quota.received(3000) == pytest.approx(2.0)
    await trio.sleep(1)
    assert sibling.request() == 0.0


async def test_a_front_that_counts_no_requests_is_charged_for_its_operations(autojump_clock: MockClock) -> None:
    limiter = Limiter(Limits(requests_per_second=2, burst_seconds=1))
    count_operation()  # no client's task
    CONNECTION_QUOTA.set(quota := new_quota(limiter))
    count_operation()
    count_operation()
    with pytest.raises(OperationFailed, match="requests_per_second is reached"):
        count_operation()
    await trio.sleep(1)
    assert quota.request() == quota.request() == 0.0
    count_operation()  # the request was counted


async def test_only_others_make_a_client_rest_between_its_turns(autojump_clock: MockClock) -> None:
    limiter = Limiter()
    quota, other = new_quota(limiter), new_quota(limiter, "10.0.0.2")

    async def rested(size: int) -> float:
        quota.received(size)
        began = trio.current_time()
        await quota.rest_after_turn(size + 1, 1)
        return trio.current_time() - began

    assert not await rested(10)
    await trio.sleep(1)
    assert not await rested(10)
    other.received(10)
    assert 0 < await rested(MIB) < await rested(10)
    began = trio.current_time()
    await quota.rest_after_turn(10, 0)
    assert trio.current_time() == began, "there is nothing to go on with"
    await trio.sleep(1)
    assert not await rested(10), "the other one is quiet"


async def test_who_drips_is_read_now_and_then_while_others_are_served(autojump_clock: MockClock) -> None:
    limiter = Limiter()
    quota, other = new_quota(limiter), new_quota(limiter, "10.0.0.2")
    assert not any(quota.received(1) for _ in range(20)), "there is no other client"
    other.received(100)
    assert 0.5 <= quota.received(1) <= 1.0
    assert quota.received(100) == 0
    dripped = [quota.received(1) for _ in range(12)]
    assert dripped[:8] == [0] * 8 and all(0.1 <= seconds <= 0.3 for seconds in dripped[8:])
    for size in (5, 20, 45):
        assert 0.5 <= quota.received(size) <= 1.0, "what has come meanwhile is little for so long"
    assert quota.received(100) == 0
    assert not any(quota.received(1) for _ in range(8)), "it may be an accident"


def test_a_message_has_its_grace_and_then_a_rate() -> None:
    limits, pace = Limits(receive_grace_seconds=10, min_receive_rate=100), MessagePace()
    assert pace.deadline(0, limits, 0.0) == math.inf
    assert pace.deadline(1000, limits, 5.0) == 25.0
    assert pace.deadline(2000, limits, 20.0) == 35.0
    pace.next()
    assert pace.deadline(2000, limits, 20.0) == 50.0
    assert pace.deadline(0, limits, 21.0) == math.inf
