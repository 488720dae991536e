"""Produce: batches become records; idempotent producers; refusals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
import trio
import trio.testing
import zstandard
from support.backs import DecodedBack, SmallBatches
from support.kafka.front import Client, Connect, fetched, records, serving
from support.s3p.front import store_with_basin

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.permissions import APPEND, Permission
from penstock.model.byte_operations import AppendAs, GetAttribute, Seal
from penstock.model.failures import FailureCode, fail
from penstock.model.limits import MIB
from penstock.model.operations import Append, CheckTail, CreateStream, DeleteStream, Operation
from penstock.model.records import StreamRef
from penstock.net.limits import CONNECTION_QUOTA, ConnectionQuota, Limiter
from penstock.net.limits.settings import Limits
from penstock_kafka.codec import KafkaError, batches
from penstock_kafka.codec.batches import BATCH_HEADER, KafkaBatch, encode_batch
from penstock_kafka.codec.compression import KafkaCompression, decompress
from penstock_kafka.codec.record_messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from penstock_kafka.front import KafkaSettings

T = StreamRef("penstock", "t")


def producing(*partitions: tuple[str, int, bytes], acks: int = -1, transaction: str | None = None) -> ProduceRequest:
    topics = [
        ProduceTopic(name=topic, partitions=[ProducePartition(index=number, records=data)])
        for topic, number, data in partitions
    ]
    return ProduceRequest(transactional_id=transaction, acks=acks, timeout_ms=1000, topics=topics)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("codec", KafkaCompression)
async def test_a_batch_is_appended(client: Client, acks: int, codec: KafkaCompression) -> None:
    batch = records(b"a", b"", None, key=b"k")
    batch.compression = codec
    assert (await client.produce(batch, acks=acks)).base_offset == 0
    assert (await client.produce(batch, acks=acks)).base_offset == 3
    assert fetched(await client.fetch(3)) == [(3, b"k", b"a"), (4, b"k", b""), (5, b"k", None)]


async def test_without_acks_there_is_no_response(client: Client) -> None:
    await client.send(producing(("t", 0, encode_batch(records(b"a"))), acks=0), answered=False)
    assert (await client.produce(records(b"b"))).base_offset == 1


async def test_a_failure_without_acks_ends_the_connection(client: Client) -> None:
    await client.send(producing(("nope", 0, encode_batch(records(b"a"))), acks=0), answered=False)
    assert await client.ended()


async def test_partitions_of_one_request_succeed_and_fail_apart(client: Client, back: EmbeddedBack) -> None:
    for name in ("set/0", "set/1"):
        await back.perform(CreateStream(StreamRef("penstock", name)))
    batch = encode_batch(records(b"a"))
    response = await client.call(
        producing(("set", 0, batch), ("set", 1, batch), ("set", 2, batch), ("t", -1, batch)), ProduceResponse
    )
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    assert [topic.partitions[0].error_code for topic in response.topics] == [0, 0, unknown, unknown]
    assert fetched(await client.fetch(topic="set")) == [(0, None, b"a")]


async def test_a_batch_of_thousands_of_records_is_taken(client: Client) -> None:
    batch = records(*(b"%d" % number for number in range(2500)))
    assert (await client.produce(batch)).base_offset == 0
    assert [value for *_, value in fetched(await client.fetch(2400))] == [b"%d" % n for n in range(2400, 2500)]


def zstd_batch(window_log: int, *, damaged: bool = False) -> bytes:
    """Return a batch of two records with a right checksum, as Java's producer compresses it: in a frame that does not
    state its content's size, with windows of up to 128 MiB at levels 20 to 22."""
    plain = encode_batch(records(b"a", b"b"))
    parameters = zstandard.ZstdCompressionParameters(window_log=window_log)
    encoder = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    content = encoder.compress(plain[BATCH_HEADER:]) + encoder.flush()
    body = plain[21:22] + bytes([plain[22] | KafkaCompression.ZSTD]) + plain[23:BATCH_HEADER]
    body += content[:-1] if damaged else content
    length = len(body) + 9
    return plain[:8] + length.to_bytes(4, "big") + plain[12:17] + google_crc32c.value(body).to_bytes(4, "big") + body


