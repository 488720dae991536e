"""The coordinator of groups of the consumer protocol: epochs, targets, revocations, sessions and static members."""

from __future__ import annotations

import random
from itertools import count

import msgspec
import pytest

from penstock_kafka.codec import KafkaError
from penstock_kafka.groups.assignors import ASSIGNORS, GroupTopic, OwnedPartition, range_assignment, uniform
from penstock_kafka.groups.epochs import EpochCoordinator, EpochGroupRecord, EpochHeartbeat, EpochStatus
from penstock_kafka.groups.messages import GroupLimits, Membership

A, B = GroupTopic(b"a" * 16, 6), GroupTopic(b"b" * 16, 3)
TOPICS = {"a": A, "b": B}
SESSION = 45.0


def parts(topic: GroupTopic, *numbers: int) -> frozenset[OwnedPartition]:
    return frozenset(OwnedPartition(topic.id, number) for number in numbers)


class World:
    """A coordinator, and its time."""

    def __init__(self, **limits: int) -> None:
        ids = count()
        self.coordinator = EpochCoordinator(lambda: GroupLimits(**limits), lambda: f"made-{next(ids)}")
        self.now = 0.0
        self.topics = dict(TOPICS)

    def beat(self, member: str, epoch: int, **more: object) -> EpochStatus:
        request = EpochHeartbeat(group="g", member=member, epoch=epoch, **more)  # type: ignore[arg-type]
        return self.coordinator.heartbeat(request, self.topics, self.now)

    def join(self, member: str, *topics: str, **more: object) -> EpochStatus:
        options = {"rebalance_timeout": 60.0, "owned": frozenset(), **more}
        return self.beat(member, 0, topics=frozenset(topics or ("a",)), **options)

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.coordinator.fire(self.now)

    def restarted(self) -> None:
        """Take up what was stored, as JSON, by another coordinator."""
        stored = {one.id: msgspec.json.encode(one.record()) for one in self.coordinator.groups.values()}
        self.coordinator = EpochCoordinator(GroupLimits, lambda: "later")
        for group, data in stored.items():
            self.coordinator.restore(group, msgspec.json.decode(data, type=EpochGroupRecord), self.now)


@pytest.fixture
def world() -> World:
    return World()


def test_one_member_gets_all_partitions(world: World) -> None:
    assert world.join("m", "a", "b") == EpochStatus(
        member="m", epoch=1, assignment=parts(A, *range(6)) | parts(B, *range(3))
    )
    assert world.beat("m", 1).assignment is None, "it knows"
    assert world.coordinator.changed == {"g"}


def test_a_partition_moves_once_its_member_has_given_it_up(world: World) -> None:
    world.join("m")
    second = world.join("n")
    assert (second.epoch, second.assignment) == (2, frozenset()), "all are in use"
    told = world.beat("m", 1)
    assert told.assignment is not None
    assert (told.epoch, len(told.assignment)) == (1, 3), "it stays in its epoch until it has given up the others"
    assert world.beat("n", 2).assignment is None
    assert world.beat("m", 1, owned=parts(A, *range(6))).epoch == 1, "it has not yet"
    assert world.beat("n", 2).assignment is None
    assert world.beat("m", 1, owned=told.assignment).epoch == 2
    freed = world.beat("n", 2)
    assert freed.assignment == parts(A, *range(6)) - told.assignment
    group = world.coordinator.groups["g"]
    assert (group.state, group.epoch) == ("Stable", 2)


def test_a_member_that_does_not_give_up_in_time_is_removed(world: World) -> None:
    world.join("m", rebalance_timeout=10.0)
    world.join("n")
    world.beat("m", 1)
    for _ in range(2):
        world.passes(5)
        other = world.beat("n", 2)
    assert world.beat("m", 1).error is KafkaError.UNKNOWN_MEMBER_ID
    assert (other.epoch, other.assignment) == (3, parts(A, *range(6)))


def test_a_silent_member_is_removed_and_the_group_forgotten(world: World) -> None:
    world.join("m")
    world.passes(SESSION - 1)
    world.beat("m", 1)
    world.passes(SESSION - 1)
    assert "g" in world.coordinator.groups
    assert world.coordinator.deadline() == 2 * SESSION - 1
    world.passes(1)
    assert not world.coordinator.groups
    assert world.beat("m", 1).error is KafkaError.UNKNOWN_MEMBER_ID


def test_epochs_fence(world: World) -> None:
    world.join("m")
    assert world.beat("m", 2).error is KafkaError.FENCED_MEMBER_EPOCH
    assert world.beat("m", -3).error is KafkaError.INVALID_REQUEST
    world.join("n")
    kept = world.beat("m", 1).assignment
    world.beat("m", 1, owned=kept)
    assert world.beat("m", 1).error is KafkaError.FENCED_MEMBER_EPOCH, "its epoch is 2"
    assert world.beat("m", 1, owned=kept).epoch == 2, "the answer that told it so was lost"
    again = world.join("m")
    assert (again.error, again.assignment) == (KafkaError.NONE, kept), "a fenced member joins again"


