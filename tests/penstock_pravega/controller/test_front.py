"""The controller's calls about scopes, streams and segments, as clients make them."""

from __future__ import annotations

import typing

import pytest
import trio
import trio.testing
from support.controller import BASIN_SCOPE, SCOPE, content, event, write
from support.controller.client import MISSING, ONE, SERVICE, STREAM, Client, Ends, config, cut, ids
from support.http.client import serving

from penstock.backends.embedded import EmbeddedBack
from penstock.model.operations import CreateStream
from penstock.model.records import StreamRef
from penstock.wire.grpc import Code
from penstock_pravega.controller.controller import Advertised, ControllerSettings, SegmentsMode
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.front import ControllerFront
from penstock_pravega.controller.front.front import CALLS
from penstock_pravega.controller.front.scopes import host_of
from penstock_proto import pravega_controller_pb2 as pb

# ---- the table of calls ----


def test_every_call_of_the_schema_is_answered() -> None:
    assert CALLS.keys() == set(SERVICE.methods_by_name)


@pytest.mark.parametrize("name", CALLS)
def test_handlers_take_and_give_what_the_schema_says(name: str) -> None:
    hints = typing.get_type_hints(CALLS[name])
    method = SERVICE.methods_by_name[name]
    given = next(hint for key, hint in hints.items() if key in ("request", "_request"))
    assert given.DESCRIPTOR is method.input_type
    assert hints["return"].DESCRIPTOR is method.output_type


# ---- scopes ----


async def test_scopes(client: Client) -> None:
    status = pb.CreateScopeStatus
    assert await client.createScope(pb.ScopeInfo(scope=BASIN_SCOPE)) == status(status=status.SUCCESS)
    assert await client.createScope(pb.ScopeInfo(scope=BASIN_SCOPE)) == status(status=status.SCOPE_EXISTS)
    assert await client.createScope(pb.ScopeInfo(scope="a/b")) == status(status=status.INVALID_SCOPE_NAME)
    assert await client.checkScopeExists(pb.ScopeInfo(scope=SCOPE)) == pb.ExistsResponse(exists=True)
    assert await client.checkScopeExists(pb.ScopeInfo(scope="no")) == pb.ExistsResponse(exists=False)
    page = await client.listScopes(pb.ScopesRequest())
    assert list(page.scopes) == ["penstock", BASIN_SCOPE, SCOPE]
    assert page.continuationToken.token == SCOPE
    page = await client.listScopes(pb.ScopesRequest(continuationToken=page.continuationToken))
    assert list(page.scopes) == []
    assert page.HasField("continuationToken")


async def test_deleting_scopes(client: Client) -> None:
    status = pb.DeleteScopeStatus
    await client.createStream(config(1))
    assert await client.deleteScope(pb.ScopeInfo(scope=SCOPE)) == status(status=status.SCOPE_NOT_EMPTY)
    assert await client.deleteScope(pb.ScopeInfo(scope="no")) == status(status=status.SCOPE_NOT_FOUND)
    assert await client.deleteScopeRecursive(pb.ScopeInfo(scope=SCOPE)) == status(status=status.SUCCESS)
    again = await client.deleteScopeRecursive(pb.ScopeInfo(scope=SCOPE))
    assert again == status(status=status.SUCCESS), "as from Pravega: a repetition is no failure"
    await client.createScope(pb.ScopeInfo(scope=SCOPE))
    assert await client.deleteScope(pb.ScopeInfo(scope=SCOPE)) == status(status=status.SUCCESS)


# ---- streams ----


async def test_creating_streams(client: Client) -> None:
    status = pb.CreateStreamStatus
    assert await client.createStream(config(2)) == status(status=status.SUCCESS)
    assert await client.createStream(config(2)) == status(status=status.STREAM_EXISTS)
    elsewhere = pb.StreamInfo(scope="no", stream="x")
    assert await client.createStream(config(1, elsewhere)) == status(status=status.SCOPE_NOT_FOUND)
    odd = pb.StreamInfo(scope=SCOPE, stream="a b")
    assert await client.createStream(config(1, odd)) == status(status=status.INVALID_STREAM_NAME)
    with Ends(Code.INVALID_ARGUMENT, "minNumSegments"):
        await client.createStream(config(0, MISSING))
    with Ends(Code.INVALID_ARGUMENT, "7"):
        await client.createStream(config(1, MISSING, retentionPolicy=pb.RetentionPolicy(retentionType=7)))  # type: ignore[arg-type]
    assert await client.checkStreamExists(STREAM) == pb.ExistsResponse(exists=True)
    assert await client.checkStreamExists(MISSING) == pb.ExistsResponse(exists=False)


