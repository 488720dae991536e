"""S2 checklist, group F: S2S read sessions (S2 fact sheet, section 10 and 2.4), over HTTP/1.1 and h2c."""

import threading
import time

import pytest
from support.http.h2_client import H2Connection
from support.process import GatewayProcess
from support.s2.client import Http1Stream, S2Client, eventually, stream_path
from support.s2.frames import ADVISED, GZIP, ZSTD, Session, append_input

from penstock_proto import s2_pb2 as pb

MIB = 1 << 20
both = pytest.mark.parametrize("carrier", ["h1", "h2"])


@both
@pytest.mark.parametrize("accept", [None, "text/event-stream", "application/json"])
def test_item_70_chosen_by_content_type(s2: S2Client, stream: str, carrier: str, accept: str | None) -> None:
    s2.append(stream, "x")
    headers = {} if accept is None else {"accept": accept}
    with s2.read_session(stream, carrier, headers, seq_num=0) as session:
        assert session.stream.status == 200
        head = session.stream.headers
        assert head["content-type"] == "s2s/proto"
        assert head["cache-control"] == "no-cache, no-transform"
        assert head["x-accel-buffering"] == "no"
        assert not {"content-length", "content-encoding"} & set(head)
        assert [record.body for record in session.batch().records] == [b"x"]


@both
def test_item_71_catch_up_then_follow(s2: S2Client, stream: str, carrier: str) -> None:
    """The later heartbeats are in test_s2_timers."""
    for first in range(0, 3000, 1000):
        s2.append_proto(stream, append_input(*(b"%d" % number for number in range(first, first + 1000))))
    with s2.read_session(stream, carrier, seq_num=0) as session:
        found: list[pb.SequencedRecord] = []
        while len(found) < 3000:
            batch = session.batch()
            assert 0 < len(batch.records) <= 1000
            found += batch.records
        assert [(record.seq_num, record.body) for record in found] == [
            (number, b"%d" % number) for number in range(3000)
        ]
        heartbeat = session.next(2)
        assert heartbeat is not None
        assert heartbeat.flag == 0
        assert heartbeat.payload[:1] == b"\x12"  # no records, the tail
        tail = pb.ReadBatch.FromString(heartbeat.payload).tail
        assert {"seq_num": tail.seq_num, "timestamp": tail.timestamp} == s2.tail(stream)
        for number in range(3):
            s2.append(stream, f"live {number}")
            live = session.batch(2)
            assert [(record.seq_num, record.body) for record in live.records] == [(3000 + number, b"live %d" % number)]


def test_item_71_heartbeat_of_an_empty_stream(s2: S2Client, stream: str) -> None:
    with s2.read_session(stream, seq_num=0) as session:
        assert session.next(2) == (0, b"\x12\x00")


@both
def test_item_72_count(s2: S2Client, stream: str, carrier: str) -> None:
    for _ in range(5):
        s2.append(stream, *"abcd")
    for count in (1, 4, 7, 20):
        with s2.read_session(stream, carrier, seq_num=0, count=count) as session:
            frames = session.rest()
        assert not any(frame.terminal for frame in frames)
        records = [record for frame in frames for record in pb.ReadBatch.FromString(frame.message).records]
        assert [record.seq_num for record in records] == list(range(count))


@both
def test_item_72_count_that_the_stream_does_not_have_yet(s2: S2Client, stream: str, carrier: str) -> None:
    """A bounded read without wait ends at the tail; with wait it waits for the rest."""
    s2.append(stream, "a")
    with s2.read_session(stream, carrier, seq_num=0, count=3) as session:
        records = [record for frame in session.rest() for record in pb.ReadBatch.FromString(frame.message).records]
        assert len(records) == 1
    with s2.read_session(stream, carrier, seq_num=0, count=3, wait=10) as session:
        assert session.records(1)
        s2.append(stream, "b", "c", "d")
        assert [record.body for record in session.records(2)] == [b"b", b"c"]
        assert session.rest() == []


