"""S2 checklist, group C: unary read (S2 fact sheet, section 10). Tests that take seconds are in test_s2_timers."""

import base64
from dataclasses import replace

import pytest
from support.s2.client import S2Client, b64, eventually, stream_path
from support.s2.frames import append_input

from penstock_proto import s2_pb2 as pb

MIB = 1 << 20


@pytest.fixture(params=["h1", "h2"])
def s2(s2: S2Client, request: pytest.FixtureRequest) -> S2Client:
    """Every item over either HTTP version."""
    return replace(s2, carrier=request.param)


def append_at(s2: S2Client, stream: str, *timestamps: int) -> None:
    """Records that are stamped so; the body is the timestamp."""
    records = [{"body": str(timestamp), "timestamp": timestamp} for timestamp in timestamps]
    s2.append_json(stream, {"records": records}).json()


def test_item_35_read(s2: S2Client, stream: str) -> None:
    ack = s2.append(stream, "x", "y", "")
    found = s2.read(stream, seq_num=0).json()
    assert set(found) <= {"records", "tail"}
    assert [set(record) for record in found["records"]] == [{"seq_num", "timestamp", "body"}] * 2 + [
        {"seq_num", "timestamp"}
    ]
    assert [(record["seq_num"], record.get("body")) for record in found["records"]] == [(0, "x"), (1, "y"), (2, None)]
    assert found["records"][-1]["timestamp"] == ack["end"]["timestamp"]


def test_item_35_headers_in_order_with_duplicates(s2: S2Client, stream: str) -> None:
    headers = [["b", "2"], ["a", "1"], ["b", "2"], ["c", ""]]
    s2.append_json(stream, {"records": [{"headers": headers, "body": "x"}]}).json()
    assert s2.read(stream, seq_num=0).json()["records"][0]["headers"] == headers


def test_item_36_at_and_beyond_the_tail(s2: S2Client, stream: str) -> None:
    for count in (0, 2):
        if count:
            s2.append(stream, "x", "y")
        tail = {"tail": s2.tail(stream)}
        assert s2.read(stream, seq_num=count).json(416) == tail
        assert s2.read(stream, seq_num=count + 5).json(416) == tail
        assert s2.read(stream, seq_num=count + 5, wait=1).json(416) == tail
        assert s2.read(stream, seq_num=count + 5, clamp="true").json(416) == tail
        assert s2.read(stream, seq_num=count, clamp="true").json(416) == tail


def test_item_37_without_a_start(s2: S2Client, stream: str) -> None:
    s2.append(stream, "x")
    assert s2.read(stream).json(416) == {"tail": s2.tail(stream)}


def test_item_38_tail_offset(s2: S2Client, stream: str) -> None:
    s2.append(stream, *"abc")
    assert s2.bodies(stream, tail_offset=1) == ["c"]
    assert s2.bodies(stream, tail_offset=2) == ["b", "c"]
    assert s2.bodies(stream, tail_offset=999_999) == ["a", "b", "c"]
    assert s2.read(stream, tail_offset=0).json(416) == {"tail": s2.tail(stream)}


def test_item_39_bad_queries(s2: S2Client, stream: str) -> None:
    s2.append(stream, "x")
    two = s2.read(stream, seq_num=0, tail_offset=1).fails(422, "invalid")
    assert two == "only one of seq_num, timestamp, or tail_offset can be provided"
    for name in ("seq_num", "timestamp", "tail_offset", "count", "bytes", "until", "wait"):
        for bad in ("abc", "-1", "1.5", "", "18446744073709551616", "0x1"):
            s2.read(stream, **{name: bad}).fails(400, "bad_query")
    for bad in ("1", "True", "yes", ""):
        s2.read(stream, seq_num=0, clamp=bad).fails(400, "bad_query")
    assert s2.bodies(stream, seq_num=0, nonsense="x", clamp="false") == ["x"]


def test_item_40_count_and_bytes(s2: S2Client, stream: str) -> None:
    s2.append(stream, "a", "bb", "ccc")  # metered 9, 10, 11
    assert s2.bodies(stream, seq_num=0, count=1) == ["a"]
    assert s2.bodies(stream, seq_num=0, count=2) == ["a", "bb"]
    assert s2.bodies(stream, seq_num=0, bytes=9) == ["a"]
    assert s2.bodies(stream, seq_num=0, bytes=18) == ["a"]
    assert s2.bodies(stream, seq_num=0, bytes=19) == ["a", "bb"]
    assert s2.bodies(stream, seq_num=1, bytes=30, count=1) == ["bb"]
    for query in ({"bytes": 1}, {"count": 0}, {"bytes": 0}, {"bytes": 8}):
        assert s2.read(stream, seq_num=0, **query).json()["records"] == []


