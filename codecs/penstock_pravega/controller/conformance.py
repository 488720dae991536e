"""Conformance cases of Pravega's controller, release 0.13: scopes, streams, segments, scaling and transactions.

The clauses are groups of its calls. Each case makes a scope of its own, or, if the URL names one, streams in that.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import trio
from google.protobuf.message import Message

from penstock.model.failures import FailureCode, OperationFailed
from penstock.net.grpc.unary import unary
from penstock.net.http.client import HttpClient, HttpVersion
from penstock.protocols.conformance import (
    Cases,
    Deviation,
    NotApplicable,
    Suite,
    TestedServer,
    require,
    require_equal,
    until,
)
from penstock_proto import pravega_controller_pb2 as pb

__all__ = ["SUITE"]

_METHODS: Final = pb.DESCRIPTOR.services_by_name["ControllerService"].methods_by_name
_MOST_PAGES: Final = 1000
_LEASE_MS: Final = 30_000
_NO_TRANSACTION: Final = pb.TxnId(highBits=1, lowBits=2)


class ControllerTestSession:
    """A case's client, and its scope and stream."""

    def __init__(self, server: TestedServer, http: HttpClient) -> None:
        self.scope = server.space or server.new_name()
        self.stream = server.new_name()
        self.patience = server.patience
        self.own_scope = server.space is None
        self._http = http

    async def call(self, name: str, request: Message) -> Any:
        """Make a call. Raises NotApplicable if the server lacks it, and OperationFailed for another failure."""
        try:
            return await unary(self._http, _METHODS[name], request)
        except OperationFailed as error:
            if error.failure.code is FailureCode.NOT_IMPLEMENTED:
                raise NotApplicable(error.failure.message) from None
            raise

    async def status(self, name: str, request: Message) -> str:
        """Make a call; return the name of the status in its answer."""
        response = await self.call(name, request)
        return str(response.DESCRIPTOR.fields_by_name["status"].enum_type.values_by_number[response.status].name)

    def info(self, **other: str) -> pb.StreamInfo:
        """Return the stream's name."""
        return pb.StreamInfo(**{"scope": self.scope, "stream": self.stream, **other})

    def config(self, segments: int = 1, tags: tuple[str, ...] = (), **other: str) -> pb.StreamConfig:
        """Return a configuration of the stream with a fixed number of segments."""
        policy = pb.ScalingPolicy(scaleType=pb.ScalingPolicy.FIXED_NUM_SEGMENTS, minNumSegments=segments)
        return pb.StreamConfig(streamInfo=self.info(**other), scalingPolicy=policy, tags=pb.Tags(tag=tags))

    async def created_scope(self) -> None:
        """Create the scope, unless the URL names it."""
        if self.own_scope:
            require_equal(await self.status("createScope", pb.ScopeInfo(scope=self.scope)), "SUCCESS")

    async def created(self, segments: int = 1, tags: tuple[str, ...] = ()) -> None:
        """Create the scope and the stream."""
        await self.created_scope()
        require_equal(await self.status("createStream", self.config(segments, tags)), "SUCCESS")

    async def segments(self) -> list[pb.SegmentRange]:
        """Return the current segments by their keys."""
        ranges = (await self.call("getCurrentSegments", self.info())).segmentRanges
        return sorted(ranges, key=lambda segment: segment.minKey)

    async def seal(self) -> None:
        """Seal the stream."""
        require_equal(await self.status("sealStream", self.info()), "SUCCESS")

    async def exists(self, name: str, request: Message) -> bool:
        """Return the answer to a question about existence."""
        return bool((await self.call(name, request)).exists)

    async def listed(self, name: str, page: Callable[[pb.ContinuationToken], Message], field: str) -> list[Any]:
        """Return all that a listing has, in as many pages as the server likes."""
        items: list[Any] = []
        token = pb.ContinuationToken()
        for _ in range(_MOST_PAGES):
            response = await self.call(name, page(token))
            if not getattr(response, field) or response.continuationToken == token:
                return items + [item for item in getattr(response, field) if item not in items]
            items += getattr(response, field)
            token = response.continuationToken
        raise Deviation(f"expected the end of the listing, got {_MOST_PAGES} pages")

    async def clean(self) -> None:
        """Delete the stream, and the scope if it is the case's own."""
        with suppress(OperationFailed, NotApplicable):  # the case has found that
            await self.call("sealStream", self.info())
            await self.call("deleteStream", self.info())
            if self.own_scope:
                await self.call("deleteScope", pb.ScopeInfo(scope=self.scope))


@asynccontextmanager
async def _session(server: TestedServer) -> AsyncIterator[ControllerTestSession]:
    async with server.http("controller", HttpVersion.H2) as http:
        session = ControllerTestSession(server, http)
        try:
            yield session
        finally:
            with trio.CancelScope(shield=True):
                await session.clean()