async def test_a_configuration_comes_back_as_it_was_given(client: Client) -> None:
    given = pb.StreamConfig(
        streamInfo=STREAM,
        scalingPolicy=pb.ScalingPolicy(
            scaleType=pb.ScalingPolicy.BY_RATE_IN_EVENTS_PER_SEC, targetRate=10, scaleFactor=2, minNumSegments=3
        ),
        retentionPolicy=pb.RetentionPolicy(
            retentionType=pb.RetentionPolicy.SIZE, retentionParam=2**40, retentionMax=2**63 - 1
        ),
        tags=pb.Tags(tag=["one", "two"]),
        timestampAggregationTimeout=5,
        rolloverSizeBytes=2**35,
    )
    await client.createStream(given)
    assert await client.getStreamConfiguration(STREAM) == given
    given.ClearField("retentionPolicy")
    await client.updateStream(given)
    assert await client.getStreamConfiguration(STREAM) == given
    with Ends(Code.NOT_FOUND, "tiny/missing"):
        await client.getStreamConfiguration(MISSING)


async def test_listing_streams(client: Client, back: EmbeddedBack) -> None:
    await client.createStream(config(2, tags=pb.Tags(tag=["red"])))
    await back.perform(CreateStream(StreamRef("penstock", "tiny/foreign")))
    request = pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope=SCOPE))
    page = await client.listStreamsInScope(request)
    assert [each.stream for each in page.streams] == ["foreign", "stream"]
    assert page.streams[0].scope == SCOPE
    assert page.continuationToken.token == "stream"
    request.continuationToken.CopyFrom(page.continuationToken)
    page = await client.listStreamsInScope(request)
    assert list(page.streams) == []
    assert page.HasField("continuationToken")
    tagged = await client.listStreamsInScopeForTag(
        pb.StreamsInScopeWithTagRequest(scope=pb.ScopeInfo(scope=SCOPE), tag="red")
    )
    assert [each.stream for each in tagged.streams] == ["stream"]
    page = await client.listStreamsInScope(pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope="no")))
    assert page.status == pb.StreamsInScopeResponse.SCOPE_NOT_FOUND


async def test_a_scope_is_deleted_as_the_java_client_deletes_it(client: Client) -> None:
    """It seals and deletes what is listed, then takes groups by their streams' names, and key-value tables if any."""
    scope = pb.ScopeInfo(scope=SCOPE)
    await client.createStream(config(2))
    for name in ("one", "two"):
        group = pb.ReaderGroupConfiguration(scope=SCOPE, readerGroupName=name, readerGroupId=name)
        await client.createReaderGroup(group)
    listed = [each.stream for each in (await client.listStreamsInScope(pb.StreamsInScopeRequest(scope=scope))).streams]
    assert listed == ["_RGone", "_RGtwo", "stream"]
    for stream in listed:
        named = pb.StreamInfo(scope=SCOPE, stream=stream)
        assert (await client.sealStream(named)).status == pb.UpdateStreamStatus.SUCCESS
        assert (await client.deleteStream(named)).status == pb.DeleteStreamStatus.SUCCESS
    tables = await client.listKeyValueTablesInScope(pb.KVTablesInScopeRequest(scope=scope))
    assert (tables.status, list(tables.kvtables)) == (pb.KVTablesInScopeResponse.SUCCESS, [])
    assert tables.HasField("continuationToken")
    for name in ("one", "two"):
        found = await client.getReaderGroupConfig(pb.ReaderGroupInfo(scope=SCOPE, readerGroup=name))
        gone = pb.ReaderGroupInfo(scope=SCOPE, readerGroup=name, readerGroupId=found.config.readerGroupId)
        assert (await client.deleteReaderGroup(gone)).status == pb.DeleteReaderGroupStatus.SUCCESS
    assert (await client.deleteScope(scope)).status == pb.DeleteScopeStatus.SUCCESS
    tables = await client.listKeyValueTablesInScope(pb.KVTablesInScopeRequest(scope=scope))
    assert tables.status == pb.KVTablesInScopeResponse.SCOPE_NOT_FOUND


async def test_updating_sealing_and_deleting_streams(client: Client) -> None:
    status, deleted = pb.UpdateStreamStatus, pb.DeleteStreamStatus
    await client.createStream(config(2))
    assert await client.updateStream(config(2)) == status(status=status.SUCCESS)
    assert await client.updateStream(config(2, MISSING)) == status(status=status.STREAM_NOT_FOUND)
    assert await client.deleteStream(STREAM) == deleted(status=deleted.STREAM_NOT_SEALED)
    assert await client.sealStream(STREAM) == status(status=status.SUCCESS)
    assert await client.sealStream(MISSING) == status(status=status.STREAM_NOT_FOUND)
    assert await client.updateStream(config(2)) == status(status=status.STREAM_SEALED)
    assert await client.deleteStream(STREAM) == deleted(status=deleted.SUCCESS)
    assert await client.deleteStream(STREAM) == deleted(status=deleted.STREAM_NOT_FOUND)


