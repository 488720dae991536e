"""The controller of segment stores, which knows the streams, their segments, and the store of each segment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.message import Message

from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_proto import pravega_controller_pb2 as pb
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.clients.pool import Pool
from penstock_spark.clients.segment.grpc import GrpcConnection
from penstock_spark.clients.segment.names import StreamSegmentName

__all__ = ["BlockingControllerClient"]

_MOST_NAMES: Final = 1_000_000
"""Most names in a listing, in case it never ends: they are sorted in memory, at about 100 bytes each."""
_MISSING: Final = (FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND)
_CREATED: Final = pb.CreateStreamStatus
_UPDATED: Final = pb.UpdateStreamStatus


class BlockingControllerClient:
    """Calls to a controller, each retried while that can help. All raise OperationFailed."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._pool = Pool(endpoint, lambda: GrpcConnection(endpoint))

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    # ---- streams and positions -----------------------------------------------------------------------------------

    def scopes(self) -> list[str]:
        """Return the names of all scopes, unsorted."""
        names: list[str] = []
        token = pb.ContinuationToken()
        while True:
            page = self._call("listScopes", pb.ScopesRequest(continuationToken=token))
            names += page.scopes
            if not page.scopes or self._is_last(page.continuationToken, token, names):
                return names
            token = page.continuationToken

    def streams(self, scope: str) -> list[str]:
        """Return the names of a scope's streams, unsorted, including those that the controller created for itself; none
        if there is no such scope."""
        names: list[str] = []
        token = pb.ContinuationToken()
        while True:
            request = pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope=scope), continuationToken=token)
            page = self._call("listStreamsInScope", request)
            if page.status == pb.StreamsInScopeResponse.SCOPE_NOT_FOUND:
                return []
            names += [stream.stream for stream in page.streams]
            if not page.streams or self._is_last(page.continuationToken, token, names):
                return names
            token = page.continuationToken

    def _is_last(self, following: pb.ContinuationToken, token: pb.ContinuationToken, names: list[str]) -> bool:
        if len(names) > _MOST_NAMES:
            raise fail(FailureCode.LIMIT_EXCEEDED, f"{self._endpoint} lists more than {_MOST_NAMES} names")
        return bool(following == token)

    def head(self, scope: str, stream: str) -> list[StreamSegmentName]:
        """Return the segments that a stream begins with: the first ones, or, if those are gone, the first that remain.
        Return none if there is no such stream."""
        request = pb.GetSegmentsRequest(streamInfo=pb.StreamInfo(scope=scope, stream=stream))
        try:
            segments = self._call("getSegments", request).segments
        except OperationFailed as error:
            if error.failure.code in _MISSING:
                return []
            raise
        return [StreamSegmentName.of_id(scope, stream, segment_range.segmentId.segmentId) for segment_range in segments]

    def since(self, head: Iterable[StreamSegmentName]) -> list[StreamSegmentName]:
        """Return these segments and all their successors, older epochs first."""
        by_id: dict[int, StreamSegmentName] = {}
        waiting = list(head)
        while waiting:
            new = [name for name in waiting if name.id not in by_id]
            by_id.update((name.id, name) for name in new)
            waiting = [after for name in new for after in self.successors(name)]
        return [by_id[number] for number in sorted(by_id)]

    def successors(self, segment: StreamSegmentName) -> list[StreamSegmentName]:
        """Return the segments that follow a sealed one; none if it is open or its stream is sealed."""
        segments = self._call("getSegmentsImmediatelyFollowing", _id(segment)).segments
        return [
            StreamSegmentName.of_id(segment.scope, segment.stream, segment_range.segment.segmentId.segmentId)
            for segment_range in segments
        ]

    def where(self, segment: StreamSegmentName) -> tuple[str, int]:
        """Return host and port of the store that serves a segment, or would serve it. Controllers may put an IPv6
        address in brackets."""
        uri = self._call("getURI", _id(segment))
        return uri.endpoint.removeprefix("[").removesuffix("]"), uri.port

    def delegation_token(self, segment: StreamSegmentName) -> str:
        """Return the delegation token for a segment's store."""
        info = pb.StreamInfo(
            scope=segment.scope, stream=segment.stream, accessOperation=pb.StreamInfo.AccessOperation.READ_WRITE
        )
        return str(self._call("getDelegationToken", info).delegationToken)

    # ---- creating, deleting and trimming -------------------------------------------------------------------------

    def create(self, scope: str, stream: str) -> bool:
        """Create a stream of one segment, and its scope if that is missing. Return False if the stream exists."""
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
        """Seal and delete a stream; do nothing if it does not exist."""
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


def _id(segment: StreamSegmentName) -> pb.SegmentId:
    return pb.SegmentId(streamInfo=pb.StreamInfo(scope=segment.scope, stream=segment.stream), segmentId=segment.id)
