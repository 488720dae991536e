"""The coordinator of consumer groups, without I/O: requests and times go in, answers and records to store come out.

The driver gives each request that may have to wait a ticket, calls `fire` when `deadline` has come, and carries out
`events` after every call. A save must be durable before the driver reports it with `saved`: only then does the
coordinator answer what depends on it. Refusals of requests that never wait are return values.

The rules are those of Kafka's classic protocol (KIP-62 time-outs, KIP-134 initial delay, KIP-345 static members,
KIP-394 ids before joining). Two differ. A request that another one of the same member replaces is answered, with
REBALANCE_IN_PROGRESS. A static member that is away stays in the group until its session ends, even over a rebalance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from itertools import count
from typing import Final, NamedTuple

from msgspec.structs import replace

from penstock_kafka.codec import KafkaError
from penstock_kafka.groups.group import ConsumerGroup, GroupMember, size_of
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
from penstock_kafka.groups.states import GroupState
from penstock_kafka.groups.timers import KeyedTimers

__all__ = ["GroupCoordinator"]

_S = GroupState
_SHOWN: Final = 64
"""Characters of a client's name that the ids of its members begin with."""
_Saved = Callable[[bool, float], None]


class _Kind(Enum):
    SESSION = auto()  # of a member, also of an id that was only given out
    REBALANCE = auto()
    SYNC = auto()


class _Timer(NamedTuple):
    kind: _Kind
    group: str
    member: str = ""