@both
def test_item_73_wait_0(s2: S2Client, stream: str, carrier: str) -> None:
    with s2.read_session(stream, carrier, seq_num=0, wait=0) as session:
        assert session.stream.status == 200
        assert session.rest(2) == []
    s2.append(stream, "a", "b")
    with s2.read_session(stream, carrier, seq_num=0, wait=0) as session:
        batches = [pb.ReadBatch.FromString(frame.message) for frame in session.rest(2)]
    assert [record.body for batch in batches for record in batch.records] == [b"a", b"b"]
    assert all(batch.records for batch in batches), "there was a heartbeat"


@both
@pytest.mark.parametrize(
    ("accepted", "flag"),
    [
        ("zstd, gzip", ZSTD),
        ("gzip, zstd", ZSTD),
        ("gzip;q=1.0, zstd;q=0.1", ZSTD),
        ("gzip", GZIP),
        ("br", 0),
        (None, 0),
    ],
)
def test_item_74_compression(s2: S2Client, stream: str, carrier: str, accepted: str | None, flag: int) -> None:
    large = "compress me " * 1000
    s2.append(stream, large)
    headers = {} if accepted is None else {"accept-encoding": accepted}
    with s2.read_session(stream, carrier, headers, seq_num=0) as session:
        first = session.next()
        assert first is not None
        # `zstd;q=0.1` is no token equal to `zstd` (2.1), so servers may differ there; ours must pick what was named.
        assert first.flag in ({flag, GZIP} if accepted and ";" in accepted else {flag})
        assert pb.ReadBatch.FromString(first.message).records[0].body == large.encode()
        heartbeat = session.next()
        assert heartbeat is not None
        assert heartbeat.flag == 0
        s2.append(stream, "small")
        small = session.next()
        assert small is not None
        assert small.flag == 0


@both
def test_item_75_start_beyond_the_tail(s2: S2Client, stream: str, carrier: str) -> None:
    s2.append(stream, "x")
    tail = s2.tail(stream)
    with s2.read_session(stream, carrier, seq_num=5) as session:
        assert session.stream.status == 416
        assert session.stream.headers["content-type"] == "application/json"
        assert session.stream.receive() == b'{"tail":{"seq_num":1,"timestamp":%d}}' % tail["timestamp"]
    with s2.read_session(stream, carrier, seq_num=5, clamp="true") as session:
        assert session.stream.status == 200
        heartbeat = session.batch()
        assert (len(heartbeat.records), heartbeat.tail.seq_num) == (0, 1)
        s2.append(stream, "y")
        assert [record.body for record in session.batch().records] == [b"y"]


def test_item_76_no_gap_and_no_repeat_at_the_switch_to_following(s2: S2Client, stream: str) -> None:
    """Sessions begin at every moment of a run of appends, so that some begin between the tail check and following."""
    total = 300
    done = threading.Event()

    def write() -> None:
        with s2.append_session(stream) as session:
            for number in range(total):
                session.send(append_input(b"%d" % number))
                session.ack()
        done.set()

    failures: list[object] = []

    def follow(**start: object) -> None:
        try:
            with s2.read_session(stream, **start) as session:
                first = None
                expected = None
                while expected != total:
                    for record in session.batch().records:
                        first = record.seq_num if first is None else first
                        assert expected is None or record.seq_num == expected
                        assert record.body == b"%d" % record.seq_num
                        expected = record.seq_num + 1
                assert "seq_num" not in start or first == start["seq_num"]
        except BaseException as error:
            failures.append((start, error))

    writer = threading.Thread(target=write)
    writer.start()
    followers = []
    while not done.is_set() and len(followers) < 30:
        for start in ({"seq_num": 0}, {"seq_num": 0, "clamp": "true"}, {"tail_offset": 1}):
            thread = threading.Thread(target=follow, kwargs=start)
            thread.start()
            followers.append(thread)
        time.sleep(0.03)
    writer.join()
    for thread in followers:
        thread.join(20)
    assert not failures, failures[0]
    assert len(followers) >= 6


@both
def test_item_77_a_record_of_one_mebibyte(s2: S2Client, stream: str, carrier: str) -> None:
    body = bytes(range(256)) * 4096
    body = body[: MIB - 8]
    with s2.append_session(stream, carrier) as writer:
        writer.send(append_input(body))
        writer.ack()
    with s2.read_session(stream, carrier, seq_num=0, count=1) as session:
        frames = session.rest()
    assert len(frames) == 1
    assert len(frames[0].payload) < 2 * MIB
    assert pb.ReadBatch.FromString(frames[0].message).records[0].body == body


