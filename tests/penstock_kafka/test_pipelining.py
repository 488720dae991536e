"""Produce requests of one connection in progress at the same time: shared commits, orders, failures, bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from support.backs import DecodedBack
from support.kafka.front import Client, Connect, fetched, records, serving
from trio.testing import wait_all_tasks_blocked

from penstock.backends.embedded import EmbeddedBack
from penstock.model.byte_operations import AppendAs
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import Append, CheckTail, CreateStream, Operation
from penstock.model.records import StreamRef
from penstock.observe.metrics.families import STORE_COMMITS
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import KafkaBatch, encode_batch
from penstock_kafka.codec.record_messages import (
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from penstock_kafka.front import KafkaSettings
from penstock_kafka.front.pipeline import MOST_REQUESTS

Batches = Sequence[tuple[str, KafkaBatch]]


@pytest.fixture
async def store(back: EmbeddedBack) -> EmbeddedBack:
    """A store with topics `t`, `u` and `v`."""
    for name in "tuv":
        await back.perform(CreateStream(StreamRef("penstock", name)))
    return back


@pytest.fixture
async def client(connect: Connect, store: EmbeddedBack) -> Client:
    return connect()


async def send(client: Client, batches: Batches, acks: int = -1) -> None:
    """Send a Produce request for each batch, and wait for no response."""
    for topic, batch in batches:
        partition = ProducePartition(index=0, records=encode_batch(batch))
        produce = ProduceRequest(acks=acks, timeout_ms=1000, topics=[ProduceTopic(name=topic, partitions=[partition])])
        await client.send(produce, answered=acks != 0)


async def results(client: Client, count: int) -> list[ProducePartitionResult]:
    """Return the results of the next responses; the client refuses those that do not come in the order of requests."""
    responses = [await client.response() for _ in range(count)]
    assert all(isinstance(response, ProduceResponse) for response in responses)
    return [response.topics[0].partitions[0] for response in responses if isinstance(response, ProduceResponse)]


@asynccontextmanager
async def without_commits(back: EmbeddedBack) -> AsyncIterator[Callable[[], int]]:
    """Let the store commit nothing until the block ends; give a function that returns how many appends wait then."""
    committer = back.store.committer
    committer.must_wait = lambda: True
    try:
        yield lambda: committer.pending
    finally:
        committer.must_wait = lambda: False
        committer.go_on()


@pytest.mark.parametrize("producer", [-1, 7])
async def test_pipelined_requests_share_a_commit(client: Client, store: EmbeddedBack, producer: int) -> None:
    """Also with requests for the same stream, of an idempotent producer."""

    def batch(number: int) -> KafkaBatch:
        return records(b"%d" % number, producer=producer, sequence=number if producer >= 0 else -1)

    await send(client, [(topic, batch(0)) for topic in "tuv"])
    await results(client, 3)
    async with without_commits(store) as pending:
        before = STORE_COMMITS.child().value
        await send(client, [(topic, batch(number)) for number in range(1, 4) for topic in "tuv"])
        await wait_all_tasks_blocked()
        assert pending() == 9
    assert [one.base_offset for one in await results(client, 9)] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert STORE_COMMITS.child().value - before == 1
    for topic in "tuv":
        assert [value for *_, value in fetched(await client.fetch(topic=topic))] == [b"0", b"1", b"2", b"3"]


async def test_other_requests_wait_for_those_in_progress(client: Client, store: EmbeddedBack) -> None:
    async with without_commits(store) as pending, trio.open_nursery() as nursery:
        await send(client, [("t", records(b"a")), ("t", records(b"b"))])
        nursery.start_soon(client.fetch)
        await wait_all_tasks_blocked()
        assert pending() == 2
        nursery.cancel_scope.cancel()
    await results(client, 2)
    response: Any = await client.response()
    assert [value for *_, value in fetched(response.topics[0].partitions[0])] == [b"a", b"b"]


class Slow(DecodedBack):
    """A back that waits for `opened` before operations of class `before`, and before it returns appends to `t`."""

    before: type[Operation[Any]] | None = None

    def __init__(self, store: EmbeddedBack) -> None:
        super().__init__(store)
        self.opened = trio.Event()

    async def perform(self, operation: Operation[Any]) -> Any:
        if self.before is not None and isinstance(operation, self.before):
            await self.opened.wait()
        result = await super().perform(operation)
        if self.before is None and isinstance(operation, Append) and operation.stream.stream == "t":
            await self.opened.wait()
        return result


async def test_responses_come_in_the_order_of_requests(store: EmbeddedBack) -> None:
    slow = Slow(store)
    async with serving(slow) as (connect, _):
        client = connect()
        await send(client, [("t", records(b"a")), ("u", records(b"b")), ("nope", records(b"c")), ("v", records(b"d"))])
        while not (await store.perform(CheckTail(StreamRef("penstock", "v")))).seq_num:
            await wait_all_tasks_blocked()
        with trio.move_on_after(0.05):
            raise AssertionError(await client.stream.receive_some())
        slow.opened.set()
        codes = [one.error_code for one in await results(client, 4)]
        assert codes == [0, 0, KafkaError.UNKNOWN_TOPIC_OR_PARTITION, 0]


async def test_batches_keep_their_order_while_the_first_waits(store: EmbeddedBack) -> None:
    """It is looked up whether the stream exists before the first append, and not before the second."""
    slow = Slow(store)
    slow.before = CheckTail
    async with serving(slow) as (connect, _):
        client = connect()
        await send(client, [("t", records(b"%d" % number)) for number in range(5)])
        await wait_all_tasks_blocked()
        slow.opened.set()
        assert [one.base_offset for one in await results(client, 5)] == [0, 1, 2, 3, 4]
        assert [value for *_, value in fetched(await client.fetch())] == [b"0", b"1", b"2", b"3", b"4"]


class Failing(DecodedBack):
    """A back that refuses the first `failures` appends."""

    failures = 0

    async def perform(self, operation: Operation[Any]) -> Any:
        if isinstance(operation, AppendAs) and self.failures:
            self.failures -= 1
            await trio.lowlevel.checkpoint()
            raise fail(FailureCode.RATE_LIMITED, "not now")
        return await super().perform(operation)


@pytest.mark.parametrize("stored", [0, 1])
async def test_a_batch_behind_a_failed_one_is_refused_and_none_is_lost(store: EmbeddedBack, stored: int) -> None:
    """A client sends both again, in order. Taken before the failed batch, the second would make that a duplicate."""
    failing = Failing(store)
    batches = [("t", records(b"%d" % number, producer=7, sequence=number)) for number in range(4)]
    async with serving(failing) as (connect, _):
        client = connect()
        await send(client, batches[:stored])
        await results(client, stored)
        failing.failures = 1
        await send(client, [*batches[stored:], ("u", records(b"other"))])
        *codes, other = [one.error_code for one in await results(client, 5 - stored)]
        assert codes[0] not in (0, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert set(codes[1:]) == {KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER} and other == 0
        await send(client, batches[stored:])
        assert [one.base_offset for one in await results(client, 4 - stored)] == [*range(stored, 4)]
        assert [value for *_, value in fetched(await client.fetch())] == [b"0", b"1", b"2", b"3"]


async def test_a_failure_without_acks_ends_the_connection_behind_the_responses(client: Client) -> None:
    await send(client, [("t", records(b"a")), ("u", records(b"b"))])
    await send(client, [("nope", records(b"x"))], acks=0)
    assert [one.error_code for one in await results(client, 2)] == [0, 0]
    assert await client.response() is None


async def test_batches_of_a_cut_connection_are_stored_once(
    client: Client, connect: Connect, store: EmbeddedBack
) -> None:
    """A client that sends them again, on another connection and while they are in progress, waits for them."""
    batches = [("t", records(b"%d" % number, producer=7, sequence=number)) for number in range(4)]
    await send(client, batches[:1])
    await results(client, 1)
    other = connect()
    async with without_commits(store) as pending:
        await send(client, batches[1:])
        await wait_all_tasks_blocked()
        await client.stream.aclose()
        await send(other, batches)
        await wait_all_tasks_blocked()
        assert pending() == 3
    assert [one.base_offset for one in await results(other, 4)] == [0, 1, 2, 3]
    assert [value for *_, value in fetched(await other.fetch())] == [b"0", b"1", b"2", b"3"]


async def test_requests_in_progress_are_bounded(store: EmbeddedBack) -> None:
    """By number and by bytes; those behind are received later."""
    large = records(b"x" * 1000)
    bounds = [(KafkaSettings(), records(b"x"), MOST_REQUESTS), (KafkaSettings(max_batch_bytes=5000), large, 4)]
    for settings, batch, most in bounds:
        async with serving(store, settings) as (connect, _), trio.open_nursery() as nursery:
            client = connect()
            await send(client, [("t", batch)])
            await results(client, 1)
            async with without_commits(store) as pending:
                nursery.start_soon(send, client, [("t", batch)] * 100)
                await wait_all_tasks_blocked()
                assert pending() == most
            assert {one.error_code for one in await results(client, 100)} == {0}


async def test_requests_in_progress_are_answered_when_the_gateway_drains(store: EmbeddedBack) -> None:
    async with serving(store) as (connect, front):
        client = connect()
        async with without_commits(store):
            await send(client, [("t", records(b"a")), ("u", records(b"b"))])
            await wait_all_tasks_blocked()
            front.draining.begin()
        assert [one.base_offset for one in await results(client, 2)] == [0, 0]
        assert await client.response() is None
