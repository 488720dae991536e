"""A record written through one protocol is read through every other: same bytes, one order, one set of positions."""

import base64
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import NamedTuple

import pytest
from support.s2.client import BASE64, S2Client, b64
from support.s2.frames import append_input
from support.s3p.client import S3PClient, S3PError, parse_id

from penstock_proto import s2_pb2 as pb

MIB = 1 << 20
LARGEST = MIB - 8
_numbers = count()


class Seen(NamedTuple):
    """A record as S2's readers see it."""

    seq_num: int
    timestamp: int
    body: bytes


@pytest.fixture
def shared(shared_basin: S2Client, s3p: S3PClient) -> str:
    """A new stream that both S2 and S3P know by one name."""
    name = f"cross-{next(_numbers)}"
    assert s3p.create(name) == "OK"
    return name


# ---- ways of writing: each appends one batch and gives the position of its last record ------------------------------


def write_json_raw(s2: S2Client, _: S3PClient, stream: str, bodies: list[bytes]) -> int:
    """JSON can carry text only; other bodies go as base64."""
    try:
        records = [{"body": body.decode()} for body in bodies]
    except UnicodeDecodeError:
        return write_json_base64(s2, _, stream, bodies)
    return int(s2.append_json(stream, {"records": records}).json()["end"]["timestamp"])


def write_json_base64(s2: S2Client, _: S3PClient, stream: str, bodies: list[bytes]) -> int:
    records = [{"body": b64(body)} for body in bodies]
    return int(s2.append_json(stream, {"records": records}, BASE64).json()["end"]["timestamp"])


def write_protobuf(s2: S2Client, _: S3PClient, stream: str, bodies: list[bytes]) -> int:
    answer = s2.append_proto(stream, append_input(*bodies))
    assert answer.status == 200, answer
    return pb.AppendAck.FromString(answer.body).end.timestamp


def write_s2s(carrier: str) -> Callable[[S2Client, S3PClient, str, list[bytes]], int]:
    def write(s2: S2Client, _: S3PClient, stream: str, bodies: list[bytes]) -> int:
        with s2.append_session(stream, carrier) as session:
            session.send(append_input(*bodies))
            return session.ack().end.timestamp

    return write


def write_s3p(_: S2Client, s3p: S3PClient, stream: str, bodies: list[bytes]) -> int:
    reply = s3p.append(stream, *bodies)
    assert isinstance(reply, bytes), reply
    return parse_id(reply)[0]


WRITERS = {
    "JSON raw": write_json_raw,
    "JSON base64": write_json_base64,
    "protobuf": write_protobuf,
    "S2S h1": write_s2s("h1"),
    "S2S h2": write_s2s("h2"),
    "S3P": write_s3p,
}

# ---- ways of reading: each gives the whole stream ------------------------------------------------------------------


def read_json(s2: S2Client, stream: str, total: int, headers: dict[str, str]) -> list[dict]:
    found: list[dict] = []
    while len(found) < total:
        found += s2.read(stream, headers, seq_num=len(found)).json()["records"]
    return found


def read_json_base64(s2: S2Client, stream: str, total: int) -> list[Seen]:
    return [_seen_base64(record) for record in read_json(s2, stream, total, BASE64)]


def _seen_base64(record: dict) -> Seen:
    body = base64.b64decode(record.get("body", ""), validate=True)
    return Seen(record["seq_num"], record["timestamp"], body)


def read_protobuf(s2: S2Client, stream: str, total: int) -> list[Seen]:
    found: list[Seen] = []
    while len(found) < total:
        records = s2.read_proto(stream, seq_num=len(found)).records
        found += [Seen(record.seq_num, record.timestamp, record.body) for record in records]
    return found


def read_sse(carrier: str) -> Callable[[S2Client, str, int], list[Seen]]:
    def read(s2: S2Client, stream: str, total: int) -> list[Seen]:
        with s2.events(stream, carrier, BASE64, seq_num=0, count=total) as events:
            *batches, done = events.rest()
        assert done.data == "[DONE]"
        return [_seen_base64(record) for event in batches for record in event.json()["records"]]

    return read


def read_s2s(carrier: str, accepted: str | None = None) -> Callable[[S2Client, str, int], list[Seen]]:
    def read(s2: S2Client, stream: str, total: int) -> list[Seen]:
        headers = {"accept-encoding": accepted} if accepted else {}
        with s2.read_session(stream, carrier, headers, seq_num=0, wait=0) as session:
            batches = [pb.ReadBatch.FromString(frame.message) for frame in session.rest()]
        return [Seen(record.seq_num, record.timestamp, record.body) for batch in batches for record in batch.records]

    return read


