"""APIs of the members and the administrators of groups. The gateway coordinates all groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, TypeVar

from penstock.observe.taps.tap import CONNECTION
from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.group_messages import (
    CoordinatorAddress,
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeftMember,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from penstock_kafka.front.access import KafkaAccess
from penstock_kafka.front.call import KafkaCall, KafkaHandlers
from penstock_kafka.front.client_names import key_of, name_of
from penstock_kafka.groups.messages import (
    GroupRecord,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    Membership,
    SyncAnswer,
    SyncRequest,
)
from penstock_kafka.groups.service import GroupService
from penstock_kafka.groups.states import GroupState

__all__ = ["GroupHandlers", "client_host"]

T = TypeVar("T")

_GROUP, _TRANSACTION = 0, 1
"""The types of coordinator that clients ask for."""
_CLASSIC: Final = "classic"
_CONSUMER: Final = "consumer"
_ID_FIRST: Final = 4
"""The version of JoinGroup from which on a new member must come back with the id that it is given (KIP-394)."""
_SKIPS: Final = 9
"""The version of JoinGroup from which on a leader may be told that it need not assign."""
_NO_GENERATION: Final = -1
_LEAVING_AT_ONCE: Final = 100
"""Members that leave a group in one step: it begins one new generation without them."""


class GroupHandlers:
    """Handlers of FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups and
    DeleteGroups."""

    def __init__(self, groups: GroupService, access: KafkaAccess) -> None:
        self._groups = groups
        self._access = access
        self.handlers: KafkaHandlers = {
            FindCoordinatorRequest: self._find,
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            HeartbeatRequest: self._heartbeat,
            LeaveGroupRequest: self._leave,
            DescribeGroupsRequest: self._describe,
            ListGroupsRequest: self._list,
            DeleteGroupsRequest: self._delete,
        }

    # ---- members -----------------------------------------------------------------------------------------------------

    async def _find(self, request: FindCoordinatorRequest, call: KafkaCall) -> FindCoordinatorResponse:
        keys = request.coordinator_keys if call.version >= 4 else [request.key]
        coordinators = [self._found(key, request.key_type, call) async for key in call.each(keys)]
        if call.version >= 4:
            return FindCoordinatorResponse(coordinators=coordinators)
        [coordinator] = coordinators
        return FindCoordinatorResponse(
            error_code=coordinator.error_code,
            error_message=coordinator.error_message,
            node_id=coordinator.node_id,
            host=coordinator.host,
            port=coordinator.port,
        )

    def _found(self, key: str, kind: int, call: KafkaCall) -> CoordinatorAddress:
        if kind not in (_GROUP, _TRANSACTION):
            reason = f"coordinators are of groups ({_GROUP}) and of transactions ({_TRANSACTION})"
            return CoordinatorAddress(key=key, error_code=KafkaError.INVALID_REQUEST, error_message=reason)
        if call.leader is None:
            reason = "no gateway serves this listener's clients yet"
            return CoordinatorAddress(key=key, error_code=KafkaError.COORDINATOR_NOT_AVAILABLE, error_message=reason)
        node, address = call.leader
        return CoordinatorAddress(key=key, node_id=node, host=address.host, port=address.port)

    async def _join(self, request: JoinGroupRequest, call: KafkaCall) -> JoinGroupResponse:
        session = request.session_timeout_ms
        join = JoinRequest(
            group=key_of(request.group_id),
            member=request.member_id,
            instance=request.group_instance_id,
            client_id=call.request.client_id or "",
            client_host=client_host(),
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            session_timeout=session / 1000,
            rebalance_timeout=(session if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms) / 1000,
            needs_id=call.version >= _ID_FIRST,
            skips_assignment=call.version >= _SKIPS,
        )
        response: JoinAnswer | None
        if error := await self._access.of(request.group_id, call, recently=True):
            response = JoinAnswer(error=error, member=request.member_id)
        else:
            response = await call.link.while_connected(lambda: self._groups.join(join), math.inf)
        response = response or JoinAnswer(error=KafkaError.COORDINATOR_NOT_AVAILABLE, member=request.member_id)
        return JoinGroupResponse(
            error_code=response.error,
            generation_id=response.generation,
            protocol_type=response.protocol_type,
            protocol_name=response.protocol if call.version >= 7 else response.protocol or "",
            leader=response.leader,
            skip_assignment=response.skip_assignment,
            member_id=response.member,
            members=[
                JoinGroupMember(
                    member_id=member.member, group_instance_id=member.instance, metadata=member.subscription
                )
                for member in response.members
            ],
        )

    async def _sync(self, request: SyncGroupRequest, call: KafkaCall) -> SyncGroupResponse:
        sync = SyncRequest(
            group=key_of(request.group_id),
            member=request.member_id,
            instance=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments={assignment.member_id: assignment.assignment for assignment in request.assignments},
        )
        response: SyncAnswer | None
        if error := self._access.of_member(request.group_id, call):
            response = SyncAnswer(error=error)
        else:
            response = await call.link.while_connected(lambda: self._groups.sync(sync), math.inf)
        response = response or SyncAnswer(error=KafkaError.COORDINATOR_NOT_AVAILABLE)
        return SyncGroupResponse(
            error_code=response.error,
            protocol_type=response.protocol_type,
            protocol_name=response.protocol,
            assignment=response.assignment,
        )

    async def _heartbeat(self, request: HeartbeatRequest, call: KafkaCall) -> HeartbeatResponse:
        error = self._access.of_member(request.group_id, call) or self._groups.heartbeat(
            Membership(
                group=key_of(request.group_id),
                member=request.member_id,
                instance=request.group_instance_id,
                generation=request.generation_id,
            )
        )
        return HeartbeatResponse(error_code=error)

    async def _leave(self, request: LeaveGroupRequest, call: KafkaCall) -> LeaveGroupResponse:
        if error := await self._access.of(request.group_id, call):
            return LeaveGroupResponse(error_code=error)
        if call.version < 3:
            [error] = self._groups.leave(key_of(request.group_id), [LeavingMember(request.member_id)])
            return LeaveGroupResponse(error_code=error)
        leaving = [LeavingMember(member.member_id, member.group_instance_id) for member in request.members]
        members: list[LeftMember] = []
        async for start in call.each(range(0, len(leaving), _LEAVING_AT_ONCE)):
            together = leaving[start : start + _LEAVING_AT_ONCE]
            members += [
                LeftMember(member_id=one.member, group_instance_id=one.instance, error_code=error)
                for one, error in zip(together, self._groups.leave(key_of(request.group_id), together), strict=True)
            ]
        return LeaveGroupResponse(members=members)

    # ---- administration ----------------------------------------------------------------------------------------------

    async def _describe(self, request: DescribeGroupsRequest, call: KafkaCall) -> DescribeGroupsResponse:
        groups = [await self._described(group, call) async for group in call.each(request.groups)]
        return DescribeGroupsResponse(groups=groups)

    async def _described(self, group: str, call: KafkaCall) -> DescribedGroup:
        if error := await self._access.of(group, call):
            return DescribedGroup(error_code=error, group_id=group)
        state, record = self._groups.describe(key_of(group))
        if self._groups.consumers.group(key_of(group)) is not None:
            state = GroupState.DEAD
        missing = state is GroupState.DEAD and call.version >= 6
        settled = state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)
        return DescribedGroup(
            error_code=KafkaError.GROUP_ID_NOT_FOUND if missing else KafkaError.NONE,
            error_message=f"no group {group} of the classic protocol exists" if missing else None,
            group_id=group,
            group_state=state.value,
            protocol_type=record.protocol_type,
            protocol_data=record.protocol if settled else "",
            members=list(_members(record, settled=settled)),
        )

    async def _list(self, request: ListGroupsRequest, call: KafkaCall) -> ListGroupsResponse:
        if error := self._access.denied(call):
            return ListGroupsResponse(error_code=error)
        if not self._groups.loaded:
            return ListGroupsResponse(error_code=KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        consumers = {group.id: group.state for group in self._groups.consumers.groups()}
        groups = [(group, kind, state.value, _CLASSIC) for group, kind, state in self._groups.states()]
        groups = [one for one in groups if one[0] not in consumers]
        groups += [(group, _CONSUMER, state, _CONSUMER) for group, state in consumers.items()]
        return ListGroupsResponse(
            groups=[
                ListedGroup(group_id=name, protocol_type=kind, group_state=state, group_type=protocol)
                async for group, kind, state, protocol in call.each(sorted(groups))
                if (name := name_of(group)) is not None
                and self._access.may_name(name)
                and (not states or state.lower() in states)
                and (not types or protocol in types)
                and await self._access.may_use(group)
            ]
        )

    async def _delete(self, request: DeleteGroupsRequest, call: KafkaCall) -> DeleteGroupsResponse:
        results = []
        async for group in call.each(request.groups_names):
            error = await self._access.of(group, call) or await self._groups.delete(key_of(group))
            results.append(DeletedGroup(group_id=group, error_code=error))
        return DeleteGroupsResponse(results=results)


def _members(record: GroupRecord, *, settled: bool) -> Iterator[DescribedMember]:
    for member in record.members:
        yield DescribedMember(
            member_id=member.member,
            group_instance_id=member.instance,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=dict(member.protocols).get(record.protocol, b"") if settled else b"",
            member_assignment=member.assignment if settled else b"",
        )


def client_host() -> str:
    """Return the client's address, as Kafka's tools show it."""
    tap = CONNECTION.get()
    return "" if tap is None else f"/{tap.conversation.client[0]}"
