"""APIs of the offsets that groups commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from penstock.core.back import Back
from penstock.core.permissions import READ
from penstock.model.failures import FailureCode, OperationFailed
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.group_messages import (
    CommittedPartition,
    CommittedTopic,
    DeletedOffset,
    DeletedOffsets,
    FetchedOffset,
    FetchedOffsets,
    FetchedTopic,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetsToCommit,
    WantedGroup,
    WantedOffsets,
)
from penstock_kafka.codec.schema import NO_UUID
from penstock_kafka.front.access import KafkaAccess
from penstock_kafka.front.call import KafkaCall, KafkaHandlers
from penstock_kafka.front.client_names import key_of
from penstock_kafka.front.cluster import LEADER_EPOCH
from penstock_kafka.groups.messages import Membership
from penstock_kafka.groups.offsets import CommittedOffset, GroupPartition
from penstock_kafka.groups.service import GroupService
from penstock_kafka.names import KafkaNames
from penstock_kafka.sequences import KafkaRefusal
from penstock_kafka.topic_ids import TopicIds
from penstock_kafka.topics import KafkaTopics
from penstock_kafka.transactions.service import TransactionService

__all__ = ["GroupOffsets", "OffsetHandlers", "member_of"]

_FINAL: Final = frozenset(
    {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.INVALID_TOPIC_EXCEPTION, KafkaError.INVALID_REQUEST}
)
"""Errors of topics that a repetition does not mend."""
_IDS: Final = 10
"""The first version of OffsetCommit and OffsetFetch that names topics by their ids."""
N = TypeVar("N", OffsetsToCommit, WantedOffsets)


class _Committed(Protocol):
    """An offset in a request that commits offsets."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


T_co = TypeVar("T_co", bound=_Committed, covariant=True)


class _Topic(Protocol[T_co]):
    """The offsets of one topic in such a request."""

    name: str

    @property
    def partitions(self) -> Sequence[T_co]: ...


