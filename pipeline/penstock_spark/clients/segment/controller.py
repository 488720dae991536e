"""The controller of segment stores: which streams and segments there are, and where they live."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.message import Message

from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_proto import pravega_controller_pb2 as pb
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.pool import Pool
from penstock_spark.clients.segment.grpc import GrpcConnection
from penstock_spark.clients.segment.names import SegmentName

__all__ = ["Controller"]

_MOST_NAMES: Final = 1_000_000
"""Of a listing, in case that it never ends: they have to be put in order here; about 100 bytes each."""
_MISSING: Final = (FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND)
_CREATED: Final = pb.CreateStreamStatus
_UPDATED: Final = pb.UpdateStreamStatus


class Controller:
    """Calls, each repeated while that can help. All raise OperationFailed."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._pool = Pool(endpoint, lambda: GrpcConnection(endpoint))

    def close(self) -> None:
        """Give up the connections."""
        self._pool.close()

    # ---- what there is -------------------------------------------------------------------------------------------

    def scopes(self) -> list[str]:
        """All of them, in no order."""
        found: list[str] = []
        token = pb.ContinuationToken()
        while True:
            page = self._call("listScopes", pb.ScopesRequest(continuationToken=token))
            found += page.scopes
            if not page.scopes or self._is_last(page.continuationToken, token, found):
                return found
            token = page.continuationToken

    def streams(self, scope: str) -> list[str]:
        """The streams of a scope, in no order, also those that the controller made for itself; none where there is no
        such scope."""
        found: list[str] = []
        token = pb.ContinuationToken()
        while True:
            request = pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope=scope), continuationToken=token)
            page = self._call("listStreamsInScope", request)
            if page.status == pb.StreamsInScopeResponse.SCOPE_NOT_FOUND:
                return []
            found += [one.stream for one in page.streams]
            if not page.streams or self._is_last(page.continuationToken, token, found):
                return found
            token = page.continuationToken

    def _is_last(self, following: pb.ContinuationToken, token: pb.ContinuationToken, found: list[str]) -> bool:
        if len(found) > _MOST_NAMES:
            raise fail(FailureCode.LIMIT_EXCEEDED, f"{self._endpoint} lists more than {_MOST_NAMES} names")
        return bool(following == token)

    def head(self, scope: str, stream: str) -> list[SegmentName]:
        """The segments that a stream begins with, or, where these are gone, those that it begins with now. None where
        the stream is not there."""
        request = pb.GetSegmentsRequest(streamInfo=pb.StreamInfo(scope=scope, stream=stream))
        try:
            found = self._call("getSegments", request).segments
        except OperationFailed as error:
            if error.failure.code in _MISSING:
                return []
            raise
        return [SegmentName.of_id(scope, stream, one.segmentId.segmentId) for one in found]

    def since(self, head: Iterable[SegmentName]) -> list[SegmentName]:
        """These segments and all that have followed them, older epochs first."""
        found: dict[int, SegmentName] = {}
        waiting = list(head)
        while waiting:
            new = [name for name in waiting if name.id not in found]
            found.update((name.id, name) for name in new)
            waiting = [after for name in new for after in self.successors(name)]
        return [found[number] for number in sorted(found)]

    def successors(self, segment: SegmentName) -> list[SegmentName]:
        """The segments that follow a sealed one; none where it is open, or its stream is sealed."""
        found = self._call("getSegmentsImmediatelyFollowing", _id(segment)).segments
        return [SegmentName.of_id(segment.scope, segment.stream, one.segment.segmentId.segmentId) for one in found]

    def where(self, segment: SegmentName) -> tuple[str, int]:
        """Host and port of the store that serves a segment, or would."""
        uri = self._call("getURI", _id(segment))
        return uri.endpoint, uri.port

    def delegation_token(self, segment: SegmentName) -> str:
        """What the store is to be shown."""
        info = pb.StreamInfo(
            scope=segment.scope, stream=segment.stream, accessOperation=pb.StreamInfo.AccessOperation.READ_WRITE
        )
        return str(self._call("getDelegationToken", info).delegationToken)

    # ---- streams that come and go --------------------------------------------------------------------------------

    def create(self, scope: str, stream: str) -> bool:
        """Create a stream of one segment, and its scope where there is none; False where the stream is there."""
        config = pb.StreamConfig(
            streamInfo=pb.StreamInfo(scope=scope, stream=stream), scalingPolicy=pb.ScalingPolicy(minNumSegments=1)
        )
        status = self._call("createStream", config).status
        if status == _CREATED.SCOPE_NOT_FOUND:
            made = self._call("createScope", pb.ScopeInfo(scope=scope)).status
            if made not in (pb.CreateScopeStatus.SUCCESS, pb.CreateScopeStatus.SCOPE_EXISTS):
                raise self._refused("create", f"scope {scope}", pb.CreateScopeStatus.Status.Name(made))
            status = self._call("createStream", config).status
        if status in (_CREATED.SUCCESS, _CREATED.STREAM_EXISTS):
            return bool(status == _CREATED.SUCCESS)
        raise self._refused("create", f"stream {scope}/{stream}", _CREATED.Status.Name(status))

    def delete(self, scope: str, stream: str) -> None:
        """Seal a stream and delete it; nothing where it is not there."""
        info = pb.StreamInfo(scope=scope, stream=stream)
        if self._call("sealStream", info).status in (_UPDATED.STREAM_NOT_FOUND, _UPDATED.SCOPE_NOT_FOUND):
            return
        status = self._call("deleteStream", info).status
        if status not in (pb.DeleteStreamStatus.SUCCESS, pb.DeleteStreamStatus.STREAM_NOT_FOUND):
            raise self._refused("delete", f"stream {scope}/{stream}", pb.DeleteStreamStatus.Status.Name(status))

    def _refused(self, verb: str, what: str, status: str) -> OperationFailed:
        return fail(FailureCode.INVALID, f"{self._endpoint} does not {verb} {what}: {status}")

    def _call(self, name: str, request: Message) -> Any:
        return self._pool.call(lambda connection: connection.call(name, request))


def _id(segment: SegmentName) -> pb.SegmentId:
    return pb.SegmentId(streamInfo=pb.StreamInfo(scope=segment.scope, stream=segment.stream), segmentId=segment.id)