async def test_java_producers_of_the_highest_zstd_levels_are_served(client: Client) -> None:
    assert (await client.produce(zstd_batch(27))).base_offset == 0
    assert [value for *_, value in fetched(await client.fetch())] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("batch", "code", "why"),
    [
        (zstd_batch(27, damaged=True), KafkaError.INVALID_RECORD, "compressed data is cut short"),
        (zstd_batch(28), KafkaError.POLICY_VIOLATION, "zstd window of 268435456 bytes, at most 134217728 are allowed"),
        (b"", KafkaError.CORRUPT_MESSAGE, "there is no whole batch"),
        (encode_batch(records(b"x"))[:-1] + b"!", KafkaError.CORRUPT_MESSAGE, "the checksum does not match"),
        (encode_batch(KafkaBatch(next_offset=1)), KafkaError.INVALID_REQUEST, "at least one record"),
        (records(b"x", producer=5, sequence=-1), KafkaError.INVALID_RECORD, "producer 5 has epoch 0, sequence -1"),
        (records(b"x" * 1_048_569), KafkaError.MESSAGE_TOO_LARGE, "record 0 has 1048577 bytes"),
    ],
)
async def test_a_batch_that_cannot_be_taken_is_refused(
    client: Client, batch: KafkaBatch | bytes, code: KafkaError, why: str
) -> None:
    refused = await client.produce(batch)
    assert refused.error_code == code and why in (refused.error_message or ""), refused
    assert (await client.produce(records(b"next"))).base_offset == 0, "nothing was appended"


async def test_a_record_that_cannot_be_carried_is_named(client: Client) -> None:
    batch = records(b"a", b"b")
    batch.headers = {1: ((b"kafka-key", b"x"),)}
    refused = await client.produce(batch)
    assert refused.error_code == KafkaError.INVALID_RECORD
    assert [one.batch_index for one in refused.record_errors] == [1]


async def test_a_batch_is_in_the_transaction_of_its_request(client: Client) -> None:
    batch = records(b"a")
    batch.transactional = True
    assert (await client.produce(batch)).error_code == KafkaError.INVALID_TXN_STATE
    given = producing(("t", 0, encode_batch(records(b"a"))), transaction="mine")
    found = await client.call(given, ProduceResponse)
    assert found.topics[0].partitions[0].error_code == KafkaError.INVALID_TXN_STATE


async def test_other_acks_are_refused(client: Client) -> None:
    assert (await client.produce(records(b"a"), acks=2)).error_code == KafkaError.INVALID_REQUIRED_ACKS


async def test_a_sealed_stream_takes_nothing(client: Client, back: EmbeddedBack) -> None:
    await back.perform(Seal(T))
    assert (await client.produce(records(b"a"))).error_code == KafkaError.POLICY_VIOLATION


# ---- idempotent producers --------------------------------------------------------------------------------------------


async def init(client: Client, **given: object) -> InitProducerIdResponse:
    return await client.call(InitProducerIdRequest(**given), InitProducerIdResponse)


async def test_producers_get_ids_of_their_own(client: Client) -> None:
    first, second = await init(client), await init(client)
    assert first.producer_id != second.producer_id and first.producer_id >= 0
    assert (first.producer_epoch, second.producer_epoch) == (0, 0)
    again = await init(client, producer_id=first.producer_id, producer_epoch=0)
    assert (again.producer_id, again.producer_epoch) == (first.producer_id, 1)
    last = await init(client, producer_id=first.producer_id, producer_epoch=2**15 - 1)
    assert last.producer_id != first.producer_id and last.producer_epoch == 0
    assert (await init(client, transactional_id="t")).error_code == KafkaError.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_batch_that_is_sent_again_has_its_offset(client: Client, connect: Connect) -> None:
    for number in range(6):
        await client.produce(records(b"a", b"b", producer=9, sequence=number * 2))
    assert (await client.produce(records(b"a", b"b", producer=9, sequence=4))).base_offset == 4
    assert (await connect().produce(records(b"a", b"b", producer=9, sequence=10))).base_offset == 10
    older = await client.produce(records(b"a", b"b", producer=9, sequence=0))
    assert older.error_code == KafkaError.DUPLICATE_SEQUENCE_NUMBER, "of the last five only"
    assert (await client.fetch()).high_watermark == 12


