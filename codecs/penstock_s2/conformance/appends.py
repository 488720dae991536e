"""Cases about appends, each a request of its own (S2 fact sheet, 1.2, 5.1 to 5.3)."""

from __future__ import annotations

from typing import Final

import trio

from penstock.model.limits import MIB
from penstock.protocols.conformance import Cases, require, require_equal
from penstock_proto import s2_pb2 as pb
from penstock_s2.conformance.session import (
    JSON,
    PROTOBUF,
    SESSION,
    S2TestSession,
    append_frame,
    append_input,
    b64,
    is_now,
    parse_message,
    record,
    value_of,
)

__all__ = ["CASES"]

CASES: Final = Cases[S2TestSession]()
_TRIM_SECONDS: Final = 30.0
"""Seconds until a trim has removed the records, at most."""
_TRIM_TRIES: Final = 100
_HOUR: Final = 3_600_000
"""Milliseconds of an hour."""
_LARGEST: Final = 2**64 - 1


@CASES.case("append")
async def append_as_json(session: S2TestSession) -> None:
    """The response has the first and the next sequence number, and the tail."""
    await session.create()
    response = await session.append("x", "y")
    numbers = [response[name]["seq_num"] for name in ("start", "end", "tail")]
    require_equal((set(response), numbers), ({"start", "end", "tail"}, [0, 2, 2]))
    require_equal(response["end"]["timestamp"], response["tail"]["timestamp"])


@CASES.case("append")
async def append_as_protobuf(session: S2TestSession) -> None:
    """A batch may be protobuf, and so is the response if that is accepted; all its fields are present, also of 0.
    Unknown fields of the batch are skipped."""
    await session.create()
    for number, media in enumerate((PROTOBUF, "application/x-protobuf")):
        batch = append_input(record(b"\x00\xff", timestamp=0)) + b"\x7a\x01z"
        response = await session.request("POST", session.records, batch, [("content-type", media), ("accept", media)])
        require_equal((response.status, response.header("content-type")), (200, PROTOBUF))
        ack = parse_message(pb.AppendAck, response.body)
        require(all(map(ack.HasField, ("start", "end", "tail"))), "start, end and tail", ack)
        require_equal((ack.start.seq_num, ack.end.seq_num, ack.tail.seq_num), (number, number + 1, number + 1))


@CASES.case("append")
async def media_types(session: S2TestSession) -> None:
    """Request and response may be of different types; errors are JSON."""
    await session.create()
    as_json = [("content-type", PROTOBUF), ("accept", JSON)]
    ack = await session.expect(200, "POST", session.records, append_input(b"x"), as_json)
    require_equal(ack["end"]["seq_num"], 1)
    text = b'{"records":[{"body":"x"}]}'
    for media in (JSON, f"{JSON}; charset=utf-8", "application/vnd.s2+json"):
        head = [("content-type", media), ("accept", PROTOBUF)]
        response = await session.request("POST", session.records, text, head)
        require_equal(response.header("content-type"), PROTOBUF)
        require(parse_message(pb.AppendAck, response.body).HasField("start"), "an acknowledgement", response.body)
    response = await session.append_protobuf(append_input(b"x", match_seq_num=9))
    require_equal((response.status, response.header("content-type")), (412, JSON))


@CASES.case("append")
async def most_records(session: S2TestSession) -> None:
    """A batch has 1000 records at most."""
    await session.create()
    await session.expect_refusal("422 invalid", "POST", session.records, {"records": [{}] * 1001})
    protobuf = [("content-type", PROTOBUF)]
    await session.expect_refusal("422 invalid", "POST", session.records, append_input(*[b"x"] * 1001), protobuf)
    require_equal((await session.append(*[""] * 1000))["end"]["seq_num"], 1000)


