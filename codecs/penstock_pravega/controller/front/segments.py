"""Calls about the segments of a stream."""

from __future__ import annotations

from typing import Final

from penstock.net.limits.work import in_turns
from penstock_pravega.controller.controller.problems import ControllerProblem
from penstock_pravega.controller.controller.topology import KeyRange
from penstock_pravega.controller.front.calls import CallContext, Calls
from penstock_pravega.controller.front.scopes import bracketed, host_of
from penstock_pravega.controller.front.wire import segment_id, segment_range, status_of
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["SEGMENTS"]

_FAILED: Final = pb.ScaleResponse(status=pb.ScaleResponse.FAILURE)
_NOT_SCALED: Final = {
    ControllerProblem.SCALE_REFUSED: _FAILED,
    ControllerProblem.STREAM_SEALED: _FAILED,
    ControllerProblem.NOT_CURRENT: pb.ScaleResponse(status=pb.ScaleResponse.PRECONDITION_FAILED),
}
_NO_SUCH_EPOCH: Final = pb.ScaleStatusResponse(status=pb.ScaleStatusResponse.INVALID_INPUT)


async def _current(call: CallContext, request: pb.StreamInfo) -> pb.SegmentRanges:
    segments = await call.controller.queries.current(request.scope, request.stream)
    ranges = [segment_range(request, segment) for segment in segments]
    return pb.SegmentRanges(segmentRanges=ranges, delegationToken=call.delegation_token(request))


async def _of_epoch(call: CallContext, request: pb.GetEpochSegmentsRequest) -> pb.SegmentRanges:
    stream = request.streamInfo
    segments = await call.controller.queries.of_epoch(stream.scope, stream.stream, request.epoch)
    ranges = [segment_range(stream, segment) for segment in segments]
    return pb.SegmentRanges(segmentRanges=ranges, delegationToken=call.delegation_token(stream))


async def _at_head(call: CallContext, request: pb.GetSegmentsRequest) -> pb.SegmentsAtTime:
    """Return the head, whatever the time: Pravega's controllers know no other position either."""
    stream = request.streamInfo
    located = await call.controller.queries.at_head(stream.scope, stream.stream)
    return pb.SegmentsAtTime(
        segments=[
            pb.SegmentsAtTime.SegmentLocation(segmentId=segment_id(stream, segment), offset=offset)
            for segment, offset in located
        ],
        delegationToken=call.delegation_token(stream),
    )


async def _following(call: CallContext, request: pb.SegmentId) -> pb.SuccessorResponse:
    stream = request.streamInfo
    successors = await call.controller.queries.following(stream.scope, stream.stream, request.segmentId)
    return pb.SuccessorResponse(
        segments=[
            pb.SuccessorResponse.SegmentEntry(
                segment=segment_range(stream, segment), value=[predecessor.id for predecessor in old]
            )
            for segment, old in successors
        ],
        delegationToken=call.delegation_token(stream),
    )


async def _between(call: CallContext, request: pb.StreamCutRange) -> pb.StreamCutRangeResponse:
    stream = request.streamInfo
    start, end = list(getattr(request, "from")), list(request.to)
    segments = await call.controller.queries.between(stream.scope, stream.stream, start, end)
    ids = [segment_id(stream, segment) for segment in segments]
    return pb.StreamCutRangeResponse(segments=ids, delegationToken=call.delegation_token(stream))


async def _uri(call: CallContext, _request: pb.SegmentId) -> pb.NodeUri:
    """Return the one address of all segments, also of those that no call created, such as tables of reader groups."""
    advertised = call.settings.advertise()
    host, _ = host_of(call.context.authority)
    return pb.NodeUri(endpoint=bracketed(advertised.host) if advertised.host else host, port=advertised.port)


async def _is_valid(call: CallContext, request: pb.SegmentId) -> pb.SegmentValidityResponse:
    stream = request.streamInfo
    is_open = await call.controller.queries.is_open(stream.scope, stream.stream, request.segmentId)
    return pb.SegmentValidityResponse(response=is_open)


async def _is_cut(call: CallContext, request: pb.StreamCut) -> pb.StreamCutValidityResponse:
    stream = request.streamInfo
    is_cut = await call.controller.queries.is_cut(stream.scope, stream.stream, request.cut)
    return pb.StreamCutValidityResponse(response=is_cut)


async def _scale(call: CallContext, request: pb.ScaleRequest) -> pb.ScaleResponse:
    """Scale the stream. It is done when this returns; clients poll for the end nevertheless."""
    stream = request.streamInfo
    response = pb.ScaleResponse(status=pb.ScaleResponse.STARTED)
    ranges = [KeyRange(each.start, each.end) async for each in in_turns(request.newKeyRanges)]

    async def work() -> None:
        epoch, segments = await call.controller.scaling.scale(
            stream.scope, stream.stream, request.sealedSegments, ranges
        )
        response.epoch = epoch
        response.segments.extend(segment_range(stream, segment) for segment in segments)

    return await status_of(work(), response, _NOT_SCALED)


async def _check_scale(call: CallContext, request: pb.ScaleStatusRequest) -> pb.ScaleStatusResponse:
    stream = request.streamInfo
    response = pb.ScaleStatusResponse(status=pb.ScaleStatusResponse.SUCCESS)

    async def work() -> None:
        if not await call.controller.scaling.is_done(stream.scope, stream.stream, request.epoch):
            response.status = pb.ScaleStatusResponse.IN_PROGRESS

    return await status_of(work(), response, {ControllerProblem.SCALE_REFUSED: _NO_SUCH_EPOCH})


async def _delegation_token(call: CallContext, request: pb.StreamInfo) -> pb.DelegationToken:
    return pb.DelegationToken(delegationToken=call.delegation_token(request))


SEGMENTS: Final[Calls] = {
    "getCurrentSegments": _current,
    "getEpochSegments": _of_epoch,
    "getSegments": _at_head,
    "getSegmentsImmediatelyFollowing": _following,
    "getSegmentsImmediatlyFollowing": _following,
    "getSegmentsBetween": _between,
    "getURI": _uri,
    "isSegmentValid": _is_valid,
    "isStreamCutValid": _is_cut,
    "scale": _scale,
    "checkScale": _check_scale,
    "getDelegationToken": _delegation_token,
}
