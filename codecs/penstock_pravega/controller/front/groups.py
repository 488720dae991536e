"""Calls about the reader groups of the Java client."""

from __future__ import annotations

from typing import Final

from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.front.calls import CallContext, Calls
from penstock_pravega.controller.front.wire import reader_group_of, spell_group, status_of
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["GROUPS"]

_NOT_CREATED: Final = {
    ControllerProblem.SCOPE_NOT_FOUND: pb.CreateReaderGroupResponse(
        status=pb.CreateReaderGroupResponse.SCOPE_NOT_FOUND
    ),
    ControllerProblem.INVALID_NAME: pb.CreateReaderGroupResponse(status=pb.CreateReaderGroupResponse.INVALID_RG_NAME),
}
_NOT_FOUND: Final = {
    ControllerProblem.GROUP_NOT_FOUND: pb.ReaderGroupConfigResponse(status=pb.ReaderGroupConfigResponse.RG_NOT_FOUND)
}
_NOT_UPDATED: Final = {
    ControllerProblem.GROUP_NOT_FOUND: pb.UpdateReaderGroupResponse(status=pb.UpdateReaderGroupResponse.RG_NOT_FOUND),
    ControllerProblem.INVALID_CONFIG: pb.UpdateReaderGroupResponse(status=pb.UpdateReaderGroupResponse.INVALID_CONFIG),
}
_DELETED: Final = pb.DeleteReaderGroupStatus(status=pb.DeleteReaderGroupStatus.SUCCESS)
_NOT_DELETED: Final = {
    ControllerProblem.GROUP_NOT_FOUND: pb.DeleteReaderGroupStatus(status=pb.DeleteReaderGroupStatus.RG_NOT_FOUND)
}
_NO_SUBSCRIBERS: Final = {
    ControllerProblem.STREAM_NOT_FOUND: pb.SubscribersResponse(status=pb.SubscribersResponse.STREAM_NOT_FOUND)
}
_ACKNOWLEDGED: Final = pb.UpdateSubscriberStatus(status=pb.UpdateSubscriberStatus.SUCCESS)
_NOT_ACKNOWLEDGED: Final = {
    ControllerProblem.STREAM_NOT_FOUND: pb.UpdateSubscriberStatus(status=pb.UpdateSubscriberStatus.STREAM_NOT_FOUND),
    ControllerProblem.GROUP_NOT_FOUND: pb.UpdateSubscriberStatus(status=pb.UpdateSubscriberStatus.SUBSCRIBER_NOT_FOUND),
    ControllerProblem.INVALID_CUT: pb.UpdateSubscriberStatus(status=pb.UpdateSubscriberStatus.STREAM_CUT_NOT_VALID),
    ControllerProblem.GENERATION_MISMATCH: pb.UpdateSubscriberStatus(
        status=pb.UpdateSubscriberStatus.GENERATION_MISMATCH
    ),
}


async def _create(call: CallContext, request: pb.ReaderGroupConfiguration) -> pb.CreateReaderGroupResponse:
    response = pb.CreateReaderGroupResponse(status=pb.CreateReaderGroupResponse.SUCCESS)

    async def work() -> None:
        group = await call.controller.groups.create(request.scope, request.readerGroupName, reader_group_of(request))
        response.config.CopyFrom(spell_group(request.scope, request.readerGroupName, group))

    return await status_of(work(), response, _NOT_CREATED)


async def _get(call: CallContext, request: pb.ReaderGroupInfo) -> pb.ReaderGroupConfigResponse:
    response = pb.ReaderGroupConfigResponse(status=pb.ReaderGroupConfigResponse.SUCCESS)

    async def work() -> None:
        group = await call.controller.groups.get(request.scope, request.readerGroup)
        response.config.CopyFrom(spell_group(request.scope, request.readerGroup, group))

    return await status_of(work(), response, _NOT_FOUND)


async def _update(call: CallContext, request: pb.ReaderGroupConfiguration) -> pb.UpdateReaderGroupResponse:
    response = pb.UpdateReaderGroupResponse(status=pb.UpdateReaderGroupResponse.SUCCESS)

    async def work() -> None:
        response.generation = await call.controller.groups.update(
            request.scope, request.readerGroupName, reader_group_of(request)
        )

    return await status_of(work(), response, _NOT_UPDATED)


async def _delete(call: CallContext, request: pb.ReaderGroupInfo) -> pb.DeleteReaderGroupStatus:
    work = call.controller.groups.delete(request.scope, request.readerGroup, request.readerGroupId)
    return await status_of(work, _DELETED, _NOT_DELETED)


async def _subscribers(call: CallContext, request: pb.StreamInfo) -> pb.SubscribersResponse:
    response = pb.SubscribersResponse(status=pb.SubscribersResponse.SUCCESS)

    async def work() -> None:
        response.subscribers.extend(await call.controller.groups.subscribers(request.scope, request.stream))

    return await status_of(work(), response, _NO_SUBSCRIBERS)


async def _acknowledge(call: CallContext, request: pb.SubscriberStreamCut) -> pb.UpdateSubscriberStatus:
    stream = request.streamCut.streamInfo
    work = call.controller.retention.acknowledge(
        request.subscriber,
        request.readerGroupId,
        request.generation,
        stream.scope,
        stream.stream,
        request.streamCut.cut,
    )
    return await status_of(work, _ACKNOWLEDGED, _NOT_ACKNOWLEDGED)


GROUPS: Final[Calls] = {
    "createReaderGroup": _create,
    "getReaderGroupConfig": _get,
    "updateReaderGroup": _update,
    "deleteReaderGroup": _delete,
    "listSubscribers": _subscribers,
    "updateSubscriberStreamCut": _acknowledge,
}
