"""The rights of clients to groups and transactional ids.

Theory of operation. Groups and transactional ids have no owner in the protocol, and a client needs to know no more than
the name. A client may use a group if the scope of its access token has the name (a token without such a scope: any
name), and if it may read all streams that the group reads: those that its members have subscribed to, and those with
committed offsets. It may use a transactional id if the scope has the name, and if it may append to all streams of the
last transaction. Names in use thus belong to the clients of their streams; a scope also reserves names that are not yet
in use.

Routes may lead one name to different streams. So a group and a transactional id remember the identity that began them:
for a client of another identity a topic counts only if it leads both to the same stream.

Clients that may read, or append to, every stream of the basin are not checked further. Where a member proves itself by
its id, which only the group's clients learn, the name is checked alone.
"""

from __future__ import annotations

import math
from typing import Final

import trio

from penstock.core.back import Back
from penstock.core.identity import CLIENT, Client
from penstock.core.permissions import APPEND, READ, Permission
from penstock.model.failures import OperationFailed
from penstock.model.records import StreamRef
from penstock_kafka.codec import KafkaError
from penstock_kafka.front.call import KafkaCall
from penstock_kafka.front.client_names import key_of, viewer
from penstock_kafka.groups.service import GroupService
from penstock_kafka.names import KafkaNames, is_topic
from penstock_kafka.transactions.service import TransactionService

__all__ = ["KafkaAccess"]

_RECENT_SECONDS: Final = 5.0
"""Time for which a client that may use a group is not checked again where it joins, commits or fetches offsets."""
_MOST_RECENT: Final = 10_000
_TOPICS_AT_ONCE: Final = 500
"""Topics that are checked at a time, between which other tasks run."""


class KafkaAccess:
    """The rights of clients to the groups and transactional ids of a listener."""

    def __init__(self, back: Back, names: KafkaNames, groups: GroupService, transactions: TransactionService) -> None:
        self._back = back
        self._names = names
        self._groups = groups
        self._transactions = transactions
        self._recent: dict[tuple[Client, str], float] = {}

    # ---- groups ------------------------------------------------------------------------------------------------------

    def denied(self, call: KafkaCall) -> KafkaError:
        """Return an error for clients that may not read any stream: groups are for readers."""
        try:
            self._back.require_some(self._names.basin, "", READ)
        except OperationFailed as error:
            call.refused(error.failure)
            return KafkaError.GROUP_AUTHORIZATION_FAILED
        return KafkaError.NONE

    def of_member(self, group: str, call: KafkaCall) -> KafkaError:
        """Return the error of a request that names a member by its id, NONE if it can be executed now."""
        if not _in_scope(group, "groups"):
            call.refusals += 1
            return KafkaError.GROUP_AUTHORIZATION_FAILED
        return self.denied(call) or self._groups.refusal(group)

    async def of(self, group: str, call: KafkaCall, *, recently: bool = False) -> KafkaError:
        """Return the error of a request about a group, NONE if it can be executed now. `recently`: a check of the last
        seconds is enough."""
        if error := self.of_member(group, call):
            return error
        key = viewer(), key_of(group)
        if recently and self._recent.get(key, -math.inf) > trio.current_time():
            return KafkaError.NONE
        try:
            may_use = await self.may_use(key_of(group))
        except OperationFailed as failed:
            call.refused(failed.failure)
            return KafkaError.COORDINATOR_NOT_AVAILABLE
        if not may_use:
            call.refusals += 1
            self._recent.pop(key, None)
            return KafkaError.GROUP_AUTHORIZATION_FAILED
        if len(self._recent) >= _MOST_RECENT:
            self._recent.clear()
        self._recent[key] = trio.current_time() + _RECENT_SECONDS
        return KafkaError.NONE

    def may_name(self, group: str) -> bool:
        """Return whether the scope of the client's token has a group's name."""
        return _in_scope(group, "groups")

    async def may_use(self, key: str) -> bool:
        """Return whether the client may read all streams of a group. Raises OperationFailed if they cannot be looked
        up."""
        if self._is_for_all(READ):
            return True
        topics = await self._groups.topics(key)
        owner = self._groups.describe(key)[1].owner
        if topics is None:
            return owner in ("", CLIENT.get().principal)
        for number, topic in enumerate(topics):
            if not number % _TOPICS_AT_ONCE:
                await trio.lowlevel.checkpoint()
            streams = [self._names.to_stream(topic), self._names.member(topic, 0)] if is_topic(topic) else []
            if streams and not any(self._may(stream, READ, owner) for stream in streams):
                return False
        return True

    # ---- transactional ids -------------------------------------------------------------------------------------------

    def of_transaction(self, transactional_id: str, call: KafkaCall) -> KafkaError:
        """Return the error of a request about a transactional id, NONE if the client may use it."""
        try:
            self._back.require_some(self._names.basin, "", APPEND)
        except OperationFailed as error:
            call.refused(error.failure)
            return KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if self.may_use_transaction(transactional_id):
            return KafkaError.NONE
        call.refusals += 1
        return KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    def may_use_transaction(self, transactional_id: str) -> bool:
        """Return whether the client may use a transactional id, if it may append to any stream."""
        if not _in_scope(transactional_id, "transactional_ids"):
            return False
        record = self._transactions.record(key_of(transactional_id))
        if record is None or self._is_for_all(APPEND):
            return True
        client = CLIENT.get()
        if not record.partitions:
            has_scope = client.grant is not None and client.grant.info.scope.transactional_ids is not None
            return has_scope or record.owner in ("", client.principal)
        for partition in record.partitions:
            named = [self._names.member(partition.topic, partition.partition)]
            if partition.partition == 0:
                named.append(self._names.to_stream(partition.topic))
            if not any(
                client.place(stream) == partition.ref and self._may(stream, APPEND, record.owner) for stream in named
            ):
                return False
        return True

    # ---- both --------------------------------------------------------------------------------------------------------

    def _is_for_all(self, needs: frozenset[Permission]) -> bool:
        """Return whether the client has a permission for every stream of the basin."""
        try:
            self._back.require_all(self._names.basin, "", needs)
        except OperationFailed:
            return False
        return True

    def _may(self, stream: StreamRef, needs: frozenset[Permission], owner: str) -> bool:
        """Return whether the client has a permission for a stream, and means the same stream by this name as `owner`,
        if that is an identity."""
        try:
            self._back.require(stream, needs)
        except OperationFailed:
            return False
        client = CLIENT.get()
        if not owner or owner == client.principal or owner.startswith(Client.TOKEN):
            return True
        own = self._back.destination(stream)
        token = CLIENT.set(Client(identity=owner))
        try:
            theirs = self._back.destination(stream)
        except OperationFailed:
            return True  # its routes are gone, so that only the client's own permission is left to judge by
        finally:
            CLIENT.reset(token)
        return (own.back, own.stream) == (theirs.back, theirs.stream)


def _in_scope(name: str, kind: str) -> bool:
    """Return whether the scope of the current client's access token has a name of this kind, or does not say."""
    grant = CLIENT.get().grant
    names = None if grant is None else getattr(grant.info.scope, kind)
    return names is None or names.has(name)
