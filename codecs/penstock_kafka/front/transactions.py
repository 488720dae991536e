"""APIs of transactions: AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn."""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.core.back import Back
from penstock.core.identity import CLIENT
from penstock.core.permissions import APPEND
from penstock.model.failures import OperationFailed
from penstock.model.records import StreamRef
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.transaction_messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnPartitionResult,
    TxnTopicResult,
)
from penstock_kafka.front.access import KafkaAccess
from penstock_kafka.front.call import KafkaCall, KafkaHandlers
from penstock_kafka.front.client_names import key_of
from penstock_kafka.front.offsets import GroupOffsets, member_of
from penstock_kafka.groups.offsets import GroupPartition
from penstock_kafka.groups.service import GroupService
from penstock_kafka.topics import KafkaTopics
from penstock_kafka.transactions.delivery import check_takes_records
from penstock_kafka.transactions.records import TxnPartition
from penstock_kafka.transactions.service import TransactionalProducer, TransactionService

__all__ = ["TransactionHandlers"]

_FENCED_SINCE: Final = 2
"""The version of these requests from which on clients know PRODUCER_FENCED (KIP-588)."""

_Request = AddPartitionsToTxnRequest | AddOffsetsToTxnRequest | TxnOffsetCommitRequest | EndTxnRequest


class TransactionHandlers:
    """Handlers of AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn."""

    def __init__(
        self,
        back: Back,
        topics: KafkaTopics,
        groups: GroupService,
        transactions: TransactionService,
        offsets: GroupOffsets,
        access: KafkaAccess,
    ) -> None:
        self._back = back
        self._topics = topics
        self._groups = groups
        self._transactions = transactions
        self._offsets = offsets
        self._access = access
        self.handlers: KafkaHandlers = {
            AddPartitionsToTxnRequest: self._add_partitions,
            AddOffsetsToTxnRequest: self._add_offsets,
            TxnOffsetCommitRequest: self._commit_offsets,
            EndTxnRequest: self._end,
        }

    async def _add_partitions(self, request: AddPartitionsToTxnRequest, call: KafkaCall) -> AddPartitionsToTxnResponse:
        """Add all partitions, or none if one of them cannot be."""
        errors: dict[GroupPartition, KafkaError] = {}
        partitions: list[TxnPartition] = []
        others = self._access.of_transaction(request.transactional_id, call)
        async for topic in call.each(() if others else request.topics):
            async for number in call.each(topic.partitions):
                try:
                    partitions.append(
                        await self._topics.on(topic.name, number, partial(self._checked, topic.name, number))
                    )
                except OperationFailed as error:
                    errors[GroupPartition(topic.name, number)] = call.refused(error.failure)
        if errors:
            self._transactions.refuse_partitions(_producer(request))
            others = KafkaError.OPERATION_NOT_ATTEMPTED
        elif not others:
            others = _spelled(await self._transactions.add_partitions(_producer(request), partitions), call)
        return AddPartitionsToTxnResponse(
            topics=[
                TxnTopicResult(
                    name=topic.name,
                    partitions=[
                        TxnPartitionResult(
                            partition_index=number,
                            error_code=errors.get(GroupPartition(topic.name, number), others),
                        )
                        for number in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def _checked(self, topic: str, number: int, stream: StreamRef) -> TxnPartition:
        """Return a partition that takes records, and that the client may append to."""
        self._back.require(stream, APPEND)
        await check_takes_records(self._back, stream)
        there = CLIENT.get().place(stream)
        return TxnPartition(topic, number, there.basin, there.stream)

    async def _add_offsets(self, request: AddOffsetsToTxnRequest, call: KafkaCall) -> AddOffsetsToTxnResponse:
        error = self._access.of_transaction(request.transactional_id, call)
        error = error or await self._access.of(request.group_id, call, recently=True)
        error = error or await self._transactions.add_group(_producer(request), key_of(request.group_id))
        return AddOffsetsToTxnResponse(error_code=_spelled(error, call))

    async def _commit_offsets(self, request: TxnOffsetCommitRequest, call: KafkaCall) -> TxnOffsetCommitResponse:
        member = member_of(request)
        refusal = self._access.of_transaction(request.transactional_id, call)
        refusal = refusal or await self._access.of(request.group_id, call, recently=True)
        offsets, errors = await self._offsets.checked(refusal, request.topics, call)
        if offsets:
            errors |= self._groups.offset_errors(member, offsets)
            kept = {partition: offset for partition, offset in offsets.items() if not errors[partition]}
            if kept:
                error = await self._transactions.commit_offsets(_producer(request), member.group, kept)
                errors |= dict.fromkeys(kept, _spelled(error, call))
        return TxnOffsetCommitResponse(topics=await self._offsets.outcomes(request.topics, errors, call))

    async def _end(self, request: EndTxnRequest, call: KafkaCall) -> EndTxnResponse:
        error = self._access.of_transaction(request.transactional_id, call)
        error = error or await self._transactions.end(_producer(request), commit=request.committed)
        return EndTxnResponse(error_code=_spelled(error, call))


def _producer(request: _Request) -> TransactionalProducer:
    return TransactionalProducer(key_of(request.transactional_id), request.producer_id, request.producer_epoch)


def _spelled(error: KafkaError, call: KafkaCall) -> KafkaError:
    """Count an error, and return the code for it that the version knows."""
    if error:
        call.refusals += 1
    old = call.version < _FENCED_SINCE or isinstance(call.request.message, TxnOffsetCommitRequest)
    return KafkaError.INVALID_PRODUCER_EPOCH if error is KafkaError.PRODUCER_FENCED and old else error
