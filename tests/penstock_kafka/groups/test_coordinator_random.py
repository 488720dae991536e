"""Random clients of a group, well-behaved and not: what must hold after every step."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.kafka.groups import GROUP, Desk

from penstock_kafka.groups.messages import GroupLimits, JoinAnswer, LeavingMember, SyncAnswer
from penstock_kafka.groups.states import GroupState

LIMITS = GroupLimits(max_members=5, max_group_bytes=3000, max_bytes=3000, new_member_session=100.0)
INSTANCES = st.sampled_from([None, None, "i", "j"])
PROTOCOLS = st.sampled_from(
    [(("range", b"1"),), (("sticky", b"22"), ("range", b"1")), (("range", b"1"), ("sticky", b"22"))]
)
PERIODS = st.floats(0, 40)


class GroupMachine(RuleBasedStateMachine):
    """Members that join, sync, beat, leave and vanish; a store that is slow, and fails; restarts of the gateway."""

    @initialize()
    def begin(self) -> None:
        self.desk = Desk(LIMITS)
        self.generation = 0
        self.led: dict[int, str] = {}
        self.assigned: dict[int, bytes] = {}
        self.waiting: dict[int, float] = {}
        self.ids: list[str] = []
        self.seen: set[int] = set()

    # ---- steps -------------------------------------------------------------------------------------------------------

    def some(self, data: Any) -> str:
        return str(data.draw(st.sampled_from([*self.ids[-6:], "", "stranger"])))

    @rule(data=st.data(), instance=INSTANCES, protocols=PROTOCOLS, needs_id=st.booleans(), skips=st.booleans())
    def join(self, data: Any, instance: str | None, protocols: Any, needs_id: bool, skips: bool) -> None:
        ticket = self.desk.join(
            self.some(data),
            instance=instance,
            protocols=protocols,
            needs_id=needs_id,
            skips_assignment=skips,
            session_timeout=data.draw(st.floats(6, 50)),
            rebalance_timeout=data.draw(st.floats(1, 50)),
        )
        self.waiting[ticket] = self.desk.now
        self.look()

    @rule(data=st.data(), instance=INSTANCES, behind=st.integers(0, 1), size=st.sampled_from([1, 1, 1, 4000]))
    def sync(self, data: Any, instance: str | None, behind: int, size: int) -> None:
        member, generation = self.some(data), self.generation - behind
        before = self.desk.coordinator.describe(GROUP)
        brings = f"{generation} by {member} ".encode() * size
        ticket = self.desk.sync(member, generation, dict.fromkeys(self.ids, brings), instance=instance)
        self.waiting[ticket] = self.desk.now
        if before[0] is GroupState.COMPLETING_REBALANCE and before[1].leader == member:
            self.assigned.setdefault(generation, brings)
        self.look()

    @rule(data=st.data(), instance=INSTANCES, behind=st.integers(0, 1))
    def beat(self, data: Any, instance: str | None, behind: int) -> None:
        self.desk.beat(self.some(data), self.generation - behind, instance)

    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        self.desk.leave(LeavingMember(self.some(data)))
        self.look()

    @rule(seconds=PERIODS)
    def wait(self, seconds: float) -> None:
        self.desk.pass_(seconds)
        self.look()

    @rule()
    def slow(self) -> None:
        self.desk.holds = True

    @rule(ok=st.booleans())
    def stored(self, ok: bool) -> None:
        self.desk.holds = False
        self.desk.release(ok)
        self.look()
        self.forget()

    @rule()
    def delete(self) -> None:
        self.desk.delete()
        self.forget()

    def forget(self) -> None:
        """A group that was deleted begins again with generation 1."""
        if self.desk.state is GroupState.DEAD and not self.desk.holds:
            self.generation, self.led, self.assigned = 0, {}, {}

    # ---- what the answers say ----------------------------------------------------------------------------------------

    def look(self) -> None:
        for ticket, answer in self.desk.answers.items():
            if ticket in self.seen:
                continue
            self.seen.add(ticket)
            self.waiting.pop(ticket, None)
            if isinstance(answer, JoinAnswer):
                self.joined(answer)
            elif isinstance(answer, SyncAnswer) and not answer.error:
                assert answer.assignment in (b"", *self.assigned.values()), "only leaders assign"

    def joined(self, answer: JoinAnswer) -> None:
        if answer.member:
            self.ids.append(answer.member)
        if answer.error:
            return
        assert answer.generation >= self.generation, "a generation never falls"
        if answer.generation > self.generation:
            self.generation = answer.generation
        if answer.members and not answer.skip_assignment:
            assert answer.leader == answer.member, "only the leader sees the members"
            assert self.led.setdefault(answer.generation, answer.member) == answer.member, "a generation has one leader"

    # ---- invariants --------------------------------------------------------------------------------------------------

    @invariant()
    def every_wait_is_bounded(self) -> None:
        """A timer bounds every wait, and the session of every member that does not wait."""
        coordinator = self.desk.coordinator
        group = coordinator._groups.get(GROUP)
        if group is None:
            return
        timers = {(timer.kind.name, timer.member) for timer in coordinator._timers._due if timer.group == GROUP}
        if group.state is GroupState.PREPARING_REBALANCE:
            assert ("REBALANCE", "") in timers
        if group.state is GroupState.COMPLETING_REBALANCE:
            assert ("SYNC", "") in timers or self.desk.holds, "the store bounds the wait for an assignment that it has"
        for member in group.members:
            bounded = ("SESSION", member) in timers
            assert bounded or member in group.joining or member in group.syncing
        assert all(("SESSION", one) in timers for one in group.pending)
        assert not group.joining or group.state is GroupState.PREPARING_REBALANCE
        assert not group.syncing or group.state is GroupState.COMPLETING_REBALANCE

    @invariant()
    def the_books_are_right(self) -> None:
        coordinator = self.desk.coordinator
        group = coordinator._groups.get(GROUP)
        if group is None:
            assert coordinator._size == 0
            return
        assert group.size == coordinator._size == sum(member.size for member in group.members.values())
        assert set(group.joining) | set(group.syncing) | group.unsynced <= set(group.members)
        assert group.static == {m.instance: m.id for m in group.members.values() if m.instance is not None}
        assert (group.leader in group.members) if group.members else group.leader == ""
        assert len(group.members) + len(group.pending) <= LIMITS.max_members
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            assert not group.members
        if group.members:
            assert group.candidates, "members have a protocol in common"

    def teardown(self) -> None:
        if not hasattr(self, "desk"):
            return
        self.desk.holds = False
        self.desk.release()
        self.desk.pass_(100_000)
        self.look()
        assert not self.waiting, "every request has been answered"
        assert not self.desk.coordinator.describe(GROUP)[1].members
        assert self.desk.coordinator._size == 0


TestGroups = GroupMachine.TestCase