class _OfMember(Protocol):
    """A request that commits offsets."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int


def member_of(request: _OfMember) -> Membership:
    """Return the member that commits offsets."""
    return Membership(
        group=key_of(request.group_id),
        member=request.member_id,
        instance=request.group_instance_id,
        generation=request.generation_id,
    )


class GroupOffsets:
    """The offsets in requests that commit some: in transactions, and without."""

    def __init__(self, back: Back, names: KafkaNames, topics: KafkaTopics) -> None:
        self._back = back
        self._names = names
        self._topics = topics

    async def checked(
        self, refusal: KafkaError, topics: Sequence[_Topic[_Committed]], call: KafkaCall
    ) -> tuple[dict[GroupPartition, CommittedOffset], dict[GroupPartition, KafkaError]]:
        """Return the offsets of partitions that the client may read, and errors for the others: for all of them
        `refusal`, unless that is NONE."""
        offsets: dict[GroupPartition, CommittedOffset] = {}
        errors: dict[GroupPartition, KafkaError] = {}
        async for topic in call.each(topics):
            partitions_state = _Partitions(error=refusal) if refusal else await self.partitions(topic.name, call)
            async for request_partition in call.each(topic.partitions):
                partition = GroupPartition(topic.name, request_partition.partition_index)
                if error := partitions_state.error_of(partition.partition):
                    errors[partition] = error
                else:
                    offsets[partition] = _offset(request_partition, partitions_state.created[partition.partition])
        return offsets, errors

    async def outcomes(
        self, topics: Sequence[_Topic[_Committed]], errors: Mapping[GroupPartition, KafkaError], call: KafkaCall
    ) -> list[CommittedTopic]:
        """Return the errors in the order of the request."""
        outcomes = []
        async for topic in call.each(topics):
            partitions = [
                CommittedPartition(
                    partition_index=partition.partition_index,
                    error_code=errors[GroupPartition(topic.name, partition.partition_index)],
                )
                async for partition in call.each(topic.partitions)
            ]
            outcomes.append(CommittedTopic(name=topic.name, partitions=partitions))
        return outcomes

    async def partitions(self, topic: str, call: KafkaCall) -> _Partitions:
        """Return the partitions of a topic, as far as the client may read them."""
        try:
            streams = await self._topics.creations(topic)
        except OperationFailed as failed:
            return _Partitions(error=_of_topic(call.refused(failed.failure)))
        partitions_state = _Partitions()
        async for number, (stream, created_at) in call.each(streams.items()):
            try:
                self._back.require(stream, READ)
            except OperationFailed as failed:
                partitions_state.denied[number] = call.refused(failed.failure)
            else:
                partitions_state.created[number] = created_at
        return partitions_state

    def fetched(
        self, of: GroupPartition, offset: CommittedOffset | None, partitions_state: _Partitions, call: KafkaCall
    ) -> FetchedOffset:
        """Return the answer about a committed offset; one of an earlier stream of the name does not count.

        An offset whose stream is not seen counts: a broker that has just started may not list the topic yet, or its
        server may be away. Without an offset a consumer would start again as for a new group, and errors of partitions
        are final for it.
        """
        error = self.refused(of, partitions_state, call)
        if error not in (KafkaError.NONE, KafkaError.UNKNOWN_TOPIC_OR_PARTITION):
            return FetchedOffset(partition_index=of.partition, error_code=error)
        if (
            error
            or offset is None
            or partitions_state.created.get(of.partition, offset.created_at) != offset.created_at
        ):
            return FetchedOffset(partition_index=of.partition)
        return FetchedOffset(
            partition_index=of.partition,
            committed_offset=offset.offset,
            # Clients may have committed the epoch of a cluster behind; a newer one than the gateway's ends their reads.
            committed_leader_epoch=min(offset.leader_epoch, LEADER_EPOCH),
            metadata=offset.metadata or "",
        )

    def refused(self, of: GroupPartition, partitions_state: _Partitions, call: KafkaCall) -> KafkaError:
        """Return why the client may not see the offset of a partition, whether its stream is seen or not; NONE if it
        may."""
        if of.partition in partitions_state.created:
            return KafkaError.NONE
        if of.partition in partitions_state.denied:
            return partitions_state.denied[of.partition]
        if partitions_state.error in _FINAL:
            return partitions_state.error
        streams = [self._names.member(of.topic, of.partition)]
        if of.partition == 0:
            streams.append(self._names.to_stream(of.topic))
        for stream in streams:  # it is one of them: which, only its server knows
            try:
                self._back.require(stream, READ)
            except OperationFailed as failed:
                denied = failed.failure
            else:
                return KafkaError.NONE
        return call.refused(denied)


def _of_topic(error: KafkaError) -> KafkaError:
    """Return the code for the error of a look for a topic. All that a repetition may mend are
    COORDINATOR_NOT_AVAILABLE: NOT_LEADER_OR_FOLLOWER and REQUEST_TIMED_OUT are unexpected here, and end consumers."""
    known = error in _FINAL or error is KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    return error if known else KafkaError.COORDINATOR_NOT_AVAILABLE


class OffsetHandlers:
    """Handlers of OffsetCommit, OffsetFetch and OffsetDelete."""

    def __init__(
        self,
        ids: TopicIds,
        groups: GroupService,
        transactions: TransactionService,
        offsets: GroupOffsets,
        access: KafkaAccess,
    ) -> None:
        self._ids = ids
        self._groups = groups
        self._transactions = transactions
        self._offsets = offsets
        self._access = access
        self.handlers: KafkaHandlers = {
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._fetch,
            OffsetDeleteRequest: self._delete,
        }

    async def _commit(self, request: OffsetCommitRequest, call: KafkaCall) -> OffsetCommitResponse:
        named, unknown = await self._named(request.topics, call)
        if request.member_id and request.generation_id >= 0:
            refusal = self._access.of_member(request.group_id, call)
        else:
            refusal = await self._access.of(request.group_id, call, recently=True)
        offsets, errors = await self._offsets.checked(refusal, named, call)
        if offsets:
            errors |= await self._groups.commit(member_of(request), offsets)
        topics = await self._offsets.outcomes(named, errors, call)
        for outcome, topic in zip(topics, named, strict=True):
            outcome.topic_id = topic.topic_id
        for topic, error in unknown:
            partitions = [
                CommittedPartition(partition_index=partition.partition_index, error_code=error)
                for partition in topic.partitions
            ]
            topics.append(CommittedTopic(topic_id=topic.topic_id, partitions=partitions))
        return OffsetCommitResponse(topics=topics)

    async def _named(self, topics: Sequence[N], call: KafkaCall) -> tuple[Sequence[N], list[tuple[N, KafkaError]]]:
        """Give names to the topics of a request that names them by their ids. Return those that are known, and the
        others, each with its error."""
        if call.version < _IDS:
            return topics, []
        named: list[N] = []
        unknown: list[tuple[N, KafkaError]] = []
        async for topic in call.each(topics):
            try:
                topic.name = await self._ids.name_of(topic.topic_id)
                named.append(topic)
            except KafkaRefusal as refused:
                call.refusals += 1
                unknown.append((topic, refused.code))
            except OperationFailed as failed:
                unknown.append((topic, _of_topic(call.refused(failed.failure))))
        return named, unknown

    async def _fetch(self, request: OffsetFetchRequest, call: KafkaCall) -> OffsetFetchResponse:
        if call.version >= 8:
            stable = request.require_stable
            groups = [
                FetchedOffsets(group_id=group.group_id, error_code=error)
                if (error := self._refused_member(group))
                else await self._fetched_by_key(group.group_id, group.topics, call, stable=stable)
                async for group in call.each(request.groups)
            ]
            return OffsetFetchResponse(groups=groups)
        fetched_group = await self._fetched(request.group_id, request.topics, call, stable=request.require_stable)
        return OffsetFetchResponse(topics=fetched_group.topics, error_code=fetched_group.error_code)

    def _refused_member(self, request: WantedGroup) -> KafkaError:
        """Return the error of a request by a member in a certain epoch, NONE if it has it, or for other clients."""
        if request.member_id is None or request.member_epoch < 0:
            return KafkaError.NONE
        member = Membership(group=key_of(request.group_id), member=request.member_id, generation=request.member_epoch)
        return self._groups.refusal(request.group_id) or self._groups.refused_fetch(member)

    async def _fetched_by_key(
        self, group: str, wanted: Sequence[WantedOffsets] | None, call: KafkaCall, *, stable: bool
    ) -> FetchedOffsets:
        """Return a group's offsets as `_fetched` does, with the ids of topics if the version has those."""
        if call.version < _IDS:
            return await self._fetched(group, wanted, call, stable=stable)
        named, unknown = await self._named(wanted or [], call)
        if any(error is KafkaError.COORDINATOR_NOT_AVAILABLE for _, error in unknown):
            return FetchedOffsets(group_id=group, error_code=KafkaError.COORDINATOR_NOT_AVAILABLE)
        fetched_group = await self._fetched(group, None if wanted is None else named, call, stable=stable)
        if fetched_group.error_code:
            return fetched_group
        ids = {topic.name: topic.topic_id for topic in named}
        try:
            async for topic in call.each(fetched_group.topics):
                topic.topic_id = ids.get(topic.name) or await self._id_of(topic.name)
        except OperationFailed as failed:
            call.refused(failed.failure)
            return FetchedOffsets(group_id=group, error_code=KafkaError.COORDINATOR_NOT_AVAILABLE)
        topics = [topic for topic in fetched_group.topics if topic.topic_id != NO_UUID]
        for unknown_topic, error in unknown:
            partitions = [
                FetchedOffset(partition_index=number, error_code=error) for number in unknown_topic.partition_indexes
            ]
            topics.append(FetchedTopic(topic_id=unknown_topic.topic_id, partitions=partitions))
        fetched_group.topics = topics
        return fetched_group

    async def _id_of(self, topic: str) -> bytes:
        """Return the id of a topic, NO_UUID for one that is no longer there. Raises OperationFailed."""
        try:
            return await self._ids.of(topic)
        except OperationFailed as failed:
            if failed.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
            return NO_UUID

    async def _fetched(
        self, group: str, wanted: Sequence[WantedOffsets] | None, call: KafkaCall, *, stable: bool
    ) -> FetchedOffsets:
        """Return a group's offsets; None: of all topics. `stable`: none that an open transaction may change."""
        if error := await self._access.of(group, call, recently=True):
            return FetchedOffsets(group_id=group, error_code=error)
        if stable and not self._transactions.loaded:
            return FetchedOffsets(group_id=group, error_code=KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
        unstable = self._transactions.unstable(key_of(group)) if stable else ()
        try:
            committed = await self._committed(key_of(group), wanted)
        except OperationFailed as failed:
            call.refused(failed.failure)
            return FetchedOffsets(group_id=group, error_code=KafkaError.COORDINATOR_NOT_AVAILABLE)
        partitions: dict[str, _Partitions] = {}
        topics: dict[str, list[FetchedOffset]] = {}
        async for group_partition, offset in call.each(committed.items()):
            if group_partition.topic not in partitions:
                partitions[group_partition.topic] = await self._offsets.partitions(group_partition.topic, call)
            topics.setdefault(group_partition.topic, []).append(
                FetchedOffset(partition_index=group_partition.partition, error_code=KafkaError.UNSTABLE_OFFSET_COMMIT)
                if group_partition in unstable
                else self._offsets.fetched(group_partition, offset, partitions[group_partition.topic], call)
            )
        return FetchedOffsets(
            group_id=group, topics=[FetchedTopic(name=name, partitions=offsets) for name, offsets in topics.items()]
        )

    async def _committed(
        self, group: str, wanted: Sequence[WantedOffsets] | None
    ) -> dict[GroupPartition, CommittedOffset | None]:
        if wanted is None:
            return dict(await self._groups.all_offsets(group))
        partitions = [
            GroupPartition(topic.name, partition_index)
            for topic in wanted
            for partition_index in topic.partition_indexes
        ]
        return dict(zip(partitions, await self._groups.offsets(group, partitions), strict=True))

    async def _delete(self, request: OffsetDeleteRequest, call: KafkaCall) -> OffsetDeleteResponse:
        if error := await self._access.of(request.group_id, call):
            return OffsetDeleteResponse(error_code=error)
        wanted: list[GroupPartition] = []
        errors: dict[GroupPartition, KafkaError] = {}
        async for topic in call.each(request.topics):
            partitions_state = await self._offsets.partitions(topic.name, call)
            async for request_partition in call.each(topic.partitions):
                partition = GroupPartition(topic.name, request_partition.partition_index)
                error = self._offsets.refused(partition, partitions_state, call)
                if error in (KafkaError.NONE, KafkaError.UNKNOWN_TOPIC_OR_PARTITION):  # of deleted topics, too
                    wanted.append(partition)
                else:
                    errors[partition] = error
        outcome = await self._groups.delete_offsets(key_of(request.group_id), wanted)
        if isinstance(outcome, KafkaError):
            return OffsetDeleteResponse(error_code=outcome)
        errors |= outcome
        return OffsetDeleteResponse(
            topics=[
                DeletedOffsets(
                    name=topic.name,
                    partitions=[
                        DeletedOffset(partition_index=index, error_code=errors[GroupPartition(topic.name, index)])
                        for index in (request_partition.partition_index for request_partition in topic.partitions)
                    ],
                )
                for topic in request.topics
            ]
        )


class _Partitions(msgspec.Struct):
    """The partitions of a topic. `created`: when the stream of each was created, in Unix ms. `denied`: errors of those
    that the client may not read. `error`: of all others."""

    created: dict[int, int] = msgspec.field(default_factory=dict)
    denied: dict[int, KafkaError] = msgspec.field(default_factory=dict)
    error: KafkaError = KafkaError.UNKNOWN_TOPIC_OR_PARTITION

    def error_of(self, partition: int) -> KafkaError:
        """Return the error of a partition, NONE if it can be used."""
        return KafkaError.NONE if partition in self.created else self.denied.get(partition, self.error)


def _offset(request_partition: _Committed, created_at: int) -> CommittedOffset:
    return CommittedOffset(
        offset=request_partition.committed_offset,
        created_at=created_at,
        committed_at=0,
        leader_epoch=request_partition.committed_leader_epoch,
        metadata=request_partition.committed_metadata,
    )
