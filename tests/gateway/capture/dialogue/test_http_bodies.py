"""Other bodies in a dialogue: JSON and protobuf, event streams, gRPC calls; and what is wrong in them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest
import zstandard
from hyperframe.frame import DataFrame, SettingsFrame
from support.captures.dialogues import CLIENT, SERVER, Said, conversation, cut_up, events, hear, parts
from support.http.h2_frames import headers
from support.http.messages import (
    EVENTS,
    INPUT,
    JSON,
    LAST,
    OPEN,
    PROTO,
    SESSION,
    ack,
    answer,
    batch,
    chunk,
    heard,
    known,
    request,
    whole,
)
from support.s2.frames import encode_frame

from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.http.dialogue import HttpDialogue
from penstock.capture.pcapng import Closed, Conversation, Sender
from penstock.wire.grpc import frame
from penstock.wire.http import PREFACE
from penstock_proto import pravega_controller_pb2 as pravega

# ---- bodies that are one message -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "wrong", "rule"),
    [
        (b'{"records":[{]}', b"]}", "object keys must be strings"),
        (b'{"records":[{"body":"x"}, {"timestamp":"a"}]}', b'"a"', "Expected `int | null`, got `str`"),
        (b'{"x":[{"a":"]}"},1], "records" : [{"headers":[["a","b"],["c"]]}]}', b'["c"]', "`array` of length 2"),
        (b'{"records":[{"body":"\xff"}]}', b"\xff", "can't decode byte 0xff"),
        (b'{"recs":[]}', b"{", "missing required field"),
        (b"[]", b"[]", "Expected `object`"),
    ],
)
def test_the_first_wrong_byte_of_json_is_told(body: bytes, wrong: bytes, rule: str) -> None:
    said = whole(request("POST", JSON), body)
    error = b'{"code":"bad_json","message":"m"}'
    told, (problem,), _ = heard((CLIENT, said), (SERVER, answer(400, "application/json", error)))
    assert rule in problem.rule
    assert problem.offset == len(said) - len(body) + body.index(wrong)
    assert problem.context == body
    assert [(each.kind, each.failure) for each in told if each.failure] == [
        ("400", "400: Bad Request"),
        ("Error", "bad_json: m"),
    ]


def test_json_that_is_cut_short_is_wrong_at_its_end() -> None:
    said = whole(request("POST", JSON), b'{"records":[')
    _, (problem,), _ = heard((CLIENT, said))
    assert problem.offset == len(said)


def test_base64_that_is_none() -> None:
    body = b'{"records":[{"body":"AAAA"},{"headers":[["AAAA","!"]]}]}'
    said = whole(request("POST", JSON, "s2-format: base64"), body)
    _, (problem,), _ = heard((CLIENT, said))
    assert problem.rule == "invalid Base64 encoding in records[1].headers[0]"
    assert problem.offset == said.index(b'["AAAA"')


def test_protobuf_bodies_and_their_first_wrong_byte() -> None:
    said = whole(request("POST", PROTO), INPUT)
    told, problems, records = heard((CLIENT, said), (SERVER, answer(200, "application/x-protobuf", ack(4, 6))))
    assert not problems
    assert known(records) == [(b"one", 4, 9, True, ""), (b"two", 5, 9, True, "")]
    assert told[1].fields["records"] == 2
    bad = whole(request("POST", PROTO), INPUT + b"\x0a\x7f")
    _, (problem,), _ = heard((CLIENT, bad))
    assert problem.offset == len(bad) - 1
    assert problem.rule == "AppendInput.records takes 127 bytes, 0 are left"


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_compressed_bodies_are_opened(coding: str, pack: Any) -> None:
    body = pack(batch(7, b"a" * 2000, b"b"))
    said = answer(200, "application/protobuf", body, f"content-encoding: {coding}")
    told, problems, records = heard((CLIENT, request("GET", "accept: application/protobuf")), (SERVER, said))
    assert not problems
    assert known(records) == [(b"a" * 2000, 7, 9, True, ""), (b"b", 8, 9, True, "")]
    assert (told[-1].kind, told[-1].fields["bytes"]) == ("ReadBatch", len(body))
    damaged = answer(200, "application/protobuf", body[:-4], f"content-encoding: {coding}")
    _, (problem,), _ = heard((CLIENT, request("GET", "accept: application/protobuf")), (SERVER, damaged))
    assert problem.offset == len(damaged) - len(body) + 4


def test_bombs_do_not_go_off() -> None:
    bomb = gzip.compress(b"[" * (10 << 20))
    _, (problem,), _ = heard((CLIENT, whole(request("POST", JSON, "content-encoding: gzip"), bomb)))
    assert "exceeds 2097152 bytes" in problem.rule


def test_a_body_that_is_one_message_is_not_held_without_bound() -> None:
    of = conversation("s2")
    body = b" " * 65_536
    first = request("POST", JSON, "transfer-encoding: chunked")
    said = [(CLIENT, first), *[(CLIENT, chunk(body))] * 40, (CLIENT, LAST)]
    told, (problem,), _ = parts(hear(HttpDialogue(of), events(of, said)))
    assert "at most 2097152 bytes" in problem.rule
    assert (problem.exchange, problem.fatal) == (1, True)
    assert [each.kind for each in told] == ["POST", "END"]


@pytest.mark.parametrize(
    ("fields", "content_type"),
    [(("content-type: text/plain",), "text/plain"), ((JSON, "content-encoding: br"), "application/json"), ((), "")],
)
def test_undecoded_bytes_are_counted(fields: tuple[str, ...], content_type: str) -> None:
    told, problems, _ = heard((CLIENT, whole(request("POST", *fields), b"x" * 100)))
    assert not problems
    assert (told[-1].kind, told[-1].fields) == ("body", {"bytes": 100, "content_type": content_type})


def test_the_control_plane_is_told_by_what_it_says() -> None:
    created = {"stream": "new", "config": {"retention_policy": {"age": 5}}}
    info = {"name": "new", "created_at": "2026-01-01T00:00:00Z", "deleted_at": None}
    told, problems, _ = heard(
        (CLIENT, whole(request("POST", JSON, path="/v1/streams"), json.dumps(created).encode())),
        (SERVER, answer(201, "application/json", json.dumps(info).encode())),
        (CLIENT, request("GET", path="/v1/basins?prefix=x")),
        (SERVER, answer(200, "application/json", b'{"basins":[],"has_more":false}')),
        (CLIENT, request("GET", path="/v1/streams/new")),
        (SERVER, answer(200, "application/json", b"[1]")),
        (CLIENT, request("GET", path="/v1/streams/new")),
        (SERVER, answer(200, "application/json", b"{nope")),
    )
    assert [(each.rule, each.offset) for each in problems] == [
        ("JSON is malformed: object keys must be strings (byte 1)", told[-2].offset + told[-2].length + 1)
    ]
    bodies = [each for each in told if not each.kind.isdigit() and each.kind not in ("GET", "POST", "END")]
    assert [(each.kind, each.stream, each.fields) for each in bodies] == [
        ("CreateStreamRequest", "basin-one/new", created),
        ("StreamInfo", "basin-one/new", info),
        ("ListBasinsResponse", "", {"basins": [], "has_more": False}),
        ("StreamConfig", "basin-one/new", {"value": [1]}),
    ]


def test_the_protocol_of_a_conversation_is_respected() -> None:
    """The management endpoints are no S2."""
    of = conversation("management")
    said: Said = [(CLIENT, request("GET")), (SERVER, answer(200, "application/json", b'{"records":[]}'))]
    told, _, _ = parts(hear(HttpDialogue(of), events(of, said)))
    assert [(each.kind, each.stream) for each in told] == [("GET", ""), ("200", ""), ("body", "")]


# ---- event streams -------------------------------------------------------------------------------------------------


def test_an_event_that_says_nonsense_is_not_the_others() -> None:
    records = '{"records":[{"seq_num":%d,"timestamp":9,"body":"x"}]}'
    good = f"event: batch\nid: 4,1,9\ndata: {records % 4}\n\n".encode()
    bad = b"event: batch\ndata: {nope\n\n"
    odd = f"event: batch\nid: 9,1,9\ndata: {records % 5}\n\n".encode()
    said = EVENTS + chunk(good + bad + odd + b": comment\n\n" + good + b"data: [DONE]\n\n") + LAST
    told, problems, seen = heard((CLIENT, request("GET", "accept: text/event-stream")), (SERVER, said))
    assert [(each.offset, each.fatal, each.exchange) for each in problems] == [
        (said.index(bad), False, 1),
        (said.index(odd), False, 1),
    ]
    assert [each.kind for each in told] == ["GET", "200", "batch", "batch", "done", "END"]
    assert known(seen) == [(b"x", 4, 9, True, "")] * 2


def test_an_event_stream_that_just_ends() -> None:
    ping = b'event: ping\ndata: {"timestamp":5,"tail":{"seq_num":1,"timestamp":2}}\n\n'
    told, (problem,), _ = heard((CLIENT, request("GET")), (SERVER, EVENTS + chunk(ping) + LAST))
    assert told[2].fields == {"timestamp": 5, "tail": {"seq_num": 1, "timestamp": 2}}
    assert (problem.offset, problem.fatal) == (told[-1].offset, False)


def test_an_error_event_is_a_failure() -> None:
    error = b'event: error\ndata: {"code":"unavailable","message":"gone"}\n\n'
    told, problems, _ = heard((CLIENT, request("GET")), (SERVER, EVENTS + chunk(error) + LAST))
    assert not problems
    assert (told[-2].kind, told[-2].failure) == ("error", "unavailable: gone")


# ---- gRPC ----------------------------------------------------------------------------------------------------------

SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"
CALL = [(":method", "POST"), (":scheme", "http"), (":authority", "h")]
GRPC = [("te", "trailers"), ("content-type", "application/grpc")]


def calls(
    method: str, sent: bytes, *server: Any, of: Conversation | None = None, more: Sequence[tuple[str, str]] = ()
) -> tuple[list[Message], list[Problem]]:
    of = of or conversation("controller")
    frames = [
        SettingsFrame(0),
        headers(1, [*CALL, (":path", SERVICE + method), *GRPC, *more]),
        DataFrame(1, sent, flags=["END_STREAM"]),
    ]
    client = PREFACE + b"".join(each.serialize() for each in frames)
    answers = b"".join(each.serialize() for each in (SettingsFrame(0), *server))
    told, problems, _ = parts(hear(HttpDialogue(of), events(of, cut_up([(CLIENT, client), (SERVER, answers)], 7))))
    return [each for each in told if each.kind != "SETTINGS"], problems


def test_calls_of_the_controller_are_told() -> None:
    config = pravega.StreamConfig(
        streamInfo=pravega.StreamInfo(scope="scope", stream="stream"),
        scalingPolicy=pravega.ScalingPolicy(minNumSegments=3),
    )
    status = pravega.CreateStreamStatus(status=pravega.CreateStreamStatus.Status.STREAM_EXISTS)
    told, problems = calls(
        "createStream",
        frame(config.SerializeToString()),
        headers(1, [(":status", "200"), ("content-type", "application/grpc")]),
        DataFrame(1, frame(status.SerializeToString())),
        headers(1, [("grpc-status", "0")], "END_STREAM"),
    )
    assert not problems
    assert [(each.layer, each.kind, each.stream, each.failure) for each in told] == [
        ("http", "POST", "", ""),
        ("grpc", "createStream", "scope/stream", ""),
        ("http", "200", "scope/stream", ""),
        ("grpc", "CreateStreamStatus", "scope/stream", "STREAM_EXISTS: createStream"),
        ("http", "trailers", "scope/stream", ""),
    ]
    assert told[1].fields == {
        "method": "createStream",
        "streamInfo": {"scope": "scope", "stream": "stream"},
        "scalingPolicy": {"minNumSegments": 3},
    }
    assert told[3].fields == {"method": "createStream", "status": "STREAM_EXISTS"}
    assert (told[1].event, told[3].event) == (config, status)


def test_success_is_told_though_it_is_not_sent() -> None:
    answers = [headers(1, [(":status", "200"), *GRPC]), DataFrame(1, frame(b""))]
    told, _ = calls("deleteStream", frame(b""), *answers)
    assert told[1].fields == {"method": "deleteStream"}
    told, _ = calls("deleteStream", frame(b""), *answers, headers(1, [("grpc-status", "0")], "END_STREAM"))
    assert [(each.fields["status"], each.failure) for each in told if each.kind == "DeleteStreamStatus"] == [
        ("SUCCESS", "")
    ]


def test_maps_and_lists_of_a_call_are_told() -> None:
    cut = pravega.StreamCut(streamInfo=pravega.StreamInfo(scope="s", stream="t"), cut={1: 2, 3: 4})
    told, _ = calls("truncateStream", frame(cut.SerializeToString()))
    assert told[1].fields["cut"] == {"1": 2, "3": 4}
    request = pravega.ScaleRequest(sealedSegments=[1, 2], newKeyRanges=[pravega.ScaleRequest.KeyRangeEntry(start=0.5)])
    told, _ = calls("scale", frame(request.SerializeToString()))
    assert told[1].fields["sealedSegments"] == [1, 2]
    assert told[1].fields["newKeyRanges"] == [{"start": 0.5}]


def test_calls_that_fail_say_why() -> None:
    message = frame(pravega.ScopeInfo(scope="s").SerializeToString())
    ending = [("grpc-status", "5"), ("grpc-message", "not%20there")]
    told, _ = calls("createScope", message, headers(1, [(":status", "200"), *GRPC]), headers(1, ending, "END_STREAM"))
    assert (told[-1].kind, told[-1].failure) == ("trailers", "NOT_FOUND: not there")
    told, _ = calls("createScope", message, headers(1, [(":status", "200"), *GRPC, *ending], "END_STREAM"))
    assert (told[-1].kind, told[-1].failure) == ("200", "NOT_FOUND: not there")


@pytest.mark.parametrize(
    ("sent", "at", "rule"),
    [
        (b"\x02\0\0\0\0", 0, "compressed-flag 2"),
        (frame(b"")[:3], 0, "ended in the middle of its message"),
        (frame(b"\x0a\x02\xff\xfe"), 7, "ScopeInfo.scope is text of UTF-8"),
        (frame(b"\x0a\x09abc"), 6, "ScopeInfo.scope takes 9 bytes, 3 are left"),
        (frame(b"") + b"x", 0, "more than one message"),
    ],
)
def test_the_first_wrong_byte_of_a_call_is_told(sent: bytes, at: int, rule: str) -> None:
    refused = [(":status", "200"), *GRPC, ("grpc-status", "3")]
    told, (problem,) = calls("createScope", sent, headers(1, refused, "END_STREAM"))
    assert rule in problem.rule
    assert problem.exchange == 1
    start = told[0].offset + told[0].length + 9  # the header of DATA
    assert problem.offset == start + at
    assert told[-1].failure == "INVALID_ARGUMENT: "


def test_a_call_of_another_service_is_counted() -> None:
    told, problems = calls("noSuchMethod", frame(b"abc"))
    assert not problems
    assert (told[1].kind, told[1].fields["bytes"]) == ("body", 8)


# ---- reads that a client leaves ------------------------------------------------------------------------------------

FOLLOWED = EVENTS + chunk(b'event: ping\nid: 1,1,1\ndata: {"timestamp":5,"tail":{"seq_num":1,"timestamp":2}}\n\n')


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("first", [CLIENT, SERVER])
def test_a_client_may_leave_a_read_that_follows(first: Sender, reset: bool) -> None:
    """That is how clients end one. A server may not leave."""
    of = conversation("s2")
    second = SERVER if first is CLIENT else CLIENT
    get = request("GET", "accept: text/event-stream")
    talk = [*events(of, [(CLIENT, get), (SERVER, FOLLOWED)], closed=()), Closed(of, 9000, first, reset)]
    told, problems, _ = parts(hear(HttpDialogue(of), [*talk, Closed(of, 9001, second)]))
    assert "ping" in [each.kind for each in told]
    assert [(each.sender, each.offset) for each in problems] == ([] if first is CLIENT else [(SERVER, len(FOLLOWED))])


@pytest.mark.parametrize("first", [CLIENT, SERVER])
def test_a_client_may_leave_a_session_of_appends(first: Sender) -> None:
    """It does once all is acknowledged, and need not wait for the last chunk. A server may not leave."""
    talk: Said = [
        (CLIENT, SESSION + chunk(encode_frame(INPUT)) + LAST),
        (SERVER, OPEN + chunk(encode_frame(ack(0, 2)))),
    ]
    assert broken_off(talk, first) == ([] if first is CLIENT else [SERVER])


def test_a_client_may_leave_a_session_that_was_terminated() -> None:
    """It ends its own side no more."""
    asked = SESSION + chunk(encode_frame(INPUT))
    talk: Said = [(CLIENT, asked), (SERVER, OPEN + chunk(encode_frame(b"\x01\x9c{}", 0x80)))]
    assert broken_off(talk, CLIENT) == []
    assert broken_off([(CLIENT, asked), (SERVER, OPEN)], CLIENT) == [CLIENT]


def broken_off(said: Said, first: Sender) -> list[Sender]:
    """The senders of the problems in a talk that `first` ends."""
    of = conversation("s2")
    second = SERVER if first is CLIENT else CLIENT
    ends = [Closed(of, 9000, first), Closed(of, 9001, second)]
    return [each.sender for each in parts(hear(HttpDialogue(of), [*events(of, said, closed=()), *ends]))[1]]


def test_an_event_that_the_client_does_not_wait_for_is_no_problem() -> None:
    of = conversation("s2")
    get = request("GET", "accept: text/event-stream")
    said = [(CLIENT, get), (SERVER, FOLLOWED + b"10\r\nevent: ba")]
    assert not parts(hear(HttpDialogue(of), events(of, said, closed=[CLIENT])))[1]
    _, (problem,), _ = parts(hear(HttpDialogue(of), events(of, said, closed=[])))
    assert problem.rule == "an event is not whole: the rest was not recorded"
    assert problem.offset == len(said[1][1]) - len(b"event: ba")