class GroupCoordinator:
    """All groups of a listener. `limits` returns the bounds, `new_id` a new text each time, `principal` the client of
    the request.

    `events`: what the driver has to do, in order; it empties the queue. Times (`now`) are seconds of any clock that
    never goes back.
    """

    def __init__(
        self, limits: Callable[[], GroupLimits], new_id: Callable[[], str], principal: Callable[[], str] = str
    ) -> None:
        self._limits = limits
        self._principal = principal
        self.events: deque[RequestAnswered | SaveGroup] = deque()
        self._new_id = new_id
        self._groups: dict[str, ConsumerGroup] = {}
        self._timers: KeyedTimers[_Timer] = KeyedTimers()
        self._saves: dict[int, _Saved] = {}
        self._serials = count()
        self._size = 0

    # ---- state -------------------------------------------------------------------------------------------------------

    def restore(self, group_id: str, record: GroupRecord, now: float) -> None:
        """Take up a group that was stored; the sessions of its members begin now."""
        group = self._groups[group_id] = ConsumerGroup.restored(group_id, record)
        self._size += group.size
        for member in group.members.values():
            self._beat(group, member, now)

    def states(self) -> Iterator[tuple[str, str, GroupState]]:
        """Yield the id, the protocol type and the state of each group."""
        for group in self._groups.values():
            yield group.id, group.protocol_type, group.state

    def describe(self, group_id: str) -> tuple[GroupState, GroupRecord]:
        """Return a group's state and its members; DEAD for one that does not exist."""
        group = self._groups.get(group_id)
        return (_S.DEAD, GroupRecord()) if group is None else (group.state, group.record())

    # ---- requests ----------------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, ticket: int, now: float) -> None:
        """A member joins; it is answered when the next generation begins."""
        group = self._groups.get(request.group)
        error = self._refused_join(group, request)
        if error is not KafkaError.NONE:
            self._answer(ticket, JoinAnswer(error=error, member=request.member))
            return
        group = group or ConsumerGroup(request.group, owner=self._principal())
        self._groups[request.group] = group
        if request.member in group.pending:
            self._add(group, request, request.member, ticket, now)
        elif request.member:
            self._rejoin(group, request, ticket, now)
        elif (old_id := group.static.get(request.instance or "")) is not None:
            self._replace(group, request, old_id, ticket, now)
        else:
            member_id = f"{request.instance or request.client_id[:_SHOWN]}-{self._new_id()}"
            if request.needs_id and request.instance is None:
                group.pending.add(member_id)
                self._timers.start(_Timer(_Kind.SESSION, group.id, member_id), now + request.session_timeout)
                self._answer(ticket, JoinAnswer(error=KafkaError.MEMBER_ID_REQUIRED, member=member_id))
            else:
                self._add(group, request, member_id, ticket, now)
        self._complete_if_joined(group, now)

    def sync(self, request: SyncRequest, ticket: int, now: float) -> None:
        """A member asks for its assignment; it is answered when the leader's has been stored."""
        group = self._groups.get(request.group)
        error = _refused(group, request.member, request.instance)
        if error is KafkaError.NONE and group is not None:
            error = _refused_sync(group, request)
        if error is not KafkaError.NONE or group is None:
            self._answer(ticket, SyncAnswer(error=error))
            return
        group.unsynced.discard(request.member)
        if group.state is _S.STABLE:
            self._beat(group, group.members[request.member], now)
            self._answer(ticket, _assignment(group, request.member))
            return
        self._replace_ticket(group.syncing, request.member, ticket, SyncAnswer(error=KafkaError.REBALANCE_IN_PROGRESS))
        self._timers.stop(_Timer(_Kind.SESSION, group.id, request.member))
        if group.is_leader(request.member) and not group.assigned:
            self._assign(group, request.assignments, now)

    def heartbeat(self, request: Membership, now: float) -> KafkaError:
        """Prolong the session of a member."""
        group = self._groups.get(request.group)
        error = _refused(group, request.member, request.instance)
        if error is not KafkaError.NONE or group is None:
            return error
        if request.generation != group.generation:
            return KafkaError.ILLEGAL_GENERATION
        self._beat(group, group.members[request.member], now)
        return KafkaError.REBALANCE_IN_PROGRESS if group.state is _S.PREPARING_REBALANCE else KafkaError.NONE

    def leave(self, group_id: str, leaving: Iterable[LeavingMember], now: float) -> list[KafkaError]:
        """Remove members from a group; return an error for each."""
        group = self._groups.get(group_id)
        errors = []
        for leaver in leaving:
            if group is not None and leaver.member in group.pending:
                self._forget_pending(group, leaver.member)
                errors.append(KafkaError.NONE)
                continue
            if group is not None and leaver.instance is not None and not leaver.member:
                leaver = LeavingMember(group.static.get(leaver.instance, ""), leaver.instance)
            error = _refused(group, leaver.member, leaver.instance)
            errors.append(error)
            if error is KafkaError.NONE and group is not None:
                self._remove(group, leaver.member, now)
        if group is not None:
            self._complete_if_joined(group, now)
        return errors

    def check_commit(self, request: Membership, now: float) -> KafkaError:
        """Return whether offsets may be committed now. A client that has not joined (`generation` -1) may do it while
        the group has no members, whatever id it gives itself, as those of the consumer protocol do; the group is
        created if it does not exist."""
        group = self._groups.get(request.group)
        if request.generation < 0:
            if group is None:
                return self._create_simple(request.group)
            if group.state is _S.EMPTY:
                return KafkaError.NONE
            if group.state is _S.DEAD:
                return KafkaError.COORDINATOR_NOT_AVAILABLE
            if not request.member and request.instance is None:
                return KafkaError.UNKNOWN_MEMBER_ID
        if group is None:
            return KafkaError.ILLEGAL_GENERATION
        error = _refused(group, request.member, request.instance)
        if error is not KafkaError.NONE:
            return error
        if request.generation != group.generation:
            return KafkaError.ILLEGAL_GENERATION
        self._beat(group, group.members[request.member], now)
        return KafkaError.REBALANCE_IN_PROGRESS if group.state is _S.COMPLETING_REBALANCE else KafkaError.NONE

    def hold(self, group_id: str) -> KafkaError:
        """Store a group whose members are of the consumer protocol, as one without members: its offsets are kept from
        now on as if its last member had left. Return an error if there is no room for another group."""
        group = self._groups.get(group_id)
        if group is None:
            error = self._create_simple(group_id)
            if error is not KafkaError.NONE:
                return error
            group = self._groups[group_id]
        if group.state is _S.DEAD:
            return KafkaError.COORDINATOR_NOT_AVAILABLE
        group.protocol_type = "consumer"
        self._save(group_id, group.record(), _nothing)
        return KafkaError.NONE

    def delete(self, group_id: str, ticket: int) -> None:
        """Delete a group without members, and its offsets; it is answered when that is durable."""
        group = self._groups.get(group_id)
        if group is None or group.state is _S.DEAD:
            self._answer(ticket, KafkaError.GROUP_ID_NOT_FOUND)
        elif group.state is not _S.EMPTY or group.pending:
            self._answer(ticket, KafkaError.NON_EMPTY_GROUP)
        else:
            last = group.record()
            group.become(_S.DEAD)

            def deleted(ok: bool, _now: float) -> None:
                del self._groups[group_id]
                if not ok:
                    self._groups[group_id] = ConsumerGroup.restored(group_id, last)
                self._answer(ticket, KafkaError.NONE if ok else KafkaError.COORDINATOR_NOT_AVAILABLE)

            self._save(group_id, None, deleted)

    # ---- time, and the store -----------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """Return when to call `fire`, None if nothing is due in the future."""
        return self._timers.next()

    def fire(self, now: float) -> None:
        """Do what is due."""
        while (timer := self._timers.pop(now)) is not None:
            group = self._groups.get(timer.group)
            if group is None:
                continue
            if timer.kind is _Kind.REBALANCE:
                self._end_rebalance(group, now)
            elif timer.kind is _Kind.SYNC:
                self._remove_unsynced(group, now)
            elif timer.member in group.pending:
                self._forget_pending(group, timer.member)
            elif timer.member in group.members:
                self._remove(group, timer.member, now)
            self._complete_if_joined(group, now)

    def saved(self, serial: int, ok: bool, now: float) -> None:
        """A save has become durable, or has failed."""
        self._saves.pop(serial)(ok, now)

    # ---- joining -----------------------------------------------------------------------------------------------------

    def _refused_join(self, group: ConsumerGroup | None, request: JoinRequest) -> KafkaError:
        limits = self._limits()
        if not limits.min_session <= request.session_timeout <= limits.max_session:
            return KafkaError.INVALID_SESSION_TIMEOUT
        if group is None:
            if request.member:
                return KafkaError.UNKNOWN_MEMBER_ID
            if len(self._groups) >= limits.max_groups:
                return KafkaError.POLICY_VIOLATION
            group = ConsumerGroup(request.group)
        if group.state is _S.DEAD:
            return KafkaError.COORDINATOR_NOT_AVAILABLE
        if request.member and (request.member not in group.pending or request.instance is not None):
            error = _refused(group, request.member, request.instance)
            if error is not KafkaError.NONE:
                return error
        if not group.accepts(request):
            return KafkaError.INCONSISTENT_GROUP_PROTOCOL
        known = group.members.get(request.member or group.static.get(request.instance or "", ""))
        crowded = len(group.members) + len(group.pending) >= limits.max_members
        if crowded and known is None and request.member not in group.pending:
            return KafkaError.GROUP_MAX_SIZE_REACHED
        more = size_of(request.protocols) + len(request.client_id)
        more -= 0 if known is None else size_of(known.protocols) + len(known.client_id)
        if group.size + more > limits.max_group_bytes or self._size + more > limits.max_bytes:
            return KafkaError.GROUP_MAX_SIZE_REACHED
        return KafkaError.NONE

    def _add(self, group: ConsumerGroup, request: JoinRequest, member_id: str, ticket: int, now: float) -> None:
        if not group.members:
            group.protocol_type = request.protocol_type
        member = GroupMember(
            id=member_id,
            instance=request.instance,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout=request.session_timeout,
            rebalance_timeout=request.rebalance_timeout,
            protocols=request.protocols,
        )
        self._size += member.size
        group.add(member)
        group.joining[member_id] = ticket
        group.grown = True
        self._timers.start(_Timer(_Kind.SESSION, group.id, member_id), now + self._limits().new_member_session)
        self._rebalance(group, now)

    def _rejoin(self, group: ConsumerGroup, request: JoinRequest, ticket: int, now: float) -> None:
        member = group.members[request.member]
        # it may not have got the answer to its last join; but the leader of a stable group asks for a rebalance
        joined = group.state is _S.COMPLETING_REBALANCE or (group.state is _S.STABLE and not group.is_leader(member.id))
        if joined and member.protocols == request.protocols:
            self._beat(group, member, now)
            self._answer(ticket, _generation(group, member.id))
        else:
            self._update(group, member, request, ticket)
            self._rebalance(group, now)

    def _update(self, group: ConsumerGroup, member: GroupMember, request: JoinRequest, ticket: int) -> None:
        self._size -= group.size
        group.update(member, request)
        self._size += group.size
        busy = JoinAnswer(error=KafkaError.REBALANCE_IN_PROGRESS, member=member.id)
        self._replace_ticket(group.joining, member.id, ticket, busy)
        if not member.is_new:  # the end of the rebalance ends its wait
            self._timers.stop(_Timer(_Kind.SESSION, group.id, member.id))

    def _replace(self, group: ConsumerGroup, request: JoinRequest, old_id: str, ticket: int, now: float) -> None:
        """Give a static member that has started again a new id, and fence the old one."""
        new_id = f"{request.instance}-{self._new_id()}"
        fenced = KafkaError.FENCED_INSTANCE_ID
        if (waiting := group.joining.pop(old_id, None)) is not None:
            self._answer(waiting, JoinAnswer(error=fenced, member=old_id))
        if (waiting := group.syncing.pop(old_id, None)) is not None:
            self._answer(waiting, SyncAnswer(error=fenced))
        self._timers.stop(_Timer(_Kind.SESSION, group.id, old_id))
        self._size -= group.size
        member = group.rename(old_id, new_id)
        old_leader = old_id if group.is_leader(new_id) else group.leader
        group.update(member, request)
        self._size += group.size
        if group.state is not _S.STABLE or group.elected() != group.protocol:
            group.joining[new_id] = ticket
            self._rebalance(group, now)
            return
        self._beat(group, member, now)
        response = _generation(group, new_id)
        if request.skips_assignment:
            response = replace(response, skip_assignment=group.is_leader(new_id))
        else:  # it must not assign again: the others would not hear of it
            response = replace(response, leader=old_leader, members=())

        def replaced(ok: bool, _now: float) -> None:
            lost = JoinAnswer(error=KafkaError.COORDINATOR_NOT_AVAILABLE, member="")
            self._answer(ticket, response if ok else lost)

        self._save(group.id, group.record(), replaced)

    # ---- rebalances --------------------------------------------------------------------------------------------------

    def _rebalance(self, group: ConsumerGroup, now: float) -> None:
        """Begin a rebalance, unless one has begun."""
        if not group.can_rebalance:
            return
        if group.state is _S.COMPLETING_REBALANCE:
            self._end_syncs(group, KafkaError.REBALANCE_IN_PROGRESS, now)
        wait = group.rebalance_timeout
        if group.state is _S.EMPTY:
            first = self._limits().initial_delay
            wait, group.extend_by, group.grown = first, max(wait - first, 0.0), False
        else:
            group.extend_by, group.grown = 0.0, False
        self._timers.stop(_Timer(_Kind.SYNC, group.id))
        self._timers.start(_Timer(_Kind.REBALANCE, group.id), now + wait)
        group.delayed = group.state is _S.EMPTY
        group.become(_S.PREPARING_REBALANCE)

    def _complete_if_joined(self, group: ConsumerGroup, now: float) -> None:
        """End the rebalance early if all members have joined, unless it is the first one of an empty group."""
        if group.state is _S.PREPARING_REBALANCE and not group.delayed and group.all_joined:
            self._timers.stop(_Timer(_Kind.REBALANCE, group.id))
            self._end_rebalance(group, now)
        elif group.state is _S.EMPTY and not group.generation and not group.pending and not group.stored:
            self._groups.pop(group.id, None)

    def _end_rebalance(self, group: ConsumerGroup, now: float) -> None:
        """Begin the next generation with the members that have joined, or put a first one off once more."""
        if group.grown and group.extend_by > 0:
            wait = min(self._limits().initial_delay, group.extend_by)
            group.extend_by -= wait
            group.grown = False
            self._timers.start(_Timer(_Kind.REBALANCE, group.id), now + wait)
            return
        group.delayed = False
        for member in list(group.members.values()):
            if member.id not in group.joining and member.instance is None:
                self._drop(group, member.id)
        if group.members and not group.elect_leader():  # all are static, and away
            self._timers.start(_Timer(_Kind.REBALANCE, group.id), now + group.rebalance_timeout)
            return
        group.begin_generation()
        if group.state is _S.EMPTY:
            self._save(group.id, group.record(), _nothing)
            return
        self._timers.start(_Timer(_Kind.SYNC, group.id), now + group.rebalance_timeout)
        joined, group.joining = group.joining, {}
        for member_id, ticket in joined.items():
            member = group.members[member_id]
            member.is_new = False
            group.unsynced.add(member_id)
            self._beat(group, member, now)
            self._answer(ticket, _generation(group, member_id))

    def _assign(self, group: ConsumerGroup, assignments: Mapping[str, bytes], now: float) -> None:
        """Store the leader's assignment, then give it to the members."""
        self._size -= group.size
        for member in group.members.values():
            group.assign(member, assignments.get(member.id, b""))
        self._size += group.size
        if group.size > self._limits().max_group_bytes or self._size > self._limits().max_bytes:
            self._unassigned(group, now)
            return
        group.assigned = True
        generation = group.generation

        def stored(ok: bool, now: float) -> None:
            if group.state is not _S.COMPLETING_REBALANCE or group.generation != generation:
                return  # the members have already been told to join again
            if not ok:
                self._unassigned(group, now)
                return
            group.become(_S.STABLE)
            self._end_syncs(group, KafkaError.NONE, now)

        self._save(group.id, group.record(), stored)

    def _unassigned(self, group: ConsumerGroup, now: float) -> None:
        """The assignment cannot be stored: say so, and rebalance."""
        self._size -= group.size
        for member in group.members.values():
            group.assign(member, b"")
        self._size += group.size
        group.assigned = False
        self._end_syncs(group, KafkaError.UNKNOWN_SERVER_ERROR, now)
        self._rebalance(group, now)

    def _end_syncs(self, group: ConsumerGroup, error: KafkaError, now: float) -> None:
        waiting, group.syncing = group.syncing, {}
        for member_id, ticket in waiting.items():
            self._beat(group, group.members[member_id], now)
            self._answer(ticket, SyncAnswer(error=error) if error else _assignment(group, member_id))

    def _remove_unsynced(self, group: ConsumerGroup, now: float) -> None:
        """Remove the members that have joined this generation and not asked for their assignment in time."""
        for member_id in list(group.unsynced):
            self._remove(group, member_id, now)

    # ---- leaving -----------------------------------------------------------------------------------------------------

    def _remove(self, group: ConsumerGroup, member_id: str, now: float) -> None:
        self._drop(group, member_id)
        self._rebalance(group, now)

    def _drop(self, group: ConsumerGroup, member_id: str) -> None:
        """Remove a member, and answer what it waits for."""
        unknown = KafkaError.UNKNOWN_MEMBER_ID
        self._size -= group.size
        if (ticket := group.joining.pop(member_id, None)) is not None:
            self._answer(ticket, JoinAnswer(error=unknown, member=member_id))
        if (ticket := group.syncing.pop(member_id, None)) is not None:
            self._answer(ticket, SyncAnswer(error=unknown))
        group.remove(member_id)
        self._size += group.size
        self._timers.stop(_Timer(_Kind.SESSION, group.id, member_id))

    def _forget_pending(self, group: ConsumerGroup, member_id: str) -> None:
        group.pending.discard(member_id)
        self._timers.stop(_Timer(_Kind.SESSION, group.id, member_id))

    # ---- small parts -------------------------------------------------------------------------------------------------

    def _create_simple(self, group_id: str) -> KafkaError:
        if len(self._groups) >= self._limits().max_groups:
            return KafkaError.POLICY_VIOLATION
        group = self._groups[group_id] = ConsumerGroup(group_id, owner=self._principal(), stored=True)
        self._save(group_id, group.record(), _nothing)
        return KafkaError.NONE

    def _beat(self, group: ConsumerGroup, member: GroupMember, now: float) -> None:
        """Restart a member's session, unless it waits for an answer: then the rebalance bounds its wait."""
        if member.id not in group.joining and member.id not in group.syncing:
            self._timers.start(_Timer(_Kind.SESSION, group.id, member.id), now + member.session_timeout)

    def _replace_ticket(
        self, waiting: dict[str, int], member_id: str, ticket: int, busy: JoinAnswer | SyncAnswer
    ) -> None:
        if (old := waiting.get(member_id)) is not None:
            self._answer(old, busy)
        waiting[member_id] = ticket

    def _answer(self, ticket: int, response: JoinAnswer | SyncAnswer | KafkaError) -> None:
        self.events.append(RequestAnswered(ticket, response))

    def _save(self, group_id: str, record: GroupRecord | None, then: _Saved) -> None:
        serial = next(self._serials)
        self._saves[serial] = then
        if record is not None:
            self._groups[group_id].stored = True
        self.events.append(SaveGroup(serial, group_id, record))


