"""The controller of segment stores, as its client: which streams there are, and where their segments live."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from penstock.backs.http import HttpClient, HttpClientSettings, HttpVersion
from penstock.backs.retries import RetryPolicy, retrying
from penstock.backs.segment.settings import SegmentBackSettings
from penstock.backs.upstream import Upstream
from penstock.routing.segments import SegmentName
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.grpc import (
    MAX_MESSAGE,
    GrpcError,
    MessageReader,
    basic,
    call_headers,
    error_in,
    failure_code,
    frame,
)
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["Address", "ControllerClient", "open_controller"]

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["ControllerService"]
_MOST_PAGES: Final = 100_000
"""Of a listing, in case that it never ends."""
_MOST_NAMES: Final = 1_000_000
"""Of a listing, since they have to be put in order here; about 100 bytes each."""


class Address(NamedTuple):
    """Where a segment store listens."""

    host: str
    port: int


class ControllerClient:
    """Calls to one controller. All methods raise OperationFailed."""

    def __init__(self, http: HttpClient, settings: SegmentBackSettings) -> None:
        self._http = http
        self._upstream = http.upstream.settings
        self._authorization = None if settings.username is None else basic(settings.username, settings.password)
        self._policy = RetryPolicy(total_seconds=min(settings.recover_seconds, self._upstream.request_seconds))

    # ---- streams -----------------------------------------------------------------------------------------------------

    async def create(self, scope: str, stream: str) -> bool:
        """Create a stream of one segment, and its scope where there is none; False where the stream was there."""
        status = await self._create_stream(scope, stream)
        if status == pb.CreateStreamStatus.SCOPE_NOT_FOUND:
            await self._create_scope(scope)
            status = await self._create_stream(scope, stream)
        if status == pb.CreateStreamStatus.INVALID_STREAM_NAME:
            raise fail(FailureCode.NOT_REPRESENTABLE, f"{self._upstream.where} takes no stream named {stream!r:.80}")
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
            raise fail(FailureCode.NOT_REPRESENTABLE, f"{self._upstream.where} takes no scope named {scope!r:.80}")
        if status not in (pb.CreateScopeStatus.SUCCESS, pb.CreateScopeStatus.SCOPE_EXISTS):
            raise self._failed(f"create scope {scope}")

    async def delete(self, scope: str, stream: str) -> None:
        """Seal a stream and delete it. STREAM_NOT_FOUND."""
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
        """All of them."""
        found: list[str] = []
        token = pb.ContinuationToken()
        for _ in range(_MOST_PAGES):
            page = await self._call("listScopes", pb.ScopesRequest(continuationToken=token), idempotent=True)
            if not page.scopes:
                break
            found += page.scopes
            if self._is_last(page.continuationToken, token, found):
                break
            token = page.continuationToken
        return found

    async def streams(self, scope: str) -> list[str]:
        """All streams of a scope, also those that the controller made for itself. BASIN_NOT_FOUND."""
        found: list[str] = []
        token = pb.ContinuationToken()
        for _ in range(_MOST_PAGES):
            request = pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope=scope), continuationToken=token)
            page = await self._call("listStreamsInScope", request, idempotent=True)
            if page.status == pb.StreamsInScopeResponse.SCOPE_NOT_FOUND:
                raise fail(FailureCode.BASIN_NOT_FOUND, f"{self._upstream.where}: there is no scope {scope}")
            if not page.streams:
                break
            found += [one.stream for one in page.streams]
            if self._is_last(page.continuationToken, token, found):
                break
            token = page.continuationToken
        return found

    def _is_last(self, following: pb.ContinuationToken, token: pb.ContinuationToken, found: list[str]) -> bool:
        """Whether a page is not followed by another. Raises LIMIT_EXCEEDED for names without end."""
        if len(found) > _MOST_NAMES:
            raise fail(FailureCode.LIMIT_EXCEEDED, f"{self._upstream.where} lists more than {_MOST_NAMES} names")
        return bool(following == token)

    # ---- segments ----------------------------------------------------------------------------------------------------

    async def where(self, segment: SegmentName) -> Address:
        """The store that serves a segment; of one that is not there, the store that would."""
        uri = await self._call("getURI", _id(segment), idempotent=True)
        return Address(uri.endpoint, uri.port)

    async def first_segment(self, segment: SegmentName) -> SegmentName:
        """The first segment of a stream, by the name that it would have in a stream that is new: `segment`.

        A stream that was deleted and created again goes on with the numbers of the one before. Of one that is not
        there, or has several segments, `segment` itself.
        """
        request = pb.GetSegmentsRequest(streamInfo=pb.StreamInfo(scope=segment.scope, stream=segment.stream))
        try:
            found = (await self._call("getSegments", request, idempotent=True)).segments
        except OperationFailed as error:
            if error.failure.code is FailureCode.STREAM_NOT_FOUND:
                return segment
            raise
        first = [SegmentName.of_id(segment.scope, segment.stream, one.segmentId.segmentId) for one in found]
        return first[0] if len(first) == 1 and first[0].epoch == 0 else segment

    async def successors(self, segment: SegmentName) -> list[SegmentName]:
        """The segments that follow a sealed one; none where its stream is sealed."""
        found = (await self._call("getSegmentsImmediatelyFollowing", _id(segment), idempotent=True)).segments
        ids = sorted(one.segment.segmentId.segmentId for one in found)
        return [SegmentName.of_id(segment.scope, segment.stream, number) for number in ids]

    async def token(self, segment: SegmentName) -> str:
        """A delegation token for a stream, to be shown to the stores."""
        info = pb.StreamInfo(
            scope=segment.scope, stream=segment.stream, accessOperation=pb.StreamInfo.AccessOperation.READ_WRITE
        )
        return str((await self._call("getDelegationToken", info, idempotent=True)).delegationToken)

    # ---- calls -------------------------------------------------------------------------------------------------------

    async def _call(self, name: str, request: Message, *, idempotent: bool = False) -> Any:
        attempt = partial(self._call_once, name, request)
        return await retrying(attempt, self._policy, idempotent=idempotent, back=self._upstream.name)

    async def _call_once(self, name: str, request: Message) -> Any:
        seconds = self._upstream.request_seconds
        answer = await self._http.request(
            "POST",
            f"/{_SERVICE.full_name}/{name}",
            call_headers(seconds, self._authorization),
            frame(request.SerializeToString()),
            max_body=MAX_MESSAGE + 5,
        )
        if answer.header("grpc-status") is None and answer.status != 200:
            raise fail(FailureCode.OTHER, f"{self._upstream.where} answers {name} with HTTP status {answer.status}")
        said = answer.trailers or answer.headers
        try:
            error = error_in(said)
            if error is not None:
                raise error
            reader = MessageReader(answer.header("grpc-encoding"))
            reader.receive(answer.body)
            return GetMessageClass(_SERVICE.methods_by_name[name].output_type).FromString(reader.finish())
        except GrpcError as error:
            code = failure_code(error.code)
            raise fail(code, f"{self._upstream.where}: {name}: {error.message or error.code.name}") from None
        except DecodeError:
            raise fail(
                FailureCode.OTHER, f"{self._upstream.where} answers {name} with no message of its kind"
            ) from None

    def _failed(self, what: str) -> OperationFailed:
        return fail(FailureCode.OTHER, f"{self._upstream.where} failed to {what}")

    def _not_found(self, scope: str, stream: str) -> OperationFailed:
        return fail(FailureCode.STREAM_NOT_FOUND, f"{self._upstream.where}: there is no stream {scope}/{stream}")


def _id(segment: SegmentName) -> pb.SegmentId:
    return pb.SegmentId(streamInfo=pb.StreamInfo(scope=segment.scope, stream=segment.stream), segmentId=segment.id)


@asynccontextmanager
async def open_controller(upstream: Upstream, settings: SegmentBackSettings) -> AsyncIterator[ControllerClient]:
    """A client of the controller until the block ends."""
    async with HttpClient(upstream, HttpClientSettings(version=HttpVersion.H2)) as http:
        yield ControllerClient(http, settings)
