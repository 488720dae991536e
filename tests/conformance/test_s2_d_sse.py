"""S2 checklist, group D: reads as server-sent events (S2 fact sheet, section 10 and 3)."""

from pathlib import Path

import pytest
from support.http.h2_client import H2Connection
from support.process import GatewayProcess
from support.s2.client import S2Client, eventually, stream_path

both = pytest.mark.parametrize("carrier", ["h1", "h2"])


@both
def test_item_49_bounded_read(s2: S2Client, stream: str, carrier: str) -> None:
    s2.append(stream, "a", "bb", "ccc")
    with s2.events(stream, carrier, seq_num=0, count=2) as events:
        assert events.stream.status == 200
        headers = events.stream.headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers["x-accel-buffering"] == "no"
        found = events.rest()
    *batches, done = found
    assert (done.name, done.id, done.data) == (None, None, "[DONE]")
    assert {event.name for event in batches} == {"batch"}
    assert batches[-1].id == "1,2,19"
    records = [record for event in batches for record in event.json()["records"]]
    assert [(record["seq_num"], record["body"]) for record in records] == [(0, "a"), (1, "bb")]


def test_item_49_fields_in_order_on_one_line(s2: S2Client, stream: str) -> None:
    s2.append(stream, "line\r\nline\n\nline", "\u2028")
    exchange = s2.open("h1", "GET", stream, {"accept": "text/event-stream"}, seq_num=0, count=2)
    text = b""
    while data := exchange.receive():
        text += data
    exchange.close()
    assert b"\r" not in text
    lines = text.split(b"\n")
    assert [line.split(b":")[0] for line in lines] == [b"event", b"id", b"data", b"", b"data", b"", b""]
    assert lines[0] == b"event: batch"
    assert lines[4] == b"data: [DONE]"


def test_item_49_formats(s2: S2Client, stream: str) -> None:
    s2.append(stream, "naïve")
    with s2.events(stream, headers={"s2-format": "base64"}, seq_num=0, count=1) as events:
        assert events.batch().json()["records"][0]["body"] == "bmHDr3Zl"
    with s2.events(stream, headers={"s2-format": "raw"}, seq_num=0, count=1) as events:
        assert events.batch().json()["records"][0]["body"] == "naïve"
    s2.events(stream, headers={"s2-format": "hex"}, seq_num=0).close()
    answer = s2.read(stream, {"accept": "text/event-stream", "s2-format": "hex"}, seq_num=0)
    answer.fails(400, "bad_header")


def test_item_49_bounds(s2: S2Client, stream: str) -> None:
    records = [{"body": "x" * 10, "timestamp": timestamp} for timestamp in (10, 20, 30)]
    s2.append_json(stream, {"records": records}).json()
    for query, count in (({"bytes": 36}, 2), ({"bytes": 35}, 1), ({"until": 30}, 2), ({"count": 3}, 3)):
        with s2.events(stream, seq_num=0, **query) as events:
            *batches, done = events.rest()
        assert done.data == "[DONE]"
        assert sum(len(event.json()["records"]) for event in batches) == count, query


def test_item_50_only_the_first_media_type_counts(s2: S2Client, stream: str) -> None:
    s2.append(stream, "x")
    answer = s2.read(stream, {"accept": "application/json, text/event-stream"}, seq_num=0)
    assert answer.json()["records"][0]["body"] == "x"
    with s2.events(stream, headers={"accept": "text/event-stream;q=0.9, */*"}, seq_num=0, count=1) as events:
        assert events.stream.headers["content-type"] == "text/event-stream"