def _nothing(_ok: bool, _now: float) -> None:
    """Nothing depends on this save."""


def _refused(group: ConsumerGroup | None, member: str, instance: str | None) -> KafkaError:
    """Return the error of a request by this member; NONE if it is in the group."""
    if group is not None and group.state is _S.DEAD:
        return KafkaError.COORDINATOR_NOT_AVAILABLE
    if group is None:
        return KafkaError.UNKNOWN_MEMBER_ID
    if instance is not None:
        if instance not in group.static:
            return KafkaError.UNKNOWN_MEMBER_ID
        return KafkaError.NONE if group.static[instance] == member else KafkaError.FENCED_INSTANCE_ID
    return KafkaError.NONE if member in group.members else KafkaError.UNKNOWN_MEMBER_ID


def _refused_sync(group: ConsumerGroup, request: SyncRequest) -> KafkaError:
    if request.generation != group.generation:
        return KafkaError.ILLEGAL_GENERATION
    for told, is_ in ((request.protocol_type, group.protocol_type), (request.protocol, group.protocol)):
        if told is not None and told != is_:
            return KafkaError.INCONSISTENT_GROUP_PROTOCOL
    return KafkaError.REBALANCE_IN_PROGRESS if group.state is _S.PREPARING_REBALANCE else KafkaError.NONE


def _generation(group: ConsumerGroup, member: str) -> JoinAnswer:
    return JoinAnswer(
        member=member,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        members=group.joined() if group.is_leader(member) else (),
    )


def _assignment(group: ConsumerGroup, member: str) -> SyncAnswer:
    assignment = group.members[member].assignment
    return SyncAnswer(protocol_type=group.protocol_type, protocol=group.protocol, assignment=assignment)