async def test_a_gap_is_refused(client: Client) -> None:
    await client.produce(records(b"a", producer=9, sequence=0))
    refused = await client.produce(records(b"c", producer=9, sequence=2))
    assert refused.error_code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused.error_message == "producer 9 must go on with sequence number 1, not 2"
    assert (await client.produce(records(b"b", producer=9, sequence=1))).base_offset == 1


async def test_an_epoch_that_is_over_is_refused(client: Client) -> None:
    await client.produce(records(b"a", producer=9, sequence=0))
    late = await client.produce(records(b"x", producer=9, epoch=2, sequence=1))
    assert late.error_code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "a new epoch begins at 0"
    assert (await client.produce(records(b"b", producer=9, epoch=2, sequence=0))).base_offset == 1
    refused = await client.produce(records(b"x", producer=9, sequence=1))
    assert refused.error_code == KafkaError.INVALID_PRODUCER_EPOCH


async def test_an_unknown_producer_may_begin_anywhere(client: Client, back: EmbeddedBack) -> None:
    """As in Kafka: its records may have been deleted."""
    assert (await client.produce(records(b"a", producer=9, sequence=70))).base_offset == 0
    await back.perform(DeleteStream(T))
    await back.perform(CreateStream(T))
    assert (await client.produce(records(b"b", producer=9, sequence=71))).base_offset == 0


async def test_sequence_numbers_wrap(client: Client) -> None:
    last = 2**31 - 1
    await client.produce(records(b"a", b"b", producer=9, sequence=last - 1))
    assert (await client.produce(records(b"c", b"d", producer=9, sequence=0))).base_offset == 2
    assert (await client.produce(records(b"a", b"b", producer=9, sequence=last - 1))).base_offset == 0
    assert (await client.produce(records(b"e", producer=9, sequence=2))).base_offset == 4


async def test_a_batch_across_the_wrap(client: Client) -> None:
    await client.produce(records(b"a", b"b", b"c", producer=9, sequence=2**31 - 2))
    assert (await client.produce(records(b"d", producer=9, sequence=1))).base_offset == 3


async def test_producers_are_known_after_a_restart(tmp_path: Path) -> None:
    async with store_with_basin(tmp_path) as back, serving(back) as (connect, _):
        await back.perform(CreateStream(T))
        client = connect()
        await client.produce(records(b"a", b"b", producer=9, sequence=0))
    async with open_embedded(EmbeddedSettings(directory=tmp_path)) as back, serving(back) as (connect, _):
        client = connect()
        again = await client.produce(records(b"a", b"b", producer=9, sequence=0))
        assert again.error_code == KafkaError.DUPLICATE_SEQUENCE_NUMBER
        assert (await client.produce(records(b"c", producer=9, sequence=2))).base_offset == 2


class _Dies(SmallBatches):
    """A back that fails each append by a writer after the first `left`, as if the gateway had stopped there."""

    left = 1

    async def perform(self, operation: Operation[object]) -> object:
        if isinstance(operation, AppendAs):
            self.left -= 1
            if self.left < 0:
                raise fail(FailureCode.UNAVAILABLE, "it stopped")
        return await super().perform(operation)


async def test_a_batch_of_which_a_part_is_stored_is_completed(client: Client, back: EmbeddedBack) -> None:
    batch = records(*(b"%d" % number for number in range(2500)), producer=9, sequence=0)
    async with serving(_Dies(back)) as (connect, _):
        assert (await connect().produce(batch)).error_code == KafkaError.REQUEST_TIMED_OUT
    result = await client.produce(batch)
    assert (result.error_code, result.base_offset) == (0, -1)
    values = [value for *_, value in fetched(await client.fetch())]
    values += [value for *_, value in fetched(await client.fetch(len(values)))]
    assert values == [b"%d" % number for number in range(2500)]


class _NoWriters(DecodedBack):
    """A back that has no writers, as most servers."""

    async def perform(self, operation: Operation[object]) -> object:
        if isinstance(operation, AppendAs | GetAttribute):
            raise fail(FailureCode.NOT_IMPLEMENTED, "no writers")
        return await super().perform(operation)


