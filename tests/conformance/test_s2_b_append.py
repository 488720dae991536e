"""S2 checklist, group B: unary append (S2 fact sheet, section 10)."""

import gzip
import json
import time
from dataclasses import replace

import pytest
import zstandard
from support.s2.client import BASE64, PROTOBUF, S2Client, b64, eventually, now_ms, stream_path
from support.s2.frames import append_input, record

from penstock_proto import s2_pb2 as pb

MIB = 1 << 20
FENCE = ["", "fence"]


@pytest.fixture(params=["h1", "h2"])
def s2(s2: S2Client, request: pytest.FixtureRequest) -> S2Client:
    """Every item over either HTTP version."""
    return replace(s2, carrier=request.param)


def test_item_13_append_json(s2: S2Client, stream: str) -> None:
    before = now_ms()
    ack = s2.append_json(stream, {"records": [{"body": "x"}, {"body": "y"}]}).json()
    assert set(ack) == {"start", "end", "tail"}
    assert [ack[name]["seq_num"] for name in ("start", "end", "tail")] == [0, 2, 2]
    assert ack["end"]["timestamp"] == ack["tail"]["timestamp"]
    assert before <= ack["start"]["timestamp"] <= ack["end"]["timestamp"] <= now_ms()


@pytest.mark.parametrize("media", ["application/protobuf", "application/x-protobuf"])
def test_item_14_append_protobuf(s2: S2Client, stream: str, media: str) -> None:
    answer = s2.append_proto(stream, append_input(b"x", b"y"), {"content-type": media, "accept": media})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/protobuf"
    ack = pb.AppendAck.FromString(answer.body)
    assert (ack.start.seq_num, ack.end.seq_num, ack.tail.seq_num) == (0, 2, 2)


def test_item_14_zero_positions_are_present(s2: S2Client, stream: str) -> None:
    """The TypeScript SDK refuses an acknowledgement whose `start` is absent because it is 0@0 (2.3)."""
    answer = s2.append_proto(stream, append_input(b"x", timestamp=0))
    assert answer.body.startswith(b"\x0a\x00"), answer.body
    ack = pb.AppendAck.FromString(answer.body)
    assert all(ack.HasField(name) for name in ("start", "end", "tail"))
    assert (ack.start.seq_num, ack.start.timestamp) == (0, 0)


def test_item_15_media_types_mix(s2: S2Client, stream: str) -> None:
    to_json = s2.append_proto(stream, append_input(b"x"), {"accept": "application/json"})
    assert to_json.json()["end"]["seq_num"] == 1
    to_proto = s2.append_json(stream, {"records": [{"body": "y"}]}, {"accept": "application/protobuf"})
    assert pb.AppendAck.FromString(to_proto.body).end.seq_num == 2
    failed = s2.append_proto(stream, append_input(b"x", match_seq_num=9))
    assert failed.json(412) == {"seq_num_mismatch": 2}
    s2.append_proto(stream, append_input()).fails(422, "invalid")


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}])
def test_item_16_missing_json_content_type(s2: S2Client, stream: str, headers: dict[str, str]) -> None:
    answer = s2.request("POST", stream_path(stream) + "/records", b'{"records":[{"body":"x"}]}', headers)
    assert answer.fails(400, "bad_json") == "Expected request with `Content-Type: application/json`"


@pytest.mark.parametrize("media", ["application/json; charset=utf-8", "application/vnd.s2+json"])
def test_item_16_json_content_types(s2: S2Client, stream: str, media: str) -> None:
    s2.append_json(stream, {"records": [{"body": "x"}]}, {"content-type": media}).json()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"records":{}}',
        b'{"records":[1]}',
        b'{"records":[{"body":1}]}',
        b'{"records":[{"headers":[["a"]]}]}',
        b'{"records":[{"timestamp":-1}]}',
        b'{"records":[{"timestamp":1.5}]}',
        b'{"records":[{"timestamp":18446744073709551616}]}',
        b'{"records":[{"body":"x"}],"match_seq_num":"0"}',
        b'{"records":[{"body":"\xff"}]}',
        b'{"records":[{"body":"x"}]} trailing',
    ],
)
def test_item_17_malformed_json(s2: S2Client, stream: str, text: bytes) -> None:
    head = {"content-type": "application/json"}
    s2.request("POST", stream_path(stream) + "/records", text, head).fails(400, "bad_json")
    assert s2.tail(stream)["seq_num"] == 0


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05abc", b"\x1a\x02\xff\xfe"])
def test_item_17_malformed_protobuf(s2: S2Client, stream: str, data: bytes) -> None:
    message = s2.append_proto(stream, data).fails(400, "bad_proto")
    assert "s2.v1.AppendInput" in message and "penstock" not in message


