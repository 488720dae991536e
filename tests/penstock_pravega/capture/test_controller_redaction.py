"""The controller's gRPC: tokens in its answers are found by the messages' descriptors."""

from __future__ import annotations

import gzip
from typing import Any

import hpack
import pytest
from hyperframe.frame import DataFrame, HeadersFrame, SettingsFrame
from support.captures.redaction import CLIENT, SERVER, Said, at_every_cut, leaks, redacted

from penstock.capture.redaction.protobuf import has_tokens
from penstock.capture.redaction.rules import RedactionRules
from penstock.wire.http import PREFACE
from penstock_pravega.capture.controller.redaction import ControllerBodies
from penstock_proto import pravega_controller_pb2 as controller

TOKEN = "hush.hush.hush"
PATH = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"


def framed(message: bytes, compressed: int = 0) -> bytes:
    return bytes((compressed,)) + len(message).to_bytes(4, "big") + message


def said(method: str, answer: bytes, encoding: str = "identity") -> Said:
    client, server = hpack.Encoder(), hpack.Encoder()
    head = [(":method", "POST"), (":path", PATH + method), ("content-type", "application/grpc")]
    back = [(":status", "200"), ("content-type", "application/grpc+proto"), ("grpc-encoding", encoding)]
    trailers = [("grpc-status", "0")]
    return [
        (CLIENT, PREFACE + SettingsFrame(0).serialize()),
        (SERVER, SettingsFrame(0).serialize()),
        (CLIENT, HeadersFrame(1, client.encode(head), flags=["END_HEADERS"]).serialize()),
        (CLIENT, DataFrame(1, framed(b"\x0a\x01x"), flags=["END_STREAM"]).serialize()),
        (SERVER, HeadersFrame(1, server.encode(back), flags=["END_HEADERS"]).serialize()),
        (SERVER, DataFrame(1, answer[:20]).serialize() + DataFrame(1, answer[20:]).serialize()),
        (SERVER, HeadersFrame(1, server.encode(trailers), flags=["END_HEADERS", "END_STREAM"]).serialize()),
    ]


def whole(parts: Said, sender: Any) -> bytes:
    return b"".join(data for one, data in parts if one is sender)


def segments(token: str) -> bytes:
    ranges = controller.SegmentRanges(delegationToken=token)
    ranges.segmentRanges.add(minKey=0.0, maxKey=1.0).segmentId.streamInfo.scope = "seen"
    return ranges.SerializeToString()


def token(value: str) -> bytes:
    return controller.DelegationToken(delegationToken=value).SerializeToString()


@pytest.mark.parametrize(("method", "make"), [("getCurrentSegments", segments), ("getDelegationToken", token)])
def test_tokens_in_answers(method: str, make: Any) -> None:
    conversation = said(method, framed(make(TOKEN)))
    client, server = at_every_cut(conversation, protocol="controller")
    assert client == whole(conversation, CLIENT)
    assert server == whole(said(method, framed(make("*" * len(TOKEN)))), SERVER)


def test_compressed_answers() -> None:
    ranges = controller.SegmentRanges.FromString(segments(TOKEN))
    for number in range(500):
        ranges.segmentRanges.add(minKey=number / 1000, maxKey=1 / (number + 1))
    message = gzip.compress(ranges.SerializeToString())
    conversation = said("getCurrentSegments", framed(message, 1), "gzip")
    _, server = redacted(conversation, protocol="controller", cuts=range(0, 9000, 50))
    assert not leaks(server, TOKEN.encode())
    at = server.index(b"\x1f\x8b")
    ranges.delegationToken = "*" * len(TOKEN)
    body = server[at - 5 :]
    size = int.from_bytes(body[1:5], "big")
    packed = body[5:20] + body[29 : 29 + size - 15]
    assert controller.SegmentRanges.FromString(gzip.decompress(packed)) == ranges


def test_every_token_of_the_contract_is_known() -> None:
    """This fails when a message with a token under another name is added."""
    names = {
        field.name
        for message in controller.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
        if "oken" in field.name and message.name != "ContinuationToken"
    }
    assert names == {"delegationToken", "continuationToken"}
    found = ControllerBodies().call(b"/x/getDelegationToken", request=False)
    assert found is not None
    assert has_tokens(found)


def test_responses_to_unrecorded_requests_are_blanked() -> None:
    conversation = [(sender, data) for sender, data in said("getURI", framed(token(TOKEN))) if sender is SERVER]
    _, server = redacted(conversation[1:], protocol="controller", start=99)
    assert TOKEN.encode() not in server


def test_patterns_in_requests() -> None:
    rules = RedactionRules(patterns=(rb"x",))
    client, _ = at_every_cut(said("createScope", framed(b"")), rules, "controller")
    assert client.endswith(framed(b"\x0a\x01*"))
