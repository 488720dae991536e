"""The states of a consumer group, and the transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

__all__ = ["TRANSITIONS", "GroupState"]


class GroupState(Enum):
    """A state of a group; the value is its name in answers to clients."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_S = GroupState

TRANSITIONS: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    # a member joins: the group waits for all others, or for the rebalance to time out | the group is deleted
    _S.EMPTY: frozenset({_S.PREPARING_REBALANCE, _S.DEAD}),
    # all members have joined: a new generation waits for its leader's assignment | the last member has left
    _S.PREPARING_REBALANCE: frozenset({_S.COMPLETING_REBALANCE, _S.EMPTY}),
    # the assignment is on disk | a member joins, leaves or expires, or the assignment could not be written
    _S.COMPLETING_REBALANCE: frozenset({_S.STABLE, _S.PREPARING_REBALANCE}),
    # a member joins, leaves or expires
    _S.STABLE: frozenset({_S.PREPARING_REBALANCE}),
    # the deletion is being written, then the group is forgotten
    _S.DEAD: frozenset(),
}
"""The states that may follow each state."""
