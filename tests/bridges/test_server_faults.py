"""Faults of servers behind the gateway are told as theirs, by every front: which back it was, and what was wrong."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc
import pytest
from support.process import BASIN, CONFIG, GatewayProcess, running_gateway
from support.s2.client import S2Client
from support.s3p.client import S3PClient, S3PError
from support.scripted_servers import Fixed, ScriptedServer, segment_store
from support.segment.client import ReleasedSocket

from penstock_pravega.codec import released
from penstock_proto import pravega_controller_pb2 as pb


class Fault(NamedTuple):
    """A server that sends the same bytes whatever it receives, for a `kind` of back.

    `says`: the bytes; `words`: text of the error; `closes`: whether it closes the connection afterwards. `lost`: the
    error is that of a lost server.
    """

    kind: str
    says: bytes
    words: str
    closes: bool = False
    lost: bool = False


def http(status: str, body: bytes = b"", **fields: str) -> bytes:
    """An answer over HTTP/1.1."""
    head = {"content-length": str(len(body)), **{name.replace("_", "-"): value for name, value in fields.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def message(type_id: int, length: int, body: bytes = b"") -> bytes:
    """A message of the segment protocol, by its header."""
    return type_id.to_bytes(4, "big") + length.to_bytes(4, "big") + body


HTTP_FAULTS = {
    "redirect": (http("302 Found", location="http://127.0.0.1:1/"), "302"),
    "page": (http("200 OK", b"<html>hello", content_type="text/html"), ""),
    "not-found": (http("404 Not Found", b"<html>no", content_type="text/html"), "404"),
    "bad-json": (http("200 OK", b'{"tail":', content_type="application/json"), ""),
    "other-json": (http("200 OK", b'{"tail":[]}', content_type="application/json"), ""),
    "malformed": (b"what is this\r\n\r\n", "violated the protocol"),
    "oversized": (http("200 OK", content_length=str(40 << 20)) + bytes(17 << 20), ""),
    "long-head": (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, "violated the protocol"),
}
FAULTS = {
    **{
        f"{kind}-{name}": Fault(kind, says, words, closes=name == "oversized")
        for kind in ("s2", "s2-sse")
        for name, (says, words) in HTTP_FAULTS.items()
    },
    "s2-truncated": Fault("s2", http("200 OK", b"{", content_length="100"), "", closes=True, lost=True),
    "s3p-oversized": Fault("s3p", b"*2\r\n$3\r\n1-0\r\n$2147483648\r\n", "2147483648"),
    "s3p-many": Fault("s3p", b"*2147483648\r\n", ""),
    "s3p-malformed": Fault("s3p", b"?what\r\n", ""),
    "s3p-page": Fault("s3p", http("400 Bad Request", b"<html>"), ""),
    "s3p-unknown": Fault("s3p", b"-ERR_WEIRD nobody knows\r\n", "ERR_WEIRD"),
    "s3p-refuses": Fault("s3p", b"-ERR_BAD_FORMAT what is this\r\n", "what is this"),
    "s3p-other": Fault("s3p", b"+OK\r\n", ""),
    "s3p-truncated": Fault("s3p", b"*2\r\n$3\r\n", "", closes=True, lost=True),
    "segment-no-hello": Fault("segment", message(12345, 0), ""),
    "segment-oversized": Fault("segment", message(-127 & 0xFFFFFFFF, 0x7FFFFFFF), ""),
    "segment-page": Fault("segment", http("400 Bad Request", b"<html>"), ""),
    "segment-truncated": Fault("segment", message(-127 & 0xFFFFFFFF, 8, b"x"), "", closes=True, lost=True),
    "controller-page": Fault("controller", http("400 Bad Request", b"<html>"), "violated the protocol"),
    "controller-malformed": Fault("controller", b"\0\0\0\xff\0\0\0\0\0" * 100 + b"what", ""),
}


def answers_other(request: Any) -> Any:
    """A segment store that answers what was not asked."""
    return released.SegmentDeleted(request.request_id, "some/other")


def table(name: str, kind: str, port: int) -> str:
    """The back and its route: all streams whose names begin with its name."""
    where = f'controller = "127.0.0.1:{port}"' if kind == "controller" else f'address = "127.0.0.1:{port}"'
    only = 'listeners = ["s2"]\nread_only = true\n' if kind == "s2-sse" else ""
    kind = "segment" if kind == "controller" else kind
    return (
        f'[backs.{name}]\nkind = "{kind}"\n{where}\nrequest_seconds = 3\nrecover_seconds = 1\nbreaker_failures = 1000\n'
        f'[[routes]]\nname = "{name}"\nbasin = "{BASIN}"\nmatch = "exact"\nstream = "{name}"\nback = "{name}"\n{only}'
    )


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    """One gateway before all of them; its own store has the rest."""
    with contextlib.ExitStack() as stack:
        text = CONFIG
        for name, fault in FAULTS.items():
            server = stack.enter_context(ScriptedServer(lambda fault=fault: Fixed(fault.says, fault.closes)))
            text += table(name, fault.kind, server.port)
        server = stack.enter_context(segment_store(answers_other))
        text += table("segment-other", "segment", server.port)
        text += f'[[routes]]\nname = "rest"\nbasin = "{BASIN}"\nback = "embedded"\n'
        yield stack.enter_context(running_gateway(text))


ALL = {**FAULTS, "segment-other": Fault("segment", b"", "SegmentDeleted")}
every = pytest.mark.parametrize("name", ALL)
others = pytest.mark.parametrize("name", [name for name, fault in ALL.items() if fault.kind != "s2-sse"])
"""A back that reads by SSE has S2's clients alone."""