def test_item_41_from_a_timestamp(s2: S2Client, stream: str) -> None:
    append_at(s2, stream, 10, 20, 20, 30)
    assert s2.bodies(stream, timestamp=0) == ["10", "20", "20", "30"]
    assert s2.bodies(stream, timestamp=10) == ["10", "20", "20", "30"]
    assert s2.bodies(stream, timestamp=11) == ["20", "20", "30"]
    assert s2.bodies(stream, timestamp=20) == ["20", "20", "30"]
    assert s2.bodies(stream, timestamp=30) == ["30"]
    assert s2.read(stream, timestamp=31).json(416) == {"tail": {"seq_num": 4, "timestamp": 30}}
    assert s2.read(stream, timestamp=31, clamp="true").status == 416


@pytest.mark.parametrize("accept", ["application/json", "application/protobuf", "text/event-stream", "s2s/proto"])
def test_item_41_a_timestamp_that_resolves_to_the_tail_is_at_the_tail(s2: S2Client, stream: str, accept: str) -> None:
    """As a sequence number there, since s2-lite 0.42.13: of an empty stream, and of one without retained records."""
    head = {"accept": accept}
    assert s2.read(stream, head, timestamp=0, count=1).json(416) == {"tail": {"seq_num": 0, "timestamp": 0}}
    append_at(s2, stream, 10, 20)
    s2.trim(stream, 3).json()
    tail = s2.tail(stream)
    for _ in eventually(5):
        answer = s2.read(stream, head, timestamp=tail["timestamp"], count=1)
        if answer.status == 416:
            break
    assert answer.json(416) == {"tail": tail}
    assert s2.read(stream, head, timestamp=tail["timestamp"], count=1, clamp="true").json(416) == {"tail": tail}


def test_item_41_a_timestamp_that_resolves_to_the_tail_may_follow(s2: S2Client, stream: str) -> None:
    assert s2.read(stream, timestamp=0, wait=1).json()["records"] == []
    with s2.events(stream, timestamp=0) as events:
        ping = events.next(2)
        assert ping is not None and ping.name == "ping"
        s2.append(stream, "x")
        assert events.batch().json()["records"][0]["seq_num"] == 0


def test_item_41_from_a_timestamp_across_batches(s2: S2Client, stream: str) -> None:
    for first in range(100, 200, 10):
        append_at(s2, stream, first, first + 5, first + 5, first + 9)
    everything = [str(first + more) for first in range(100, 200, 10) for more in (0, 5, 5, 9)]
    for start in (100, 105, 109, 110, 134, 135, 136, 199):
        assert s2.bodies(stream, timestamp=start) == [body for body in everything if int(body) >= start]


def test_item_42_until(s2: S2Client, stream: str) -> None:
    append_at(s2, stream, 10, 20, 30)
    append_at(s2, stream, 30, 40)
    assert s2.bodies(stream, seq_num=0, until=30) == ["10", "20"]
    assert s2.bodies(stream, seq_num=0, until=31) == ["10", "20", "30", "30"]
    assert s2.bodies(stream, timestamp=20, until=21) == ["20"]
    assert s2.bodies(stream, seq_num=0, until=1) == []
    for until in (5, 4):
        message = s2.read(stream, timestamp=5, until=until).fails(422, "invalid")
        assert message == "start `timestamp` exceeds or equal to `until`"
        s2.read("no such stream", timestamp=5, until=until).fails(422, "invalid")  # before any lookup


def test_item_43_pages_of_a_thousand_records(s2: S2Client, stream: str) -> None:
    for first in range(0, 2500, 500):
        s2.append_proto(stream, append_input(*(b"%d" % number for number in range(first, first + 500))))
    found: list[str] = []
    sizes = []
    while len(found) < 2500:
        page = s2.bodies(stream, seq_num=len(found))
        sizes.append(len(page))
        found += page
    assert found == [str(number) for number in range(2500)]
    assert max(sizes) <= 1000
    assert len(s2.bodies(stream, seq_num=0, count=5000)) <= 1000


def test_item_43_pages_of_a_mebibyte(s2: S2Client, stream: str) -> None:
    body = b"x" * 300_000
    for _ in range(3):
        s2.append_proto(stream, append_input(body, body, body))
    at = 0
    while at < 9:
        batch = s2.read_proto(stream, seq_num=at, bytes=100 * MIB)
        assert [record.seq_num for record in batch.records] == list(range(at, at + len(batch.records)))
        assert 0 < sum(8 + len(record.body) for record in batch.records) <= MIB
        at += len(batch.records)
    s2.append_proto(stream, append_input(b"y" * (MIB - 8)))
    assert len(s2.read_proto(stream, seq_num=9).records[0].body) == MIB - 8


