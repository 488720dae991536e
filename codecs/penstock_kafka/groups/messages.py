"""Requests to a group's coordinator and its answers, without the wire.

Times are seconds. `member`: the id that the coordinator gave the member, "" before it has one. `instance`: the id that
a static member keeps over restarts (KIP-345), None for the others. `generation`: of the group; it rises with every
rebalance.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock_kafka.codec import KafkaError

__all__ = [
    "GroupLimits",
    "GroupRecord",
    "JoinAnswer",
    "JoinRequest",
    "JoinedMember",
    "LeavingMember",
    "MemberRecord",
    "Membership",
    "RequestAnswered",
    "SaveGroup",
    "SyncAnswer",
    "SyncRequest",
]


class GroupLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of all groups of a coordinator.

    `min_session`, `max_session`: session time-outs that members may ask for. `initial_delay`: how long an empty group
    waits for more members after each one that joins. `new_member_session`: how long a member that joins for the first
    time may wait before it is taken for lost. `max_groups`: groups. `max_members`: members of a group.
    `max_group_bytes`: subscriptions and assignments of a group's members, with some 250 bytes for each; `max_bytes`:
    those of all groups. `offset_retention`: how long committed offsets are kept after their group has no members.
    `consumer_session`, `consumer_heartbeat`: session time-out and time between heartbeats of the consumer protocol.
    """

    min_session: float = 6.0
    max_session: float = 1800.0
    initial_delay: float = 3.0
    new_member_session: float = 300.0
    max_groups: int = 10_000
    max_members: int = 1000
    max_group_bytes: int = 512 * 1024
    max_bytes: int = 64 * 1024 * 1024
    offset_retention: float = 7 * 86_400.0
    consumer_session: float = 45.0
    consumer_heartbeat: float = 5.0


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A member joins a group, or rejoins it.

    `protocols`: names of assignment strategies with the member's subscription in terms of each, the preferred one
    first. `needs_id`: a new member must ask again with the id that it is given (JoinGroup v4). `skips_assignment`: the
    member understands that it is the leader, and need not assign anything (v9).
    """

    group: str
    member: str = ""
    instance: str | None = None
    client_id: str = ""
    client_host: str = ""
    protocol_type: str = "consumer"
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout: float
    rebalance_timeout: float
    needs_id: bool = False
    skips_assignment: bool = False


class JoinedMember(msgspec.Struct, frozen=True):
    """A member as its leader sees it: with its subscription in terms of the chosen protocol."""

    member: str
    instance: str | None
    subscription: bytes


class JoinAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The new generation. `members`: all of them for the leader, none for others."""

    error: KafkaError = KafkaError.NONE
    member: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A member asks for its assignment; the leader brings those of all. `protocol_type`, `protocol`: those that the
    member believes the group has, None if it does not say (before v5)."""

    group: str
    member: str
    instance: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = msgspec.field(default_factory=dict)


class SyncAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The assignment of a member."""

    error: KafkaError = KafkaError.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """A member shows that it lives; a commit of offsets shows it too."""

    group: str
    member: str
    instance: str | None = None
    generation: int


class LeavingMember(msgspec.Struct, frozen=True):
    """A member that leaves; a static one may be named by its instance alone."""

    member: str
    instance: str | None = None


class MemberRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A member, as it is stored and described."""

    member: str
    instance: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout: float
    rebalance_timeout: float
    protocols: tuple[tuple[str, bytes], ...] = ()
    assignment: bytes = b""


class GroupRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A group, as it is stored: stable, or empty if it has no members. `saved_at`: Unix ms of this change, set when
    it is stored. `owner`: the principal of the client that began it, "" if it had none, or was stored before gateways
    noted it."""

    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[MemberRecord, ...] = ()
    saved_at: int = 0
    owner: str = ""


class RequestAnswered(msgspec.Struct, frozen=True):
    """The answer to the request with this ticket: a join, a sync, or a deletion."""

    ticket: int
    answer: JoinAnswer | SyncAnswer | KafkaError


class SaveGroup(msgspec.Struct, frozen=True):
    """The group's record must be replaced, or removed with all its offsets if it is None; `GroupCoordinator.saved` is
    then told `serial`. Saves of a group take effect in their order."""

    serial: int
    group: str
    record: GroupRecord | None