READERS = {
    "JSON base64": read_json_base64,
    "protobuf": read_protobuf,
    "SSE h1": read_sse("h1"),
    "SSE h2": read_sse("h2"),
    "S2S h1": read_s2s("h1"),
    "S2S h2": read_s2s("h2"),
    "S2S zstd": read_s2s("h1", "zstd"),
    "S2S gzip": read_s2s("h2", "gzip"),
}


def check_all_readers(s2: S2Client, s3p: S3PClient, stream: str, bodies: list[bytes]) -> list[Seen]:
    """Every reader sees these bodies, in this order, at the same positions."""
    expected = read_protobuf(s2, stream, len(bodies))
    assert [record.seq_num for record in expected] == list(range(len(bodies)))
    assert [record.body for record in expected] == bodies
    stamps = [record.timestamp for record in expected]
    assert stamps == sorted(stamps)
    for name, read in READERS.items():
        assert read(s2, stream, len(bodies)) == expected, name
    text = [record.get("body", "") for record in read_json(s2, stream, len(bodies), {})]
    assert text == [body.decode("utf-8", "replace") for body in bodies]
    assert s3p.read_all(stream) == list(zip(expected_ids(expected), bodies, strict=True))
    return expected


def expected_ids(records: list[Seen]) -> list[bytes]:
    """S3P identifiers from S2's timestamps: the second number counts the records of one ms."""
    ids = []
    last, seq = -1, 0
    for record in records:
        seq = seq + 1 if record.timestamp == last else 0
        last = record.timestamp
        ids.append(b"%d-%d" % (last, seq))
    return ids


SPECIAL_BODIES = [
    b"plain",
    b"\r\n",
    b"$5\r\nhello\r\n",
    b"*0\r\n",
    b"-ERR\r\n",
    b"data: x\n\nevent: batch\n\n",
    b"\x00",
    bytes(range(256)),
    "naïve ☃ 😀".encode(),
    "\u2028\u2029\ufeff".encode(),
    b"\xff\xfe\xed\xa0\x80",
    b'"}]}\\',
    b" ",
    b"x" * 1023,
    b"x" * 1024,
    b"y" * 65_536,
]


@pytest.mark.parametrize("writer", WRITERS)
def test_every_writer_against_every_reader(shared_basin: S2Client, s3p: S3PClient, shared: str, writer: str) -> None:
    WRITERS[writer](shared_basin, s3p, shared, SPECIAL_BODIES)
    check_all_readers(shared_basin, s3p, shared, SPECIAL_BODIES)


@pytest.mark.parametrize("writer", WRITERS)
def test_the_largest_record(shared_basin: S2Client, s3p: S3PClient, shared: str, writer: str) -> None:
    body = random.Random(writer).randbytes(LARGEST)
    WRITERS[writer](shared_basin, s3p, shared, [body])
    check_all_readers(shared_basin, s3p, shared, [body])


def random_bodies(dice: random.Random) -> list[bytes]:
    """One batch: binary, text, lines, of all sizes; at most 1 MiB in all."""
    bodies: list[bytes] = []
    room = MIB
    for _ in range(dice.choice([1, 1, 2, 5, 50])):
        size = min(dice.choice([1, 2, 10, 100, 1000, 10_000, dice.randrange(1, 300_000)]), room - 8)
        if size < 1:
            break
        match dice.randrange(4):
            case 0:
                body = dice.randbytes(size)
            case 1:
                body = ("aß☃😀\n" * size).encode()[:size]
            case 2:
                body = (b"line\r\n" * size)[:size]
            case _:
                body = (b"%d " % size * size)[:size]
        bodies.append(body)
        room -= 8 + len(body)
    return bodies


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_mix_of_writers(shared_basin: S2Client, s3p: S3PClient, shared: str, seed: int) -> None:
    dice = random.Random(seed)
    bodies: list[bytes] = []
    stamps: list[tuple[int, int]] = []
    for _ in range(30):
        batch = random_bodies(dice)
        name = dice.choice(list(WRITERS))
        bodies += batch
        stamps.append((len(bodies) - 1, WRITERS[name](shared_basin, s3p, shared, batch)))
    found = check_all_readers(shared_basin, s3p, shared, bodies)
    assert [(index, found[index].timestamp) for index, _ in stamps] == stamps