async def test_truncating_streams(client: Client, back: EmbeddedBack) -> None:
    status = pb.UpdateStreamStatus
    await client.createStream(config(1))
    await write(back, SCOPE, "stream", event(b"one") + event(b"two"))
    assert await client.truncateStream(cut(s0=11)) == status(status=status.SUCCESS)
    assert await content(back, SCOPE, "stream") == event(b"two")
    assert await client.truncateStream(cut(MISSING, s0=0)) == status(status=status.STREAM_NOT_FOUND)
    with Ends(Code.INVALID_ARGUMENT, "22 bytes"):
        await client.truncateStream(cut(s0=23))


# ---- segments ----


async def test_segments(client: Client, back: EmbeddedBack) -> None:
    await client.createStream(config(2))
    ranges = await client.getCurrentSegments(STREAM)
    assert ids(ranges) == [(0, 0.0, 0.5), (1, 0.5, 1.0)]
    assert ranges.segmentRanges[0].segmentId.streamInfo == STREAM
    await write(back, SCOPE, "stream", event(b"x"))
    await client.truncateStream(cut(s0=9, s1=0))
    head = await client.getSegments(pb.GetSegmentsRequest(streamInfo=STREAM))
    assert [(each.segmentId.segmentId, each.offset) for each in head.segments] == [(0, 9), (1, 0)]
    epoch = await client.getEpochSegments(pb.GetEpochSegmentsRequest(streamInfo=STREAM, epoch=0))
    assert ids(epoch) == ids(ranges)
    with Ends(Code.NOT_FOUND):
        await client.getEpochSegments(pb.GetEpochSegmentsRequest(streamInfo=STREAM, epoch=1))
    assert (await client.isSegmentValid(pb.SegmentId(streamInfo=STREAM, segmentId=1))).response
    assert not (await client.isSegmentValid(pb.SegmentId(streamInfo=STREAM, segmentId=2))).response
    assert (await client.isStreamCutValid(cut(s0=0, s1=0))).response
    assert not (await client.isStreamCutValid(cut(s0=0))).response


async def test_a_stream_that_is_not_there_fails_at_once(client: Client) -> None:
    """Other codes would be asked again for minutes (fact sheet 3.1)."""
    segment = pb.SegmentId(streamInfo=MISSING, segmentId=0)
    for call in (
        client.getCurrentSegments(MISSING),
        client.getSegments(pb.GetSegmentsRequest(streamInfo=MISSING)),
        client.getSegmentsImmediatelyFollowing(segment),
        client.isSegmentValid(segment),
        client.isStreamCutValid(cut(MISSING, s0=0)),
        client.getSegmentsBetween(pb.StreamCutRange(streamInfo=MISSING)),
        client.scale(pb.ScaleRequest(streamInfo=MISSING, sealedSegments=[0])),
        client.checkScale(pb.ScaleStatusRequest(streamInfo=MISSING)),
        client.createTransaction(pb.CreateTxnRequest(streamInfo=MISSING, lease=1000)),
        client.noteTimestampFromWriter(pb.TimestampFromWriter(writer="w", position=cut(MISSING))),
    ):
        with Ends(Code.NOT_FOUND):
            await call


@pytest.mark.parametrize("stream", ["", "a/b", "x y", "#", "_MARK", "_MARKmissing", "_RGmissing"])
async def test_names_without_a_stream(client: Client, stream: str) -> None:
    expected = Code.NOT_FOUND if stream.startswith("_") else Code.INVALID_ARGUMENT
    with Ends(expected):
        await client.getCurrentSegments(pb.StreamInfo(scope=SCOPE, stream=stream))


async def test_a_sealed_stream_has_no_segments_and_no_followers(client: Client) -> None:
    await client.createStream(config(2))
    await client.sealStream(STREAM)
    assert ids(await client.getCurrentSegments(STREAM)) == []
    following = await client.getSegmentsImmediatelyFollowing(pb.SegmentId(streamInfo=STREAM, segmentId=0))
    assert list(following.segments) == []
    unknown = await client.getSegmentsImmediatelyFollowing(pb.SegmentId(streamInfo=STREAM, segmentId=9))
    assert list(unknown.segments) == [], "of another stream that had this name"


