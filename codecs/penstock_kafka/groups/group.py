"""One consumer group: its members, their votes, its leader and its generation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from penstock_kafka.groups.messages import GroupRecord, JoinedMember, JoinRequest, MemberRecord
from penstock_kafka.groups.states import TRANSITIONS, GroupState

__all__ = ["ConsumerGroup", "GroupMember"]

_OVERHEAD: Final = 250
"""Bytes that a member is counted beside its texts."""


class GroupMember(msgspec.Struct, kw_only=True):
    """A member; `is_new` until its first generation begins."""

    id: str
    instance: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = True

    def subscription(self, protocol: str) -> bytes:
        """Return the member's subscription in terms of a protocol, empty if it does not know it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the candidate that the member prefers."""
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def names(self) -> set[str]:
        """The protocols that the member knows."""
        return {name for name, _ in self.protocols}

    @property
    def size(self) -> int:
        """Bytes that count against the limits."""
        texts = len(self.id) + len(self.instance or "") + len(self.client_id) + len(self.client_host)
        return _OVERHEAD + texts + size_of(self.protocols) + len(self.assignment)

    def record(self) -> MemberRecord:
        """Return what is stored."""
        return MemberRecord(
            member=self.id,
            instance=self.instance,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout=self.session_timeout,
            rebalance_timeout=self.rebalance_timeout,
            protocols=self.protocols,
            assignment=self.assignment,
        )