def test_commits_need_the_epoch_of_the_member(world: World) -> None:
    check = world.coordinator.check
    assert check(Membership(group="g", member="m", generation=1)) is None, "no such group"
    world.join("m")
    assert check(Membership(group="g", member="m", generation=1)) is KafkaError.NONE
    assert check(Membership(group="g", member="m", generation=0)) is KafkaError.STALE_MEMBER_EPOCH
    assert check(Membership(group="g", member="", generation=-1)) is KafkaError.UNKNOWN_MEMBER_ID


def test_static_members_come_back_to_their_partitions(world: World) -> None:
    first = world.join("m", instance="i")
    world.join("n", instance="j")
    assert world.join("x", instance="i").error is KafkaError.UNRELEASED_INSTANCE_ID
    epoch = world.coordinator.groups["g"].epoch
    world.beat("m", -2)
    assert world.coordinator.groups["g"].epoch == epoch, "it may come back"
    back = world.join("x", instance="i")
    assert back.assignment is not None and back.assignment <= first.assignment  # type: ignore[operator]
    assert len(back.assignment) == 3
    assert world.beat("m", 1).error is KafkaError.UNKNOWN_MEMBER_ID
    world.beat("x", -2)
    world.passes(SESSION)
    assert not world.coordinator.groups


def test_a_member_leaves_for_good(world: World) -> None:
    world.join("m")
    world.join("n")
    assert world.beat("m", -1) == EpochStatus(member="m", epoch=-1)
    assert world.beat("m", -1).error is KafkaError.UNKNOWN_MEMBER_ID
    assert world.beat("n", 2).assignment == parts(A, *range(6))


def test_topics_come_and_go(world: World) -> None:
    world.topics = {}
    assert world.join("m").assignment == frozenset()
    world.topics = {"a": GroupTopic(A.id, 2)}
    assert world.beat("m", 1) == EpochStatus(member="m", epoch=2, assignment=parts(A, 0, 1))
    world.topics = {"a": GroupTopic(b"again".ljust(16), 1)}
    assert world.beat("m", 2).assignment == frozenset(), "the topic was created again"
    assert world.beat("m", 2, owned=frozenset()).assignment == {OwnedPartition(b"again".ljust(16), 0)}
    assert world.beat("m", 3, topics=frozenset({"b"})).assignment == frozenset()


def test_requests_that_are_refused(world: World) -> None:
    assert world.join("m", assignor="sticky").error is KafkaError.UNSUPPORTED_ASSIGNOR
    assert world.join("", makes_id=True).error is KafkaError.INVALID_REQUEST
    assert world.join("").member == "made-0", "before version 1 the coordinator makes ids"
    assert world.beat("m", 0).error is KafkaError.INVALID_REQUEST
    assert world.join("m", owned=parts(A, 1)).error is KafkaError.INVALID_REQUEST
    small = World(max_members=1)
    small.join("m")
    assert small.join("n").error is KafkaError.GROUP_MAX_SIZE_REACHED
    assert World(max_group_bytes=3).join("m", "long").error is KafkaError.GROUP_MAX_SIZE_REACHED


def test_the_assignor_is_the_one_with_the_most_votes(world: World) -> None:
    world.join("m", assignor="range")
    assert world.coordinator.groups["g"].assignor == "range"
    for member in "no":
        world.join(member, assignor="uniform")
    assert world.coordinator.groups["g"].assignor == "uniform"


def test_range_keeps_equal_numbers_together() -> None:
    both = frozenset("ab")
    found = range_assignment({"m": both, "n": both}, TOPICS, {})
    assert found == {"m": parts(A, 0, 1, 2) | parts(B, 0, 1), "n": parts(A, 3, 4, 5) | parts(B, 2)}