async def test_scaling(client: Client) -> None:
    await client.createStream(config(2))
    halves = [pb.ScaleRequest.KeyRangeEntry(start=0.0, end=0.25), pb.ScaleRequest.KeyRangeEntry(start=0.25, end=0.5)]
    request = pb.ScaleRequest(streamInfo=STREAM, sealedSegments=[0], newKeyRanges=halves, scaleTimestamp=7)
    answer = await client.scale(request)
    assert answer.status == pb.ScaleResponse.STARTED
    assert answer.epoch == 0
    assert [each.segmentId.segmentId for each in answer.segments] == [ONE + 2, ONE + 3]
    for epoch, status in ((0, "SUCCESS"), (1, "IN_PROGRESS"), (2, "INVALID_INPUT")):
        found = await client.checkScale(pb.ScaleStatusRequest(streamInfo=STREAM, epoch=epoch))
        assert pb.ScaleStatusResponse.ScaleStatus.Name(found.status) == status
    for call in (client.getSegmentsImmediatelyFollowing, client.getSegmentsImmediatlyFollowing):
        following = await call(pb.SegmentId(streamInfo=STREAM, segmentId=0))
        assert [
            (each.segment.segmentId.segmentId, each.segment.minKey, each.segment.maxKey, list(each.value))
            for each in following.segments
        ] == [(ONE + 2, 0.0, 0.25, [0]), (ONE + 3, 0.25, 0.5, [0])]
    between = pb.StreamCutRange(streamInfo=STREAM, to={0: 0, 1: 0})
    assert [each.segmentId for each in (await client.getSegmentsBetween(between)).segments] == [0, 1]
    getattr(between, "from").update({1: 0, ONE + 2: 0, ONE + 3: 0})
    between.ClearField("to")
    assert [each.segmentId for each in (await client.getSegmentsBetween(between)).segments] == [1, ONE + 2, ONE + 3]
    del request.newKeyRanges[1]
    assert (await client.scale(request)).status == pb.ScaleResponse.PRECONDITION_FAILED, "that segment is no more"
    request.sealedSegments[:] = [1]
    assert (await client.scale(request)).status == pb.ScaleResponse.FAILURE, "it has other keys"
    await client.sealStream(STREAM)
    assert (await client.scale(request)).status == pb.ScaleResponse.FAILURE


# ---- where segments are ----


@pytest.mark.parametrize("stream", ["stream", "group_kvtable", "_RGgroup", "never heard of it"])
async def test_every_segment_is_where_the_client_came_from(client: Client, stream: str) -> None:
    """Also tables that no call created (fact sheet 3.1)."""
    where = await client.getURI(pb.SegmentId(streamInfo=pb.StreamInfo(scope="any", stream=stream), segmentId=5))
    assert where.port == 12345
    assert where.endpoint == "test"


@pytest.mark.parametrize("host", ["gateway.example", "2001:db8::1"])
async def test_every_segment_is_where_the_configuration_says(
    back: EmbeddedBack, clock: trio.testing.MockClock, host: str
) -> None:
    """An IPv6 address is in brackets, since clients append the port."""
    told = ControllerSettings(segments=SegmentsMode.SEPARATE, advertise=lambda: Advertised(host, 7777))
    async with serving(ControllerFront(Controller(back, told)).handle, "h2") as http:
        where = await Client(http).getURI(pb.SegmentId(streamInfo=STREAM))
        assert where == pb.NodeUri(endpoint=f"[{host}]" if ":" in host else host, port=7777)


async def test_the_only_controller_is_the_one_that_was_asked(client: Client) -> None:
    servers = await client.getControllerServerList(pb.ServerRequest())
    assert [each.endpoint for each in servers.nodeURI] == ["test"]


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("gateway.example:9191", ("gateway.example", 9191)),
        ("10.0.0.7", ("10.0.0.7", 9090)),
        ("[::1]:9191", ("[::1]", 9191)),
        ("", ("localhost", 9090)),
        ("host:port", ("localhost", 9090)),
        ("[::1", ("localhost", 9090)),
    ],
)
def test_hosts_by_which_clients_reached_us(authority: str, host: tuple[str, int]) -> None:
    assert host_of(authority) == host


async def test_credentials_are_not_looked_at(client: Client) -> None:
    token = await client.getDelegationToken(STREAM, ("authorization", "Basic bm9ib2R5OmtlZXBzIG91dA=="))
    assert token == pb.DelegationToken()


# ---- shutting down ----


async def test_new_calls_are_refused_while_it_drains(client: Client, front: ControllerFront) -> None:
    front.drain()
    with Ends(Code.UNAVAILABLE):
        await client.checkScopeExists(pb.ScopeInfo(scope=SCOPE))