async def test_on_a_back_without_writers_producers_are_remembered(back: EmbeddedBack) -> None:
    await back.perform(CreateStream(T))
    async with serving(_NoWriters(back)) as (connect, _):
        client = connect()
        await client.produce(records(b"a", producer=9, sequence=0))
        assert (await client.produce(records(b"a", producer=9, sequence=0))).base_offset == 0
        assert (await client.produce(records(b"b", producer=9, sequence=1))).base_offset == 1
        gap = await client.produce(records(b"b", producer=9, sequence=5))
        assert gap.error_code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER


# ---- memory ----------------------------------------------------------------------------------------------------------


def zeros(count: int, size: int = MIB - 100) -> bytes:
    """Return a batch of records of zeros, of which 4 MiB take some 400 bytes."""
    batch = records(*[bytes(size)] * count)
    batch.compression = KafkaCompression.ZSTD
    return encode_batch(batch)


@dataclass
class _Decoded:
    """The number of batches that were decompressed."""

    count: int = 0


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> _Decoded:
    found = _Decoded()

    def counted(*args: Any) -> bytes:
        found.count += 1
        return decompress(*args)

    monkeypatch.setattr(batches, "decompress", counted)
    return found


class _Restricted(DecodedBack):
    """A back whose client may append to streams named `mine`, and may not ask for the tail of any."""

    def require(self, stream: StreamRef, needs: frozenset[Permission]) -> None:
        if not stream.stream.startswith("mine"):
            raise fail(FailureCode.PERMISSION_DENIED, "not yours")

    async def perform(self, operation: Operation[Any]) -> Any:
        self.require(operation.stream, APPEND)
        if isinstance(operation, CheckTail):
            raise fail(FailureCode.PERMISSION_DENIED, "it may only append")
        return await super().perform(operation)


@pytest.mark.parametrize("transaction", [None, "a"])
async def test_nothing_is_decompressed_without_permission(
    back: EmbeddedBack, decoded: _Decoded, transaction: str | None
) -> None:
    for name in ("t", "mine"):
        await back.perform(CreateStream(StreamRef("penstock", name)))
    async with serving(_Restricted(back)) as (connect, _):
        given = producing(("t", 0, zeros(4)), ("t", 1, zeros(4)), transaction=transaction)
        response = await connect().call(given, ProduceResponse)
        codes = {topic.partitions[0].error_code for topic in response.topics}
        assert codes == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
        assert decoded.count == 0
        assert (await connect().produce(zeros(1), "mine")).error_code == 0, "permission to append is enough"


async def test_nothing_is_decompressed_for_topics_that_do_not_exist(client: Client, decoded: _Decoded) -> None:
    for topic, partition in (("nope", 0), ("nope", 1), ("t", 1), ("t", -1)):
        refused = await client.produce(zeros(4), topic, partition)
        assert refused.error_code == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    assert decoded.count == 0


async def test_a_batch_is_decompressed_once(client: Client, back: EmbeddedBack, decoded: _Decoded) -> None:
    """Also one for a topic whose stream was replaced by those of several partitions."""
    assert (await client.produce(zeros(1))).error_code == 0
    await back.perform(DeleteStream(T))
    await back.perform(CreateStream(StreamRef("penstock", "t/0")))
    assert (await client.produce(zeros(1))).error_code == 0, "the stream was known until this append failed"
    assert decoded.count == 3
    assert (await client.produce(zeros(1))).base_offset == 1
    assert decoded.count == 4


class _Held(DecodedBack):
    """A back that counts the bytes of records in appends, which wait until `at_once` of them have come."""

    def __init__(self, inner: EmbeddedBack, *, at_once: int, fails: bool = False) -> None:
        super().__init__(inner)
        self.at_once, self.fails = at_once, fails
        self.held = self.most = self.appends = 0
        self.full = trio.Event()

    async def perform(self, operation: Operation[Any]) -> Any:
        if not isinstance(operation, Append):
            return await super().perform(operation)
        size = sum(map(len, operation.bodies))
        self.held += size
        self.most = max(self.most, self.held)
        self.appends += 1
        if self.appends >= self.at_once:
            self.full.set()
        try:
            await self.full.wait()
            await trio.testing.wait_all_tasks_blocked()
            if self.fails:
                raise fail(FailureCode.UNAVAILABLE, "it stopped")
            return await super().perform(operation)
        finally:
            self.held -= size


