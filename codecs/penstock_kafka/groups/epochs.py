"""The coordinator of groups of the consumer protocol (KIP-848), without I/O: heartbeats and times go in, answers out.

Theory of operation. A group has an epoch, which rises with every change of its members, their subscriptions or the
topics; then an assignor gives each member a target. A member moves to its target by itself, from one heartbeat to the
next: first the answer leaves out the partitions that it is to give up, and it stays in its epoch until it says that it
has done so; then it gets the epoch of the group, and of its target those partitions that no other member has. So no two
members have a partition at the same time, and no member waits for the slowest. A member that does not give up
partitions within its rebalance time-out, or is silent for the session time-out, is removed.

The driver stores the groups in `changed` after every call, and answers only when that is durable: no member ever knows
of an epoch or a partition that a restart would not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from penstock_kafka.codec import KafkaError
from penstock_kafka.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, GroupTopic, OwnedPartition
from penstock_kafka.groups.messages import GroupLimits, Membership
from penstock_kafka.groups.timers import KeyedTimers

__all__ = ["EpochCoordinator", "EpochGroup", "EpochGroupRecord", "EpochHeartbeat", "EpochMember", "EpochStatus"]

JOINS, LEAVES, PAUSES = 0, -1, -2
"""Epochs of members that join, leave for good, and leave to come back as the same instance."""
_NOTHING: Final[frozenset[OwnedPartition]] = frozenset()


class EpochHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat; None where the member says nothing, because nothing has changed. `rebalance_timeout`: seconds.
    `expression`: a regular expression that topics match, "" for none; `matched`: the topics that match that of the
    member now. `owned`: the partitions that it has now. `makes_id`: new members bring their ids (version 1)."""

    group: str
    member: str
    epoch: int
    instance: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: float | None = None
    topics: frozenset[str] | None = None
    expression: str | None = None
    matched: frozenset[str] | None = None
    assignor: str | None = None
    owned: frozenset[OwnedPartition] | None = None
    makes_id: bool = False


class EpochStatus(NamedTuple):
    """The answer to a heartbeat. `assignment`: what the member can use, None if it knows that."""

    error: KafkaError = KafkaError.NONE
    message: str | None = None
    member: str | None = None
    epoch: int = 0
    assignment: frozenset[OwnedPartition] | None = None