def test_writers_of_every_kind_at_once(
    shared_basin: S2Client, gateway_s3p: Callable[[], S3PClient], shared: str
) -> None:
    """Concurrent batches are whole, contiguous and in each writer's order, to every reader."""
    rounds, size = 15, 3

    def run(name: str) -> None:
        with gateway_s3p() as own:
            for number in range(rounds):
                batch = [f"{name}/{number}/{index}".encode() for index in range(size)]
                WRITERS[name](shared_basin, own, shared, batch)

    with ThreadPoolExecutor() as pool:
        for job in [pool.submit(run, name) for name in WRITERS]:
            job.result()
    bodies = [record.body for record in read_protobuf(shared_basin, shared, rounds * size * len(WRITERS))]
    batches = [bodies[first : first + size] for first in range(0, len(bodies), size)]
    for name in WRITERS:
        own = [batch for batch in batches if batch[0].startswith(name.encode() + b"/")]
        assert own == [[f"{name}/{number}/{index}".encode() for index in range(size)] for number in range(rounds)]
    with gateway_s3p() as s3p:
        check_all_readers(shared_basin, s3p, shared, bodies)


@pytest.mark.parametrize("writer", WRITERS)
def test_followers_of_every_kind(
    shared_basin: S2Client, s3p: S3PClient, gateway_s3p: Callable[[], S3PClient], shared: str, writer: str
) -> None:
    """Open before anything is written: S2S, SSE, a unary read with wait, an S3P READ with BLOCK."""
    s2 = shared_basin
    body = b"live \xff\r\n"
    with (
        s2.read_session(shared, "h1", seq_num=0) as one,
        s2.read_session(shared, "h2", seq_num=0) as two,
        s2.events(shared, "h1", BASE64, seq_num=0) as three,
        s2.events(shared, "h2", BASE64, seq_num=0) as four,
        gateway_s3p() as five,
        ThreadPoolExecutor(1) as pool,
    ):
        for session in (one, two):
            assert not session.batch().records
        for events in (three, four):
            ping = events.next()
            assert ping is not None
            assert ping.name == "ping"
        five.send("READ", shared, ["BLOCK", 5000])
        waiting = pool.submit(s2.read, shared, BASE64, seq_num=0, wait=5)
        stamp = WRITERS[writer](s2, s3p, shared, [body, b"2"])
        for session in (one, two):
            assert [(record.seq_num, record.body) for record in session.records(2, 2)] == [(0, body), (1, b"2")]
        for events in (three, four):
            assert [_seen_base64(record).body for record in events.batch(2).json()["records"]] == [body, b"2"]
        ids = expected_ids(
            [Seen(record["seq_num"], record["timestamp"], b"") for record in waiting.result(5).json()["records"]]
        )
        assert five.reply() == [ids[0], body, ids[1], b"2"]
        assert parse_id(ids[1])[0] == stamp


# ---- positions -----------------------------------------------------------------------------------------------------


def test_positions_convert(shared_basin: S2Client, s3p: S3PClient, shared: str) -> None:
    """S3P's ID is S2's timestamp; MIN_ID and `timestamp`/`seq_num` starts find the same records."""
    s2 = shared_basin
    assert s3p.append(shared, b"a", b"b", ID=1000) == b"1000-1"
    s2.append_json(shared, {"records": [{"body": "c", "timestamp": 1000}, {"body": "d", "timestamp": 2000}]}).json()
    assert s3p.append(shared, b"e", ID=2000) == b"2000-1"
    assert s3p.append(shared, b"f", ID=3000) == b"3000-0"
    s2.append_json(shared, {"records": [{"body": "g", "timestamp": 5}]}).json()  # raised to the stream's maximum
    rows = [(b"1000-0", b"a"), (b"1000-1", b"b"), (b"1000-2", b"c"), (b"2000-0", b"d"), (b"2000-1", b"e")]
    rows += [(b"3000-0", b"f"), (b"3000-1", b"g")]
    assert s3p.read(shared) == rows
    for index, (identifier, _) in enumerate(rows):
        assert s3p.read(shared, MIN_ID=identifier) == rows[index:]
        assert s2.bodies(shared, seq_num=index) == [body.decode() for _, body in rows[index:]]
        timestamp = parse_id(identifier)[0]
        first = next(place for place, (other, _) in enumerate(rows) if parse_id(other)[0] >= timestamp)
        assert s2.bodies(shared, timestamp=timestamp) == [body.decode() for _, body in rows[first:]]
    error = s3p.append(shared, b"x", ID=2999)
    assert isinstance(error, S3PError)
    assert error.code == "ERR_NON_MONOTONIC_ID"
    assert s2.tail(shared) == {"seq_num": 7, "timestamp": 3000}