_CASES: Final = Cases[ControllerTestSession]()

# ---- scopes ----------------------------------------------------------------------------------------------------------


def _needs_own_scope(session: ControllerTestSession) -> pb.ScopeInfo:
    if not session.own_scope:
        raise NotApplicable("the URL names a scope")
    return pb.ScopeInfo(scope=session.scope)


@_CASES.case("scopes")
async def create_a_scope(session: ControllerTestSession) -> None:
    """A scope that is created exists, and is SCOPE_EXISTS afterwards."""
    scope = _needs_own_scope(session)
    require_equal(await session.exists("checkScopeExists", scope), False)
    require_equal([await session.status("createScope", scope) for _ in range(2)], ["SUCCESS", "SCOPE_EXISTS"])
    require_equal(await session.exists("checkScopeExists", scope), True)


@_CASES.case("scopes")
async def scope_of_an_invalid_name(session: ControllerTestSession) -> None:
    """A name with a slash is INVALID_SCOPE_NAME."""
    require_equal(await session.status("createScope", pb.ScopeInfo(scope="a/b")), "INVALID_SCOPE_NAME")


@_CASES.case("scopes")
async def list_scopes(session: ControllerTestSession) -> None:
    """A scope is listed once."""
    await session.created_scope()
    scopes = await session.listed("listScopes", lambda token: pb.ScopesRequest(continuationToken=token), "scopes")
    require_equal(scopes.count(session.scope), 1)


@_CASES.case("scopes")
async def delete_a_scope(session: ControllerTestSession) -> None:
    """A scope with a stream is SCOPE_NOT_EMPTY; without one it is deleted, and then SCOPE_NOT_FOUND."""
    scope = _needs_own_scope(session)
    await session.created()
    require_equal(await session.status("deleteScope", scope), "SCOPE_NOT_EMPTY")
    await session.seal()
    require_equal(await session.status("deleteStream", session.info()), "SUCCESS")
    require_equal([await session.status("deleteScope", scope) for _ in range(2)], ["SUCCESS", "SCOPE_NOT_FOUND"])


# ---- streams ---------------------------------------------------------------------------------------------------------


@_CASES.case("streams")
async def create_a_stream(session: ControllerTestSession) -> None:
    """A stream that is created exists, and is STREAM_EXISTS afterwards."""
    await session.created()
    require_equal(await session.exists("checkStreamExists", session.info()), True)
    require_equal(await session.status("createStream", session.config()), "STREAM_EXISTS")


@_CASES.case("streams")
async def stream_in_an_unknown_scope(session: ControllerTestSession) -> None:
    """A stream in a scope that does not exist is SCOPE_NOT_FOUND."""
    unknown = session.config(scope=f"{session.scope}-none")
    require_equal(await session.status("createStream", unknown), "SCOPE_NOT_FOUND")


@_CASES.case("streams")
async def stream_of_an_invalid_name(session: ControllerTestSession) -> None:
    """A name with a slash is INVALID_STREAM_NAME."""
    await session.created_scope()
    require_equal(await session.status("createStream", session.config(stream="a/b")), "INVALID_STREAM_NAME")


@_CASES.case("streams")
async def configuration_of_a_stream(session: ControllerTestSession) -> None:
    """The configuration is returned as it was given, and after an update as that gave it."""
    await session.created(2, ("a", "b"))
    for expected in (session.config(2, ("a", "b")), session.config(2, ("c",))):
        configuration = await session.call("getStreamConfiguration", session.info())
        require_equal(configuration.scalingPolicy, expected.scalingPolicy)
        require_equal(sorted(configuration.tags.tag), sorted(expected.tags.tag))
        require_equal(await session.status("updateStream", session.config(2, ("c",))), "SUCCESS")


@_CASES.case("streams")
async def list_streams(session: ControllerTestSession) -> None:
    """A scope's streams are listed, and those with a tag; an unknown scope is SCOPE_NOT_FOUND."""
    await session.created(1, ("a",))
    scope = pb.ScopeInfo(scope=session.scope)

    def page(token: pb.ContinuationToken) -> Message:
        return pb.StreamsInScopeRequest(scope=scope, continuationToken=token)

    require(
        session.stream in [stream.stream for stream in await session.listed("listStreamsInScope", page, "streams")],
        session.stream,
        "others",
    )
    for tag, expected in (("a", 1), ("b", 0)):

        def tagged(token: pb.ContinuationToken, tag: str = tag) -> Message:
            return pb.StreamsInScopeWithTagRequest(scope=scope, tag=tag, continuationToken=token)

        streams = await session.listed("listStreamsInScopeForTag", tagged, "streams")
        require_equal([stream.stream for stream in streams].count(session.stream), expected)
    unknown = pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope=f"{session.scope}-none"))
    require_equal(await session.status("listStreamsInScope", unknown), "SCOPE_NOT_FOUND")


