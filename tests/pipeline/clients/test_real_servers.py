"""The client of segments with servers that others wrote."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import uuid4

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from support.real_backs import LOOPBACK, PravegaStandalone

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_proto import pravega_controller_pb2 as pb
from penstock_spark.clients import Endpoint, ReadPosition, StreamClient, open_client

pytestmark = [pytest.mark.peer, pytest.mark.long]
SERVICE = pb.DESCRIPTOR.services_by_name["ControllerService"]
BODIES = [b"%d" % n * (1 + n % 300) for n in range(5000)]


@pytest.fixture(scope="module")
def pravega() -> Iterator[PravegaStandalone]:
    with PravegaStandalone() as server:
        yield server


def bodies(client: StreamClient, stream: str, start: ReadPosition, end: ReadPosition) -> list[bytes]:
    return [body for rows in client.read(stream, start, end) for body in rows.columns.bodies]


def call(port: int, name: str, request: Message) -> Message:
    """Call the controller through grpcio."""
    method = SERVICE.methods_by_name[name]
    answer = GetMessageClass(method.output_type)
    with grpc.insecure_channel(f"{LOOPBACK}:{port}") as channel:
        ask = channel.unary_unary(f"/{SERVICE.full_name}/{name}", type(request).SerializeToString, answer.FromString)
        return ask(request, timeout=30)


def failure_of(work: Callable[[], object]) -> FailureCode:
    with pytest.raises(OperationFailed) as raised:
        work()
    return raised.value.failure.code


@pytest.mark.timeout(300)
@pytest.mark.parametrize("by_controller", [False, True])
def test_a_real_segment_store(pravega: PravegaStandalone, by_controller: bool) -> None:
    assert pravega.controller is not None
    port = pravega.controller[1] if by_controller else pravega.address[1]
    stream = f"pipeline/stream-{by_controller}"
    with closing(open_client(Endpoint("segment", LOOPBACK, port, directory=by_controller))) as client:
        assert client.create(stream)
        assert not client.create(stream)
        assert client.first(stream) == client.tail(stream) == ReadPosition(0, "0")
        writer = uuid4()
        appender = client.numbered_appender(stream, writer)
        assert appender.last is None
        for start in range(0, 5000, 100):
            appender.append(BODIES[start : start + 100], (7 << 32) + start + 100)
        appender.flush()
        assert appender.acknowledged == 50
        tail = client.tail(stream)
        assert tail == ReadPosition(5000, str(sum(8 + len(body) for body in BODIES)))
        assert bodies(client, stream, ReadPosition(0, "0"), tail) == BODIES
        marks = [client.advance(stream, ReadPosition(0, "0"), count) for count in (0, 1, 2500, 5000)]
        assert [bodies(client, stream, *pair) for pair in itertools.pairwise(marks)] == [
            BODIES[:1],
            BODIES[1:2500],
            BODIES[2500:],
        ]
        # Two of one name: who comes second stores nothing.
        late, early = client.numbered_appender(stream, writer), client.numbered_appender(stream, writer)
        assert late.last == early.last == (7 << 32) + 5000
        early.append([b"more"], (8 << 32) + 1)
        early.flush()

        def go_on() -> None:
            late.append([b"more", b"and more"], (8 << 32) + 2)
            late.flush()

        assert failure_of(go_on) is FailureCode.STALE_WRITER_POSITION
        client.trim(stream, marks[2])
        assert client.first(stream).place == marks[2].place
        assert failure_of(lambda: bodies(client, stream, marks[1], tail)) is FailureCode.RANGE_NOT_SATISFIABLE
        assert bodies(client, stream, marks[2], client.tail(stream, tail)) == [*BODIES[2500:], b"more"]
        client.delete(stream)
        client.delete(stream)
        assert failure_of(lambda: client.tail(stream)) is FailureCode.STREAM_NOT_FOUND


@pytest.mark.timeout(300)
def test_a_real_controller_lists_streams_of_several_segments(pravega: PravegaStandalone) -> None:
    assert pravega.controller is not None
    port = pravega.controller[1]
    call(port, "createScope", pb.ScopeInfo(scope="listed"))
    for name, segments in (("one", 1), ("scaled", 1), ("two", 2)):
        stream = pb.StreamInfo(scope="listed", stream=name)
        scaling = pb.ScalingPolicy(minNumSegments=segments)
        call(port, "createStream", pb.StreamConfig(streamInfo=stream, scalingPolicy=scaling))
    halves = [pb.ScaleRequest.KeyRangeEntry(start=at, end=at + 0.5) for at in (0.0, 0.5)]
    scaled = pb.StreamInfo(scope="listed", stream="scaled")
    call(port, "scale", pb.ScaleRequest(streamInfo=scaled, sealedSegments=[0], newKeyRanges=halves))
    with closing(open_client(Endpoint("segment", LOOPBACK, port, directory=True))) as client:
        wanted = ["scaled", "scaled/1.#epoch.1", "scaled/2.#epoch.1", "two", "two/1.#epoch.0"]
        while len(found := list(client.streams("listed/"))) < 6:  # scaling goes on when the call has returned
            pass
        assert found == ["listed/one", *(f"listed/{name}" for name in wanted)]
        assert not list(client.streams("unlisted/"))
        for stream in found:
            if stream != "listed/scaled":  # that one is sealed
                appender = client.numbered_appender(stream, uuid4())
                appender.append([stream.encode()], 1)
                appender.flush()
            expected = [] if stream == "listed/scaled" else [stream.encode()]
            assert bodies(client, stream, ReadPosition(0, "0"), client.tail(stream)) == expected
