"""APIs that write records: Produce and InitProducerId. A batch is acknowledged once it is durable, with acks 1, too.

Theory of operation. A batch of a few bytes may hold MiBs of records. So the permission to append and the existence of
the stream are checked before anything is decompressed, and the batches of one partition are bounded together, decoded
and checked before the first is appended. The partitions of a connection's requests are decoded one after the other,
each once those whose appends are in progress hold less than `max_batch_bytes`: small ones are still appended at the
same time. Their size is known only when they are decoded, so there is one more in memory than the bound allows. Over
connections, decoded batches are bytes in flight of the client.

Small requests of a connection are in progress at the same time, so their appends share commits
(`penstock_kafka.front.pipeline`). Each hands its appends over once all of the one before have been handed
over, or have failed: so the batches for a partition keep the order in which they came.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import structlog
import trio

from penstock.core.back import Back
from penstock.core.identity import CLIENT
from penstock.core.permissions import APPEND
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.operations import CheckTail
from penstock.model.records import StreamRef
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import MOST_RECORDS, KafkaBatch, is_checksum_right, read_batch, whole_batches
from penstock_kafka.codec.record_messages import (
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
from penstock_kafka.front.access import KafkaAccess
from penstock_kafka.front.call import TASKS_AT_ONCE, KafkaCall, KafkaHandlers
from penstock_kafka.front.client_names import key_of
from penstock_kafka.front.decoded import DecodedBatches
from penstock_kafka.front.producers import Producers, new_producer_id
from penstock_kafka.front.settings import KafkaSettings
from penstock_kafka.groups.offsets import GroupPartition
from penstock_kafka.sequences import BatchPlace, KafkaRefusal
from penstock_kafka.topic_ids import TopicIds
from penstock_kafka.topics import KafkaTopics
from penstock_kafka.transactions.service import TransactionService

__all__ = ["ProduceHandlers"]

log = structlog.get_logger()

_ACKS = (-1, 0, 1)
_MOST_ID: Final = 1024
"""Most bytes of a transactional id."""
_IDS: Final = 13
"""The first version of Produce that names topics by their ids."""
_STREAMS: Final = 100_000
"""Streams that are remembered because appends to them succeeded, some 200 bytes each."""


def _ignore() -> None:
    """Hand over a batch that is not the last one of its partition: those behind it must not begin yet."""


class ProduceHandlers:
    """Handlers of Produce and InitProducerId."""

    def __init__(
        self,
        back: Back,
        topics: KafkaTopics,
        ids: TopicIds,
        settings: KafkaSettings,
        transactions: TransactionService,
        access: KafkaAccess,
    ) -> None:
        self._back = back
        self._topics = topics
        self._ids = ids
        self._transactions = transactions
        self._access = access
        self._settings = settings
        self._producers = Producers(back)
        self._streams: OrderedDict[StreamRef, None] = OrderedDict()
        self.handlers: KafkaHandlers = {ProduceRequest: self._produce, InitProducerIdRequest: self._init}

    async def _init(self, request: InitProducerIdRequest, call: KafkaCall) -> InitProducerIdResponse:
        """Give a new id; a producer that asks again with its own keeps it, in its next epoch (KIP-360)."""
        if request.transactional_id is not None:
            if refusal := self._access.of_transaction(request.transactional_id, call):
                return InitProducerIdResponse(error_code=refusal)
            if not 0 < len(request.transactional_id.encode()) <= _MOST_ID:
                call.refusals += 1
                return InitProducerIdResponse(error_code=KafkaError.INVALID_REQUEST)
            producer, timeout = (request.producer_id, request.producer_epoch), request.transaction_timeout_ms
            code, producer_id, epoch = await self._transactions.begin(
                key_of(request.transactional_id), timeout, producer, new_producer_id()
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
        refusal = KafkaError.NONE
        if request.transactional_id is not None:
            refusal = self._access.of_transaction(request.transactional_id, call)
        for one in [one for topic in topics for one in topic.partitions] if refusal else ():
            one.error_code, one.error_message = refusal, f"transactional id {request.transactional_id!r:.80}"
        appends = [
            partial(self._append, request, topic, partition, result, call)
            for topic, outcome in zip(request.topics, topics, strict=True)
            for partition, result in zip(topic.partitions, outcome.partitions, strict=True)
            if not refusal
        ]
        call.appends = len(appends)
        if len(appends) == 1:  # in this task, in which injected faults of the answer are due
            await appends[0]()
        else:
            async with trio.open_nursery() as nursery:
                for number, append in enumerate(appends):
                    if number and not number % TASKS_AT_ONCE:
                        if call.refusals:  # what is refused costs its client a turn, what is appended does not
                            await call.work.rest()
                        else:
                            await trio.lowlevel.checkpoint()
                    nursery.start_soon(append)
        failed = [one for topic in topics for one in topic.partitions if one.error_code]
        if request.acks != 0:
            if failed:
                code = KafkaError(failed[0].error_code).name
                log.info("produce_refused", code=code, reason=failed[0].error_message, partitions=len(failed))
            return ProduceResponse(topics=topics)
        if failed:
            raise fail(FailureCode.OTHER, f"a batch that wants no acknowledgement failed: {failed[0].error_message}")
        return None

    async def _append(
        self,
        request: ProduceRequest,
        topic: ProduceTopic,
        partition: ProducePartition,
        result: ProducePartitionResult,
        call: KafkaCall,
    ) -> None:
        hand_over = call.hand_over_one()
        try:
            if request.acks not in _ACKS:
                raise KafkaRefusal(KafkaError.INVALID_REQUIRED_ACKS, f"acks {request.acks}: -1, 0 and 1 are known")
            name = await self._ids.resolve(topic.topic_id if call.version >= _IDS else topic.name)
            place = GroupPartition(name, partition.index)
            append = partial(
                self._append_to, partition.records or b"", request.transactional_id, place, call.link.decoded, hand_over
            )
            result.base_offset, result.log_append_time_ms = await self._topics.on(name, partition.index, append)
        except KafkaRefusal as refusal:
            call.refusals += 1
            result.error_code, result.error_message = refusal.code, str(refusal)
        except OperationFailed as error:
            failure = error.failure
            result.error_code, result.error_message = call.refused(failure), failure.message
            if isinstance(index := failure.details.get("index"), int):
                result.record_errors = [RecordError(batch_index=index, message=failure.message)]
        finally:
            hand_over()

    async def _append_to(
        self,
        records: bytes,
        transactional_id: str | None,
        partition: GroupPartition,
        decoded: DecodedBatches,
        hand_over: Callable[[], None],
        stream: StreamRef,
    ) -> BatchPlace:
        """Append batches to a stream; return the place of the first one, for a batch of a transaction the one that it
        will have if no other producer appends to the stream before the commit; else it is higher."""
        self._back.require(stream, APPEND)
        decode = partial(self._decode, records, transactional=transactional_id is not None)
        if transactional_id is None:
            await self._check_exists(stream)
            async with decoded.hold(decode) as batches:
                return await self._append_now(batches, stream, hand_over)
        tail = await self._back.perform(CheckTail(stream, create_if_missing=False))
        async with decoded.hold(decode) as batches:
            if len(batches) > 1:
                raise fail(FailureCode.INVALID, "a request has one batch for each partition")
            key = key_of(transactional_id)
            return BatchPlace(tail.seq_num + await self._transactions.append(key, partition, batches[0], records))

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

    async def _append_now(
        self, batches: Sequence[KafkaBatch], stream: StreamRef, hand_over: Callable[[], None]
    ) -> BatchPlace:
        place = CLIENT.get().place(stream)
        try:
            places = [await self._producers.append(stream, batch, _ignore) for batch in batches[:-1]]
            places.append(await self._producers.append(stream, batches[-1], hand_over))
        except OperationFailed:
            self._streams.pop(place, None)
            raise
        self._streams[place] = None
        self._streams.move_to_end(place)
        if len(self._streams) > _STREAMS:
            self._streams.popitem(last=False)
        return BatchPlace(places[0].offset, max(place.log_append_time for place in places))

    def _decode(self, records: bytes, *, transactional: bool) -> Sequence[KafkaBatch]:
        """Return the batches for one partition: at least one, of at most `max_batch_bytes` and `MOST_RECORDS`
        together. Raises OperationFailed and KafkaRefusal."""
        batches: list[KafkaBatch] = []
        bytes_left, records_left = self._settings.max_batch_bytes, MOST_RECORDS
        for start, end in whole_batches(records):
            try:
                batch = read_batch(records[start:end], start, max_bytes=bytes_left, max_records=records_left)
            except OperationFailed as error:
                if error.failure.code is FailureCode.BAD_FORMAT and is_checksum_right(records[start:end]):
                    # the producer made it so: CORRUPT_MESSAGE would have it sent again until its time is over
                    raise KafkaRefusal(KafkaError.INVALID_RECORD, error.failure.message) from None
                raise
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