@_CASES.case("streams")
async def delete_a_stream(session: ControllerTestSession) -> None:
    """A stream is deleted after it was sealed; before that it is STREAM_NOT_SEALED, and then STREAM_NOT_FOUND."""
    await session.created()
    require_equal(await session.status("deleteStream", session.info()), "STREAM_NOT_SEALED")
    await session.seal()
    statuses = [await session.status("deleteStream", session.info()) for _ in range(2)]
    require_equal(statuses, ["SUCCESS", "STREAM_NOT_FOUND"])
    require_equal(await session.exists("checkStreamExists", session.info()), False)


@_CASES.case("streams")
async def update_an_unknown_stream(session: ControllerTestSession) -> None:
    """An update and a seal of an unknown stream are STREAM_NOT_FOUND."""
    await session.created_scope()
    require_equal(await session.status("updateStream", session.config()), "STREAM_NOT_FOUND")
    require_equal(await session.status("sealStream", session.info()), "STREAM_NOT_FOUND")


# ---- segments --------------------------------------------------------------------------------------------------------


def _cover(ranges: list[pb.SegmentRange]) -> None:
    """Expect segments that have all keys from 0 to 1, each once."""
    edges = [0.0, *(segment.maxKey for segment in ranges)]
    require([segment.minKey for segment in ranges] == edges[:-1] and edges[-1] == 1.0, "all keys from 0 to 1", ranges)


@_CASES.case("segments")
async def segments_of_a_stream(session: ControllerTestSession) -> None:
    """A new stream has as many segments as its policy says, which have all keys, and the numbers from 0 on."""
    await session.created(3)
    ranges = await session.segments()
    _cover(ranges)
    require_equal(sorted(segment.segmentId.segmentId for segment in ranges), [0, 1, 2])


@_CASES.case("segments")
async def store_of_a_segment(session: ControllerTestSession) -> None:
    """Each segment has a store, with a host and a port."""
    await session.created()
    for segment in await session.segments():
        uri = await session.call("getURI", segment.segmentId)
        require(bool(uri.endpoint) and 0 < uri.port < 1 << 16, "a host and a port", uri)


@_CASES.case("segments")
async def valid_segments(session: ControllerTestSession) -> None:
    """A current segment is valid, and an unknown one is not."""
    await session.created()
    for number, expected in ((0, True), (77, False)):
        segment = pb.SegmentId(streamInfo=session.info(), segmentId=number)
        require_equal((await session.call("isSegmentValid", segment)).response, expected)


@_CASES.case("segments")
async def head_of_a_stream(session: ControllerTestSession) -> None:
    """The head of a new stream is offset 0 of each segment."""
    await session.created(2)
    ranges = (await session.call("getSegments", pb.GetSegmentsRequest(streamInfo=session.info()))).segments
    require_equal(sorted((segment.segmentId.segmentId, segment.offset) for segment in ranges), [(0, 0), (1, 0)])


@_CASES.case("segments")
async def segments_of_a_sealed_stream(session: ControllerTestSession) -> None:
    """A sealed stream has no current segments, and its last ones have no successors."""
    await session.created()
    [segment] = await session.segments()
    await session.seal()
    require_equal(await session.segments(), [])
    require_equal(list((await session.call("getSegmentsImmediatelyFollowing", segment.segmentId)).segments), [])


@_CASES.case("segments")
async def valid_cuts(session: ControllerTestSession) -> None:
    """A stream cut is valid if its segments have all keys."""
    await session.created(2)
    for cut, expected in (({0: 0, 1: 0}, True), ({0: 0}, False)):
        request = pb.StreamCut(streamInfo=session.info(), cut=cut)
        require_equal((await session.call("isStreamCutValid", request)).response, expected)


# ---- scaling ---------------------------------------------------------------------------------------------------------


def _scaling(session: ControllerTestSession, sealed: int, *edges: float) -> pb.ScaleRequest:
    """Return a request to replace a segment by those between the edges."""
    ranges = [pb.ScaleRequest.KeyRangeEntry(start=a, end=b) for a, b in itertools.pairwise(edges)]
    return pb.ScaleRequest(streamInfo=session.info(), sealedSegments=[sealed], newKeyRanges=ranges)


