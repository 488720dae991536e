"""APIs that write records: Produce and InitProducerId. A batch is acknowledged once it is durable, with acks 1, too.

Theory of operation. A batch of a few bytes may hold MiBs of records. So the permission to append and the existence of
the stream are checked before anything is decompressed, and the batches of one partition are bounded together, decoded
and checked before the first is appended. The partitions of a request are decoded one after the other, each once those
whose appends are in progress hold less than `max_batch_bytes`: small ones are still appended at the same time. Their
size is known only when they are decoded, so there is one more in memory than the bound allows. A connection has one
request in progress, so this is its bound, too; over connections, decoded batches are bytes in flight of the client.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from penstock.core.back import Back
from penstock.core.identity import CLIENT
from penstock.core.permissions import APPEND
from penstock.net.limits.limiter import ConnectionQuota, HeldBytes
from penstock.protocols.kafka.front.call import KafkaCall, KafkaHandlers
from penstock.protocols.kafka.front.client_names import key_of
from penstock.protocols.kafka.front.producers import Producers, new_producer_id
from penstock.protocols.kafka.front.settings import KafkaSettings
from penstock.protocols.kafka.groups.offsets import GroupPartition
from penstock.protocols.kafka.sequences import KafkaRefusal
from penstock.protocols.kafka.topic_ids import TopicIds
from penstock.protocols.kafka.topics import KafkaTopics
from penstock.protocols.kafka.transactions.service import TransactionService
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.kafka import KafkaError
from penstock_codecs.kafka.batches import MOST_RECORDS, KafkaBatch, read_batch, whole_batches
from penstock_codecs.kafka.record_messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducePartition,
    ProducePartitionResult,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResult,
    RecordError,
)
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import CheckTail

__all__ = ["ProduceHandlers"]

_ACKS = (-1, 0, 1)
_MOST_ID: Final = 1024
"""Most bytes of a transactional id."""
_IDS: Final = 13
"""The first version of Produce that names topics by their ids."""
_RECORD_BYTES: Final = 256
"""Memory of a decoded record beside its bytes: from 100 to 600 bytes, with its key and headers."""
_STREAMS: Final = 100_000
"""Streams that are remembered because appends to them succeeded, some 200 bytes each."""


class _DecodedBatches:
    """The decoded batches of one request. None are decoded while they take `capacity` bytes of memory or more, or the
    client or the process has too many bytes in flight (`max_inflight_bytes`)."""

    def __init__(self, capacity: int, quota: ConnectionQuota) -> None:
        self._capacity = capacity
        self._quota = quota
        self._held = HeldBytes(quota)
        self._turn = trio.Lock()
        self._freed = trio.lowlevel.ParkingLot()

    @asynccontextmanager
    async def hold(self, decode: Callable[[], Sequence[KafkaBatch]]) -> AsyncIterator[Sequence[KafkaBatch]]:
        """Decode batches once there is room, and hold them until the block ends. Raises what `decode` raises, and
        OperationFailed(RATE_LIMITED) if it takes too long until there is room for more bytes in flight.

        Callers take turns, one in each step of the scheduler: so other connections wait for the decoding of one
        partition, not of all.
        """
        async with self._turn:
            while self._held.size >= self._capacity:
                await self._freed.park()
            await self._quota.answer_room()
            batches = decode()
            size = sum(batch.decompressed + _RECORD_BYTES * len(batch) for batch in batches)
            self._held.set(self._held.size + size)
        try:
            yield batches
        finally:
            self._held.set(self._held.size - size)
            self._freed.unpark_all()


class ProduceHandlers:
    """Handlers of Produce and InitProducerId."""

    def __init__(
        self,
        back: Back,
        topics: KafkaTopics,
        ids: TopicIds,
        settings: KafkaSettings,
        transactions: TransactionService,
    ) -> None:
        self._back = back
        self._topics = topics
        self._ids = ids
        self._transactions = transactions
        self._settings = settings
        self._producers = Producers(back)
        self._streams: OrderedDict[StreamRef, None] = OrderedDict()
        self.handlers: KafkaHandlers = {ProduceRequest: self._produce, InitProducerIdRequest: self._init}

    async def _init(self, request: InitProducerIdRequest, call: KafkaCall) -> InitProducerIdResponse:
        """Give a new id; a producer that asks again with its own keeps it, in its next epoch (KIP-360)."""
        if request.transactional_id is not None:
            try:
                self._back.require_some(self._settings.names.basin, "", APPEND)
            except OperationFailed as error:
                call.refused(error.failure)
                return InitProducerIdResponse(error_code=KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            if not 0 < len(request.transactional_id.encode()) <= _MOST_ID:
                call.refusals += 1
                return InitProducerIdResponse(error_code=KafkaError.INVALID_REQUEST)
            given, timeout = (request.producer_id, request.producer_epoch), request.transaction_timeout_ms
            code, producer_id, epoch = await self._transactions.begin(
                key_of(request.transactional_id), timeout, given, new_producer_id()
            )
            if code:
                call.refusals += 1
            return InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)
        if request.producer_id >= 0 and 0 <= request.producer_epoch < (1 << 15) - 1:
            return InitProducerIdResponse(producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1)
        return InitProducerIdResponse(producer_id=new_producer_id(), producer_epoch=0)

    async def _produce(self, request: ProduceRequest, call: KafkaCall) -> ProduceResponse | None:
        """Append to all partitions at the same time, as far as there is memory.

        With acks 0 there is no response; a failure then ends the connection, by which the client notices it.
        """
        topics = [
            ProduceTopicResult(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[ProducePartitionResult(index=one.index) for one in topic.partitions],
            )
            for topic in request.topics
        ]
        decoded = _DecodedBatches(self._settings.max_batch_bytes, call.link.quota)
        appends = [
            partial(self._append, request, topic, partition, result, call, decoded)
            for topic, outcome in zip(request.topics, topics, strict=True)
            for partition, result in zip(topic.partitions, outcome.partitions, strict=True)
        ]
        if len(appends) == 1:  # in this task, in which injected faults of the answer are due
            await appends[0]()
        else:
            async with trio.open_nursery() as nursery:
                for append in appends:
                    nursery.start_soon(append)
        if request.acks != 0:
            return ProduceResponse(topics=topics)
        failed = [one.error_message for topic in topics for one in topic.partitions if one.error_code]
        if failed:
            raise fail(FailureCode.OTHER, f"a batch that wants no acknowledgement failed: {failed[0]}")
        return None

    async def _append(
        self,
        request: ProduceRequest,
        topic: ProduceTopic,
        partition: ProducePartition,
        result: ProducePartitionResult,
        call: KafkaCall,
        decoded: _DecodedBatches,
    ) -> None:
        try:
            if request.acks not in _ACKS:
                raise KafkaRefusal(KafkaError.INVALID_REQUIRED_ACKS, f"acks {request.acks}: -1, 0 and 1 are known")
            name = await self._ids.resolve(topic.topic_id if call.version >= _IDS else topic.name)
            place = GroupPartition(name, partition.index)
            append = partial(self._append_to, partition.records or b"", request.transactional_id, place, decoded)
            result.base_offset = await self._topics.on(name, partition.index, append)
        except KafkaRefusal as refusal:
            call.refusals += 1
            result.error_code, result.error_message = refusal.code, str(refusal)
        except OperationFailed as error:
            failure = error.failure
            result.error_code, result.error_message = call.refused(failure), failure.message
            if isinstance(index := failure.details.get("index"), int):
                result.record_errors = [RecordError(batch_index=index, message=failure.message)]

    async def _append_to(
        self,
        records: bytes,
        transactional_id: str | None,
        partition: GroupPartition,
        decoded: _DecodedBatches,
        stream: StreamRef,
    ) -> int:
        """Append batches to a stream; return the offset of the first record, for a batch of a transaction the one that
        it will have if no other producer appends to the stream before the commit; else it is higher."""
        self._back.require(stream, APPEND)
        decode = partial(self._decode, records, transactional=transactional_id is not None)
        if transactional_id is None:
            await self._check_exists(stream)
            async with decoded.hold(decode) as batches:
                return await self._append_now(batches, stream)
        tail = await self._back.perform(CheckTail(stream, create_if_missing=False))
        async with decoded.hold(decode) as batches:
            if len(batches) > 1:
                raise fail(FailureCode.INVALID, "a request has one batch for each partition")
            key = key_of(transactional_id)
            return tail.seq_num + await self._transactions.append(key, partition, batches[0], records)

    async def _check_exists(self, stream: StreamRef) -> None:
        """Raise STREAM_NOT_FOUND if a stream does not exist. Nothing is asked about one of which an append has
        succeeded."""
        if CLIENT.get().place(stream) in self._streams:
            return
        try:
            await self._back.perform(CheckTail(stream, create_if_missing=False))
        except OperationFailed as error:
            if error.failure.code is not FailureCode.PERMISSION_DENIED:  # a client with a token may only append
                raise

    async def _append_now(self, batches: Sequence[KafkaBatch], stream: StreamRef) -> int:
        place = CLIENT.get().place(stream)
        try:
            offsets = [await self._producers.append(stream, batch) for batch in batches]
        except OperationFailed:
            self._streams.pop(place, None)
            raise
        self._streams[place] = None
        self._streams.move_to_end(place)
        if len(self._streams) > _STREAMS:
            self._streams.popitem(last=False)
        return offsets[0]

    def _decode(self, records: bytes, *, transactional: bool) -> Sequence[KafkaBatch]:
        """Return the batches for one partition: at least one, of at most `max_batch_bytes` and `MOST_RECORDS`
        together. Raises OperationFailed and KafkaRefusal."""
        batches: list[KafkaBatch] = []
        bytes_left, records_left = self._settings.max_batch_bytes, MOST_RECORDS
        for start, end in whole_batches(records):
            batch = read_batch(records[start:end], start, max_bytes=bytes_left, max_records=records_left)
            if batch.control:
                raise KafkaRefusal(KafkaError.INVALID_RECORD, "clients do not write control records")
            if not len(batch):
                raise fail(FailureCode.INVALID, "a batch has at least one record")
            if not batch.dense:
                raise KafkaRefusal(KafkaError.INVALID_RECORD, "the offsets of a batch are not 0, 1, 2 and so on")
            if batch.transactional != transactional:
                raise KafkaRefusal(KafkaError.INVALID_TXN_STATE, "batch and request disagree on a transaction")
            bytes_left -= batch.decompressed
            records_left -= len(batch)
            batches.append(batch)
        if not batches:
            raise fail(FailureCode.BAD_FORMAT, "there is no whole batch for this partition")
        return batches
