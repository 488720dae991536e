"""The coordinator's assignors (KIP-848): which member of a group is to have which partitions.

Each is a function of the members' topics, the numbers of partitions, and what the members have now; the same arguments
give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

__all__ = ["ASSIGNORS", "DEFAULT_ASSIGNOR", "Assignor", "GroupTopic", "OwnedPartition", "range_assignment", "uniform"]

Members = Mapping[str, frozenset[str]]
DEFAULT_ASSIGNOR: Final = "uniform"


class OwnedPartition(NamedTuple):
    """A partition that is assigned to a member, by the id of its topic."""

    topic: bytes
    number: int


class GroupTopic(NamedTuple):
    """A topic that members have subscribed to."""

    id: bytes
    partitions: int


Assignment = dict[str, frozenset[OwnedPartition]]
Assignor = Callable[[Members, Mapping[str, GroupTopic], Mapping[str, frozenset[OwnedPartition]]], Assignment]
"""Arguments: the topics of each member, in the order that the assignor prefers; topics that exist, by name; the present
target of each member."""


def range_assignment(
    members: Members, topics: Mapping[str, GroupTopic], _now: Mapping[str, frozenset[OwnedPartition]]
) -> Assignment:
    """Give each subscriber of a topic consecutive partitions, so that those of equal numbers stay together."""
    assigned: dict[str, set[OwnedPartition]] = {member: set() for member in members}
    for name, topic in topics.items():
        subscribers = [member for member, subscribed in members.items() if name in subscribed]
        first = 0
        for index, member in enumerate(subscribers):
            count = topic.partitions // len(subscribers) + (index < topic.partitions % len(subscribers))
            assigned[member] |= {OwnedPartition(topic.id, number) for number in range(first, first + count)}
            first += count
    return {member: frozenset(some) for member, some in assigned.items()}


def uniform(
    members: Members, topics: Mapping[str, GroupTopic], now: Mapping[str, frozenset[OwnedPartition]]
) -> Assignment:
    """Give all members nearly the same number of partitions, and move as few as that allows."""
    subscribed = {topic.id: name for name, topic in topics.items()}
    every = [
        OwnedPartition(topic.id, number)
        for name, topic in topics.items()
        if any(name in wanted for wanted in members.values())
        for number in range(topic.partitions)
    ]
    free, kept = set(every), {}
    for member, wanted in members.items():
        mine = {one for one in now.get(member, ()) if one in free and subscribed[one.topic] in wanted}
        kept[member], free = mine, free - mine
    share, larger = divmod(len(every), len(members)) if members else (0, 0)
    for member in sorted(members, key=lambda one: (-len(kept[one]), one)):
        most = share + (larger > 0 and len(kept[member]) > share)
        larger -= most > share
        excess = sorted(kept[member])[most:]
        kept[member] -= set(excess)
        free |= set(excess)
    loads = [(len(some), member) for member, some in kept.items()]
    heapify(loads)
    for partition in sorted(free):
        skipped = []
        while loads:
            load, member = heappop(loads)
            if subscribed[partition.topic] in members[member]:
                kept[member].add(partition)
                heappush(loads, (load + 1, member))
                break
            skipped.append((load, member))
        for one in skipped:
            heappush(loads, one)
    return {member: frozenset(some) for member, some in kept.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {DEFAULT_ASSIGNOR: uniform, "range": range_assignment}
