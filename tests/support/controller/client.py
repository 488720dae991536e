"""Calls of Pravega's clients to a controller, as they make them: gRPC over HTTP/2, in the messages of the schema."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from support.controller import SCOPE
from support.http.client import HttpClient

from penstock.wire.grpc import Code, GrpcError, MessageReader, frame
from penstock_proto import pravega_controller_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["ControllerService"]
HEADERS = [("te", "trailers"), ("content-type", "application/grpc")]

STREAM = pb.StreamInfo(scope=SCOPE, stream="stream")
MISSING = pb.StreamInfo(scope=SCOPE, stream="missing")
ONE = 1 << 32


def config(count: int, stream: pb.StreamInfo = STREAM, **more: Any) -> pb.StreamConfig:
    """Return a stream configuration with `count` segments."""
    return pb.StreamConfig(streamInfo=stream, scalingPolicy=pb.ScalingPolicy(minNumSegments=count), **more)


def cut(stream: pb.StreamInfo = STREAM, **offsets: int) -> pb.StreamCut:
    """Offsets by segment: `cut(s0=5)`."""
    return pb.StreamCut(streamInfo=stream, cut={int(name[1:]): offset for name, offset in offsets.items()})


def ids(ranges: pb.SegmentRanges) -> list[tuple[int, float, float]]:
    return [(each.segmentId.segmentId, each.minKey, each.maxKey) for each in ranges.segmentRanges]


class Ends:
    """`with Ends(Code.NOT_FOUND, "word"):` the call ends so."""

    def __init__(self, code: Code, text: str = "") -> None:
        self.code = code
        self.text = text

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        assert isinstance(error, GrpcError), error
        assert error.code is self.code, error
        assert self.text in error.message, error
        return True


class Client:
    """Makes calls. `await client.createScope(pb.ScopeInfo(scope="x"))` gives the answer, or raises GrpcError."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    def __getattr__(self, name: str) -> Any:
        async def call(request: Message, *headers: tuple[str, str]) -> Message:
            method = SERVICE.methods_by_name[name]
            assert request.DESCRIPTOR is method.input_type
            path = f"/{SERVICE.full_name}/{name}"
            answer = await self._http.ask("POST", path, [*HEADERS, *headers], frame(request.SerializeToString()))
            said = answer.trailers or answer.headers
            if said["grpc-status"] != "0":
                raise GrpcError(Code(int(said["grpc-status"])), said.get("grpc-message", ""))
            reader = MessageReader(None)
            reader.receive(answer.body)
            return GetMessageClass(method.output_type).FromString(reader.finish())

        return call
