"""Scenarios of consumer groups, each with a coordinator of its own."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from support.kafka.groups import GROUP, LIMITS, RANGE, Desk

from penstock_kafka.codec import KafkaError
from penstock_kafka.groups.messages import LeavingMember
from penstock_kafka.groups.states import TRANSITIONS, GroupState

E = KafkaError
STICKY = (("sticky", b"s"),)
BOTH = (*RANGE, *STICKY)


# ---- first generation ------------------------------------------------------------------------------------------------


def test_a_new_member_is_given_an_id_first_and_joins_with_it() -> None:
    desk = Desk()
    asked = desk.join(needs_id=True)
    answer = desk.answers[asked]
    assert (answer.error, answer.member) == (E.MEMBER_ID_REQUIRED, "c-1")
    assert desk.state is GroupState.EMPTY
    joined = desk.join("c-1", needs_id=True)
    desk.pass_(3)
    assert desk.answers[joined].generation == 1


def test_the_first_generation_waits_for_members_that_follow_soon() -> None:
    desk = Desk()
    first = desk.join(client_id="a")
    desk.pass_(2)
    second = desk.join(client_id="b")
    desk.pass_(2)
    assert desk.answers == {}
    desk.pass_(2)
    a, b = desk.answers[first], desk.answers[second]
    assert a.generation == b.generation == 1
    assert a.leader == b.leader == a.member
    assert [one.member for one in a.members] == [a.member, b.member]
    assert b.members == ()


def test_the_first_generation_is_put_off_no_longer_than_the_rebalance_time_out() -> None:
    desk = Desk()
    first = desk.join(rebalance_timeout=8.0)
    for _ in range(8):
        desk.pass_(1)
        desk.join(rebalance_timeout=8.0)
    assert desk.answers[first].generation == 1


def test_an_id_that_never_comes_back_does_not_hold_the_others_up() -> None:
    desk = Desk()
    desk.stable("a")
    desk.join(needs_id=True, session_timeout=6.0)
    late = desk.join(client_id="b")
    desk.beat("a-1", 1)
    rejoined = desk.join("a-1")
    assert desk.answers.get(rejoined) is None
    desk.pass_(6)
    assert desk.answers[rejoined].generation == desk.answers[late].generation == 2


def test_assignments_reach_all_members_when_the_leader_has_brought_them() -> None:
    desk = Desk()
    tickets = [desk.join(client_id=one) for one in "ab"]
    desk.pass_(6)
    a, b = (desk.answers[one].member for one in tickets)
    waits = desk.sync(b, 1)
    assert desk.answers.get(waits) is None
    leads = desk.sync(a, 1, {a: b"for a", b: b"for b"})
    assert desk.answers[leads].assignment == b"for a"
    assert desk.answers[waits].assignment == b"for b"
    assert desk.answers[desk.sync(b, 1)].assignment == b"for b", "a repeated sync gets the same"


def test_only_the_leaders_assignments_count() -> None:
    desk = Desk()
    ids = desk.stable("a", "b")
    desk.join(ids["a"])
    desk.join(ids["b"])
    stranger = desk.sync(ids["b"], 2, {ids["b"]: b"all"})
    assert desk.answers.get(stranger) is None
    desk.sync(ids["a"], 2, {ids["b"]: b"some"})
    assert desk.answers[stranger].assignment == b"some"


# ---- votes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        pytest.param([RANGE], "range", id="one"),
        pytest.param([BOTH, STICKY], "sticky", id="only what all know"),
        pytest.param([BOTH, BOTH[::-1], BOTH[::-1]], "sticky", id="the majority"),
        pytest.param([BOTH, BOTH[::-1]], "range", id="a tie: the oldest member's"),
    ],
)
def test_members_elect_the_protocol(preferences: list[Any], chosen: str) -> None:
    desk = Desk()
    tickets = [desk.join(protocols=one) for one in preferences]
    desk.pass_(30)
    assert {desk.answers[one].protocol for one in tickets} == {chosen}
    subscriptions = {one.subscription for one in desk.answers[tickets[0]].members}
    assert subscriptions == {dict(BOTH)[chosen]}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"protocols": STICKY}, id="no protocol in common"),
        pytest.param({"protocol_type": "connect"}, id="another type"),
        pytest.param({"protocols": ()}, id="no protocol"),
        pytest.param({"protocol_type": ""}, id="no type"),
    ],
)
@pytest.mark.parametrize("others", [0, 1])
def test_members_that_do_not_fit_are_refused(options: dict[str, Any], others: int) -> None:
    desk = Desk()
    for _ in range(others):
        desk.join()
    fits = not others and ("connect" in options.values() or STICKY in options.values())
    assert desk.error(desk.join(**options)) is (None if fits else E.INCONSISTENT_GROUP_PROTOCOL)


# ---- rebalances ------------------------------------------------------------------------------------------------------


def test_a_new_member_makes_the_others_rejoin() -> None:
    desk = Desk()
    ids = desk.stable("a", "b")
    new = desk.join(client_id="n")
    assert [desk.beat(one, 1) for one in ids.values()] == [E.REBALANCE_IN_PROGRESS] * 2
    assert desk.error(desk.sync(ids["a"], 1)) is E.REBALANCE_IN_PROGRESS
    assert desk.commit(ids["a"], 1) is E.NONE, "members commit what they have done before they rejoin"
    again = [desk.join(one) for one in ids.values()]
    assert {desk.answers[one].generation for one in (new, *again)} == {2}
    assert desk.commit(ids["a"], 1) is E.ILLEGAL_GENERATION
    assert desk.commit(ids["a"], 2) is E.REBALANCE_IN_PROGRESS
    assert desk.beat(ids["b"], 1) is E.ILLEGAL_GENERATION


def test_members_that_do_not_rejoin_in_time_are_removed() -> None:
    desk = Desk()
    ids = desk.stable("a", "b", session_timeout=100.0)
    rejoined = desk.join(ids["b"], protocols=BOTH, session_timeout=100.0)
    desk.pass_(59)
    assert desk.answers.get(rejoined) is None
    desk.pass_(1)
    answer = desk.answers[rejoined]
    assert (answer.generation, answer.leader, len(answer.members)) == (2, ids["b"], 1)
    assert desk.beat(ids["a"], 1) is E.UNKNOWN_MEMBER_ID


def test_a_lost_member_is_removed_when_its_session_ends() -> None:
    desk = Desk()
    ids = desk.stable("a", "b")
    desk.pass_(9)
    assert desk.beat(ids["b"], 1) is E.NONE
    desk.pass_(2)
    assert desk.beat(ids["b"], 1) is E.REBALANCE_IN_PROGRESS
    assert desk.beat(ids["a"], 1) is E.UNKNOWN_MEMBER_ID
    answer = desk.answers[desk.join(ids["b"])]
    assert (answer.generation, answer.leader) == (2, ids["b"])


def test_commits_of_offsets_prolong_a_session() -> None:
    desk = Desk()
    ids = desk.stable("a")
    for _ in range(3):
        desk.pass_(8)
        assert desk.commit(ids["a"], 1) is E.NONE


def test_members_that_wait_do_not_expire() -> None:
    desk = Desk()
    tickets = [desk.join(client_id="a", session_timeout=100.0), desk.join(client_id="b")]
    desk.pass_(9)
    a, b = (desk.answers[one].member for one in tickets)
    waits = desk.sync(b, 1)
    desk.pass_(20)
    desk.sync(a, 1, {b: b"x"})
    assert desk.answers[waits].assignment == b"x"
    desk.join(client_id="n")
    waits = desk.join(b)
    desk.pass_(20)
    desk.join(a)
    assert desk.answers[waits].generation == 2


def test_a_new_member_whose_client_is_gone_does_not_wait_for_ever() -> None:
    desk = Desk()
    desk.stable("a", session_timeout=1000.0, rebalance_timeout=3600.0)
    lost = desk.join(rebalance_timeout=3600.0)
    desk.pass_(299)
    assert desk.answers.get(lost) is None
    desk.pass_(1)
    assert desk.error(lost) is E.UNKNOWN_MEMBER_ID


def test_a_leader_that_brings_no_assignment_is_removed() -> None:
    desk = Desk()
    tickets = [desk.join(client_id=one, session_timeout=100.0) for one in "ab"]
    desk.pass_(6)
    a, b = (desk.answers[one].member for one in tickets)
    waits = desk.sync(b, 1)
    desk.pass_(60)
    assert desk.error(waits) is E.REBALANCE_IN_PROGRESS
    assert desk.beat(a, 1) is E.UNKNOWN_MEMBER_ID
    assert desk.answers[desk.join(b)].leader == b


def test_the_leader_asks_for_a_rebalance_by_rejoining() -> None:
    desk = Desk()
    ids = desk.stable("a", "b")
    same = desk.answers[desk.join(ids["b"])]
    assert (same.generation, desk.state) == (1, GroupState.STABLE)
    desk.join(ids["a"])
    assert desk.state is GroupState.PREPARING_REBALANCE


def test_a_member_that_missed_the_answer_to_its_join_gets_it_again() -> None:
    desk = Desk()
    first = desk.join()
    desk.pass_(3)
    answer = desk.answers[first]
    assert desk.answers[desk.join(answer.member)] == answer


def test_a_request_that_is_sent_again_replaces_the_one_that_waits() -> None:
    desk = Desk()
    ids = desk.stable("a", "b")
    one = desk.join(ids["a"])
    other = desk.join(ids["a"])
    assert desk.error(one) is E.REBALANCE_IN_PROGRESS
    desk.join(ids["b"])
    assert desk.answers[other].generation == 2
    one = desk.sync(ids["b"], 2)
    other = desk.sync(ids["b"], 2)
    assert desk.error(one) is E.REBALANCE_IN_PROGRESS
    desk.sync(ids["a"], 2, {ids["b"]: b"x"})
    assert desk.answers[other].assignment == b"x"


def test_a_rebalance_while_members_wait_for_assignments_sends_them_back() -> None:
    desk = Desk()
    tickets = [desk.join(client_id=one) for one in "ab"]
    desk.pass_(6)
    waits = desk.sync(desk.answers[tickets[1]].member, 1)
    desk.join(client_id="n")
    assert desk.error(waits) is E.REBALANCE_IN_PROGRESS
    assert desk.state is GroupState.PREPARING_REBALANCE


# ---- leaving ---------------------------------------------------------------------------------------------------------


def test_a_group_whose_last_member_leaves_is_empty_and_can_be_deleted() -> None:
    desk = Desk()
    ids = desk.stable("a")
    assert desk.error(desk.delete()) is E.NON_EMPTY_GROUP
    assert desk.leave(ids["a"]) == [E.NONE]
    assert desk.state is GroupState.EMPTY
    assert desk.stored[GROUP].members == ()
    assert desk.beat(ids["a"], 1) is E.UNKNOWN_MEMBER_ID
    assert desk.error(desk.delete()) is E.NONE
    assert GROUP not in desk.stored
    assert desk.error(desk.delete()) is E.GROUP_ID_NOT_FOUND


def test_several_members_leave_at_once_each_with_its_own_error() -> None:
    desk = Desk()
    ids = desk.stable("a", "b")
    pending = desk.answers[desk.join(needs_id=True)].member
    assert desk.leave(ids["b"], "stranger", pending) == [E.NONE, E.UNKNOWN_MEMBER_ID, E.NONE]
    assert desk.answers[desk.join(ids["a"])].generation == 2


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    desk = Desk()
    ids = desk.stable("a", "b")
    waits = desk.join(ids["a"])
    desk.leave(ids["a"])
    assert desk.error(waits) is E.UNKNOWN_MEMBER_ID


def test_a_group_that_never_had_a_generation_is_forgotten_with_its_last_id() -> None:
    desk = Desk()
    desk.join(needs_id=True)
    desk.pass_(10)
    assert list(desk.coordinator.states()) == []


def test_a_deletion_that_cannot_be_stored_leaves_the_group_as_it_was() -> None:
    desk = Desk()
    desk.leave(*desk.stable("a").values())
    desk.holds = True
    ticket = desk.delete()
    assert desk.state is GroupState.DEAD
    assert desk.error(desk.join()) is E.COORDINATOR_NOT_AVAILABLE
    assert desk.commit() is E.COORDINATOR_NOT_AVAILABLE
    desk.release(ok=False)
    assert desk.error(ticket) is E.COORDINATOR_NOT_AVAILABLE
    assert (desk.state, desk.stored[GROUP].generation) == (GroupState.EMPTY, 2)


# ---- storing ---------------------------------------------------------------------------------------------------------


def test_assignments_are_given_out_when_they_are_stored() -> None:
    desk = Desk()
    joined = desk.join()
    desk.pass_(3)
    member = desk.answers[joined].member
    desk.holds = True
    waits = desk.sync(member, 1, {member: b"x"})
    assert desk.answers.get(waits) is None
    desk.release()
    assert desk.answers[waits].assignment == b"x"


def test_assignments_that_cannot_be_stored_are_not_given_out() -> None:
    desk = Desk()
    joined = desk.join()
    desk.pass_(3)
    member = desk.answers[joined].member
    desk.holds = True
    waits = desk.sync(member, 1, {member: b"x"})
    desk.release(ok=False)
    assert desk.error(waits) is E.UNKNOWN_SERVER_ERROR
    assert desk.state is GroupState.PREPARING_REBALANCE
    assert desk.answers[desk.join(member)].generation == 2


def test_an_assignment_that_is_stored_after_the_next_rebalance_began_is_of_no_use() -> None:
    desk = Desk()
    joined = desk.join()
    desk.pass_(3)
    member = desk.answers[joined].member
    desk.holds = True
    waits = desk.sync(member, 1, {member: b"x"})
    desk.join(client_id="n")
    assert desk.error(waits) is E.REBALANCE_IN_PROGRESS
    desk.release()
    assert desk.state is GroupState.PREPARING_REBALANCE


def test_members_go_on_after_a_restart() -> None:
    before = Desk()
    ids = before.stable("a", "b")
    desk = Desk(stored=before.stored)
    assert desk.state is GroupState.STABLE
    assert desk.beat(ids["a"], 1) is E.NONE
    assert desk.answers[desk.sync(ids["b"], 1)].assignment == ids["b"].encode()
    desk.pass_(9)
    desk.beat(ids["a"], 1)
    desk.pass_(2)
    assert desk.beat(ids["a"], 1) is E.REBALANCE_IN_PROGRESS, "the other one has not come back"


# ---- static members --------------------------------------------------------------------------------------------------


def with_static(desk: Desk, **options: Any) -> tuple[str, str]:
    """Make a stable group of a dynamic member, which leads, and the static member "i"; return their ids."""
    tickets = [desk.join(**options), desk.join(instance="i", **options)]
    desk.pass_(6)
    leader, static = (desk.answers[one].member for one in tickets)
    desk.settle(leader, static)
    return leader, static


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    desk = Desk()
    _, old = with_static(desk)
    back = desk.answers[desk.join(instance="i")]
    assert (back.error, back.generation, desk.state) == (E.NONE, 1, GroupState.STABLE)
    assert back.member != old
    assert desk.answers[desk.sync(back.member, 1, instance="i")].assignment == old.encode()
    assert [one.member for one in desk.stored[GROUP].members if one.instance == "i"] == [back.member]


def test_the_one_before_a_static_member_is_fenced() -> None:
    desk = Desk()
    _, old = with_static(desk)
    desk.join(instance="i")
    assert desk.beat(old, 1, instance="i") is E.FENCED_INSTANCE_ID
    assert desk.beat(old, 1) is E.UNKNOWN_MEMBER_ID
    assert desk.error(desk.join(old, instance="i")) is E.FENCED_INSTANCE_ID
    assert desk.error(desk.sync(old, 1, instance="i")) is E.FENCED_INSTANCE_ID
    assert desk.leave(LeavingMember(old, "i")) == [E.FENCED_INSTANCE_ID]


def test_a_static_member_that_waits_is_fenced_by_its_next_start() -> None:
    desk = Desk()
    one = desk.join(instance="i")
    other = desk.join(instance="i")
    assert desk.error(one) is E.FENCED_INSTANCE_ID
    desk.pass_(6)
    first = desk.answers[other]
    assert (first.generation, len(first.members)) == (1, 1)
    waits = desk.join(client_id="n")
    desk.join(first.member, instance="i")
    desk.sync(first.member, 2, instance="i")
    assert desk.answers[waits].generation == 2


def test_a_static_leader_that_comes_back_does_not_assign_again() -> None:
    desk = Desk()
    tickets = [desk.join(instance="i"), desk.join()]
    desk.pass_(6)
    static, other = (desk.answers[one].member for one in tickets)
    desk.settle(static, other)
    back = desk.answers[desk.join(instance="i")]
    assert (back.leader, back.members) == (static, ())
    knows = desk.answers[desk.join(instance="i", skips_assignment=True)]
    assert (knows.leader, knows.skip_assignment, len(knows.members)) == (knows.member, True, 2)


def test_a_static_member_is_known_under_its_new_id_when_that_is_stored() -> None:
    desk = Desk()
    with_static(desk)
    desk.holds = True
    back = desk.join(instance="i")
    assert desk.answers.get(back) is None
    desk.release(ok=False)
    assert desk.error(back) is E.COORDINATOR_NOT_AVAILABLE
    back = desk.join(instance="i")
    desk.release()
    assert desk.error(back) is E.NONE


def test_a_static_member_with_other_preferences_causes_a_rebalance() -> None:
    desk = Desk()
    tickets = [desk.join(instance="i", protocols=BOTH)]
    desk.pass_(3)
    static = desk.answers[tickets[0]].member
    desk.settle(static)
    back = desk.join(instance="i", protocols=BOTH[::-1])
    assert (desk.answers[back].generation, desk.answers[back].protocol) == (2, "sticky")


def test_a_static_member_that_is_away_keeps_its_place_until_its_session_ends() -> None:
    desk = Desk()
    times = {"session_timeout": 100.0, "rebalance_timeout": 10.0}
    leader, static = with_static(desk, **times)
    new = desk.join(client_id="n", **times)
    joined = desk.join(leader, **times)
    desk.pass_(10)
    assert [one.member for one in desk.answers[joined].members][1] == static
    desk.sync(leader, 2)
    desk.sync(desk.answers[new].member, 2)
    desk.pass_(89)
    assert desk.beat(leader, 2) is E.NONE
    desk.pass_(2)
    assert desk.beat(leader, 2) is E.REBALANCE_IN_PROGRESS
    assert static not in {one.member for one in desk.coordinator.describe(GROUP)[1].members}


def test_a_rebalance_waits_for_static_members_when_all_are_away() -> None:
    desk = Desk()
    tickets = [desk.join(instance="i", session_timeout=200.0)]
    desk.pass_(3)
    static = desk.answers[tickets[0]].member
    desk.settle(static)
    lost = desk.join(client_id="n", session_timeout=6.0)
    desk.leave(desk.coordinator.describe(GROUP)[1].members[1].member)
    assert desk.error(lost) is E.UNKNOWN_MEMBER_ID
    desk.pass_(130)
    assert desk.state is GroupState.PREPARING_REBALANCE
    assert desk.answers[desk.join(static, instance="i", session_timeout=200.0)].generation == 2


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    desk = Desk()
    leader, _ = with_static(desk)
    assert desk.leave(LeavingMember("", "i"), LeavingMember("", "j")) == [E.NONE, E.UNKNOWN_MEMBER_ID]
    assert desk.answers[desk.join(leader)].generation == 2


def test_an_id_that_was_given_out_cannot_become_a_static_member() -> None:
    desk = Desk()
    with_static(desk)
    pending = desk.answers[desk.join(needs_id=True)].member
    assert desk.error(desk.join(pending, instance="i")) is E.FENCED_INSTANCE_ID
    assert desk.error(desk.join(pending, instance="j")) is E.UNKNOWN_MEMBER_ID


# ---- bounds, and requests out of place -------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [5.9, 1800.1])
def test_session_time_outs_have_bounds(seconds: float) -> None:
    desk = Desk()
    assert desk.error(desk.join(session_timeout=seconds)) is E.INVALID_SESSION_TIMEOUT


def test_a_group_has_a_bounded_number_of_members_and_ids() -> None:
    desk = Desk(replace(LIMITS, max_members=3))
    desk.stable("a", "b")
    pending = desk.answers[desk.join(needs_id=True)].member
    assert desk.error(desk.join()) is E.GROUP_MAX_SIZE_REACHED
    assert desk.error(desk.join(needs_id=True)) is E.GROUP_MAX_SIZE_REACHED
    assert desk.error(desk.join(pending)) is None
    assert desk.error(desk.join("a-1")) is None


def test_subscriptions_have_bounds_in_a_group_and_in_all() -> None:
    desk = Desk(replace(LIMITS, max_group_bytes=1000, max_bytes=1500))
    assert desk.error(desk.join(protocols=(("p", bytes(1000)),))) is E.GROUP_MAX_SIZE_REACHED
    desk.join(protocols=(("p", bytes(700)),))
    assert desk.error(desk.join(protocols=(("p", bytes(700)),))) is E.GROUP_MAX_SIZE_REACHED
    assert desk.error(desk.join(group="h", protocols=(("p", bytes(700)),))) is E.GROUP_MAX_SIZE_REACHED
    assert desk.error(desk.join(group="h", protocols=(("p", bytes(100)),))) is None


def test_assignments_have_bounds() -> None:
    desk = Desk(replace(LIMITS, max_group_bytes=1000))
    joined = desk.join()
    desk.pass_(3)
    member = desk.answers[joined].member
    assert desk.error(desk.sync(member, 1, {member: bytes(1000)})) is E.UNKNOWN_SERVER_ERROR
    assert desk.state is GroupState.PREPARING_REBALANCE


def test_the_number_of_groups_has_a_bound() -> None:
    desk = Desk(replace(LIMITS, max_groups=2))
    desk.join(group="one")
    assert desk.commit(group="two") is E.NONE
    assert desk.error(desk.join(group="three")) is E.POLICY_VIOLATION
    assert desk.commit(group="three") is E.POLICY_VIOLATION
    assert desk.error(desk.join(group="one")) is None


def test_what_was_given_up_can_be_used_again() -> None:
    desk = Desk(replace(LIMITS, max_bytes=1000))
    for _ in range(10):
        ids = desk.stable("a", protocols=(("p", bytes(400)),))
        desk.leave(*ids.values())


def test_members_of_unknown_groups_are_told_so() -> None:
    desk = Desk()
    assert desk.error(desk.join("m")) is E.UNKNOWN_MEMBER_ID
    assert desk.error(desk.sync("m", 1)) is E.UNKNOWN_MEMBER_ID
    assert desk.beat("m", 1) is E.UNKNOWN_MEMBER_ID
    assert desk.leave("m") == [E.UNKNOWN_MEMBER_ID]
    assert desk.commit("m", 1) is E.ILLEGAL_GENERATION


@pytest.mark.parametrize("told", [{"protocol_type": "connect"}, {"protocol": "sticky"}])
def test_a_sync_for_another_protocol_is_refused(told: dict[str, str]) -> None:
    desk = Desk()
    ids = desk.stable("a")
    assert desk.error(desk.sync(ids["a"], 1, **told)) is E.INCONSISTENT_GROUP_PROTOCOL
    assert desk.error(desk.sync(ids["a"], 1, protocol_type="consumer", protocol="range")) is E.NONE
    assert desk.error(desk.sync(ids["a"], 2)) is E.ILLEGAL_GENERATION


@pytest.mark.parametrize("name", ["", "its-own"])
def test_clients_without_a_group_commit_only_while_it_has_no_members(name: str) -> None:
    desk = Desk()
    assert desk.commit(name) is E.NONE
    assert desk.stored[GROUP].members == ()
    ids = desk.stable("a")
    assert desk.commit(name) is E.UNKNOWN_MEMBER_ID
    assert desk.commit(ids["a"]) is E.ILLEGAL_GENERATION, "a member names its generation"
    desk.leave(ids["a"])
    assert desk.commit(name) is E.NONE


def test_the_table_of_transitions_has_every_state_and_no_way_back_from_the_dead() -> None:
    assert set(TRANSITIONS) == set(GroupState)
    assert TRANSITIONS[GroupState.DEAD] == set()
    reached = set().union(*TRANSITIONS.values())
    assert reached == set(GroupState)
