"""Calls about whole streams."""

from __future__ import annotations

from typing import Final

from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.front.calls import CallContext, Calls
from penstock_pravega.controller.front.wire import config_of, spell_config, status_of, token
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["STREAMS"]

_CREATED: Final = pb.CreateStreamStatus(status=pb.CreateStreamStatus.SUCCESS)
_NOT_CREATED: Final = {
    ControllerProblem.STREAM_EXISTS: pb.CreateStreamStatus(status=pb.CreateStreamStatus.STREAM_EXISTS),
    ControllerProblem.SCOPE_NOT_FOUND: pb.CreateStreamStatus(status=pb.CreateStreamStatus.SCOPE_NOT_FOUND),
    ControllerProblem.INVALID_NAME: pb.CreateStreamStatus(status=pb.CreateStreamStatus.INVALID_STREAM_NAME),
}
_UPDATED: Final = pb.UpdateStreamStatus(status=pb.UpdateStreamStatus.SUCCESS)
_NOT_UPDATED: Final = {
    ControllerProblem.STREAM_NOT_FOUND: pb.UpdateStreamStatus(status=pb.UpdateStreamStatus.STREAM_NOT_FOUND),
    ControllerProblem.STREAM_SEALED: pb.UpdateStreamStatus(status=pb.UpdateStreamStatus.STREAM_SEALED),
}
_DELETED: Final = pb.DeleteStreamStatus(status=pb.DeleteStreamStatus.SUCCESS)
_NOT_DELETED: Final = {
    ControllerProblem.STREAM_NOT_FOUND: pb.DeleteStreamStatus(status=pb.DeleteStreamStatus.STREAM_NOT_FOUND),
    ControllerProblem.STREAM_NOT_SEALED: pb.DeleteStreamStatus(status=pb.DeleteStreamStatus.STREAM_NOT_SEALED),
}
_NO_SCOPE: Final = pb.StreamsInScopeResponse(status=pb.StreamsInScopeResponse.SCOPE_NOT_FOUND)


async def _create(call: CallContext, request: pb.StreamConfig) -> pb.CreateStreamStatus:
    stream = request.streamInfo
    work = call.controller.streams.create(stream.scope, stream.stream, config_of(request))
    return await status_of(work, _CREATED, _NOT_CREATED)


async def _update(call: CallContext, request: pb.StreamConfig) -> pb.UpdateStreamStatus:
    stream = request.streamInfo
    work = call.controller.streams.update(stream.scope, stream.stream, config_of(request))
    return await status_of(work, _UPDATED, _NOT_UPDATED)


async def _truncate(call: CallContext, request: pb.StreamCut) -> pb.UpdateStreamStatus:
    stream = request.streamInfo
    work = call.controller.streams.truncate(stream.scope, stream.stream, request.cut)
    return await status_of(work, _UPDATED, _NOT_UPDATED)


async def _seal(call: CallContext, request: pb.StreamInfo) -> pb.UpdateStreamStatus:
    return await status_of(call.controller.streams.seal(request.scope, request.stream), _UPDATED, _NOT_UPDATED)


async def _delete(call: CallContext, request: pb.StreamInfo) -> pb.DeleteStreamStatus:
    return await status_of(call.controller.streams.delete(request.scope, request.stream), _DELETED, _NOT_DELETED)


async def _exists(call: CallContext, request: pb.StreamInfo) -> pb.ExistsResponse:
    return pb.ExistsResponse(exists=await call.controller.queries.exists(request.scope, request.stream))


async def _config(call: CallContext, request: pb.StreamInfo) -> pb.StreamConfig:
    return spell_config(request, await call.controller.queries.configuration(request.scope, request.stream))


async def _list(call: CallContext, request: pb.StreamsInScopeRequest) -> pb.StreamsInScopeResponse:
    return await _page(call, request.scope.scope, request.continuationToken, None)


async def _list_tagged(call: CallContext, request: pb.StreamsInScopeWithTagRequest) -> pb.StreamsInScopeResponse:
    return await _page(call, request.scope.scope, request.continuationToken, request.tag)


async def _page(
    call: CallContext, scope: str, before: pb.ContinuationToken, tag: str | None
) -> pb.StreamsInScopeResponse:
    page = pb.StreamsInScopeResponse(status=pb.StreamsInScopeResponse.SUCCESS)

    async def fill() -> None:
        names = await call.controller.listing.streams(scope, before.token, tag, with_groups=True)
        page.streams.extend(pb.StreamInfo(scope=scope, stream=name) for name in names)
        page.continuationToken.CopyFrom(token(names, before))

    return await status_of(fill(), page, {ControllerProblem.SCOPE_NOT_FOUND: _NO_SCOPE})


STREAMS: Final[Calls] = {
    "createStream": _create,
    "updateStream": _update,
    "truncateStream": _truncate,
    "sealStream": _seal,
    "deleteStream": _delete,
    "checkStreamExists": _exists,
    "getStreamConfiguration": _config,
    "listStreamsInScope": _list,
    "listStreamsInScopeForTag": _list_tagged,
}