@pytest.mark.parametrize("seed", range(20))
def test_uniform_is_even_and_moves_little(seed: int) -> None:
    dice = random.Random(seed)
    members = {f"m{number}": frozenset("ab") for number in range(dice.randint(1, 7))}
    before = uniform(members, TOPICS, {})
    for change in ("add", "remove"):
        if change == "add":
            members["new"] = frozenset("ab")
        elif len(members) > 1:
            del members[dice.choice(sorted(members))]
        after = uniform(members, TOPICS, before)
        sizes = [len(one) for one in after.values()]
        assert sum(sizes) == 9 and max(sizes) - min(sizes) <= 1
        moved = sum(len(after[one] - before.get(one, frozenset())) for one in after)
        given_up = sum(len(some) for one, some in before.items() if one not in members)
        assert moved <= max(given_up + 1, -(-9 // len(members)))
        before = after


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("seed", range(25))
def test_no_partition_has_two_members_whatever_happens(seed: int, assignor: str) -> None:
    """Members that join, leave, die and lose answers, topics that grow, and restarts: each member's own view."""
    dice, world = random.Random(seed), World()
    epochs: dict[str, int] = {}
    owned: dict[str, frozenset[OwnedPartition]] = {}
    ids = count()

    def answered(member: str, status: EpochStatus) -> None:
        if status.error in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_MEMBER_EPOCH):
            epochs[member], owned[member] = 0, frozenset()
            return
        assert not status.error, status
        epochs[member] = status.epoch
        if status.assignment is not None:
            owned[member] = status.assignment
            others = [one for other, some in owned.items() if other != member for one in some]
            assert not status.assignment & frozenset(others)

    def beat(member: str, *, lost: bool = False) -> None:
        if epochs[member] == 0:
            owned[member] = frozenset()
            status = world.join(member, *dice.choice([("a",), ("b",), ("a", "b")]), assignor=assignor)
        else:
            status = world.beat(member, epochs[member], owned=owned[member])
        if not lost:
            answered(member, status)

    for _ in range(300):
        what = dice.random()
        if what < 0.1 and len(epochs) < 6:
            member = f"m{next(ids)}"
            epochs[member], owned[member] = 0, frozenset()
        elif what < 0.15 and epochs:
            gone = dice.choice(sorted(epochs))
            world.beat(gone, -1)
            del epochs[gone], owned[gone]
        elif what < 0.18 and epochs:  # it dies, and others wait for its session to end
            gone = dice.choice(sorted(epochs))
            del epochs[gone], owned[gone]
            for _ in range(10):
                world.passes(SESSION / 9)
                for one in epochs:
                    beat(one)
        elif what < 0.22:
            world.topics = {"a": GroupTopic(A.id, dice.randint(1, 9)), "b": B}
        elif what < 0.27:
            world.restarted()
        elif epochs:
            beat(dice.choice(sorted(epochs)), lost=dice.random() < 0.1)
    for _ in range(20):
        for one in epochs:
            beat(one)
    if epochs:
        group = world.coordinator.groups["g"]
        assert group.state == "Stable"
        wanted = {OwnedPartition(topic.id, n) for topic in group.topics.values() for n in range(topic.partitions)}
        assert {one for some in owned.values() for one in some} == wanted


# ---- bounds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["topics", "matched", "expression"])
def test_a_group_has_only_so_many_topics(field: str) -> None:
    """Also those that a member subscribes to later."""
    world = World(max_group_bytes=100)
    assert world.join("m").error == 0
    assert world.join("n", "x" * 101).error == KafkaError.GROUP_MAX_SIZE_REACHED
    more = "x" * 101 if field == "expression" else frozenset({"x" * 101})
    assert world.beat("m", 1, **{field: more}).error == KafkaError.GROUP_MAX_SIZE_REACHED
    assert world.coordinator.groups["g"].subscribed == {"a"}


def test_a_topic_counts_for_each_member_that_has_it() -> None:
    """As it is stored. A member that takes no more than it had is not refused, whatever the others have."""
    world = World(max_group_bytes=100)
    for member, error in (("m", 0), ("n", 0), ("o", KafkaError.GROUP_MAX_SIZE_REACHED)):
        assert world.join(member, "x" * 40).error == error
    assert world.beat("m", 1, matched=frozenset({"y" * 30})).error == KafkaError.GROUP_MAX_SIZE_REACHED
    assert world.beat("m", 1, topics=frozenset({"a", "b"}), expression="b" * 30).error == 0
    assert world.join("o", "x" * 20).error == 0


@pytest.mark.parametrize("instance", [None, "i"])
def test_a_heartbeat_is_taken_back(world: World, instance: str | None) -> None:
    """With a member that gives up partitions, and with another one in the place of a static member."""
    world.join("m", instance=instance)
    world.join("n")
    world.beat("m", 1)
    group = world.coordinator.groups["g"]
    before, told = group.record(), dict(group.told)
    world.passes(30)
    if instance is not None:
        world.beat("m", -2)
        before = group.record()
    joined = world.join("o", "a", "b", instance=instance)
    assert world.coordinator.groups["g"].record() != before
    world.coordinator.take_back("g", before, joined.member, world.now)
    restored = world.coordinator.groups["g"]
    assert (restored.record(), restored.told) == (before, told if instance is None else {"n": told["n"]})
    world.passes(16)
    left = [member for group in world.coordinator.groups.values() for member in group.members]
    assert left == (["m"] if instance else []), "the time of the others has gone on"


def test_a_group_that_did_not_exist_is_taken_back(world: World) -> None:
    world.join("m")
    world.coordinator.take_back("g", None, "m", world.now)
    assert (world.coordinator.groups, world.coordinator.deadline()) == ({}, None)