@both
def test_item_51_follow(s2: S2Client, stream: str, carrier: str) -> None:
    """The later pings are in test_s2_timers."""
    s2.append(stream, "x")
    with s2.events(stream, carrier) as events:
        ping = events.next(2)
        assert ping is not None
        assert (ping.name, ping.id) == ("ping", None)
        assert set(ping.json()) == {"timestamp", "tail"}
        assert ping.json()["tail"] == s2.tail(stream)
        for number in range(1, 4):
            s2.append(stream, f"live {number}")
            event = events.next(2)
            assert event is not None
            assert event.name == "batch"
            assert event.id == f"{number},{number},{number * 14}"
            assert [record["body"] for record in event.json()["records"]] == [f"live {number}"]


def test_item_51_catch_up_then_follow(s2: S2Client, stream: str) -> None:
    s2.append(stream, *"abc")
    with s2.events(stream, seq_num=1) as events:
        assert [record["body"] for record in events.batch().json()["records"]] == ["b", "c"]
        ping = events.next(2)
        assert ping is not None
        assert ping.name == "ping"


def test_item_52_last_event_id(s2: S2Client, stream: str) -> None:
    s2.append(stream, *"abcdefgh")
    with s2.events(stream, headers={"last-event-id": "1,2,24"}, seq_num=0, count=5) as events:
        *batches, done = events.rest()
    assert done.data == "[DONE]"
    records = [record for event in batches for record in event.json()["records"]]
    assert [record["seq_num"] for record in records] == [2, 3, 4]
    assert batches[-1].id == "4,5,51", "the counts go on (fact sheet 3)"


def test_item_52_a_client_that_is_cut_off_repeatedly_gets_all_records(s2: S2Client, stream: str) -> None:
    """The same URL with the newest id each time, as an EventSource does: the bounds are those of all connections."""
    ids, got = ["0,1,9"], [0]
    for appended in ("abcd", "ef", "ghijklmn"):
        s2.append(stream, *appended)
        with s2.events(stream, headers={"last-event-id": ids[-1]}, seq_num=0, count=10, bytes=1000, wait=0) as events:
            while (event := events.next(5)) is not None and event.data != "[DONE]":
                if event.name == "batch":
                    got += [record["seq_num"] for record in event.json()["records"]]
                    ids.append(event.id)
    assert got == list(range(10))
    assert ids[-1] == "9,10,90"


def test_item_52_an_id_of_the_last_number(s2: S2Client, stream: str) -> None:
    s2.append(stream, "a")
    largest = 2**64 - 1
    head = {"accept": "text/event-stream", "last-event-id": f"{largest},{largest},{largest}"}
    assert s2.read(stream, head, seq_num=0).json(416) == {"tail": s2.tail(stream)}


def test_item_52_last_event_id_reduces_bytes_and_wins_over_any_start(s2: S2Client, stream: str) -> None:
    s2.append(stream, *"abcdefgh")  # metered 9 each
    resume = {"last-event-id": "1,2,18"}
    for query in ({"tail_offset": 1}, {"timestamp": 0}, {}):
        with s2.events(stream, headers=resume, bytes=18 + 27, **query) as events:
            *batches, _ = events.rest()
        assert [record["seq_num"] for event in batches for record in event.json()["records"]] == [2, 3, 4]
    with s2.events(stream, headers={"last-event-id": "3,9,99"}, seq_num=0, count=5) as events:
        assert [event.data for event in events.rest()] == ["[DONE]"]  # the count is used up


def test_item_52_resume_at_the_tail(s2: S2Client, stream: str) -> None:
    s2.append(stream, "a", "b")
    with s2.events(stream, headers={"last-event-id": "1,2,18"}, seq_num=0) as events:
        ping = events.next(2)
        assert ping is not None
        assert ping.name == "ping"
        s2.append(stream, "c")
        assert events.batch().json()["records"][0]["seq_num"] == 2
    head = {"accept": "text/event-stream", "last-event-id": "2,3,27"}
    assert s2.read(stream, head, seq_num=0, count=3).body == b"data: [DONE]\n\n", "416 before s2-lite 0.43"