def check_told(name: str, told: str) -> None:
    """It names the back, and says what was wrong."""
    assert f"back {name} at 127.0.0.1:" in told, told
    assert ALL[name].words in told, told


S2_CALLS: dict[str, Callable[[S2Client, str], Any]] = {
    "tail": lambda s2, name: s2.request("GET", f"/v1/streams/{name}/records/tail"),
    "read": lambda s2, name: s2.read(name, seq_num=0),
    "append": lambda s2, name: s2.append_json(name, {"records": [{"body": "x"}]}),
}


@pytest.mark.parametrize("call", S2_CALLS)
@every
def test_s2(gateway: GatewayProcess, name: str, call: str) -> None:
    if call == "append" and ALL[name].kind == "s2-sse":
        return  # it reads only
    answer = S2_CALLS[call](S2Client(("127.0.0.1", gateway.s2_port), BASIN), name)
    error = json.loads(answer.body)
    told = (answer.status, error["code"])
    expected = {(503, "unavailable"), (502, "hot_server")} if ALL[name].lost else {(502, "upstream_fault")}
    assert told in expected, error
    check_told(name, error["message"])


@others
def test_s3p(gateway: GatewayProcess, name: str) -> None:
    with S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
        reply = client.read(name)
        assert isinstance(reply, S3PError)
        assert reply.code == ("ERR_UNAVAILABLE" if ALL[name].lost else "ERR_UPSTREAM_FAULT"), reply
        check_told(name, reply.message)
        assert client.create(f"fine-{name}") == "OK", "the connection stays"


@others
def test_segments(gateway: GatewayProcess, name: str) -> None:
    segment = f"{BASIN}/{name}/0.#epoch.0"
    with ReleasedSocket(("127.0.0.1", gateway.segment_port)) as client:
        client.send(released.GetStreamSegmentInfo(client.next_id(), segment, ""))
        if ALL[name].lost:
            assert client.ended(20), "the client comes again"
        else:
            reply = client.reply()
            assert isinstance(reply, released.ErrorMessage), reply
            check_told(name, reply.message)


@others
def test_controller(gateway: GatewayProcess, name: str) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{gateway.controller_port}") as channel:
        call = channel.unary_unary(
            "/io.pravega.controller.stream.api.grpc.v1.ControllerService/createStream",
            request_serializer=pb.StreamConfig.SerializeToString,
            response_deserializer=pb.CreateStreamStatus.FromString,
        )
        info = pb.StreamInfo(scope=BASIN, stream=name)
        config = pb.StreamConfig(streamInfo=info, scalingPolicy=pb.ScalingPolicy(minNumSegments=1))
        with pytest.raises(grpc.RpcError) as failed:
            call(config, timeout=20)
        told = failed.value.code()
        assert told is (grpc.StatusCode.UNAVAILABLE if ALL[name].lost else grpc.StatusCode.INTERNAL), failed.value
        check_told(name, failed.value.details())