@pytest.mark.parametrize("fails", [False, True])
async def test_a_request_has_a_bounded_number_of_decompressed_bytes_in_memory(
    back: EmbeddedBack, decoded: _Decoded, fails: bool
) -> None:
    streams = [f"set/{number}" for number in range(30)]
    for name in streams:
        await back.perform(CreateStream(StreamRef("penstock", name)))
    held = _Held(back, at_once=2, fails=fails)
    batch = zeros(3)
    async with serving(held, KafkaSettings(max_batch_bytes=4 * MIB)) as (connect, _):
        client = connect()
        given = producing(*(("set", number, batch) for number in range(30)))
        response = await client.call(given, ProduceResponse)
        codes = {topic.partitions[0].error_code for topic in response.topics}
        assert codes == {KafkaError.REQUEST_TIMED_OUT if fails else KafkaError.NONE}
    assert (held.appends, decoded.count) == (30, 30)
    assert 4 * MIB < held.most < 8 * MIB, "two batches at once"


async def test_decompressed_bytes_of_a_client_are_bounded_over_its_connections(back: EmbeddedBack) -> None:
    await back.perform(CreateStream(T))
    held = _Held(back, at_once=6)
    limiter = Limiter(Limits(max_inflight_bytes_per_client=4 * MIB, inflight_wait_seconds=0.05))
    async with serving(held) as (connect, _), trio.open_nursery() as nursery:
        results: list[int] = []

        async def produce(client: Client) -> None:
            results.append((await client.produce(zeros(3))).error_code)
            if len(results) == 2:
                held.full.set()

        for _ in range(5):
            quota = limiter.enter("kafka", 10, "192.0.2.1")
            assert isinstance(quota, ConnectionQuota)
            CONNECTION_QUOTA.set(quota)
            nursery.start_soon(produce, connect())
            await trio.testing.wait_all_tasks_blocked()
    throttled = KafkaError.THROTTLING_QUOTA_EXCEEDED
    assert sorted(results) == [0, 0, 0, throttled, throttled], "the third one leads, the others wait for too long"
    assert limiter.held == 0


async def test_small_partitions_of_a_request_are_appended_at_once(back: EmbeddedBack) -> None:
    for number in range(30):
        await back.perform(CreateStream(StreamRef("penstock", f"set/{number}")))
    batch = zeros(100, 500)
    async with serving(_Held(back, at_once=30)) as (connect, _):
        with trio.fail_after(5):
            given = producing(*(("set", number, batch) for number in range(30)))
            response = await connect().call(given, ProduceResponse)
    assert {topic.partitions[0].error_code for topic in response.topics} == {0}


async def test_batches_of_a_partition_are_bounded_together(back: EmbeddedBack, decoded: _Decoded) -> None:
    await back.perform(CreateStream(T))
    async with serving(back, KafkaSettings(max_batch_bytes=4 * MIB)) as (connect, _):
        client = connect()
        refused = await client.produce(zeros(3) * 200)
        assert refused.error_code == KafkaError.MESSAGE_TOO_LARGE
        assert decoded.count == 2
        assert (await client.produce(zeros(1) * 3)).base_offset == 0, "nothing was appended"
        assert (await client.produce(zeros(1))).base_offset == 3
        many = encode_batch(records(*[b""] * 60_000))
        assert (await client.produce(many * 2)).error_code == KafkaError.MESSAGE_TOO_LARGE


async def test_damaged_batches_of_a_request_let_others_work(client: Client) -> None:
    """Each is found by its decompression, in a step of the scheduler of its own."""
    batch = records(*[bytes(MIB - 100)] * 4, b"odd")
    batch.offsets = [0, 1, 2, 3, 9]
    batch.compression = KafkaCompression.ZSTD
    steps = 0

    async def other() -> None:
        nonlocal steps
        while True:
            steps += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        given = producing(*(("t", 0, encode_batch(batch)) for _ in range(100)))
        response = await client.call(given, ProduceResponse)
        nursery.cancel_scope.cancel()
    assert {topic.partitions[0].error_code for topic in response.topics} == {KafkaError.INVALID_RECORD}
    assert steps > 100
