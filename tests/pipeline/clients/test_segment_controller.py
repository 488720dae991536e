"""Streams of several segments, scaled streams, and controllers that say odd things."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from support.process import GatewayProcess
from support.scripted_servers import controller, segment_store

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.grpc import Code, GrpcError
from penstock_codecs.segment import released
from penstock_proto import pravega_controller_pb2 as pb
from penstock_spark.clients import Endpoint, ReadPosition
from penstock_spark.clients.segment.client import SegmentStreamClient

SERVICE = pb.DESCRIPTOR.services_by_name["ControllerService"]
EPOCH = 1 << 32


def rpc(port: int, name: str, request: Message) -> Any:
    """Call the controller through grpcio."""
    method = SERVICE.methods_by_name[name]
    answer = GetMessageClass(method.output_type)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(f"/{SERVICE.full_name}/{name}", type(request).SerializeToString, answer.FromString)
        return call(request, timeout=10)


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[SegmentStreamClient]:
    client = SegmentStreamClient(Endpoint("segment", "127.0.0.1", gateway.controller_port, directory=True))
    yield client
    client.close()


def test_streams_are_listed_by_segment_also_those_that_were_scaled(
    gateway: GatewayProcess, client: SegmentStreamClient
) -> None:
    scope, port = "pipeline-scope", gateway.controller_port
    rpc(port, "createScope", pb.ScopeInfo(scope=scope))
    for name, segments in (("two", 2), ("one", 1), ("scaled", 1), ("_mine", 1)):
        stream = pb.StreamInfo(scope=scope, stream=name)
        scaling = pb.ScalingPolicy(minNumSegments=segments)
        rpc(port, "createStream", pb.StreamConfig(streamInfo=stream, scalingPolicy=scaling))
    ranges = [pb.ScaleRequest.KeyRangeEntry(start=0, end=0.5), pb.ScaleRequest.KeyRangeEntry(start=0.5, end=1)]
    scale = pb.ScaleRequest(
        streamInfo=pb.StreamInfo(scope=scope, stream="scaled"), sealedSegments=[0], newKeyRanges=ranges
    )
    assert rpc(port, "scale", scale).status == pb.ScaleResponse.STARTED
    scaled = [f"{scope}/scaled", f"{scope}/scaled/1.#epoch.1", f"{scope}/scaled/2.#epoch.1"]
    assert list(client.streams(f"{scope}/")) == [
        f"{scope}/one",
        *scaled,
        f"{scope}/two",
        f"{scope}/two/1.#epoch.0",
    ]
    assert list(client.streams("pipeline-sc")) == list(client.streams(f"{scope}/"))
    assert list(client.streams(f"{scope}/sc")) == scaled
    assert list(client.streams(f"{scope}/scaled/")) == scaled[1:]
    assert list(client.streams("no-scope/")) == []
    for name in scaled[1:]:
        appender = client.numbered_appender(name, uuid4())
        appender.append([name.encode()], 1)
        appender.flush()
        tail = client.tail(name)
        assert [rows.columns.bodies for rows in client.read(name, ReadPosition(0, "0"), tail)] == [[name.encode()]]
    assert client.tail(scaled[0]) == ReadPosition(0, "0")


def test_scopes_come_with_the_first_stream(client: SegmentStreamClient) -> None:
    assert client.create("Pipeline.scope/stream")
    assert not client.create("Pipeline.scope/stream")
    assert list(client.streams("Pipeline.scope/")) == ["Pipeline.scope/stream"]
    client.delete("Pipeline.scope/stream")
    client.delete("No-scope/stream")


@pytest.mark.parametrize("name", ["stream", "a/b/c", "a/b/1.#epoch.x", "/", "a/b/0.#epoch.0#transaction.1", ""])
def test_what_can_be_no_stream_is_refused_by_name(client: SegmentStreamClient, name: str) -> None:
    with pytest.raises(OperationFailed, match=r"is neither scope/stream nor") as raised:
        client.first(name)
    assert raised.value.failure.code is FailureCode.INVALID


def test_a_controller_makes_whole_streams_only(client: SegmentStreamClient) -> None:
    for change in (client.create, client.delete):
        with pytest.raises(OperationFailed, match="is a segment, its stream is a/b"):
            change("a/b/1.#epoch.1")
    with pytest.raises(OperationFailed, match="does not create scope a b: INVALID_SCOPE_NAME"):
        client.create("a b/c")


# ---- scripts ---------------------------------------------------------------------------------------------------------


def client_of(port: int, token: str = "") -> SegmentStreamClient:
    """One that gives up at once."""
    return SegmentStreamClient(
        Endpoint("segment", "127.0.0.1", port, directory=True, token=token, recover_seconds=0.0, request_seconds=2.0)
    )


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", FailureCode.UNAVAILABLE, "HTTP/2"),
        (None, FailureCode.UNAVAILABLE, "pravega://"),
        (GrpcError(Code.NOT_FOUND, "gone"), FailureCode.STREAM_NOT_FOUND, "listScopes: gone"),
        (GrpcError(Code.UNAUTHENTICATED, "who?"), FailureCode.AUTHN, "who"),
        (GrpcError(Code.UNAVAILABLE, "later"), FailureCode.UNAVAILABLE, "later"),
        (pb.NodeUri(endpoint="x" * 9, port=1), FailureCode.OTHER, "a message of another kind"),
    ],
)
def test_what_controllers_say(answer: Any, code: FailureCode, text: str) -> None:
    def say(_name: str, _request: Message) -> Any:
        if isinstance(answer, GrpcError):
            raise answer
        return answer

    with controller(say) as server:
        client = client_of(server.port)
        with pytest.raises(OperationFailed, match=text) as raised:
            list(client.streams())
        assert raised.value.failure.code is code
        client.close()


def test_segments_that_move_are_found_again_and_tokens_are_had_anew() -> None:
    """The first store refuses; the controller names another one, and gives another token."""
    shown: list[str] = []

    def refuse(request: Any) -> Any:
        shown.append(request.delegation_token)
        return released.WrongHost(request.request_id, request.segment, "elsewhere")

    def expired_then(request: Any) -> Any:
        shown.append(request.delegation_token)
        if len(shown) == 2:
            return released.AuthTokenCheckFailed(request.request_id, "", 1)
        return released.StreamSegmentInfo(request.request_id, request.segment, True, False, False, 0, 7, 7)

    with segment_store(refuse) as one, segment_store(expired_then) as other:
        ports = iter([one.port, other.port, other.port])
        tokens = iter(["first", "second", "third"])

        def say(name: str, request: Any) -> Any:
            if name == "getURI":
                return pb.NodeUri(endpoint="127.0.0.1", port=next(ports))
            if name == "getDelegationToken":
                return pb.DelegationToken(delegationToken=next(tokens))
            location = pb.SegmentsAtTime.SegmentLocation(segmentId=pb.SegmentId(segmentId=3))
            return pb.SegmentsAtTime(segments=[location])

        with controller(say) as server:
            client = SegmentStreamClient(
                Endpoint("segment", "127.0.0.1", server.port, directory=True, token="user:secret")
            )
            assert client.first("scope/again") == ReadPosition(0, "7")
            client.close()
    assert shown == ["first", "second", "third"]


def test_a_listing_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_spark.clients.segment.controller._MOST_NAMES", 1000)
    calls = iter(range(10**6))

    def say(_name: str, _request: Message) -> Message:
        token = pb.ContinuationToken(token=str(next(calls)))
        return pb.ScopesResponse(scopes=["scope"] * 100, continuationToken=token)

    with controller(say) as server:
        client = client_of(server.port)
        with pytest.raises(OperationFailed, match="lists more than 1000 names"):
            list(client.streams())
        client.close()