def test_item_78_drain(fresh_gateway: GatewayProcess) -> None:
    """On SIGTERM the next frames advise to reconnect; new requests are refused without side effects."""
    s2 = S2Client(("127.0.0.1", fresh_gateway.s2_port)).ensure_basin("drain-basin")
    s2.ensure_stream("s")
    s2.append("s", "x")
    keep_alive = [s2.append_session("s", "h1"), s2.append_session("s", "h2")]
    followers = [s2.read_session("s", "h1", seq_num=0), s2.read_session("s", "h2", seq_num=0)]
    for session in followers:
        assert session.batch().records
        assert not session.batch().records
    for session in keep_alive:
        session.send(append_input(b"before"))
        frame = session.next()
        assert frame is not None
        assert frame.flag == 0
    for session in followers:
        session.records(2)

    assert fresh_gateway.process is not None
    fresh_gateway.process.terminate()
    for session in followers:  # at once, not at the next heartbeat's time
        frame = session.next(3)
        assert frame is not None
        assert frame.flag & ADVISED, frame
        assert not frame.terminal
        session.close()
    for session in keep_alive:
        session.send(append_input(b"during"))
        frame = session.next(3)
        assert frame is not None
        assert frame.flag & ADVISED, frame
        assert pb.AppendAck.FromString(frame.payload).end.seq_num in (4, 5)
        session.stream.end()
        assert session.rest(3) == []
        session.close()
    assert fresh_gateway.process.wait(10) == 0

    fresh_gateway.start()
    s2 = S2Client(("127.0.0.1", fresh_gateway.s2_port), "drain-basin")
    assert s2.bodies("s", seq_num=0) == ["x", "before", "before", "during", "during"]


@pytest.mark.slow
def test_item_78_new_requests_while_draining(fresh_gateway: GatewayProcess) -> None:
    """A connection that is open already may still ask: it is told `server_draining`."""
    s2 = S2Client(("127.0.0.1", fresh_gateway.s2_port)).ensure_basin("drain-basin")
    s2.ensure_stream("s")
    connection = H2Connection(s2.address)
    held = s2.append_session("s", connection)
    assert held.stream.status == 200
    assert fresh_gateway.process is not None
    fresh_gateway.process.terminate()
    for _ in eventually(5):
        try:
            if s2.request("GET", stream_path("s") + "/records/tail").status == 503:
                break  # accepted just before the listener was closed
        except OSError:
            break
    late = connection.open("GET", stream_path("s") + "/records/tail", s2.head())
    assert late.status == 503
    assert b'"server_draining"' in late.receive()
    # The session that is open already may go on for the grace time, and is then ended in order.
    held.send(append_input(b"x"))
    assert held.ack(1).end.seq_num == 1
    status, error = held.failure(6)
    assert (status, error["code"]) == (503, "server_draining")
    assert fresh_gateway.process.wait(3) == 0
    connection.close()


@both
def test_deletion_while_following_is_a_terminal_frame(s2: S2Client, stream: str, carrier: str) -> None:
    """The counterpart of item 55."""
    with s2.read_session(stream, carrier, seq_num=0) as session:
        session.batch()
        assert s2.request("DELETE", stream_path(stream)).status == 202
        status, error = session.failure(5)
    assert status in (404, 409, 503)
    assert set(error) == {"code", "message"}


@pytest.mark.parametrize("form", ["path", "accept"])
def test_the_seeds_spellings(s2: S2Client, stream: str, form: str) -> None:
    """GET .../read by path and GET .../records, both chosen by `Accept: s2s/proto` alone."""
    s2.append(stream, "x")
    if form == "path":
        target = f"/v1/basins/{s2.basin}{stream_path(stream).removeprefix('/v1')}/read?wait=300&seq_num=0"
        headers = {"accept": "s2s/proto"}
    else:
        target = stream_path(stream) + "/records?seq_num=0"
        headers = s2.head({"accept": "s2s/proto"})
    with Session(Http1Stream(s2.address, "GET", target, headers)) as session:
        assert session.stream.headers["content-type"] == "s2s/proto"
        assert [record.body for record in session.batch().records] == [b"x"]
        assert not session.batch().records
