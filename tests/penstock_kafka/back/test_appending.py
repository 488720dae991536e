"""Appends through the gateway to a cluster: what is stored, and what clients are told, where answers are lost."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from msgspec.structs import replace
from support.s3p.front import BASIN
from support.store import Fails, acknowledged, appending, bodies, records
from trio.testing import MockClock

from penstock.core.delivery import Delivery
from penstock.model.failures import FailureCode
from penstock.model.operations import Append, CheckTail, CreateStream, FromSeqNum
from penstock.model.records import Header, StreamRef, metered_size
from penstock_kafka.codec.batches import read_batches
from penstock_kafka.codec.cluster_messages import MetadataRequest
from penstock_kafka.codec.record_messages import (
    InitProducerIdRequest,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResult,
)

STREAM = StreamRef(BASIN, "orders")


def batch(*bodies: bytes, **options: Any) -> Append:
    return appending(*bodies, stream=STREAM, **options)


async def read(back: Any) -> list[bytes]:
    return await bodies(back, FromSeqNum(0), stream=STREAM)


def refusing(code: int, times: int) -> Any:
    """Answer some Produce requests with an error, or, with code 0, without an offset."""
    left = [times]

    def answer(request: Any) -> Any:
        if not isinstance(request.message, ProduceRequest) or not left[0]:
            return None
        left[0] -= 1
        result = ProducePartitionResult(index=0, error_code=code)
        return ProduceResponse(topics=[ProduceTopicResult(name="orders", partitions=[result])])

    return answer


async def test_the_timestamps_of_a_server_that_does_not_tell_them(cluster: Any) -> None:
    """A topic whose records have the time of their arrival: they are read back."""
    async with cluster.back() as back:
        appended = await back.perform(batch(b"a", b"b"))
        found = await records(back, FromSeqNum(0), stream=STREAM)
        assert [appended.start.timestamp, appended.end.timestamp] == [one.timestamp for one in found]


@pytest.mark.parametrize("loss", ["lost", "before"])
async def test_an_append_is_stored_once(cluster: Any, loss: str) -> None:
    """It is sent again with its number, three times, and the leader knows it."""
    async with cluster.back() as back:
        await back.perform(batch(b"a"))
        setattr(cluster, loss, 3)
        assert (await back.perform(batch(b"b", b"c"))).start.seq_num == 1
        assert (await back.perform(batch(b"d"))).start.seq_num == 3
        assert await read(back) == [b"a", b"b", b"c", b"d"]


async def test_a_session_goes_on_and_sends_together(cluster: Any) -> None:
    async with cluster.back() as back, back.append_session(STREAM) as session:
        for number in range(60):
            if number % 20 == 5:
                cluster.lost = 1
            await session.send(batch(b"%d" % number))
        acks = await acknowledged(session, 60)
        assert [one.start.seq_num for one in acks] == list(range(60))
        assert [one.end.seq_num for one in acks] == list(range(1, 61))
        assert cluster.asked(ProduceRequest) < 10
        assert cluster.asked(InitProducerIdRequest) == 1
        assert await read(back) == [b"%d" % number for number in range(60)]


@pytest.mark.parametrize("code", [5, 6, 19])  # no leader, another leader, too few replicas
async def test_another_leader_is_found(cluster: Any, code: int) -> None:
    async with cluster.back() as back:
        await back.perform(batch(b"a"))
        looked = cluster.asked(MetadataRequest)
        cluster.answers.append(refusing(code, 3))
        assert (await back.perform(batch(b"b"))).start.seq_num == 1
        assert cluster.asked(MetadataRequest) > looked or code == 19
        assert await read(back) == [b"a", b"b"]


@pytest.mark.parametrize("code", [45, 59])
async def test_a_leader_that_forgot_the_producer_gets_another(cluster: Any, code: int) -> None:
    async with cluster.back() as back:
        await back.perform(batch(b"a"))
        cluster.answers.append(refusing(code, 1))
        assert (await back.perform(batch(b"b"))).start.seq_num == 1
        assert cluster.asked(InitProducerIdRequest) == 2
        assert await read(back) == [b"a", b"b"]


async def test_or_twice(cluster: Any) -> None:
    async with cluster.back(delivery=Delivery.AT_LEAST_ONCE) as back:
        await back.perform(CreateStream(STREAM))
        cluster.lost = 1
        await back.perform(batch(b"a"))
        assert await read(back) == [b"a", b"a"]


async def test_or_its_client_decides(cluster: Any) -> None:
    async with cluster.back(delivery=Delivery.REFUSE) as back:
        await back.perform(CreateStream(STREAM))
        cluster.lost = 1
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(batch(b"a"))
        await back.perform(batch(b"b"))
        assert await read(back) == [b"a", b"b"]


async def test_a_cluster_that_stays_away(cluster: Any, clock: MockClock) -> None:
    """In doubt, the append fails with UNAVAILABLE; one that was not sent, with HOT_SERVER; then all is well again."""
    async with cluster.back(recover_seconds=5) as back:
        await back.perform(batch(b"a"))

        def lose(request: Any) -> None:
            if isinstance(request.message, ProduceRequest):
                cluster.far.up = False

        cluster.lost = 1
        cluster.answers.append(lose)
        began = trio.current_time()
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(batch(b"b"))
        assert 4 < trio.current_time() - began < 7
        with Fails(FailureCode.HOT_SERVER):
            await back.perform(batch(b"c"))
        cluster.far.up, cluster.answers = True, []
        assert (await back.perform(batch(b"d"))).start.seq_num == 2
        assert await read(back) == [b"a", b"b", b"d"]


@pytest.mark.parametrize("code", [3, 6, 56])  # no such partition, another leader, a broken disk
async def test_a_leader_that_loses_its_place_while_replicas_confirm(cluster: Any, code: int) -> None:
    """It has stored the batch, and says nothing of that: the append is in doubt, and the next one is another batch."""
    async with cluster.back(recover_seconds=2) as back:
        await back.perform(batch(b"a"))
        cluster.belied.append(refusing(code, 1000))
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(batch(b"b"))
        cluster.belied.clear()
        assert (await back.perform(batch(b"c"))).start.seq_num == 2
        assert await read(back) == [b"a", b"b", b"c"]


async def test_a_leader_that_loses_its_place_has_a_successor(cluster: Any) -> None:
    """It gets the batch with its number, and has it."""
    async with cluster.back() as back:
        cluster.belied.append(refusing(6, 2))
        assert (await back.perform(batch(b"a"))).start.seq_num == 0
        assert (await back.perform(batch(b"b"))).start.seq_num == 1
        assert cluster.asked(InitProducerIdRequest) == 1
        assert await read(back) == [b"a", b"b"]


async def test_or_its_client_decides_about_its_successor(cluster: Any) -> None:
    async with cluster.back(delivery=Delivery.REFUSE) as back:
        cluster.belied.append(refusing(6, 1))
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(batch(b"a"))
        assert cluster.asked(ProduceRequest) == 1
        assert (await back.perform(batch(b"b"))).start.seq_num == 1
        assert await read(back) == [b"a", b"b"]


async def test_a_successor_that_does_not_know_the_producer_may_have_the_batch(cluster: Any) -> None:
    async with cluster.back() as back:
        cluster.belied.append(refusing(6, 1))
        cluster.belied.append(refusing(59, 1))
        with Fails(FailureCode.UNAVAILABLE):
            await back.perform(batch(b"a"))
        assert await read(back) == [b"a"]


async def test_a_repetition_whose_place_the_leader_has_forgotten(cluster: Any) -> None:
    """It is asked again with the same number: another one would be another batch."""
    async with cluster.back() as back:
        await back.perform(batch(b"a"))
        cluster.belied.append(refusing(0, 2))
        assert (await back.perform(batch(b"b"))).start.seq_num == 1
        assert (await back.perform(batch(b"c"))).start.seq_num == 2
        assert await read(back) == [b"a", b"b", b"c"]


async def test_a_batch_that_is_too_large(cluster: Any) -> None:
    """Alone it is refused; of several that are sent together, each is sent with fewer."""

    def answer(request: Any) -> Any:
        message = request.message
        if isinstance(message, ProduceRequest) and len(message.topics[0].partitions[0].records) > 50_000:
            return refusing(10, 1)(request)
        return None

    cluster.answers.append(answer)
    async with cluster.back() as back, back.append_session(STREAM) as session:
        sent = [b"%03d" % number * 2000 for number in range(100)]
        for body in sent:
            await session.send(batch(body))
        assert [one.start.seq_num for one in await acknowledged(session, 100)] == list(range(100))
        assert await read(back) == sent
        with Fails(FailureCode.LIMIT_EXCEEDED, "MESSAGE_TOO_LARGE"):
            await back.perform(batch(b"x" * 60_000))


async def test_records_as_kafka_has_them(cluster: Any) -> None:
    """Headers of the two names are the key, and what is null."""
    headers = {
        0: (Header(b"kafka-key", b"k"), Header(b"a", b"1")),
        1: (Header(b"kafka-null", b"value"),),
        2: (Header(b"b", b""),),
    }
    bodies = [b"v", b"", b""]
    async with cluster.back() as back:
        await back.perform(Append(STREAM, bodies, metered_size(bodies, headers), headers=headers))
    [request] = [one for one in cluster.requests if isinstance(one, ProduceRequest)]
    [found] = read_batches(request.topics[0].partitions[0].records or b"")
    assert (found.keys, found.values) == ([b"k", None, None], [b"v", None, b""])
    assert found.headers == {0: ((b"a", b"1"),), 2: ((b"b", b""),)}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"match_seq_num": 0}, "match_seq_num"),
        ({"fencing_token": "t"}, "fencing token"),
        ({"exact_timestamp": 5}, "timestamp that a client dictates"),
    ],
)
async def test_what_kafka_lacks_is_refused_by_name(cluster: Any, options: Any, what: str) -> None:
    async with cluster.back() as back:
        with Fails(FailureCode.NOT_IMPLEMENTED, what):
            await back.perform(replace(batch(b"x"), **options))
        assert (await back.perform(CheckTail(STREAM))).seq_num == 0


async def test_a_refusal_ends_a_session(cluster: Any) -> None:
    """Appends before it are acknowledged first, and those behind it are not stored."""
    async with cluster.back() as back, back.append_session(STREAM) as session:
        for one in (batch(b"a"), batch(b"b"), replace(batch(b"no"), exact_timestamp=5), batch(b"no")):
            await session.send(one)
        assert [one.start.seq_num for one in await acknowledged(session, 2)] == [0, 1]
        with Fails(FailureCode.NOT_IMPLEMENTED, "timestamp that a client dictates"):
            await session.receive()
        assert await read(back) == [b"a", b"b"]


@pytest.mark.parametrize("header", [Header(b"", b"fence"), Header(b"\xff", b"")])
async def test_headers_that_kafka_has_not(cluster: Any, header: Header) -> None:
    async with cluster.back() as back:
        with Fails(FailureCode.NOT_REPRESENTABLE, "record "):
            await back.perform(Append(STREAM, [b"x"], 100, headers={0: (header,)}))


async def test_the_gateway_is_closed_with_appends_in_flight(cluster: Any) -> None:
    async with cluster.back() as back:
        await back.perform(batch(b"a"))
        cluster.answers.append(refusing(6, 1000))
        async with back.append_session(STREAM) as session:
            await session.send(batch(b"b"))
    with Fails(FailureCode.UNAVAILABLE):
        await session.receive()