def test_item_45_bytes_that_are_not_utf8(s2: S2Client, stream: str) -> None:
    body = b"ok \xff\xfe \xf0\x9f\x98\x80 \xed\xa0\x80 \xc3"
    s2.append_proto(stream, append_input(body))
    assert s2.bodies(stream, seq_num=0) == [body.decode("utf-8", "replace")]
    encoded = s2.read(stream, {"s2-format": "base64"}, seq_num=0).json()["records"][0]["body"]
    assert encoded == b64(body)
    assert base64.b64decode(encoded) == body
    assert s2.read_proto(stream, seq_num=0).records[0].body == body


def test_item_46_protobuf(s2: S2Client, stream: str) -> None:
    s2.append(stream, "x", "")
    batch = s2.read_proto(stream, seq_num=0)
    assert [(record.seq_num, record.body) for record in batch.records] == [(0, b"x"), (1, b"")]
    answer = s2.read(stream, {"accept": "application/protobuf"}, seq_num=2)
    assert answer.json(416) == {"tail": s2.tail(stream)}
    nothing = s2.read(stream, {"accept": "application/protobuf"}, seq_num=0, count=0)
    assert (nothing.status, pb.ReadBatch.FromString(nothing.body).records[:]) == (200, [])


def test_item_47_from_below_the_trim_point(s2: S2Client, stream: str) -> None:
    s2.append(stream, *"abcdef")
    s2.trim(stream, 3).json()
    for _ in eventually(5):
        found = [record["seq_num"] for record in s2.read(stream, seq_num=0).json()["records"]]
        if found[0] == 3:
            break
    assert found == [3, 4, 5, 6]
    assert s2.read(stream, seq_num=2).json()["records"][0]["seq_num"] == 3
    assert s2.read(stream, seq_num=4).json()["records"][0]["seq_num"] == 4
    assert s2.read(stream, tail_offset=100).json()["records"][0]["seq_num"] == 3
    assert s2.read(stream, timestamp=0).json()["records"][0]["seq_num"] == 3


def test_item_48_create_stream_on_read(s2: S2Client, own_basin: S2Client) -> None:
    s2.read("never made", seq_num=0).fails(404, "stream_not_found")
    assert own_basin.basin is not None
    own_basin.ensure_basin(own_basin.basin, create_stream_on_read=True)
    empty = {"seq_num": 0, "timestamp": 0}
    assert own_basin.read("by-read", seq_num=0).json(416) == {"tail": empty}
    assert own_basin.tail("by-tail") == empty
    with own_basin.events("by-sse") as events:
        ping = events.next()
        assert ping is not None
        assert ping.json()["tail"] == empty
    with own_basin.read_session("by-s2s") as session:
        assert session.batch().tail.seq_num == 0
    listed = [info["name"] for info in own_basin.request("GET", "/v1/streams").json()["streams"]]
    assert listed == ["by-read", "by-s2s", "by-sse", "by-tail"]
    # Appending does not create: the other flag is false.
    own_basin.append_json("by-append", {"records": [{"body": "x"}]}).fails(404, "stream_not_found")


def test_the_seeds_format_names(s2: S2Client, stream: str) -> None:
    """`s2-format: json` and `json-binsafe` are aliases of raw and base64 (fact sheet, section 0)."""
    s2.append(stream, "x")
    answer = s2.request("GET", stream_path(stream) + "/records", None, {"s2-format": "json"}, seq_num=0)
    assert answer.json()["records"][0]["body"] == "x"
    answer = s2.request("GET", stream_path(stream) + "/records", None, {"s2-format": "json-binsafe"}, seq_num=0)
    assert answer.json()["records"][0]["body"] == "eA=="


@pytest.mark.parametrize("bound", ["count", "bytes"])
def test_a_read_of_nothing_is_complete_wherever_it_starts(s2: S2Client, stream: str, bound: str) -> None:
    """As in s2-lite since 0.43: the bounds are met before the start is looked at."""
    for start in ({"seq_num": 0}, {"seq_num": 9}, {"tail_offset": 0}, {"timestamp": 10**15}):
        assert s2.read(stream, **start, **{bound: 0}).json()["records"] == []
        with s2.events(stream, **start, **{bound: 0}) as events:
            assert [event.data for event in events.rest()] == ["[DONE]"]
        with s2.read_session(stream, **start, **{bound: 0}) as session:
            assert session.rest() == []


def test_a_resumed_read_that_had_all_it_asked_for_is_complete(s2: S2Client, stream: str) -> None:
    s2.append(stream, "x")
    for last in ("0,1,9", "7,1,9"):
        with s2.events(stream, headers={"last-event-id": last}, seq_num=0, count=1) as events:
            assert [event.data for event in events.rest()] == ["[DONE]"]