class EpochMember(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A member, as it is stored too. `topics`: those that it has named; `expression`, `matched`: its regular expression
    and the topics that match it. `previous`: the epoch before its last one. `assigned`: what it can use. `revoking`:
    what it has to give up. `target`: what it is to have. `paused`: a static member that is away."""

    id: str
    instance: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: float = 300.0
    topics: frozenset[str] = frozenset()
    expression: str = ""
    matched: frozenset[str] = frozenset()
    assignor: str = ""
    epoch: int = 0
    previous: int = 0
    assigned: frozenset[OwnedPartition] = _NOTHING
    revoking: frozenset[OwnedPartition] = _NOTHING
    target: frozenset[OwnedPartition] = _NOTHING
    paused: bool = False

    @property
    def subscribed(self) -> frozenset[str]:
        """The topics that it wants."""
        return self.topics | self.matched

    @property
    def owned(self) -> frozenset[OwnedPartition]:
        """The partitions that no other member may get."""
        return self.assigned | self.revoking


class EpochGroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A group, as it is stored."""

    epoch: int
    assignor: str
    topics: dict[str, GroupTopic]
    members: tuple[EpochMember, ...]


class EpochGroup(msgspec.Struct):
    """A group with members. `topics`: those that exist, by name. `told`: the assignment that each member knows."""

    id: str
    epoch: int = 0
    assignor: str = DEFAULT_ASSIGNOR
    topics: dict[str, GroupTopic] = msgspec.field(default_factory=dict)
    members: dict[str, EpochMember] = msgspec.field(default_factory=dict)
    told: dict[str, frozenset[OwnedPartition]] = msgspec.field(default_factory=dict)

    @property
    def subscribed(self) -> frozenset[str]:
        """The topics of all members."""
        return frozenset().union(*(member.subscribed for member in self.members.values()))

    @property
    def state(self) -> str:
        """The name of the group's state in answers to clients."""
        settled = all(member.epoch == self.epoch and member.owned == member.target for member in self.members.values())
        return "Stable" if settled else "Reconciling"

    def of_instance(self, instance: str | None) -> EpochMember | None:
        """Return the static member with this instance."""
        matching = (member for member in self.members.values() if instance is not None and member.instance == instance)
        return next(matching, None)

    def begin_epoch(self) -> None:
        """Count the epoch up, and give each member its target."""
        self.epoch += 1
        votes = Counter(other_member.assignor for other_member in self.members.values() if other_member.assignor)
        self.assignor = (
            min(votes, key=lambda other_member: (-votes[other_member], other_member)) if votes else DEFAULT_ASSIGNOR
        )
        ordered = sorted(self.members.values(), key=lambda other_member: other_member.instance or other_member.id)
        target = ASSIGNORS[self.assignor](
            {other_member.id: other_member.subscribed for other_member in ordered},
            self.topics,
            {other_member.id: other_member.target for other_member in ordered},
        )
        for member in ordered:
            member.target = target[member.id]

    def record(self) -> EpochGroupRecord:
        """Return what is stored."""
        members = tuple(map(msgspec.structs.replace, self.members.values()))
        return EpochGroupRecord(epoch=self.epoch, assignor=self.assignor, topics=dict(self.topics), members=members)


class _Kind(Enum):
    SESSION = auto()
    REVOCATION = auto()


class _Timer(NamedTuple):
    kind: _Kind
    group: str
    member: str


class EpochCoordinator:
    """All groups of this protocol of a listener; a group without members is forgotten.

    `limits` returns the bounds, `new_id` a text that is never returned again. `changed`: ids of groups that differ from
    what was stored; the driver empties it. Times (`now`) are seconds of any clock that never goes back.
    """

    def __init__(self, limits: Callable[[], GroupLimits], new_id: Callable[[], str]) -> None:
        self._limits = limits
        self._new_id = new_id
        self.groups: dict[str, EpochGroup] = {}
        self.changed: set[str] = set()
        self._timers: KeyedTimers[_Timer] = KeyedTimers()

    def restore(self, group_id: str, record: EpochGroupRecord, now: float) -> None:
        """Take up a group that was stored; the sessions of its members begin now."""
        members = {other_member.id: other_member for other_member in record.members}
        group = EpochGroup(group_id, record.epoch, record.assignor, dict(record.topics), members)
        self.groups[group_id] = group
        for member in members.values():
            self._beat(group, member, now)
            if member.revoking:
                self._await_revocation(group, member, now)

    # ---- heartbeats --------------------------------------------------------------------------------------------------

    def heartbeat(self, request: EpochHeartbeat, topics: Mapping[str, GroupTopic], now: float) -> EpochStatus:
        """A member joins, lives or leaves. `topics`: those that exist, at least of those that the members and the
        request have subscribed to."""
        group = self.groups.get(request.group)
        if request.epoch in (LEAVES, PAUSES):
            return self._leave(group, request, now)
        if request.epoch < 0:
            return EpochStatus(KafkaError.INVALID_REQUEST, f"member epoch {request.epoch}")
        refused = self._refused(group, request)
        if refused is not None:
            return refused
        group = self.groups.setdefault(request.group, group or EpochGroup(request.group))
        before = group.members.get(request.member)
        member = before or self._add(group, request)
        changes = self._update(group, member, request)
        existing = {name: topics[name] for name in group.subscribed if name in topics}
        if changes or before is None or group.topics != existing:
            group.topics = existing
            self._begin_epoch(group)
        self._beat(group, member, now)
        self._reconcile(group, member, request.owned, now)
        tells = request.epoch == JOINS or request.owned not in (None, member.assigned)
        tells = tells or group.told.get(member.id) != member.assigned
        group.told[member.id] = member.assigned
        return EpochStatus(member=member.id, epoch=member.epoch, assignment=member.assigned if tells else None)

    def check(self, request: Membership) -> KafkaError | None:
        """Return whether a member may commit and fetch offsets in its epoch, which is the `generation` of the request;
        None if the group has no members of this protocol."""
        group = self.groups.get(request.group)
        if group is None:
            return None
        member = group.members.get(request.member)
        if member is None:
            return KafkaError.UNKNOWN_MEMBER_ID
        return KafkaError.NONE if request.generation == member.epoch else KafkaError.STALE_MEMBER_EPOCH

    def _refused(self, group: EpochGroup | None, request: EpochHeartbeat) -> EpochStatus | None:
        """Return the error of a heartbeat of a member that joins or lives, None if it can be served."""
        member = None if group is None else group.members.get(request.member)
        if request.assignor is not None and request.assignor not in ASSIGNORS:
            reason = f"assignor {request.assignor!r:.80}: {', '.join(ASSIGNORS)} are known"
            return EpochStatus(KafkaError.UNSUPPORTED_ASSIGNOR, reason)
        if self._too_large(group, request):
            reason = f"a group has at most {self._limits().max_group_bytes} bytes of topics"
            return EpochStatus(KafkaError.GROUP_MAX_SIZE_REACHED, reason)
        if request.epoch != JOINS:
            if member is None:
                return EpochStatus(KafkaError.UNKNOWN_MEMBER_ID, f"member {request.member!r:.80} is not in the group")
            lost = request.epoch == member.previous and request.owned is not None and request.owned <= member.assigned
            if request.epoch != member.epoch and not lost:
                reason = f"member {member.id:.80} is in epoch {member.epoch}, not {request.epoch}"
                return EpochStatus(KafkaError.FENCED_MEMBER_EPOCH, reason)
            return None
        if not request.member and request.makes_id:
            return EpochStatus(KafkaError.INVALID_REQUEST, "a new member brings its id")
        subscribes = request.topics is not None or request.expression
        if not subscribes or request.rebalance_timeout is None or request.owned:
            reason = "a member that joins says its topics and its rebalance time-out, and has no partitions"
            return EpochStatus(KafkaError.INVALID_REQUEST, reason)
        earlier = None if group is None else group.of_instance(request.instance)
        if earlier is not None and earlier.id != request.member and not earlier.paused:
            return EpochStatus(KafkaError.UNRELEASED_INSTANCE_ID, f"member {earlier.id} is instance {request.instance}")
        limits = self._limits()
        if member is None and earlier is None and group is not None and len(group.members) >= limits.max_members:
            return EpochStatus(KafkaError.GROUP_MAX_SIZE_REACHED, f"a group has at most {limits.max_members} members")
        return None

    def _too_large(self, group: EpochGroup | None, request: EpochHeartbeat) -> bool:
        """Return whether a request would make the subscriptions of a group larger than they may be. A topic counts for
        each member that has it, as it is stored."""
        members = {} if group is None else group.members
        member = members.get(request.member) or (None if group is None else group.of_instance(request.instance))
        before = member or EpochMember(id="")
        size = _length(
            before.topics if request.topics is None else request.topics,
            before.matched if request.matched is None else request.matched,
            before.expression if request.expression is None else request.expression,
        )
        if size <= _length(before.topics, before.matched, before.expression):
            return False
        others = (
            _length(other_member.topics, other_member.matched, other_member.expression)
            for other_member in members.values()
            if other_member is not member
        )
        return size + sum(others) > self._limits().max_group_bytes

    def _add(self, group: EpochGroup, request: EpochHeartbeat) -> EpochMember:
        """Add a member; one that is a static member again takes over what that had."""
        member = EpochMember(id=request.member or self._new_id())
        earlier = group.of_instance(request.instance)
        if earlier is not None:
            self._remove(group, earlier.id)
            member.assigned, member.target = earlier.assigned, earlier.target
        group.members[member.id] = member
        return member

    def _update(self, group: EpochGroup, member: EpochMember, request: EpochHeartbeat) -> bool:
        """Take over what a member says; return whether the targets depend on it."""
        before = member.subscribed, member.assignor, member.instance
        if request.topics is not None:
            member.topics = request.topics
        if request.expression is not None and request.expression != member.expression:
            member.expression, member.matched = request.expression, frozenset()
            self.changed.add(group.id)
        if request.matched is not None:
            member.matched = request.matched
        member.assignor = member.assignor if request.assignor is None else request.assignor
        member.instance = request.instance or member.instance
        member.rack = request.rack or member.rack
        if request.rebalance_timeout is not None:
            member.rebalance_timeout = request.rebalance_timeout
        if request.epoch == JOINS:
            member.client_id, member.client_host, member.paused = request.client_id, request.client_host, False
            member.epoch = member.previous = JOINS
            member.assigned, member.revoking = member.owned & member.target, _NOTHING
            self._timers.stop(_Timer(_Kind.REVOCATION, group.id, member.id))
        return before != (member.subscribed, member.assignor, member.instance)

    def _reconcile(
        self, group: EpochGroup, member: EpochMember, owned: frozenset[OwnedPartition] | None, now: float
    ) -> None:
        """Move a member towards its target as far as it can go now."""
        before = member.epoch, member.assigned, member.revoking
        if member.revoking and owned is not None and not owned & member.revoking:
            member.revoking = _NOTHING
            self._timers.stop(_Timer(_Kind.REVOCATION, group.id, member.id))
        if not member.revoking:
            member.revoking, member.assigned = member.assigned - member.target, member.assigned & member.target
            if member.revoking and member.epoch != JOINS:
                self._await_revocation(group, member, now)
            else:
                member.revoking = _NOTHING
                if member.epoch != group.epoch:
                    member.previous, member.epoch = member.epoch, group.epoch
                others = frozenset().union(
                    *(other_member.owned for other_member in group.members.values() if other_member is not member)
                )
                member.assigned |= member.target - others
        if before != (member.epoch, member.assigned, member.revoking):
            self.changed.add(group.id)

    def take_back(self, group_id: str, record: EpochGroupRecord | None, joined: str | None, now: float) -> None:
        """Make a group again what it was before a heartbeat: `record`, None if it did not exist. `joined`: the member
        whose heartbeat it was. The sessions of the others go on."""
        group = self.groups.pop(group_id)
        before = () if record is None else record.members
        for member_id in group.members.keys() - {other_member.id for other_member in before}:
            self._stop(group_id, member_id)
        if record is None:
            return
        restored = EpochGroup(group_id, record.epoch, record.assignor, dict(record.topics))
        self.groups[group_id] = restored
        for other_member in before:
            member = restored.members[other_member.id] = msgspec.structs.replace(other_member)
            if other_member.id in group.members and other_member.id != joined:
                if other_member.id in group.told:
                    restored.told[other_member.id] = group.told[other_member.id]
                continue
            self._stop(group_id, other_member.id)
            self._beat(restored, member, now)
            if member.revoking:
                self._await_revocation(restored, member, now)

    # ---- leaving, and time -------------------------------------------------------------------------------------------

    def _leave(self, group: EpochGroup | None, request: EpochHeartbeat, now: float) -> EpochStatus:
        member = None if group is None else group.members.get(request.member)
        if group is None or member is None:
            return EpochStatus(KafkaError.UNKNOWN_MEMBER_ID, f"member {request.member!r:.80} is not in the group")
        if request.epoch == PAUSES and member.instance is not None:
            member.paused = True
            self._beat(group, member, now)
            self.changed.add(group.id)
        else:
            self._remove_for_good(group, member.id)
        return EpochStatus(member=request.member, epoch=request.epoch)

    def deadline(self) -> float | None:
        """Return when to call `fire`, None if nothing is due in the future."""
        return self._timers.next()

    def fire(self, now: float) -> None:
        """Remove the members whose time is over."""
        while (timer := self._timers.pop(now)) is not None:
            group = self.groups.get(timer.group)
            if group is not None and timer.member in group.members:
                self._remove_for_good(group, timer.member)

    def _remove_for_good(self, group: EpochGroup, member_id: str) -> None:
        self._remove(group, member_id)
        if group.members:
            self._begin_epoch(group)
        else:
            del self.groups[group.id]
            self.changed.add(group.id)

    def _remove(self, group: EpochGroup, member_id: str) -> None:
        del group.members[member_id]
        group.told.pop(member_id, None)
        self._stop(group.id, member_id)

    def _stop(self, group_id: str, member_id: str) -> None:
        for kind in _Kind:
            self._timers.stop(_Timer(kind, group_id, member_id))

    def _begin_epoch(self, group: EpochGroup) -> None:
        group.begin_epoch()
        self.changed.add(group.id)

    def _beat(self, group: EpochGroup, member: EpochMember, now: float) -> None:
        self._timers.start(_Timer(_Kind.SESSION, group.id, member.id), now + self._limits().consumer_session)

    def _await_revocation(self, group: EpochGroup, member: EpochMember, now: float) -> None:
        self._timers.start(_Timer(_Kind.REVOCATION, group.id, member.id), now + member.rebalance_timeout)


def _length(topics: frozenset[str], matched: frozenset[str], expression: str) -> int:
    """Return how much of the bounds of a group a subscription takes."""
    return sum(map(len, topics)) + sum(map(len, matched)) + len(expression)