@_CASES.case("scaling")
async def split_a_segment(session: ControllerTestSession) -> None:
    """A split replaces the segment by others of the next epoch, which succeed it and have its keys."""
    await session.created()
    [old] = await session.segments()
    response = await session.call("scale", _scaling(session, old.segmentId.segmentId, 0.0, 0.5, 1.0))
    require_equal(response.status, pb.ScaleResponse.STARTED)

    async def scaled() -> bool:
        asked = pb.ScaleStatusRequest(streamInfo=session.info(), epoch=response.epoch)
        status = (await session.call("checkScale", asked)).status
        require(status <= pb.ScaleStatusResponse.SUCCESS, "SUCCESS", status)
        return bool(status == pb.ScaleStatusResponse.SUCCESS)

    await until(scaled, session.patience, "SUCCESS of checkScale")
    ranges = await session.segments()
    _cover(ranges)
    require_equal([segment.segmentId.segmentId >> 32 for segment in ranges], [1, 1])
    after = (await session.call("getSegmentsImmediatelyFollowing", old.segmentId)).segments
    successors = sorted((segment.segment.segmentId.segmentId, tuple(segment.value)) for segment in after)
    expected = sorted((segment.segmentId.segmentId, (old.segmentId.segmentId,)) for segment in ranges)
    require_equal(successors, expected)


@_CASES.case("scaling")
async def split_with_a_gap(session: ControllerTestSession) -> None:
    """A split that leaves keys without a segment, and one of an unknown segment, is not started."""
    await session.created()
    for request in (_scaling(session, 0, 0.0, 0.5), _scaling(session, 77, 0.0, 0.5, 1.0)):
        status = (await session.call("scale", request)).status
        require(status != pb.ScaleResponse.STARTED, "PRECONDITION_FAILED or FAILURE", status)
    require_equal([segment.segmentId.segmentId for segment in await session.segments()], [0])


# ---- transactions ----------------------------------------------------------------------------------------------------


async def _begun(session: ControllerTestSession) -> pb.TxnId:
    await session.created()
    response = await session.call("createTransaction", pb.CreateTxnRequest(streamInfo=session.info(), lease=_LEASE_MS))
    require_equal([segment.segmentId.segmentId for segment in response.activeSegments], [0])
    await _reaches(session, response.txnId, pb.TxnState.OPEN)
    txn_id: pb.TxnId = response.txnId
    return txn_id


def _about(session: ControllerTestSession, transaction: pb.TxnId) -> pb.TxnRequest:
    return pb.TxnRequest(streamInfo=session.info(), txnId=transaction)


async def _reaches(session: ControllerTestSession, transaction: pb.TxnId, state: int) -> None:
    async def reached() -> bool:
        return bool((await session.call("checkTransactionState", _about(session, transaction))).state == state)

    await until(reached, session.patience, f"a transaction in state {pb.TxnState.State.Name(state)}")


@_CASES.case("transactions")
async def commit_a_transaction(session: ControllerTestSession) -> None:
    """A transaction is open, and after its commit committed."""
    transaction = await _begun(session)
    require_equal(await session.status("commitTransaction", _about(session, transaction)), "SUCCESS")
    await _reaches(session, transaction, pb.TxnState.COMMITTED)


@_CASES.case("transactions")
async def abort_a_transaction(session: ControllerTestSession) -> None:
    """A transaction is aborted after its abort, and cannot be committed any more."""
    transaction = await _begun(session)
    require_equal(await session.status("abortTransaction", _about(session, transaction)), "SUCCESS")
    await _reaches(session, transaction, pb.TxnState.ABORTED)
    status = await session.status("commitTransaction", _about(session, transaction))
    require(status != "SUCCESS", "no commit after the abort", status)


@_CASES.case("transactions")
async def ping_a_transaction(session: ControllerTestSession) -> None:
    """A ping of an open transaction is OK, and one with a lease beyond any limit LEASE_TOO_LARGE."""
    transaction = await _begun(session)
    for lease, expected in ((_LEASE_MS, "OK"), (1 << 40, "LEASE_TOO_LARGE")):
        request = pb.PingTxnRequest(streamInfo=session.info(), txnId=transaction, lease=lease)
        require_equal(await session.status("pingTransaction", request), expected)


@_CASES.case("transactions")
async def unknown_transaction(session: ControllerTestSession) -> None:
    """A commit and an abort of an unknown transaction are TRANSACTION_NOT_FOUND."""
    await session.created()
    for name in ("commitTransaction", "abortTransaction"):
        require_equal(await session.status(name, _about(session, _NO_TRANSACTION)), "TRANSACTION_NOT_FOUND")


SUITE: Final = Suite(
    title="Pravega's controller",
    source="the calls of release 0.13",
    clauses={
        "scopes": "Scopes",
        "streams": "Streams",
        "segments": "Segments and cuts",
        "scaling": "Scaling",
        "transactions": "Transactions",
    },
    cases=tuple(_CASES.found),
    session=_session,
)
