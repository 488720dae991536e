"""Transactions at the front: what is seen, and when; producers that are fenced, late, or repeat themselves; a gateway
that is stopped at any point."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from support.backs import DecodedBack, SmallBatches
from support.kafka.front import Client, fetched, records
from support.kafka.group_front import GroupClient, GroupFront, running
from support.store import BASIN, Wall
from trio.testing import MockClock

from penstock.core.back import Back
from penstock.core.permissions import APPEND, Permission
from penstock.model.byte_operations import AppendAs, Seal
from penstock.model.failures import FailureCode, fail
from penstock.model.operations import Capability, DeleteStream, Operation
from penstock.model.records import StreamRef
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import KafkaBatch, encode_batch
from penstock_kafka.codec.consumer_group_messages import ConsumerGroupHeartbeatRequest
from penstock_kafka.codec.group_messages import OffsetFetchRequest, WantedGroup, WantedOffsets
from penstock_kafka.codec.record_messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from penstock_kafka.codec.transaction_messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffset,
    TxnOffsetCommitRequest,
    TxnOffsets,
    TxnTopic,
)
from penstock_kafka.transactions.limits import TransactionLimits

TOPIC = "orders"


class TxnProducer:
    """A transactional producer on one connection."""

    def __init__(self, client: GroupClient, name: str = "x") -> None:
        self.client = client
        self.name = name
        self.id = self.epoch = -1
        self.sequence = 0

    async def begin(self, timeout: int = 60_000, *, fresh: bool = True) -> int:
        """Ask for an id and an epoch; return the error. Not `fresh`: with those that it has."""
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout,
            producer_id=-1 if fresh else self.id,
            producer_epoch=-1 if fresh else self.epoch,
        )
        found = await self.client.call(request, InitProducerIdResponse)
        if not found.error_code:
            self.id, self.epoch, self.sequence = found.producer_id, found.producer_epoch, 0
        return found.error_code

    def who(self) -> dict[str, object]:
        return {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}

    async def add(self, topic: str = TOPIC, partition: int = 0) -> int:
        topics = [TxnTopic(name=topic, partitions=[partition])]
        found = await self.client.ask(AddPartitionsToTxnRequest(**self.who(), topics=topics))
        return int(found.topics[0].partitions[0].error_code)

    async def produce(self, *values: bytes, topic: str = TOPIC, sequence: int | None = None) -> ProducePartitionResult:
        first = self.sequence if sequence is None else sequence
        batch = records(*values, producer=self.id, epoch=self.epoch, sequence=first)
        batch.transactional = True
        result = await produced(self.client, batch, self.name, topic)
        if not result.error_code:
            self.sequence = first + len(values)
        return result

    async def end(self, *, commit: bool = True) -> int:
        return int((await self.client.ask(EndTxnRequest(**self.who(), committed=commit))).error_code)

    async def add_group(self, group: str = "g") -> int:
        return int((await self.client.ask(AddOffsetsToTxnRequest(**self.who(), group_id=group))).error_code)

    async def commit_offset(self, offset: int, group: str = "g", **member: Any) -> int:
        one = TxnOffset(partition_index=0, committed_offset=offset)
        topics = [TxnOffsets(name=TOPIC, partitions=[one])]
        found = await self.client.ask(TxnOffsetCommitRequest(**self.who(), group_id=group, topics=topics, **member))
        return int(found.topics[0].partitions[0].error_code)


async def produced(client: Client, batch: KafkaBatch, name: str | None, topic: str = TOPIC) -> ProducePartitionResult:
    given = ProduceTopic(name=topic, partitions=[ProducePartition(index=0, records=encode_batch(batch))])
    request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1000, topics=[given])
    return (await client.call(request, ProduceResponse)).topics[0].partitions[0]


async def values(client: Client, topic: str = TOPIC) -> list[bytes | None]:
    return [value for _, _, value in fetched(await client.fetch(topic=topic))]


@asynccontextmanager
async def started(directory: Path, wall: Wall | None = None, through: Back | None = None) -> AsyncIterator[GroupFront]:
    """A front with groups and transactions."""
    async with running(directory, wall) as front, trio.open_nursery() as nursery:
        if through is not None:
            front.front.transactions._back = through
        front.front.transactions._clock = front.wall
        nursery.start_soon(front.front.transactions.run)
        front.front.settings.transactions = TransactionLimits(patience=0.5)
        while not front.front.transactions.loaded:  # noqa: ASYNC110
            await trio.sleep(0.01)
        yield front
        nursery.cancel_scope.cancel()


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[GroupFront]:
    async with started(tmp_path) as found:
        yield found


async def test_records_are_seen_once_they_are_committed(front: GroupFront) -> None:
    async with front.connected() as client:
        producer = TxnProducer(client)
        assert await producer.begin() == 0
        assert await producer.add() == 0
        assert (await producer.produce(b"a", b"b")).base_offset == 0
        assert (await producer.produce(b"c")).base_offset == 2
        assert await values(client) == []
        assert await producer.end() == 0
        assert await values(client) == [b"a", b"b", b"c"]
        assert await producer.add() == 0
        assert (await producer.produce(b"d")).base_offset == 3
        assert await producer.end() == 0
        assert await values(client) == [b"a", b"b", b"c", b"d"]


async def test_aborted_records_are_never_seen(front: GroupFront) -> None:
    async with front.connected() as client:
        producer = TxnProducer(client)
        await producer.begin()
        for commit in (False, True):
            await producer.add()
            await producer.produce(b"%d" % commit)
            assert await producer.end(commit=commit) == 0
        assert await values(client) == [b"1"]
        assert await producer.end(commit=False) == KafkaError.INVALID_TXN_STATE
        assert await producer.end() == 0  # a repetition, whose answer was lost


async def test_a_batch_that_is_sent_again_is_stored_once(front: GroupFront) -> None:
    async with front.connected() as client:
        producer = TxnProducer(client)
        await producer.begin()
        await producer.add()
        assert (await producer.produce(b"a")).base_offset == 0
        assert (await producer.produce(b"b")).base_offset == 1
        assert (await producer.produce(b"a", sequence=0)).base_offset == 0
        assert (await producer.produce(b"x", sequence=7)).error_code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
        await producer.end()
        assert await values(client) == [b"a", b"b"]


async def test_what_is_not_in_the_transaction_is_refused(front: GroupFront) -> None:
    async with front.connected() as client:
        producer = TxnProducer(client)
        assert await producer.begin(timeout=3_600_000) == KafkaError.INVALID_TRANSACTION_TIMEOUT
        await producer.begin()
        assert (await producer.produce(b"a")).error_code == KafkaError.INVALID_TXN_STATE
        assert await producer.add("missing") == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
        assert await producer.end() == KafkaError.INVALID_TXN_STATE
        assert await producer.commit_offset(1) == KafkaError.INVALID_TXN_STATE
        other = TxnProducer(client, "other")
        other.id, other.epoch = producer.id, producer.epoch
        assert await other.add() == KafkaError.INVALID_PRODUCER_ID_MAPPING
        await producer.add()
        batch = records(b"a", producer=producer.id, epoch=producer.epoch, sequence=0)
        assert (await produced(client, batch, producer.name)).error_code == KafkaError.INVALID_TXN_STATE


async def test_a_client_that_may_not_append_has_no_transactions(
    front: GroupFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_back: Back, _basin: str, _prefix: str, needs: frozenset[Permission]) -> None:
        assert needs == APPEND
        raise fail(FailureCode.PERMISSION_DENIED, "no")

    monkeypatch.setattr(type(front.back), "require_some", denied)
    async with front.connected() as client:
        assert await TxnProducer(client).begin() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction(front: GroupFront) -> None:
    async with front.connected() as client:
        old, new = TxnProducer(client), TxnProducer(client)
        await old.begin()
        await old.add()
        await old.produce(b"lost")
        assert await new.begin() == 0
        assert new.id == old.id and new.epoch > old.epoch
        assert await old.add() == KafkaError.PRODUCER_FENCED
        assert (await old.produce(b"lost")).error_code == KafkaError.INVALID_PRODUCER_EPOCH
        assert await old.end() == KafkaError.PRODUCER_FENCED
        assert await old.begin(fresh=False) == KafkaError.PRODUCER_FENCED
        await new.add()
        await new.produce(b"kept")
        await new.end()
        assert await values(client) == [b"kept"]


async def test_a_transaction_that_is_open_for_too_long_is_aborted(front: GroupFront) -> None:
    async with front.connected() as client:
        producer = TxnProducer(client)
        await producer.begin(timeout=5000)
        await producer.add()
        await producer.produce(b"late")
        front.wall.now += 5000
        await front.front.transactions.abort_overdue()
        assert await producer.end() == KafkaError.PRODUCER_FENCED
        assert await producer.begin(fresh=False) == 0  # its epoch is over, but no other producer has the id
        await producer.add()
        await producer.produce(b"in time")
        await producer.end()
        assert await values(client) == [b"in time"]


async def test_offsets_are_committed_with_the_records(front: GroupFront) -> None:
    async with front.connected() as client:
        producer = TxnProducer(client)
        await producer.begin()
        assert await producer.add_group() == 0
        assert await producer.commit_offset(7) == 0
        assert (await client.committed()).committed_offset == -1
        wanted = [WantedGroup(group_id="g", topics=[WantedOffsets(name=TOPIC, partition_indexes=[0])])]
        stable = (await client.ask(OffsetFetchRequest(groups=wanted, require_stable=True))).groups[0]
        assert stable.topics[0].partitions[0].error_code == KafkaError.UNSTABLE_OFFSET_COMMIT
        assert await producer.end() == 0
        assert (await client.committed()).committed_offset == 7
        await producer.add_group()
        await producer.commit_offset(9)
        assert await producer.end(commit=False) == 0
        assert (await client.committed()).committed_offset == 7


async def test_stable_offsets_are_not_told_before_the_transactions_are_loaded(tmp_path: Path) -> None:
    """An open transaction may change them: a consumer that got the old ones would read its records again."""
    wanted = [WantedGroup(group_id="g", topics=[WantedOffsets(name=TOPIC, partition_indexes=[0])])]
    async with started(tmp_path) as front, front.connected() as client:
        producer = TxnProducer(client)
        await producer.begin()
        await producer.add_group()
        await producer.commit_offset(7)
    async with running(tmp_path) as front, front.connected() as client:
        request = OffsetFetchRequest(groups=wanted, group_id="g", topics=wanted[0].topics, require_stable=True)
        assert (await client.ask(request)).groups[0].error_code == KafkaError.COORDINATOR_LOAD_IN_PROGRESS
        assert (await client.ask(request, 7)).error_code == KafkaError.COORDINATOR_LOAD_IN_PROGRESS
        assert (await client.committed()).committed_offset == -1, "others do not wait"


async def test_offsets_of_members_in_a_transaction(front: GroupFront) -> None:
    """Transactional producers take STALE_MEMBER_EPOCH and REBALANCE_IN_PROGRESS for fatal."""
    async with front.connected() as client:
        producer = TxnProducer(client)
        await producer.begin()
        for group in ("g", "h"):
            await producer.add_group(group)
        joined = await client.join()  # and does not sync, so the group waits for its assignment
        member = {"member_id": joined.member_id, "generation_id": joined.generation_id}
        assert await client.commit(7, **member) == KafkaError.REBALANCE_IN_PROGRESS
        assert await producer.commit_offset(7, **member) == 0
        assert await producer.commit_offset(7, **member | {"generation_id": 9}) == KafkaError.ILLEGAL_GENERATION
        beat = {"member_epoch": 0, "rebalance_timeout_ms": 60_000, "subscribed_topic_names": [TOPIC]}
        heartbeat = ConsumerGroupHeartbeatRequest(group_id="h", member_id="m", topic_partitions=[], **beat)
        assert (await client.ask(heartbeat)).member_epoch == 1
        assert await client.commit(7, group="h", member_id="m", generation_id=0) == KafkaError.STALE_MEMBER_EPOCH
        for member_id, generation, error in (
            ("m", 0, KafkaError.ILLEGAL_GENERATION),
            ("n", 1, KafkaError.UNKNOWN_MEMBER_ID),
            ("m", 1, KafkaError.NONE),
        ):
            assert await producer.commit_offset(7, "h", member_id=member_id, generation_id=generation) == error


async def test_a_transaction_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with started(tmp_path) as front, front.connected() as client:
        producer = TxnProducer(client)
        await producer.begin()
        await producer.add()
        await producer.produce(b"before")
        await producer.add_group()
        await producer.commit_offset(3)
    async with started(tmp_path) as front, front.connected() as client:
        producer.client = client
        again = await producer.produce(b"before", sequence=0)
        assert (again.error_code, again.base_offset) == (0, 0)
        await producer.produce(b"after")
        assert await producer.end() == 0
        assert await values(client) == [b"before", b"after"]
        assert (await client.committed()).committed_offset == 3


class FailsAt(SmallBatches):
    """A back whose appends fail from the one with this number on, until `mended`."""

    def __init__(self, inner: Back, number: int, *, stored: bool) -> None:
        super().__init__(inner)
        self.number, self.stored, self.mended = number, stored, False

    async def perform(self, operation: Operation[object]) -> object:  # type: ignore[override]
        if isinstance(operation, AppendAs) and not self.mended:
            self.number -= 1
            if self.number < 0:
                if self.number == -1 and self.stored:
                    await self._inner.perform(operation)
                raise fail(FailureCode.UNAVAILABLE, "away")
        return await self._inner.perform(operation)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("number", range(4))
async def test_a_decided_transaction_is_carried_out_once_after_any_failure(
    tmp_path: Path, number: int, stored: bool
) -> None:
    """The gateway stops while it appends what was committed, before or after an append is stored."""
    sent = [b"%d" % one for one in range(2500)]
    async with started(tmp_path) as front, front.connected() as client:
        front.front.transactions._back = FailsAt(front.back, number, stored=stored)
        producer = TxnProducer(client)
        await producer.begin()
        await producer.add()
        for first in range(0, 2500, 1250):
            await producer.produce(*sent[first : first + 1250])
        assert await producer.end() == KafkaError.CONCURRENT_TRANSACTIONS  # decided, but not done
        assert await producer.add() == KafkaError.CONCURRENT_TRANSACTIONS
    async with started(tmp_path) as front, front.connected() as client:
        producer.client = client
        while (error := await producer.end()) == KafkaError.CONCURRENT_TRANSACTIONS:  # noqa: ASYNC110
            await trio.sleep(0.1)
        assert error == 0
        assert await values(client) == sent
        assert await producer.add() == 0


async def test_a_failed_append_is_repeated_until_it_succeeds(tmp_path: Path, clock: MockClock) -> None:
    async with started(tmp_path) as front, front.connected() as client:
        back = front.front.transactions._back = FailsAt(front.back, 0, stored=True)
        producer = TxnProducer(client)
        await producer.begin()
        await producer.add()
        await producer.produce(b"a")
        assert await producer.end() == KafkaError.CONCURRENT_TRANSACTIONS
        back.mended = True
        await trio.sleep(2)
        assert await producer.end() == 0
        assert await producer.add() == 0
        assert await values(client) == [b"a"]


# ---- streams that take no records any more ---------------------------------------------------------------------------

OTHER = StreamRef(BASIN, "other")


async def both(client: GroupClient, front: GroupFront) -> TxnProducer:
    """Return a producer with an open transaction on the stream `other` and on the topic, and an offset."""
    await front.create("other")
    producer = TxnProducer(client)
    await producer.begin()
    for topic in ("other", TOPIC):
        assert await producer.add(topic) == 0
        assert (await producer.produce(b"a", topic=topic, sequence=0)).error_code == 0
    await producer.add_group()
    assert await producer.commit_offset(7) == 0
    return producer


async def test_a_sealed_stream_is_not_added_to_a_transaction(front: GroupFront) -> None:
    await front.create("other")
    await front.back.perform(Seal(OTHER))
    async with front.connected() as client:
        producer = TxnProducer(client)
        await producer.begin()
        assert await producer.add("other") == KafkaError.POLICY_VIOLATION
        assert (await producer.produce(b"a", topic="other")).error_code == KafkaError.INVALID_TXN_STATE


async def test_a_producer_aborts_what_could_not_begin(front: GroupFront) -> None:
    """librdkafka does so, and takes any other answer as fatal; an abort after a commit is refused as before."""
    await front.create("other")
    await front.back.perform(Seal(OTHER))
    async with front.connected() as client:
        producer = TxnProducer(client)
        await producer.begin()
        for _ in range(2):  # in the first transaction, and after one that is committed
            assert await producer.add("other") == KafkaError.POLICY_VIOLATION
            for _ in range(2):  # a repetition, whose answer was lost
                assert await producer.end(commit=False) == 0
            await producer.add()
            assert (await producer.produce(b"a")).error_code == 0
            assert await producer.add("other") == KafkaError.POLICY_VIOLATION
            assert await producer.end() == 0
            assert await producer.end(commit=False) == KafkaError.INVALID_TXN_STATE
        assert await values(client) == [b"a", b"a"]


@pytest.mark.parametrize("end", [Seal(OTHER), DeleteStream(OTHER)])
async def test_nothing_is_committed_if_a_stream_takes_no_records_any_more(
    front: GroupFront, end: Operation[object]
) -> None:
    async with front.connected() as client:
        producer = await both(client, front)
        await front.back.perform(end)
        for _ in range(2):  # a repetition, whose answer was lost
            assert await producer.end() == KafkaError.UNKNOWN_PRODUCER_ID
        assert await producer.end(commit=False) == 0
        assert await values(client) == []
        assert (await client.committed()).committed_offset == -1
        await producer.add()
        await producer.produce(b"b", sequence=1)
        assert await producer.end() == 0
        assert await values(client) == [b"b"]


async def test_a_producer_whose_commit_failed_may_also_ask_for_its_next_epoch(front: GroupFront) -> None:
    async with front.connected() as client:
        producer = await both(client, front)
        await front.back.perform(Seal(OTHER))
        assert await producer.end() == KafkaError.UNKNOWN_PRODUCER_ID
        assert await producer.begin(fresh=False) == 0
        await producer.add()
        await producer.produce(b"b")
        assert await producer.end() == 0
        assert await values(client) == [b"b"]


class SealsFirst(DecodedBack):
    """A back on which another client seals a stream between the decision for a commit and its first append."""

    sealed = False

    async def perform(self, operation: Operation[object]) -> object:  # type: ignore[override]
        if isinstance(operation, AppendAs) and not self.sealed:
            self.sealed = True
            await self._inner.perform(Seal(OTHER))
        return await self._inner.perform(operation)


async def test_a_stream_that_is_sealed_during_a_commit_makes_it_fail(tmp_path: Path) -> None:
    """The producer is told, also after a restart, the offsets are not committed, and the other streams do not wait."""
    async with started(tmp_path) as front, front.connected() as client:
        front.front.transactions._back = SealsFirst(front.back)
        producer = await both(client, front)
        assert await producer.end() == KafkaError.UNKNOWN_PRODUCER_ID
        assert await values(client) == [b"a"]
    async with started(tmp_path) as front, front.connected() as client:
        producer.client = client
        assert await producer.end() == KafkaError.UNKNOWN_PRODUCER_ID
        assert (await client.committed()).committed_offset == -1
        assert await producer.end(commit=False) == 0
        assert await producer.add() == 0
        await producer.produce(b"b", sequence=1)
        assert await producer.end() == 0
        assert await producer.end(commit=False) == KafkaError.INVALID_TXN_STATE
        assert await values(client) == [b"a", b"b"]


class TakesLess(DecodedBack):
    """A back that refuses appends to a stream, since they are larger than its server takes."""

    async def perform(self, operation: Operation[object]) -> object:  # type: ignore[override]
        if isinstance(operation, AppendAs) and operation.stream == OTHER:
            raise fail(FailureCode.LIMIT_EXCEEDED, "a record is larger than the server takes")
        return await self._inner.perform(operation)


async def test_a_batch_that_a_server_never_takes_does_not_hold_up_its_producer(tmp_path: Path) -> None:
    async with started(tmp_path) as front, front.connected() as client:
        front.front.transactions._back = TakesLess(front.back)
        producer = await both(client, front)
        assert await producer.end() == KafkaError.UNKNOWN_PRODUCER_ID
        assert await producer.begin(fresh=False) == 0


class CannotMatch(DecodedBack):
    """A back without conditional appends."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        return super().capabilities - {Capability.MATCH_SEQ_NUM}


async def test_a_back_without_conditional_appends_tells_that_a_stream_is_gone(tmp_path: Path) -> None:
    async with started(tmp_path) as front, front.connected() as client:
        front.front.transactions._back = CannotMatch(front.back)
        producer = await both(client, front)
        await front.back.perform(DeleteStream(OTHER))
        assert await producer.end() == KafkaError.UNKNOWN_PRODUCER_ID
        assert await values(client) == []


async def test_nothing_of_a_transaction_is_left_behind(front: GroupFront) -> None:
    async with front.connected() as client:
        producer = TxnProducer(client)
        await producer.begin()
        for commit in (True, False):
            await producer.add()
            await producer.produce(b"x" * 900_000, sequence=commit)
            await producer.end(commit=commit)
        service = front.front.transactions
        found = [one async for one in service._pending.each(service._producers["x"].transaction, TOPIC, 0)]
        assert found == []