def size_of(protocols: tuple[tuple[str, bytes], ...]) -> int:
    """Return the bytes of a member's protocols."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


class ConsumerGroup(msgspec.Struct):
    """A group.

    `members` by id, in the order in which they joined. `static`: ids by instance. `pending`: ids that were given to
    clients which have not come back with them. `joining`, `syncing`: tickets of the requests that wait, by member.
    `unsynced`: members of this generation that have not asked for their assignment. `assigned`: its leader has brought
    them. `delayed`: this rebalance is the first of an empty group; `extend_by` is how long it may still be put off, and
    `grown` says that a member has joined since it was the last time. `stored`: there is a record of the group.
    `owner`: the principal of the client that began it.
    """

    id: str
    owner: str = ""
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, GroupMember] = msgspec.field(default_factory=dict)
    static: dict[str, str] = msgspec.field(default_factory=dict)
    pending: set[str] = msgspec.field(default_factory=set)
    joining: dict[str, int] = msgspec.field(default_factory=dict)
    syncing: dict[str, int] = msgspec.field(default_factory=dict)
    unsynced: set[str] = msgspec.field(default_factory=set)
    extend_by: float = 0.0
    grown: bool = False
    delayed: bool = False
    assigned: bool = False
    stored: bool = False
    size: int = 0
    _known: Counter[str] = msgspec.field(default_factory=Counter)

    # ---- state -------------------------------------------------------------------------------------------------------

    def become(self, state: GroupState) -> None:
        """Change the state. Raises RuntimeError for a transition that the table does not have."""
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"group {self.id!r:.80} cannot go from {self.state.value} to {state.value}")
        self.state = state

    @property
    def can_rebalance(self) -> bool:
        """True if a rebalance may begin now."""
        return GroupState.PREPARING_REBALANCE in TRANSITIONS[self.state]

    def is_leader(self, member: str) -> bool:
        """Return whether this member is the leader."""
        return self.leader == member and member in self.members

    # ---- members -----------------------------------------------------------------------------------------------------

    def add(self, member: GroupMember) -> None:
        """Add a member; the first one becomes the leader."""
        self.members[member.id] = member
        if member.instance is not None:
            self.static[member.instance] = member.id
        self.pending.discard(member.id)
        self.leader = self.leader or member.id
        self._count(member, 1)

    def remove(self, member_id: str) -> None:
        """Remove a member; if it was the leader, another one becomes it."""
        member = self.members.pop(member_id)
        if member.instance is not None and self.static.get(member.instance) == member_id:
            del self.static[member.instance]
        self._count(member, -1)
        self.unsynced.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.joining), None) or next(iter(self.members), "")

    def update(self, member: GroupMember, request: JoinRequest) -> None:
        """Take over what a member says when it rejoins."""
        self._count(member, -1)
        member.protocols = request.protocols
        member.session_timeout, member.rebalance_timeout = request.session_timeout, request.rebalance_timeout
        member.client_id, member.client_host = request.client_id, request.client_host
        self._count(member, 1)

    def rename(self, old_id: str, new_id: str) -> GroupMember:
        """Give a static member a new id; the old one is fenced."""
        member, was_leader = self.members[old_id], self.leader == old_id
        self.remove(old_id)
        member.id = new_id
        self.add(member)
        if was_leader:
            self.leader = new_id
        return member

    def assign(self, member: GroupMember, assignment: bytes) -> None:
        """Set the assignment of a member."""
        self.size += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def _count(self, member: GroupMember, sign: int) -> None:
        self.size += sign * member.size
        for name in member.names:
            self._known[name] += sign
            if not self._known[name]:
                del self._known[name]

    # ---- generations -------------------------------------------------------------------------------------------------

    @property
    def candidates(self) -> set[str]:
        """The protocols that all members know."""
        return {name for name, count in self._known.items() if count == len(self.members)} if self.members else set()

    def accepts(self, request: JoinRequest) -> bool:
        """Return whether a member with these protocols can be in the group (it may be in it already)."""
        if not self.members:
            return bool(request.protocol_type and request.protocols)
        names = {name for name, _ in request.protocols}
        return request.protocol_type == self.protocol_type and bool(names & self.candidates)

    def elected(self) -> str:
        """Return the protocol with the most votes; of several, the one that the oldest of their voters prefers."""
        candidates = self.candidates
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    @property
    def all_joined(self) -> bool:
        """True if the rebalance need not wait for anyone."""
        return not self.pending and len(self.joining) == len(self.members)

    @property
    def rebalance_timeout(self) -> float:
        """The time that members have to rejoin: what the slowest asks for."""
        return max((member.rebalance_timeout for member in self.members.values()), default=0.0)

    def elect_leader(self) -> bool:
        """Make a member that has joined the leader, unless the leader has. Returns whether there is one."""
        if self.leader not in self.joining:
            self.leader = next(iter(self.joining), self.leader)
        return self.leader in self.joining

    def begin_generation(self) -> None:
        """Count the generation up, and choose its protocol; without members the group is empty."""
        self.generation += 1
        self.assigned = False
        self.unsynced.clear()
        if self.members:
            self.protocol = self.elected()
            self.become(GroupState.COMPLETING_REBALANCE)
        else:
            self.protocol = self.leader = ""
            self.become(GroupState.EMPTY)

    def joined(self) -> tuple[JoinedMember, ...]:
        """Return all members, for the leader."""
        return tuple(
            JoinedMember(member.id, member.instance, member.subscription(self.protocol))
            for member in self.members.values()
        )

    # ---- records -----------------------------------------------------------------------------------------------------

    def record(self) -> GroupRecord:
        """Return what is stored of the group."""
        return GroupRecord(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            members=tuple(self._records()),
            owner=self.owner,
        )

    def _records(self) -> Iterator[MemberRecord]:
        return (member.record() for member in self.members.values())

    @classmethod
    def restored(cls, group_id: str, record: GroupRecord) -> ConsumerGroup:
        """Return a stored group."""
        group = cls(
            group_id, owner=record.owner, generation=record.generation, protocol_type=record.protocol_type, stored=True
        )
        for member in record.members:
            group.add(
                GroupMember(
                    id=member.member,
                    instance=member.instance,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    session_timeout=member.session_timeout,
                    rebalance_timeout=member.rebalance_timeout,
                    protocols=member.protocols,
                    assignment=member.assignment,
                    is_new=False,
                )
            )
        if record.members:
            group.state, group.protocol, group.leader = GroupState.STABLE, record.protocol, record.leader
        return group
