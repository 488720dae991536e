"""Client of the segment stores' controller, which knows the streams and the stores of their segments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.net.grpc.unary import unary
from penstock.net.http.client import HttpClient, HttpClientSettings, HttpVersion
from penstock.net.retries import RetryPolicy, retrying
from penstock.net.upstream import Upstream, broke
from penstock.wire.grpc import basic
from penstock_pravega.segment.back.settings import SegmentBackSettings
from penstock_pravega.segment.names import SegmentName
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["ControllerClient", "StoreAddress", "open_controller"]

_METHODS: Final = pb.DESCRIPTOR.services_by_name["ControllerService"].methods_by_name
_MOST_PAGES: Final = 100_000
"""Most pages of a listing, in case it never ends."""
_MOST_NAMES: Final = 1_000_000
"""Most names of a listing, which are sorted here; about 100 bytes each."""


class StoreAddress(NamedTuple):
    """Address of a segment store."""

    host: str
    port: int


class ControllerClient:
    """Client of one controller. All methods raise OperationFailed."""

    def __init__(self, http: HttpClient, settings: SegmentBackSettings) -> None:
        self._http = http
        self._upstream = http.upstream.settings
        self._authorization = None if settings.username is None else basic(settings.username, settings.password)
        self._policy = RetryPolicy(total_seconds=min(settings.recover_seconds, self._upstream.request_seconds))

    # ---- streams -----------------------------------------------------------------------------------------------------

    async def create(self, scope: str, stream: str) -> bool:
        """Create a stream of one segment, and its scope if there is none. Returns False if the stream existed."""
        status = await self._create_stream(scope, stream)
        if status == pb.CreateStreamStatus.SCOPE_NOT_FOUND:
            await self._create_scope(scope)
            status = await self._create_stream(scope, stream)
        if status == pb.CreateStreamStatus.INVALID_STREAM_NAME:
            raise fail(FailureCode.NOT_REPRESENTABLE, f"{self._upstream.where} accepts no stream named {stream!r:.80}")
        if status not in (pb.CreateStreamStatus.SUCCESS, pb.CreateStreamStatus.STREAM_EXISTS):
            raise self._failed(f"create stream {scope}/{stream}")
        return bool(status == pb.CreateStreamStatus.SUCCESS)

    async def _create_stream(self, scope: str, stream: str) -> int:
        config = pb.StreamConfig(
            streamInfo=pb.StreamInfo(scope=scope, stream=stream), scalingPolicy=pb.ScalingPolicy(minNumSegments=1)
        )
        return int((await self._call("createStream", config)).status)

    async def _create_scope(self, scope: str) -> None:
        status = (await self._call("createScope", pb.ScopeInfo(scope=scope))).status
        if status == pb.CreateScopeStatus.INVALID_SCOPE_NAME:
            raise fail(FailureCode.NOT_REPRESENTABLE, f"{self._upstream.where} accepts no scope named {scope!r:.80}")
        if status not in (pb.CreateScopeStatus.SUCCESS, pb.CreateScopeStatus.SCOPE_EXISTS):
            raise self._failed(f"create scope {scope}")

    async def delete(self, scope: str, stream: str) -> None:
        """Seal a stream and delete it. Raises STREAM_NOT_FOUND."""
        info = pb.StreamInfo(scope=scope, stream=stream)
        sealed = (await self._call("sealStream", info)).status
        if sealed in (pb.UpdateStreamStatus.STREAM_NOT_FOUND, pb.UpdateStreamStatus.SCOPE_NOT_FOUND):
            raise self._not_found(scope, stream)
        deleted = (await self._call("deleteStream", info)).status
        if deleted == pb.DeleteStreamStatus.STREAM_NOT_FOUND:
            raise self._not_found(scope, stream)
        if deleted != pb.DeleteStreamStatus.SUCCESS:
            raise self._failed(f"delete stream {scope}/{stream}")

    async def scopes(self) -> list[str]:
        """Return the names of all scopes."""
        names: list[str] = []
        token = pb.ContinuationToken()
        for _ in range(_MOST_PAGES):
            page = await self._call("listScopes", pb.ScopesRequest(continuationToken=token), idempotent=True)
            if not page.scopes:
                break
            names += page.scopes
            if self._is_last(page.continuationToken, token, names):
                break
            token = page.continuationToken
        return names

    async def streams(self, scope: str) -> list[str]:
        """Return the names of all streams of a scope, the controller's internal ones too. Raises BASIN_NOT_FOUND."""
        names: list[str] = []
        token = pb.ContinuationToken()
        for _ in range(_MOST_PAGES):
            request = pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope=scope), continuationToken=token)
            page = await self._call("listStreamsInScope", request, idempotent=True)
            if page.status == pb.StreamsInScopeResponse.SCOPE_NOT_FOUND:
                raise fail(FailureCode.BASIN_NOT_FOUND, f"{self._upstream.where}: there is no scope {scope}")
            if not page.streams:
                break
            names += [stream.stream for stream in page.streams]
            if self._is_last(page.continuationToken, token, names):
                break
            token = page.continuationToken
        return names

    def _is_last(self, following: pb.ContinuationToken, token: pb.ContinuationToken, names: list[str]) -> bool:
        """Return whether a page is the last. Raises UPSTREAM_FAULT above `_MOST_NAMES` names."""
        if len(names) > _MOST_NAMES:
            raise broke(self._upstream, f"it lists more than {_MOST_NAMES} names")
        return bool(following == token)

    # ---- segments ----------------------------------------------------------------------------------------------------

    async def where(self, segment: SegmentName) -> StoreAddress:
        """Return the store that serves a segment, or would serve it if it existed. Controllers may put an IPv6 address
        in brackets."""
        uri = await self._call("getURI", _id(segment), idempotent=True)
        return StoreAddress(uri.endpoint.removeprefix("[").removesuffix("]"), uri.port)

    async def first_segment(self, segment: SegmentName) -> SegmentName:
        """Return the current first segment of a stream; `segment` is the one that it has when new.

        A stream that was deleted and created again continues the numbers of its predecessor. Returns `segment` itself
        if there is no such stream or it has several segments.
        """
        request = pb.GetSegmentsRequest(streamInfo=pb.StreamInfo(scope=segment.scope, stream=segment.stream))
        try:
            ranges = (await self._call("getSegments", request, idempotent=True)).segments
        except OperationFailed as error:
            if error.failure.code is FailureCode.STREAM_NOT_FOUND:
                return segment
            raise
        first = [
            SegmentName.of_id(segment.scope, segment.stream, segment_range.segmentId.segmentId)
            for segment_range in ranges
        ]
        return first[0] if len(first) == 1 and first[0].epoch == 0 else segment

    async def successors(self, segment: SegmentName) -> list[SegmentName]:
        """Return the successors of a sealed segment; none if its stream is sealed."""
        ranges = (await self._call("getSegmentsImmediatelyFollowing", _id(segment), idempotent=True)).segments
        ids = sorted(segment_range.segment.segmentId.segmentId for segment_range in ranges)
        return [SegmentName.of_id(segment.scope, segment.stream, number) for number in ids]

    async def token(self, segment: SegmentName) -> str:
        """Return a delegation token for a stream, to be sent to the stores."""
        info = pb.StreamInfo(
            scope=segment.scope, stream=segment.stream, accessOperation=pb.StreamInfo.AccessOperation.READ_WRITE
        )
        return str((await self._call("getDelegationToken", info, idempotent=True)).delegationToken)

    # ---- calls -------------------------------------------------------------------------------------------------------

    async def _call(self, name: str, request: Message, *, idempotent: bool = False) -> Any:
        attempt = partial(unary, self._http, _METHODS[name], request, self._authorization)
        return await retrying(attempt, self._policy, idempotent=idempotent, back=self._upstream.name)

    def _failed(self, what: str) -> OperationFailed:
        return fail(FailureCode.OTHER, f"{self._upstream.where} failed to {what}")

    def _not_found(self, scope: str, stream: str) -> OperationFailed:
        return fail(FailureCode.STREAM_NOT_FOUND, f"{self._upstream.where}: there is no stream {scope}/{stream}")


def _id(segment: SegmentName) -> pb.SegmentId:
    return pb.SegmentId(streamInfo=pb.StreamInfo(scope=segment.scope, stream=segment.stream), segmentId=segment.id)


@asynccontextmanager
async def open_controller(upstream: Upstream, settings: SegmentBackSettings) -> AsyncIterator[ControllerClient]:
    """Open a client of the controller until the block ends."""
    async with HttpClient(upstream, HttpClientSettings(version=HttpVersion.H2)) as http:
        yield ControllerClient(http, settings)
