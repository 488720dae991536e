"""The groups of one listener: the coordinator with a clock, a table, and tasks that await its answers.

Groups are loaded from the table when `run` begins; until then requests are refused, and repeated by the clients.
After that the coordinator is the authority on groups, and the table follows it. Offsets are read from the table.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final, TypeVar
from uuid import uuid4

import msgspec
import structlog
import trio

from penstock.core.clock import Clock, wall_clock
from penstock.core.identity import CLIENT
from penstock.core.pauses import sleep_unpaused
from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MAX_TABLE_VALUE_BYTES
from penstock.tables.journal import TableJournal
from penstock.tables.struct_table import Key, Prefix, StructTable
from penstock_kafka.codec import KafkaError
from penstock_kafka.groups.assignors import GroupTopic
from penstock_kafka.groups.coordinator import GroupCoordinator
from penstock_kafka.groups.epoch_service import EpochService, or_never
from penstock_kafka.groups.epochs import EpochHeartbeat, EpochStatus
from penstock_kafka.groups.messages import (
    GroupLimits,
    GroupRecord,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    Membership,
    RequestAnswered,
    SaveGroup,
    SyncAnswer,
    SyncRequest,
)
from penstock_kafka.groups.offsets import CommittedOffset, CommittedOffsets, GroupPartition
from penstock_kafka.groups.states import GroupState
from penstock_kafka.groups.subscriptions import subscribed_topics

__all__ = ["GroupService"]

log = structlog.get_logger()

A = TypeVar("A")

_GROUPS: Final = Prefix("group/", GroupRecord)
_MOST_ID: Final = 1024
"""Most bytes of a group's id."""
_MOST_METADATA: Final = 4096
"""Most characters of the text beside a committed offset; also Kafka's default."""
_SWEEP_SECONDS: Final = 600.0
_AGAIN_SECONDS: Final = 1.0