def test_item_17_unknown_protobuf_fields_are_skipped(s2: S2Client, stream: str) -> None:
    assert s2.append_proto(stream, append_input(b"x") + b"\x7a\x01z").status == 200
    assert s2.bodies(stream, seq_num=0) == ["x"]


def test_item_18_empty_batch(s2: S2Client, stream: str) -> None:
    message = s2.append_json(stream, {"records": []}).fails(422, "invalid")
    assert "record batch must not be empty" in message
    s2.append_proto(stream, b"").fails(422, "invalid")


def test_item_19_batch_of_a_thousand_records(s2: S2Client, stream: str) -> None:
    many = [{"body": "x"}] * 1001
    s2.append_json(stream, {"records": many}).fails(422, "invalid")
    s2.append_proto(stream, append_input(*[b"x"] * 1001)).fails(422, "invalid")
    assert s2.append_json(stream, {"records": many[:1000]}).json()["end"]["seq_num"] == 1000


def test_item_20_batch_of_one_mebibyte(s2: S2Client, stream: str) -> None:
    half = b"x" * (MIB // 2 - 8)
    s2.append_proto(stream, append_input(half, half + b"x")).fails(422, "invalid")
    s2.append_proto(stream, append_input(half + half + b"x" * 9)).fails(422, "invalid")
    assert s2.append_proto(stream, append_input(half, half)).status == 200
    assert s2.append_proto(stream, append_input(b"x" * 1_048_568)).status == 200
    assert s2.append_json(stream, {"records": [{"body": "x" * 1_048_568}]}).status == 200
    assert s2.append_json(stream, {"records": [{"body": "x" * 1_048_569}]}).fails(422, "invalid")
    assert s2.tail(stream)["seq_num"] == 4


def test_item_20_headers_are_metered(s2: S2Client, stream: str) -> None:
    def batch(body: int) -> bytes:  # 8 + 2 + 5 + 6 + body
        return pb.AppendInput(records=[record(b"x" * body, [(b"n" * 5, b"v" * 6)])]).SerializeToString()

    s2.append_proto(stream, batch(MIB - 20)).fails(422, "invalid")
    assert s2.append_proto(stream, batch(MIB - 21)).status == 200


def test_item_20_bodies_over_two_mebibytes(s2: S2Client, stream: str) -> None:
    s2.append_json(stream, {"records": [{"body": "x" * (2 * MIB)}]}).fails(400, "bad_json")
    s2.append_proto(stream, append_input(b"x" * (2 * MIB))).fails(400, "bad_proto")


def test_item_21_match_seq_num(s2: S2Client, stream: str) -> None:
    assert s2.append(stream, "a", match_seq_num=0)["end"]["seq_num"] == 1
    assert s2.append(stream, "b", "c", match_seq_num=1)["end"]["seq_num"] == 3
    for wrong in (0, 2, 4, 2**64 - 1):
        failed = s2.append_json(stream, {"records": [{"body": "no"}], "match_seq_num": wrong})
        assert failed.json(412) == {"seq_num_mismatch": 3}
        assert s2.append_proto(stream, append_input(b"no", match_seq_num=wrong)).json(412) == {"seq_num_mismatch": 3}
    assert s2.bodies(stream, seq_num=0) == ["a", "b", "c"]


def test_item_22_fencing_token_of_an_unfenced_stream(s2: S2Client, stream: str) -> None:
    failed = s2.append_json(stream, {"records": [{"body": "x"}], "fencing_token": "x"})
    assert failed.json(412) == {"fencing_token_mismatch": ""}
    s2.append(stream, "x", fencing_token="")
    assert s2.append_proto(stream, append_input(b"x", fencing_token="")).status == 200


def test_item_23_both_conditions_wrong(s2: S2Client, stream: str) -> None:
    failed = s2.append_json(stream, {"records": [{"body": "x"}], "fencing_token": "x", "match_seq_num": 7})
    assert failed.json(412) == {"fencing_token_mismatch": ""}


def test_item_24_fence(s2: S2Client, stream: str) -> None:
    assert s2.fence(stream, "tok").json()["end"]["seq_num"] == 1
    s2.append(stream, "a", fencing_token="tok")
    for wrong in ("other", "", "to", "TOK"):
        failed = s2.append_json(stream, {"records": [{"body": "x"}], "fencing_token": wrong})
        assert failed.json(412) == {"fencing_token_mismatch": "tok"}
    s2.append(stream, "b")
    records = s2.read(stream, seq_num=0).json()["records"]
    assert [(found["seq_num"], found.get("headers"), found["body"]) for found in records] == [
        (0, [FENCE], "tok"),
        (1, None, "a"),
        (2, None, "b"),
    ]


def test_item_24_a_fence_acts_on_later_batches_only(s2: S2Client, stream: str) -> None:
    s2.fence(stream, "one").json()
    assert s2.fence(stream, "two", fencing_token="two").json(412) == {"fencing_token_mismatch": "one"}
    s2.fence(stream, "two", fencing_token="one").json()
    s2.fence(stream, "", fencing_token="two").json()
    s2.append(stream, "x", fencing_token="")


def test_item_25_long_tokens(s2: S2Client, stream: str) -> None:
    s2.fence(stream, "t" * 37).fails(422, "invalid")
    long_token = {"records": [{"body": "x"}], "fencing_token": "t" * 37}
    s2.append_json(stream, long_token).fails(400, "bad_json")
    s2.append_proto(stream, append_input(b"x", fencing_token="t" * 37)).fails(422, "invalid")
    s2.fence(stream, "t" * 36).json()
    s2.fence(stream, "ü" * 18).json()
    s2.fence(stream, "ü" * 19).fails(422, "invalid")


def test_item_26_trim(s2: S2Client, stream: str) -> None:
    s2.append(stream, *"abcdef")
    s2.trim(stream, 4).json()
    tail = s2.tail(stream)
    assert tail["seq_num"] == 7
    for _ in eventually(5):
        records = s2.read(stream, seq_num=0).json()["records"]
        if records[0]["seq_num"] == 4:
            break
    assert [found["seq_num"] for found in records] == [4, 5, 6]
    assert s2.tail(stream) == tail


def test_item_26_a_trim_never_goes_back_nor_past_itself(s2: S2Client, stream: str) -> None:
    s2.append(stream, *"abc")
    s2.trim(stream, 2).json()
    s2.trim(stream, 1).json()
    time.sleep(0.2)  # a trim may act late; one that acted wrongly would show by now
    assert s2.read(stream, seq_num=0).json()["records"][0]["seq_num"] == 2
    s2.trim(stream, 2**64 - 1).json()
    for _ in eventually(5):
        answer = s2.read(stream, seq_num=0)
        if answer.status == 416 or answer.json()["records"] == []:
            break
    else:
        pytest.fail("records are still there")
    assert s2.tail(stream)["seq_num"] == 6
    assert s2.append(stream, "after")["start"]["seq_num"] == 6
    assert s2.bodies(stream, seq_num=0) == ["after"]


def test_item_26_bad_trims(s2: S2Client, stream: str) -> None:
    for size in (0, 7, 9):
        value = {"records": [{"headers": [[b64(b""), b64(b"trim")]], "body": b64(b"\0" * size)}]}
        message = s2.append_json(stream, value, BASE64).fails(422, "invalid")
        assert f"was {size} bytes, must be 8" in message


def test_item_27_bad_commands(s2: S2Client, stream: str) -> None:
    bogus = s2.append_json(stream, {"records": [{"headers": [["", "bogus"]]}]})
    assert "unknown command" in bogus.fails(422, "invalid")
    two = s2.append_json(stream, {"records": [{"headers": [["", "fence"], ["a", "b"]], "body": "x"}]})
    assert "invalid header: empty name" in two.fails(422, "invalid")
    assert s2.tail(stream)["seq_num"] == 0


def test_item_27_one_bad_record_refuses_the_batch(s2: S2Client, stream: str) -> None:
    s2.append_json(stream, {"records": [{"body": "good"}, {"headers": [["", "bogus"]]}]}).fails(422, "invalid")
    assert s2.tail(stream)["seq_num"] == 0


def test_item_28_base64(s2: S2Client, stream: str) -> None:
    value = {"records": [{"headers": [[b64(b"\xff"), b64(b"\xfe")]], "body": b64(b"\x00\xff\r\n")}]}
    s2.append_json(stream, value, BASE64).json()
    found = s2.read_proto(stream, seq_num=0).records[0]
    assert found.body == b"\x00\xff\r\n"
    assert [(pair.name, pair.value) for pair in found.headers] == [(b"\xff", b"\xfe")]
    alias = {"s2-format": "json-binsafe"}
    assert s2.append_json(stream, value, alias).status == 200


@pytest.mark.parametrize("bad", ["%%%", "YQ", "YQ=", "Y Q==", "YQ==YQ==", "-_8="])
def test_item_28_invalid_base64(s2: S2Client, stream: str, bad: str) -> None:
    for broken in ({"body": bad}, {"headers": [[bad, ""]]}, {"headers": [["YQ==", bad]]}):
        message = s2.append_json(stream, {"records": [broken]}, BASE64).fails(422, "invalid")
        assert "invalid Base64 encoding" in message
    assert s2.tail(stream)["seq_num"] == 0


def test_item_28_unknown_format(s2: S2Client, stream: str) -> None:
    for answer in (
        s2.append_json(stream, {"records": [{"body": "61"}]}, {"s2-format": "hex"}),
        s2.read(stream, {"s2-format": "hex"}, seq_num=0, wait=1),
    ):
        answer.fails(400, "bad_header")


def test_item_29_timestamps(s2: S2Client, stream: str) -> None:
    value = {"records": [{"body": "a", "timestamp": 50}, {"body": "b", "timestamp": 40}]}
    ack = s2.append_json(stream, value).json()
    assert (ack["start"]["timestamp"], ack["end"]["timestamp"]) == (50, 50)
    before = now_ms()
    future = s2.append_json(stream, {"records": [{"body": "c", "timestamp": before + 3_600_000}]}).json()
    assert before <= future["end"]["timestamp"] <= now_ms()
    late = s2.append_json(stream, {"records": [{"body": "d", "timestamp": 60}]}).json()
    assert late["end"]["timestamp"] == future["end"]["timestamp"]
    stored = [found["timestamp"] for found in s2.read(stream, seq_num=0).json()["records"]]
    assert stored == [50, 50, *[future["end"]["timestamp"]] * 2]


def test_item_29_uncapped(s2: S2Client, new_name: str) -> None:
    s2.ensure_stream(new_name, timestamping={"mode": "client-prefer", "uncapped": True})
    far = now_ms() + 3_600_000
    ack = s2.append_json(new_name, {"records": [{"body": "a", "timestamp": far}, {"body": "b"}]}).json()
    assert (ack["start"]["timestamp"], ack["end"]["timestamp"]) == (far, far)
    largest = {"records": [{"body": "c", "timestamp": 2**64 - 1}]}
    assert s2.append_json(new_name, largest).json()["tail"]["timestamp"] == 2**64 - 1


def test_item_30_client_require(s2: S2Client, new_name: str) -> None:
    s2.ensure_stream(new_name, timestamping={"mode": "client-require"})
    message = s2.append_json(new_name, {"records": [{"body": "x"}]}).fails(422, "invalid")
    assert "record timestamp was required but was missing" in message
    ack = s2.append_json(new_name, {"records": [{"body": "x", "timestamp": 5}]}).json()
    assert ack["end"]["timestamp"] == 5


def test_item_30_arrival(s2: S2Client, new_name: str) -> None:
    s2.ensure_stream(new_name, timestamping={"mode": "arrival"})
    before = now_ms()
    ack = s2.append_json(new_name, {"records": [{"body": "x", "timestamp": 5}]}).json()
    assert before <= ack["end"]["timestamp"] <= now_ms()


def test_item_31_create_stream_on_append(s2: S2Client, own_basin: S2Client, new_name: str) -> None:
    s2.append_json(new_name, {"records": [{"body": "x"}]}).fails(404, "stream_not_found")
    assert s2.request("GET", "/v1/streams", prefix=new_name).json()["streams"] == []

    assert own_basin.basin is not None
    own_basin.ensure_basin(own_basin.basin, create_stream_on_append=True)
    assert own_basin.append(new_name, "x")["end"]["seq_num"] == 1
    assert own_basin.append_proto("by-proto", append_input(b"x")).status == 200
    with own_basin.append_session("by-s2s") as session:
        session.send(append_input(b"x"))
        assert session.ack().end.seq_num == 1
    listed = [info["name"] for info in own_basin.request("GET", "/v1/streams").json()["streams"]]
    assert listed == sorted([new_name, "by-proto", "by-s2s"])
    # Reading does not create: the other flag is false.
    own_basin.read("by-read").fails(404, "stream_not_found")


def test_item_31_a_failed_condition_leaves_the_new_stream(own_basin: S2Client) -> None:
    assert own_basin.basin is not None
    own_basin.ensure_basin(own_basin.basin, create_stream_on_append=True)
    failed = own_basin.append_json("fresh", {"records": [{"body": "x"}], "match_seq_num": 4})
    assert failed.json(412) == {"seq_num_mismatch": 0}
    assert own_basin.tail("fresh") == {"seq_num": 0, "timestamp": 0}


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_item_32_compressed_requests(s2: S2Client, stream: str, coding: str) -> None:
    def pack(data: bytes) -> bytes:
        return gzip.compress(data) if coding == "gzip" else zstandard.ZstdCompressor().compress(data)

    text = json.dumps({"records": [{"body": "text " * 1000}]}).encode()
    head = {"content-type": "application/json", "content-encoding": coding}
    s2.request("POST", stream_path(stream) + "/records", pack(text), head).json()
    proto = {**PROTOBUF, "content-encoding": coding}
    assert s2.append_proto(stream, pack(append_input(b"proto " * 1000)), proto).status == 200
    assert s2.bodies(stream, seq_num=0) == ["text " * 1000, "proto " * 1000]

    s2.request("POST", stream_path(stream) + "/records", text, head).fails(400, "bad_json")
    bomb = pack(b'{"records":[{"body":"' + b"x" * (64 * MIB))
    s2.request("POST", stream_path(stream) + "/records", bomb, head).fails(400, "bad_json")


def test_item_32_unknown_content_encoding(s2: S2Client, stream: str) -> None:
    head = {"content-type": "application/json", "content-encoding": "br"}
    assert s2.request("POST", stream_path(stream) + "/records", b"{}", head).status == 415


def test_item_33_deleted_stream(s2: S2Client, stream: str) -> None:
    s2.append(stream, "x")
    assert s2.request("DELETE", stream_path(stream)).status == 202
    answers = [s2.append_json(stream, {"records": [{"body": "y"}]}), s2.read(stream, seq_num=0)]
    for answer in answers:
        assert (answer.status, answer.json(answer.status)["code"]) in (
            (409, "stream_deletion_pending"),
            (404, "stream_not_found"),
        )


def test_item_34_stream_config_header(s2: S2Client, own_basin: S2Client, stream: str) -> None:
    assert own_basin.basin is not None
    own_basin.ensure_basin(own_basin.basin, create_stream_on_append=True)
    value = {"records": [{"body": "x", "timestamp": 5}]}
    own_basin.append_json("bad", value, {"s2-stream-config": "{bad"}).fails(400, "bad_header")
    assert own_basin.request("GET", "/v1/streams").json()["streams"] == []

    config = {"s2-stream-config": '{"timestamping":{"mode":"client-require"},"retention_policy":{"age":60}}'}
    own_basin.append_json("made", value, config).json()
    made = own_basin.request("GET", stream_path("made")).json()
    assert made["timestamping"]["mode"] == "client-require"
    assert made["retention_policy"] == {"age": 60}

    before = s2.request("GET", stream_path(stream)).json()
    s2.append_json(stream, value, config).json()
    assert s2.request("GET", stream_path(stream)).json() == before


def test_the_path_of_the_seeds_pages(s2: S2Client, stream: str) -> None:
    """POST /v1/basins/{basin}/streams/{stream}/append, without any header of ours."""
    path = f"/v1/basins/{s2.basin}{stream_path(stream).removeprefix('/v1')}"
    anonymous = s2.of(None)
    ack = anonymous.send_json("POST", path + "/append", {"records": [{"body": "x"}]}).json()
    assert ack["end"]["seq_num"] == 1
    found = anonymous.request("GET", path + "/read", seq_num=0).json()["records"]
    assert [record["body"] for record in found] == ["x"]