def test_a_trim_of_either_protocol_is_seen_by_both(shared_basin: S2Client, s3p: S3PClient, shared: str) -> None:
    for ms in (10, 20, 20, 30):
        s3p.append(shared, b"%d" % ms, ID=ms)
    assert s3p.call("TRIM", shared, ["MIN_ID", "20-0"]) == "OK"
    assert s3p.read(shared) == [(b"20-0", b"20"), (b"20-1", b"20"), (b"30-0", b"30")]
    assert [record["seq_num"] for record in shared_basin.read(shared, seq_num=0).json()["records"]] == [1, 2, 3]
    assert s3p.call("TRIM", shared, ["MIN_ID", "20-1"]) == "OK"
    assert s3p.read(shared) == [(b"20-1", b"20"), (b"30-0", b"30")]
    assert s3p.call("TRIM", shared, ["MIN_ID", "99-0"]) == "OK"
    assert s3p.read(shared) == []
    assert shared_basin.tail(shared) == {"seq_num": 4, "timestamp": 30}
    assert s3p.append(shared, b"next", ID=30) == b"30-1"
    assert shared_basin.bodies(shared, seq_num=0) == ["next"]


def test_streams_made_and_deleted_by_either_protocol(shared_basin: S2Client, s3p: S3PClient) -> None:
    made_by_s2 = shared_basin.ensure_stream(f"cross-made-{next(_numbers)}")
    error = s3p.create(made_by_s2)
    assert isinstance(error, S3PError)
    assert error.code == "ERR_STREAM_EXISTS"
    assert isinstance(s3p.append(made_by_s2, b"x"), bytes)
    assert s3p.call("DELETE", made_by_s2, []) == "OK"
    names = [info["name"] for info in shared_basin.request("GET", "/v1/streams", prefix=made_by_s2).json()["streams"]]
    assert made_by_s2 not in names

    made_by_s3p = f"cross-made-{next(_numbers)}"
    assert s3p.create(made_by_s3p) == "OK"
    assert shared_basin.request("DELETE", f"/v1/streams/{made_by_s3p}").status == 202
    error = s3p.read(made_by_s3p)
    assert isinstance(error, S3PError)
    assert error.code == "ERR_UNKNOWN_STREAM"


NAMES = {  # S3P: S2 (docs/names.md)
    b"with space": "with space",
    b"sl/ash": "sl/ash",
    "naïve ☃".encode(): "naïve ☃",
    b"percent%2F": "percent%252F",
    b"a:b@c\r\n": "a:b@c\r\n",
    b"x" * 200: "x" * 200,
    b"\xff\x00": "%FF%00",
    b"..": "%2E%2E",
}


@pytest.mark.parametrize(("s3p_name", "s2_name"), NAMES.items())
def test_names(shared_basin: S2Client, s3p: S3PClient, s3p_name: bytes, s2_name: str) -> None:
    """UTF-8 is the same for both; S2 names use %XX for bytes that S2 cannot express."""
    assert s3p.create(s3p_name) == "OK"
    s3p.append(s3p_name, b"x")
    listed = [info["name"] for info in shared_basin.request("GET", "/v1/streams").json()["streams"]]
    assert s2_name in listed
    assert shared_basin.bodies(s2_name, seq_num=0) == ["x"]
    shared_basin.append(s2_name, "y")
    assert [body for _, body in s3p.read(s3p_name)] == [b"x", b"y"]


def test_an_append_without_create_is_unknown_to_s3p(shared_basin: S2Client, s3p: S3PClient) -> None:
    """S3P wants CREATE first (8.2), also where the basin creates streams for S2."""
    name = f"cross-never-{next(_numbers)}"
    for reply in (s3p.append(name, b"x"), s3p.read(name), s3p.call("TRIM", name, ["MIN_ID", "0-0"])):
        assert isinstance(reply, S3PError)
        assert reply.code == "ERR_UNKNOWN_STREAM"
    assert shared_basin.request("GET", "/v1/streams", prefix=name).json()["streams"] == []
