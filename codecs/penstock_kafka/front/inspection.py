"""APIs by which administrators' tools look into a cluster: files, rights, producers, transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.core.back import Back
from penstock.model.failures import OperationFailed
from penstock.model.operations import CheckTail
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.inspection_messages import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribedTransaction,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    LogDir,
    LogDirPartition,
    LogDirTopic,
    PartitionProducers,
    TopicProducers,
)
from penstock_kafka.codec.transaction_messages import TxnTopic
from penstock_kafka.front.access import KafkaAccess
from penstock_kafka.front.call import KafkaCall, KafkaHandlers
from penstock_kafka.front.client_names import key_of, name_of
from penstock_kafka.topic_ids import TopicIds
from penstock_kafka.topics import KafkaTopics
from penstock_kafka.transactions.records import TxnState
from penstock_kafka.transactions.service import TransactionService

__all__ = ["InspectionHandlers"]

_LOG_DIR: Final = "streams"
_STATES: Final = {state: "".join(word.capitalize() for word in state.value.split("-")) for state in TxnState}


class InspectionHandlers:
    """Handlers of DescribeLogDirs, DescribeAcls, DescribeProducers, ListTransactions and DescribeTransactions."""

    def __init__(
        self, back: Back, topics: KafkaTopics, ids: TopicIds, transactions: TransactionService, access: KafkaAccess
    ) -> None:
        self._back = back
        self._topics = topics
        self._ids = ids
        self._transactions = transactions
        self._access = access
        self.handlers: KafkaHandlers = {
            DescribeLogDirsRequest: self._describe_log_dirs,
            DescribeAclsRequest: self._describe_acls,
            DescribeProducersRequest: self._describe_producers,
            ListTransactionsRequest: self._list_transactions,
            DescribeTransactionsRequest: self._describe_transactions,
        }

    async def _describe_log_dirs(self, request: DescribeLogDirsRequest, call: KafkaCall) -> DescribeLogDirsResponse:
        """Put all partitions into one directory, without sizes: streams do not tell theirs on every back."""
        try:
            counts = {name: count for name, (count, _) in (await self._ids.all()).items()}
        except OperationFailed as error:
            return DescribeLogDirsResponse(error_code=call.refused(error.failure))
        if request.topics is None:
            numbers: dict[str, Sequence[int]] = {name: range(count) for name, count in counts.items()}
        else:
            numbers = {topic.topic: topic.partitions async for topic in call.each(request.topics)}
        topics = []
        async for name, partitions in call.each(numbers.items()):
            count = counts.get(name, 0)
            described = [
                LogDirPartition(partition_index=partition)
                async for partition in call.each(partitions)
                if 0 <= partition < count
            ]
            if described:
                topics.append(LogDirTopic(name=name, partitions=described))
        return DescribeLogDirsResponse(results=[LogDir(log_dir=_LOG_DIR, topics=topics)])

    async def _describe_acls(self, _request: DescribeAclsRequest, _call: KafkaCall) -> DescribeAclsResponse:
        """Return no lists: identities and access tokens have the rights of clients."""
        return DescribeAclsResponse()

    async def _describe_producers(
        self, request: DescribeProducersRequest, call: KafkaCall
    ) -> DescribeProducersResponse:
        """Return no producers: a stream has no records of open transactions, which tools look for."""
        topics = []
        async for topic in call.each(request.topics):
            partitions = [
                await self._producers(topic.name, number, call) async for number in call.each(topic.partition_indexes)
            ]
            topics.append(TopicProducers(name=topic.name, partitions=partitions))
        return DescribeProducersResponse(topics=topics)

    async def _producers(self, topic: str, partition: int, call: KafkaCall) -> PartitionProducers:
        try:
            await self._topics.on(
                topic, partition, lambda stream: self._back.perform(CheckTail(stream, create_if_missing=False))
            )
        except OperationFailed as error:
            code, reason = call.refused(error.failure), error.failure.message
            return PartitionProducers(partition_index=partition, error_code=code, error_message=reason)
        return PartitionProducers(partition_index=partition)

    async def _list_transactions(self, request: ListTransactionsRequest, call: KafkaCall) -> ListTransactionsResponse:
        """Return the transactional ids that the client may use."""
        if not self._transactions.loaded:
            return ListTransactionsResponse(error_code=KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
        names, producer_ids = set(request.state_filters), set(request.producer_id_filters)
        listed = []
        async for key in call.each(self._transactions.transactional_ids()):
            name, record = name_of(key), self._transactions.record(key)
            if name is None or record is None or not self._access.may_use_transaction(name):
                continue
            state = _STATES[record.state]
            if (not names or state in names) and (not producer_ids or record.producer_id in producer_ids):
                listed.append(
                    ListedTransaction(transactional_id=name, producer_id=record.producer_id, transaction_state=state)
                )
        unknown = sorted(names - set(_STATES.values()))
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)

    async def _describe_transactions(
        self, request: DescribeTransactionsRequest, call: KafkaCall
    ) -> DescribeTransactionsResponse:
        described = [self._described(name, call) async for name in call.each(request.transactional_ids)]
        return DescribeTransactionsResponse(transaction_states=described)

    def _described(self, transactional_id: str, call: KafkaCall) -> DescribedTransaction:
        if not self._transactions.loaded:
            code = KafkaError.COORDINATOR_LOAD_IN_PROGRESS
            return DescribedTransaction(error_code=code, transactional_id=transactional_id)
        if error := self._access.of_transaction(transactional_id, call):
            return DescribedTransaction(error_code=error, transactional_id=transactional_id)
        record = self._transactions.record(key_of(transactional_id))
        if record is None:
            call.refusals += 1
            code = KafkaError.TRANSACTIONAL_ID_NOT_FOUND
            return DescribedTransaction(error_code=code, transactional_id=transactional_id)
        is_open = record.state is TxnState.ONGOING or record.state.prepared
        topics: dict[str, list[int]] = {}
        for partition in record.partitions if is_open else ():
            topics.setdefault(partition.topic, []).append(partition.partition)
        return DescribedTransaction(
            transactional_id=transactional_id,
            transaction_state=_STATES[record.state],
            transaction_timeout_ms=record.timeout_ms,
            transaction_start_time_ms=record.begun_at if is_open else -1,
            producer_id=record.producer_id,
            producer_epoch=record.epoch,
            topics=[TxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
        )