@pytest.mark.parametrize("value", ["x", "1:2:3", "1,2", "1,2,3,4", "-1,2,3", "1,2,x", "", "18446744073709551616,1,1"])
def test_item_53_malformed_last_event_id(s2: S2Client, stream: str, value: str) -> None:
    s2.append(stream, "x")
    answer = s2.read(stream, {"accept": "text/event-stream", "last-event-id": value}, seq_num=0)
    answer.fails(400, "bad_header")


def test_item_54_start_beyond_the_tail(s2: S2Client, stream: str) -> None:
    s2.append(stream, "x")
    head = {"accept": "text/event-stream"}
    tail = {"tail": s2.tail(stream)}
    assert s2.read(stream, head, seq_num=2).json(416) == tail
    assert s2.read(stream, head, seq_num=1, count=1).json(416) == tail
    s2.read("nope", head, seq_num=0).fails(404, "stream_not_found")
    with s2.events(stream, seq_num=9, clamp="true") as events:
        ping = events.next(2)
        assert ping is not None
        assert ping.name == "ping"


@both
def test_item_55_deletion_while_following(s2: S2Client, stream: str, carrier: str) -> None:
    s2.append(stream, "x")
    with s2.events(stream, carrier, seq_num=0) as events:
        events.batch()
        ping = events.next(2)
        assert ping is not None
        assert ping.name == "ping"
        assert s2.request("DELETE", stream_path(stream)).status == 202
        found = events.rest(5)
    assert [(event.name, event.id) for event in found] == [("error", None)]
    assert set(found[0].json()) == {"code", "message"}


def open_files(process: GatewayProcess) -> int:
    """Return how many files and sockets the gateway has open."""
    return sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir())


def test_item_57_a_client_that_leaves_frees_its_follower(fresh_gateway: GatewayProcess) -> None:
    """Seen from outside: the gateway closes the connections of followers that went away while nothing happened."""
    s2 = S2Client(("127.0.0.1", fresh_gateway.s2_port)).ensure_basin("conf-basin-01")
    s2.ensure_stream("s")
    before = open_files(fresh_gateway)
    followers = [s2.events("s", seq_num=0) for _ in range(40)]
    for follower in followers:
        ping = follower.next()
        assert ping is not None
        assert ping.name == "ping"
    assert open_files(fresh_gateway) >= before + 38  # those that made the stream may have gone by now
    for follower in followers:
        follower.close()
    for _ in eventually(5):
        if open_files(fresh_gateway) <= before:
            break
    else:
        pytest.fail(f"{open_files(fresh_gateway) - before} connections are still there")


def test_item_57_resetting_a_stream_frees_its_follower(s2: S2Client, stream: str) -> None:
    """On one HTTP/2 connection there is room for many followers one after the other, if each is given up."""
    connection = H2Connection(s2.address)
    for _ in range(5):
        followers = [s2.events(stream, connection, seq_num=0) for _ in range(100)]
        for follower in followers:
            ping = follower.next()
            assert ping is not None
            assert ping.name == "ping"
        for follower in followers:
            follower.close()
    connection.close()


def test_the_seeds_dialect(s2_seed_dialect: S2Client) -> None:
    """Colon ids, empty pings, an event `done`, base64 by default, `utf8` (the seeds' streaming page)."""
    s2 = s2_seed_dialect
    s2.ensure_stream("seed")
    s2.append("seed", "a", "b")
    with s2.events("seed", seq_num=0) as events:
        batch = events.batch()
        assert batch.id == "1:2:18"
        assert [record["body"] for record in batch.json()["records"]] == ["YQ==", "Yg=="]
        ping = events.next(2)
        assert ping is not None
        assert (ping.name, ping.id, ping.data) == ("ping", "1:2:18", "")
    with s2.events("seed", headers={"s2-format": "utf8", "last-event-id": "0:1:9"}, count=2, bytes=100) as events:
        batch, done = events.rest()
        assert [record["body"] for record in batch.json()["records"]] == ["b"]
        assert batch.id == "1:2:18"
        assert (done.name, done.data) == ("done", "")