@CASES.case("append")
async def largest_batch(session: S2TestSession) -> None:
    """A batch has 1 MiB at most, of which a record takes 8 bytes, a header 2, and names, values and bodies their own;
    a body of more than 2 MiB is status 400."""
    await session.create()
    half, headers = b"x" * (MIB // 2 - 8), (b"n" * 5, b"v" * 6)
    batches = (
        ((half, half), (half, half + b"x")),
        ((b"x" * (MIB - 8),), (b"x" * (MIB - 7),)),
        ((record(b"x" * (MIB - 21), headers),), (record(b"x" * (MIB - 20), headers),)),
    )
    protobuf = [("content-type", PROTOBUF)]
    for largest, too_large in batches:
        await session.expect_refusal("422 invalid", "POST", session.records, append_input(*too_large), protobuf)
        require_equal((await session.append_protobuf(append_input(*largest))).status, 200)
    await session.append("x" * (MIB - 8))
    await session.require_tail(5)
    await session.expect_refusal("400 bad_json", "POST", session.records, {"records": [{"body": "x" * 2 * MIB}]})
    await session.expect_refusal("400 bad_proto", "POST", session.records, append_input(b"x" * 2 * MIB), protobuf)


@CASES.case("append")
async def append_at_a_position(session: S2TestSession) -> None:
    """match_seq_num must be the tail, 0 too; else status 412 tells it, and nothing is appended."""
    await session.create()
    await session.append("x", match_seq_num=0)
    for wrong in (0, 2, _LARGEST):
        require_equal(await session.append("y", match_seq_num=wrong, status=412), {"seq_num_mismatch": 1})
    response = await session.append_protobuf(append_input(b"y", match_seq_num=0))
    require_equal((response.status, response.body), (412, b'{"seq_num_mismatch":1}'))
    await session.append("z", match_seq_num=1)
    require_equal(await session.bodies(seq_num=0), ["x", "z"])


@CASES.case("append")
async def append_with_a_fencing_token(session: S2TestSession) -> None:
    """A fence record sets the token, of 36 bytes at most, that later batches may name; another one is status 412."""
    await session.create()
    require_equal(await session.append("x", fencing_token="t", status=412), {"fencing_token_mismatch": ""})
    await session.append("x", fencing_token="")
    fence = {"headers": [["", "fence"]], "body": "token"}
    require_equal(await session.append(fence, fencing_token="token", status=412), {"fencing_token_mismatch": ""})
    await session.append(fence, fencing_token="")
    for wrong in ("other", "", "to", "TOKEN"):
        response = await session.append("y", fencing_token=wrong, status=412)
        require_equal(response, {"fencing_token_mismatch": "token"})
    await session.append("y", fencing_token="token")
    await session.append("z")
    records = (await session.read(seq_num=1))["records"]
    require_equal(
        [(each.get("headers"), each["body"]) for each in records[:2]], [([["", "fence"]], "token"), (None, "y")]
    )
    await session.append({**fence, "body": "ü" * 18}, fencing_token="token")
    await session.append({"headers": [["", "fence"]]}, fencing_token="ü" * 18)
    await session.append("x", fencing_token="")


@CASES.case("append")
async def both_conditions(session: S2TestSession) -> None:
    """If both conditions fail, the response is about the fencing token."""
    await session.create()
    response = await session.append("x", fencing_token="t", match_seq_num=7, status=412)
    require_equal(response, {"fencing_token_mismatch": ""})


@CASES.case("append")
async def append_as_base64(session: S2TestSession) -> None:
    """With s2-format: base64, or json-binsafe, bodies and headers are base64; with raw, or json, they are text."""
    await session.create()
    binary = {"headers": [[b64(b"\xff"), b64(b"\xfe")]], "body": b64(b"\x00\xff\r\n")}
    for name in ("base64", "json-binsafe"):
        form = [("s2-format", name)]
        await session.expect(200, "POST", session.records, {"records": [binary]}, form)
        got = (await session.read(200, form, tail_offset=1))["records"][0]
        require_equal({name: got.get(name) for name in binary}, binary)
    await session.append("x")
    for name in ("raw", "json"):
        require_equal((await session.read(200, [("s2-format", name)], tail_offset=1))["records"][0]["body"], "x")


@CASES.case("append")
async def timestamps_never_fall(session: S2TestSession) -> None:
    """A timestamp before that of the record before is raised to it."""
    await session.create()
    await session.append({"body": "x", "timestamp": 50}, {"body": "y", "timestamp": 40})
    await session.append({"body": "z", "timestamp": 30})
    timestamps = [each["timestamp"] for each in (await session.read(seq_num=0))["records"]]
    require_equal(timestamps, [50, 50, 50])


async def _append_record(session: S2TestSession, **record: object) -> int:
    """Append a record; return the timestamp that it got."""
    ack = await session.append(record)
    require_equal(ack["end"]["timestamp"], ack["tail"]["timestamp"])
    return int(ack["end"]["timestamp"])


@CASES.case("append")
async def timestamps_of_the_future(session: S2TestSession) -> None:
    """A timestamp after the record's arrival becomes that of the arrival, unless the stream is uncapped."""
    await session.create()
    now = await _append_record(session, body="x")
    require(is_now(now), "milliseconds since 1970", now)
    capped = await _append_record(session, body="x", timestamp=now + _HOUR)
    require(now <= capped < now + _HOUR, "the time of arrival", capped)
    require_equal(await _append_record(session, body="x", timestamp=60), capped)
    await session.expect(200, "PATCH", session.path(), {"timestamping": {"uncapped": True}})
    require_equal(await _append_record(session, body="x", timestamp=now + _HOUR), now + _HOUR)
    require_equal(await _append_record(session, body="x"), now + _HOUR)
    require_equal(await _append_record(session, body="x", timestamp=_LARGEST), _LARGEST)


@CASES.case("append")
async def modes_of_timestamps(session: S2TestSession) -> None:
    """In mode client-require a record without a timestamp is status 422; in mode arrival a given one is ignored."""
    await session.create(timestamping={"mode": "client-require"})
    await session.expect_refusal("422 invalid", "POST", session.records, {"records": [{"body": "x"}]})
    require_equal(await _append_record(session, body="x", timestamp=5), 5)
    await session.expect(200, "PATCH", session.path(), {"timestamping": {"mode": "arrival"}})
    arrival = await _append_record(session, body="x", timestamp=6)
    require(is_now(arrival), "the time of arrival", arrival)


@CASES.case("append")
async def headers_of_records(session: S2TestSession) -> None:
    """Headers keep their order, and a name may be repeated."""
    await session.create()
    headers = [["b", "1"], ["a", "2"], ["b", "1"], ["c", ""]]
    await session.append({"headers": headers, "body": "x"})
    require_equal((await session.read(seq_num=0))["records"][0]["headers"], headers)


async def _require_first(session: S2TestSession, first: int) -> None:
    """Wait until the first record has this number, or there is none and the next one will."""
    seq_num = -1
    for _ in range(_TRIM_TRIES):
        response = await session.request("GET", session.records, None, (), seq_num=0)
        records = value_of(response.body).get("records") or [await session.tail()]
        seq_num = records[0]["seq_num"]
        if seq_num >= first:
            break
        await trio.sleep(_TRIM_SECONDS / _TRIM_TRIES)
    require_equal(seq_num, first)


@CASES.case("append")
async def trim(session: S2TestSession) -> None:
    """A trim record removes the records before a position, in time, and reads from below begin there; the tail counts
    it as a record."""
    await session.create("a", "b", "c")
    require_equal((await session.trim(2))["end"]["seq_num"], 4)
    await _require_first(session, 2)
    for start in ({"seq_num": 1}, {"tail_offset": 100}, {"timestamp": 0}):
        require_equal((await session.read(**start))["records"][0]["seq_num"], 2)
    require_equal((await session.read(seq_num=3))["records"][0]["seq_num"], 3)


@CASES.case("append")
async def bounds_of_trims(session: S2TestSession) -> None:
    """A trim never goes back, nor beyond itself; a stream without records keeps its tail."""
    await session.create("a", "b", "c")
    await session.trim(2)
    await session.trim(1)
    await _require_first(session, 2)
    await session.trim(_LARGEST)
    await _require_first(session, 6)
    tail = await session.tail()
    require_equal(await session.read(416, timestamp=tail["timestamp"]), {"tail": tail})
    require_equal((await session.append("d"))["start"]["seq_num"], 6)
    require_equal(await session.bodies(seq_num=0), ["d"])


@CASES.case("append")
async def append_creates_a_stream(session: S2TestSession) -> None:
    """In a basin with create_stream_on_append an append of any kind creates its stream, also if its condition fails
    then; a read does not."""
    await session.make_basin({"create_stream_on_append": True})
    names = [f"{session.stream}-{kind}" for kind in ("json", "protobuf", "s2s")]
    session.stream = names[0]
    require_equal(await session.append("x", match_seq_num=4, status=412), {"seq_num_mismatch": 0})
    require_equal(await session.tail(), {"seq_num": 0, "timestamp": 0})
    session.stream = names[1]
    require_equal((await session.append_protobuf(append_input(b"x"))).status, 200)
    session.stream = names[2]
    async with session.exchange("POST", SESSION) as exchange:
        await exchange.send(append_frame(b"x"))
        require_equal(await exchange.acks(1), [(0, 1)])
    await session.expect_refusal("404 stream_not_found", "GET", "/v1/streams/unknown/records")
    listing = await session.expect(200, "GET", "/v1/streams")
    require_equal([each["name"] for each in listing["streams"]], names)


@CASES.case("append")
async def configuration_of_a_stream_that_is_created(session: S2TestSession) -> None:
    """s2-stream-config configures a stream that the append creates, and no other; if it is malformed, status 400,
    bad_header, nothing is created."""
    await session.make_basin({"create_stream_on_append": True})
    value = {"records": [{"body": "x", "timestamp": 5}]}
    for bad in ("{bad", "null", '{"storage_class":"a","storage_class":"b"}'):
        await session.expect_refusal("400 bad_header", "POST", session.records, value, [("s2-stream-config", bad)])
    require_equal((await session.expect(200, "GET", "/v1/streams"))["streams"], [])
    for age in (60, 90):
        config = f'{{"timestamping":{{"mode":"client-require"}},"retention_policy":{{"age":{age}}}}}'
        await session.expect(200, "POST", session.records, value, [("s2-stream-config", config)])
        got = await session.expect(200, "GET", session.path())
        require_equal((got["timestamping"]["mode"], got["retention_policy"]), ("client-require", {"age": 60}))