class GroupService:
    """The groups of one listener. `limits` returns the bounds, which a reload may change.

    Nothing raises OperationFailed but the methods that say so; errors are codes.
    """

    def __init__(
        self, table: StructTable, limits: Callable[[], GroupLimits] = GroupLimits, clock: Clock = wall_clock
    ) -> None:
        self._table = table
        self._limits = limits
        self._clock = clock
        self._coordinator = GroupCoordinator(limits, lambda: str(uuid4()), lambda: CLIENT.get().principal)
        self._journal = TableJournal(table)
        self._offsets = CommittedOffsets(table, self._journal)
        self.consumers = EpochService(table, self._journal, limits, self._hold)
        self._tickets = count()
        self._waiting: dict[int, _Waiting] = {}
        self._nursery: trio.Nursery | None = None
        self._until = trio.CancelScope()
        self._expiring: set[str] = set()
        self._committed: OrderedDict[str, _CommittedTopics] = OrderedDict()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load the groups, then do what time and the table demand, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._journal.run)
            await self._load()
            self._nursery = nursery
            task_status.started()
            nursery.start_soon(self._sweep_regularly)
            nursery.start_soon(self.consumers.run)
            while True:
                with trio.CancelScope(deadline=or_never(self._coordinator.deadline())) as self._until:
                    await trio.sleep_forever()
                await sleep_unpaused(min(trio.current_time(), self._until.deadline))  # heartbeats may be unread
                self._coordinator.fire(trio.current_time())
                self._work()

    async def _load(self) -> None:
        while True:
            try:
                loaded = [row async for row in self._table.each(_GROUPS)]
                await self.consumers.load()
                break
            except OperationFailed as error:
                log.warning("groups_not_loaded", reason=str(error.failure))
                await trio.sleep(_AGAIN_SECONDS)
        for group, record in loaded:
            self._coordinator.restore(group, record, trio.current_time())

    # ---- members -----------------------------------------------------------------------------------------------------

    def refusal(self, group: str) -> KafkaError:
        """Return the error of all requests about this group, NONE if they can be executed now."""
        if not 0 < len(group.encode()) <= _MOST_ID or "\0" in group:
            return KafkaError.INVALID_GROUP_ID
        return KafkaError.NONE if self.loaded else KafkaError.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def loaded(self) -> bool:
        """True once the groups have been loaded."""
        return self._nursery is not None

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """Join a group; wait for its next generation."""
        if self.consumers.group(request.group) is not None:
            return JoinAnswer(error=KafkaError.INCONSISTENT_GROUP_PROTOCOL, member=request.member)
        response: JoinAnswer = await self._answer(lambda ticket, now: self._coordinator.join(request, ticket, now))
        return response

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        """Wait for the assignment of a member."""
        response: SyncAnswer = await self._answer(lambda ticket, now: self._coordinator.sync(request, ticket, now))
        return response

    async def consumer_heartbeat(self, request: EpochHeartbeat, topics: Mapping[str, GroupTopic]) -> EpochStatus:
        """Return the answer to a heartbeat of the consumer protocol. A group is of the protocol of its members."""
        state, _ = self.describe(request.group)
        if state not in (GroupState.DEAD, GroupState.EMPTY):
            return EpochStatus(KafkaError.GROUP_ID_NOT_FOUND, "the group has members of the classic protocol")
        if state is GroupState.DEAD and request.epoch == 0 and (error := self._hold(request.group)):
            return EpochStatus(error, "there is no room for another group")
        return await self.consumers.heartbeat(request, topics)

    def _hold(self, group: str) -> KafkaError:
        return self._at_once(self._coordinator.hold(group))

    @property
    def consumer_heartbeat_seconds(self) -> float:
        """Time between heartbeats of the consumer protocol."""
        return self._limits().consumer_heartbeat

    def refused_fetch(self, membership: Membership) -> KafkaError:
        """Return the error of a member of the consumer protocol that asks for offsets, NONE for all others."""
        return self.consumers.check(membership) or KafkaError.NONE

    def _refused_commit(self, membership: Membership) -> KafkaError:
        """Return the error of a commit of offsets, NONE if they may be committed now."""
        error = self.consumers.check(membership)
        if error is not None:
            return error
        return self._at_once(self._coordinator.check_commit(membership, trio.current_time()))

    def heartbeat(self, membership: Membership) -> KafkaError:
        """Prolong the session of a member."""
        return self._at_once(self._coordinator.heartbeat(membership, trio.current_time()))

    def leave(self, group: str, members: Sequence[LeavingMember]) -> list[KafkaError]:
        """Remove members; return an error for each."""
        return self._at_once(self._coordinator.leave(group, members, trio.current_time()))

    # ---- administration ----------------------------------------------------------------------------------------------

    def states(self) -> list[tuple[str, str, GroupState]]:
        """Return the id, the protocol type and the state of each group."""
        return sorted(self._coordinator.states())

    def describe(self, group: str) -> tuple[GroupState, GroupRecord]:
        """Return a group's state and its members; DEAD for one that does not exist."""
        return self._coordinator.describe(group)

    async def topics(self, group: str) -> frozenset[str] | None:
        """Return the topics that a group's members have subscribed to, and those with committed offsets; None if its
        members are no consumers. Raises OperationFailed."""
        state, record = self.describe(group)
        subscribed, consumers = subscribed_topics(record), self.consumers.group(group)
        if subscribed is None:
            return None
        if consumers is not None:
            subscribed |= consumers.subscribed
        elif state is GroupState.DEAD:
            return frozenset()
        while (committed := self._committed.get(group)) is None or not committed.is_loaded:
            if committed is not None:
                async with committed.loading:
                    continue
            committed = self._committed[group] = _CommittedTopics()
            try:
                async with committed.loading:
                    await self._journal.change({}).durable()
                    committed.topics |= {partition.topic for partition in await self.all_offsets(group)}
                    committed.is_loaded = True
            finally:
                if not committed.is_loaded:
                    self._forget_topics(group)
            if len(self._committed) > self._limits().max_groups:
                self._committed.popitem(last=False)
            break
        return frozenset(subscribed | committed.topics)

    def _forget_topics(self, group: str) -> None:
        self._committed.pop(group, None)

    async def delete(self, group: str) -> KafkaError:
        """Delete a group without members, and its offsets."""
        if self.consumers.group(group) is not None:
            return KafkaError.NON_EMPTY_GROUP
        response: KafkaError = await self._answer(lambda ticket, _: self._coordinator.delete(group, ticket))
        return response

    # ---- offsets -----------------------------------------------------------------------------------------------------

    @property
    def journal(self) -> TableJournal:
        """The changes to the table, which are written in order while `run` is running."""
        return self._journal

    def offset_errors(
        self, membership: Membership, offsets: Mapping[GroupPartition, CommittedOffset]
    ) -> dict[GroupPartition, KafkaError]:
        """Return an error for each offset that a transaction is to commit, NONE for those that can be committed. A
        client without a group may do it whether the group has members or not, and a member also while the group waits
        for its assignment."""
        error = self._refused_commit(membership)
        without_group = membership.generation < 0 and not membership.member
        if error is KafkaError.REBALANCE_IN_PROGRESS or (error is KafkaError.UNKNOWN_MEMBER_ID and without_group):
            error = KafkaError.NONE
        elif error is KafkaError.STALE_MEMBER_EPOCH:
            error = KafkaError.ILLEGAL_GENERATION  # the other one is fatal for transactional producers
        return {partition: error or _refused_offset(offset) for partition, offset in offsets.items()}

    def offset_changes(
        self, group: str, offsets: Mapping[GroupPartition, CommittedOffset]
    ) -> dict[Key[Any], CommittedOffset]:
        """Return the changes to the table that commit offsets now."""
        now = self._clock()
        if (committed := self._committed.get(group)) is not None:
            committed.topics |= {partition.topic for partition in offsets}
        return {
            self._offsets.key(group, partition): msgspec.structs.replace(offset, committed_at=now)
            for partition, offset in offsets.items()
        }

    async def commit(
        self, membership: Membership, offsets: Mapping[GroupPartition, CommittedOffset]
    ) -> dict[GroupPartition, KafkaError]:
        """Commit offsets for a member, or a client without a group; `committed_at` is set here. Return an error for
        each, NONE for those that are on disk."""
        error = self._refused_commit(membership)
        if error:
            return dict.fromkeys(offsets, error)
        errors = {partition: _refused_offset(offset) for partition, offset in offsets.items()}
        kept = {partition: offset for partition, offset in offsets.items() if not errors[partition]}
        try:
            await self._journal.change(self.offset_changes(membership.group, kept)).durable()
        except OperationFailed:
            errors |= dict.fromkeys(kept, KafkaError.COORDINATOR_NOT_AVAILABLE)
        return errors

    async def offsets(self, group: str, partitions: list[GroupPartition]) -> list[CommittedOffset | None]:
        """Return the committed offsets of these partitions, None where there is none. Raises OperationFailed."""
        return await self._offsets.get(group, partitions)

    async def all_offsets(self, group: str) -> dict[GroupPartition, CommittedOffset]:
        """Return all committed offsets of a group. Raises OperationFailed."""
        return {partition: offset async for partition, offset in self._offsets.all(group)}

    async def delete_offsets(
        self, group: str, partitions: list[GroupPartition]
    ) -> KafkaError | dict[GroupPartition, KafkaError]:
        """Remove committed offsets, but not those of topics that members have subscribed to. Return an error for the
        group, or for each partition."""
        state, record = self.describe(group)
        if state is GroupState.DEAD:
            return KafkaError.GROUP_ID_NOT_FOUND
        subscribed = subscribed_topics(record)
        if subscribed is None:
            return KafkaError.NON_EMPTY_GROUP
        if (consumers := self.consumers.group(group)) is not None:
            subscribed |= consumers.subscribed
        errors = {
            partition: KafkaError.GROUP_SUBSCRIBED_TO_TOPIC if partition.topic in subscribed else KafkaError.NONE
            for partition in partitions
        }
        try:
            await self._offsets.remove(
                group, [partition for partition in partitions if not errors[partition]]
            ).durable()
        except OperationFailed:
            return KafkaError.COORDINATOR_NOT_AVAILABLE
        self._forget_topics(group)
        return errors

    # ---- the coordinator's events ------------------------------------------------------------------------------------

    async def _answer(self, ask: Callable[[int, float], None]) -> Any:
        """Ask the coordinator, and wait for its answer."""
        ticket, waiting = next(self._tickets), _Waiting()
        self._waiting[ticket] = waiting
        try:
            ask(ticket, trio.current_time())
            self._work()
            await waiting.event.wait()
        finally:
            del self._waiting[ticket]
        return waiting.answer

    def _at_once(self, response: A) -> A:
        self._work()
        return response

    def _work(self) -> None:
        """Carry out the coordinator's events, and watch its new deadline."""
        events = self._coordinator.events
        while events:
            event = events.popleft()
            if isinstance(event, RequestAnswered):
                if (waiting := self._waiting.get(event.ticket)) is not None:  # else its client has gone
                    waiting.answer = event.answer
                    waiting.event.set()
            else:
                self._save(event)
        self._until.deadline = or_never(self._coordinator.deadline())

    def _save(self, save: SaveGroup) -> None:
        """Begin to store a group: its place among all changes is fixed here."""
        assert self._nursery is not None, "nothing is asked of the coordinator before"
        if save.record is None:
            self._nursery.start_soon(self._saved, save, self._removed, save.group)
            return
        record = msgspec.structs.replace(save.record, saved_at=self._clock())
        size = len(msgspec.json.encode(record))
        if size > MAX_TABLE_VALUE_BYTES:
            log.warning("group_too_large", group=save.group, bytes=size, most=MAX_TABLE_VALUE_BYTES)
            self._coordinator.saved(save.serial, False, trio.current_time())
            return
        self._nursery.start_soon(self._saved, save, self._journal.change({_GROUPS.key(save.group): record}).durable)

    async def _saved(self, save: SaveGroup, durable: Callable[..., Any], *args: Any) -> None:
        """Tell the coordinator when a group is stored, or cannot be."""
        try:
            await durable(*args)
            ok = True
        except OperationFailed:
            ok = False
        self._coordinator.saved(save.serial, ok, trio.current_time())
        self._work()

    async def _removed(self, group: str) -> None:
        """Remove a group and its offsets, those included that are still to be written. Raises OperationFailed."""
        await self._journal.change({}).durable()
        offsets = await self.all_offsets(group)
        if offsets and group in self._expiring:
            raise fail(FailureCode.TRANSACTION_CONFLICT, f"group {group!r:.80} is in use again")
        changes: dict[Key[Any], None] = {self._offsets.key(group, offset): None for offset in offsets}
        await self._journal.change({**changes, _GROUPS.key(group): None}).durable()
        self._forget_topics(group)

    # ---- expiry ------------------------------------------------------------------------------------------------------

    async def _sweep_regularly(self) -> None:
        while True:
            await trio.sleep(
                _SWEEP_SECONDS
            )  # first of all: a clock that is wrong at the start has been set right by then
            try:
                await self.sweep()
            except OperationFailed as error:
                log.warning("expiry_of_offsets_failed", reason=str(error.failure))

    async def sweep(self) -> None:
        """Remove the offsets whose retention is over, and empty groups that have none left. Raises OperationFailed.

        The time of an offset counts from its commit, in a group that had members at the earliest from their leaving.
        Offsets of topics that a group's members are subscribed to are kept.
        """
        before = self._clock() - round(self._limits().offset_retention * 1000)
        for group, stored in [row async for row in self._table.each(_GROUPS)]:
            state, record = self.describe(group)
            subscribed = subscribed_topics(record)
            if state not in (GroupState.EMPTY, GroupState.STABLE) or subscribed is None:
                continue
            if self.consumers.group(group) is not None:
                continue
            left_late = state is GroupState.EMPTY and stored.saved_at > before
            if left_late and record.protocol_type:
                continue
            offsets = await self.all_offsets(group)
            old = [row for row, offset in offsets.items() if offset.committed_at <= before]
            old = [row for row in old if row.topic not in subscribed]
            await self._offsets.expire(group, old, before)
            if old:
                self._forget_topics(group)
            if state is GroupState.EMPTY and not left_late and len(old) == len(offsets):
                self._expiring.add(group)
                await self.delete(group)
                self._expiring.discard(group)


class _CommittedTopics:
    """The topics with committed offsets of a group. `loading` is held until those in the table are known."""

    __slots__ = ("is_loaded", "loading", "topics")

    def __init__(self) -> None:
        self.loading = trio.Lock()
        self.is_loaded = False
        self.topics: set[str] = set()


class _Waiting:
    """A task that waits for an answer."""

    __slots__ = ("answer", "event")

    def __init__(self) -> None:
        self.answer: JoinAnswer | SyncAnswer | KafkaError | None = None
        self.event = trio.Event()


def _refused_offset(offset: CommittedOffset) -> KafkaError:
    if offset.offset < 0:
        return KafkaError.OFFSET_OUT_OF_RANGE
    return KafkaError.OFFSET_METADATA_TOO_LARGE if len(offset.metadata or "") > _MOST_METADATA else KafkaError.NONE
