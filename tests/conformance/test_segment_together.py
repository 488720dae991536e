"""One stream, all protocols: S2S, JSON, S3P and both segment dialects write and read one order of records."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID, uuid4

import pytest
from support.s2.client import BASE64, S2Client, b64
from support.s2.frames import append_input
from support.s3p.client import S3PClient, S3PError, parse_id
from support.segment.client import DraftSocket, ReleasedSocket, bytes_of

from penstock.model.limits import MIB
from penstock_pravega.codec import append_messages, draft, join_events, released, split_events
from penstock_proto import s2_pb2 as pb

LARGEST = MIB - 8
"""Largest body that readers of every protocol can get in one record, in bytes."""


class Peers(NamedTuple):
    """A client of each kind, one stream, and the names by which they know it."""

    s2: S2Client
    s3p: S3PClient
    released: ReleasedSocket
    draft: DraftSocket
    stream: str
    segment: str


@pytest.fixture
def peers(
    shared_basin: S2Client,
    s3p: S3PClient,
    released_socket: Callable[[], ReleasedSocket],
    draft_socket: Callable[[], DraftSocket],
    segment: str,
) -> Peers:
    with released_socket() as one, draft_socket() as two:
        one.create(segment)
        yield Peers(shared_basin, s3p, one, two, segment.split("/")[1], segment)


# ---- writing: each appends one batch ---------------------------------------------------------------------------------


def write_s2s(peers: Peers, bodies: list[bytes]) -> None:
    with peers.s2.append_session(peers.stream, "h2") as session:
        session.send(append_input(*bodies))
        session.ack()


def write_json(peers: Peers, bodies: list[bytes]) -> None:
    records = [{"body": b64(body)} for body in bodies]
    peers.s2.append_json(peers.stream, {"records": records}, BASE64).json()


def write_s3p(peers: Peers, bodies: list[bytes]) -> None:
    reply = peers.s3p.append(peers.stream, *bodies)
    assert isinstance(reply, bytes), reply


def write_released(peers: Peers, bodies: list[bytes]) -> None:
    peers.released.append(peers.released.writer(peers.segment), bodies, len(bodies))


def write_released_block(peers: Peers, bodies: list[bytes]) -> None:
    """With the last event split between AppendBlock and AppendBlockEnd."""
    size = len(join_events(bodies))
    peers.released.append(peers.released.writer(peers.segment), bodies, len(bodies), block_size=size - 1)


def write_released_alone(peers: Peers, bodies: list[bytes]) -> None:
    """One conditional append per event."""
    client = peers.released
    writer, offset = client.writer(peers.segment), client.info(peers.segment).write_offset
    for number, body in enumerate(bodies):
        message = released.ConditionalAppend(writer, number, offset, body, client.next_id())
        offset = client.expect(released.DataAppended, message).current_segment_write_offset


def write_draft(peers: Peers, bodies: list[bytes]) -> None:
    connection = uuid4()
    assert peers.draft.setup(peers.segment, connection) == 0
    peers.draft.append(connection, 0, bodies)


def write_draft_split(peers: Peers, bodies: list[bytes]) -> None:
    """As the seed's last paragraph has it: the last event in Partials around the end of the block."""
    connection = uuid4()
    assert peers.draft.setup(peers.segment, connection) == 0
    size = len(join_events(bodies))
    begin, end = draft.partials(draft.Event(bodies[-1]), [9])
    inside = [*map(draft.Event, bodies[:-1]), begin]
    announced = len(bytes_of(*inside))
    start = draft.BeginAppendBlock(connection, 0, announced)
    peers.draft.send(start, *inside, draft.EndAppendBlock(connection, size, size), end)
    peers.draft.acknowledged(connection, size)


WRITERS = {
    "S2S": write_s2s,
    "JSON": write_json,
    "S3P": write_s3p,
    "released": write_released,
    "released block": write_released_block,
    "released conditional": write_released_alone,
    "draft": write_draft,
    "draft split": write_draft_split,
}

# ---- reading ---------------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """A record as S2's readers see it."""

    seq_num: int
    timestamp: int
    body: bytes


def through_s2s(peers: Peers) -> list[Seen]:
    with peers.s2.read_session(peers.stream, "h2", seq_num=0, wait=0) as session:
        batches = [pb.ReadBatch.FromString(frame.message) for frame in session.rest()]
    return [Seen(record.seq_num, record.timestamp, record.body) for batch in batches for record in batch.records]


def check(peers: Peers, bodies: list[bytes]) -> None:
    """Every protocol reads these bodies in this order, and each finds each record by its own position."""
    seen = through_s2s(peers)
    assert [record.seq_num for record in seen] == list(range(len(bodies)))
    assert [record.body for record in seen] == bodies
    rows = peers.s3p.read_all(peers.stream)
    assert [body for _, body in rows] == bodies
    assert [parse_id(identifier)[0] for identifier, _ in rows] == [record.timestamp for record in seen]
    content = join_events(bodies)
    for client in (peers.released, peers.draft):
        assert client.info(peers.segment).write_offset == len(content)
        assert client.content(peers.segment) == content
    assert split_events(content) == bodies
    assert peers.s2.tail(peers.stream)["seq_num"] == len(bodies)
    offset = 0
    for record, (identifier, _) in zip(seen, rows, strict=True):
        check_position(peers, record, identifier, offset)
        offset += 8 + len(record.body)


def check_position(peers: Peers, record: Seen, identifier: bytes, offset: int) -> None:
    """Sequence number, timestamp, identifier and byte offset are the same record's."""
    (by_seq_num,) = peers.s2.read_proto(peers.stream, seq_num=record.seq_num, count=1).records
    assert Seen(by_seq_num.seq_num, by_seq_num.timestamp, by_seq_num.body) == record
    (by_time,) = peers.s2.read_proto(peers.stream, timestamp=record.timestamp, count=1).records
    assert (by_time.timestamp, by_time.seq_num <= record.seq_num) == (record.timestamp, True)
    assert peers.s3p.read(peers.stream, MIN_ID=identifier, COUNT=1) == [(identifier, record.body)]
    event = join_events([record.body])
    start = event[:1000]
    for client in (peers.released, peers.draft):
        assert client.read(peers.segment, offset, len(start)).data == start


@pytest.mark.parametrize("writer", WRITERS)
def test_every_writer_against_every_reader(peers: Peers, writer: str) -> None:
    bodies = [b"plain", b"\0", bytes(8), bytes(range(256)), b"\0\0\0\0\0\0\0\1x", b"\xff" * 9, b"y" * 65_536]
    WRITERS[writer](peers, bodies)
    check(peers, bodies)


@pytest.mark.parametrize("seed", range(3))
def test_any_mix_of_writers(peers: Peers, seed: int) -> None:
    dice = random.Random(seed)
    bodies: list[bytes] = []
    for _ in range(24):
        batch = [dice.randbytes(dice.choice([1, 7, 8, 9, 100, 1000])) for _ in range(dice.choice([1, 2, 5]))]
        WRITERS[dice.choice(list(WRITERS))](peers, batch)
        bodies += batch
    check(peers, bodies)


def test_the_largest_record(peers: Peers) -> None:
    """Of those that all can read; as an event it is 1 MiB."""
    bodies = []
    for number, write in enumerate((write_s2s, write_s3p, write_json)):
        body = random.Random(number).randbytes(LARGEST)
        write(peers, [body])
        bodies.append(body)
    content = join_events(bodies)
    assert peers.released.content(peers.segment) == content
    assert peers.draft.content(peers.segment) == content
    assert [record.body for record in through_s2s(peers)] == bodies


def test_a_large_batch(peers: Peers) -> None:
    """10,000 events in one append: more than a batch of records may have."""
    bodies = [b"%d" % number for number in range(10_000)]
    write_released(peers, bodies)
    write_draft(peers, bodies)
    assert [record.body for record in through_s2s(peers)] == bodies * 2
    assert [body for _, body in peers.s3p.read_all(peers.stream)] == bodies * 2
    assert peers.released.content(peers.segment) == join_events(bodies * 2)


# ---- what is not events, or no record --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 1000, 3 * MIB])
def test_raw_bytes_are_records_to_others(peers: Peers, size: int) -> None:
    """A byte stream: each append becomes as many records as it takes; joined they are its bytes."""
    data = b"\x01" + random.Random(size).randbytes(size - 1)
    writer = peers.released.writer(peers.segment)
    peers.released.append_raw(writer, data, 1)
    peers.released.append_raw(writer, b"second", 2)
    assert peers.released.content(peers.segment) == data + b"second"
    seen = [record.body for record in through_s2s(peers)]
    assert seen[-1] == b"second"
    assert b"".join(seen) == data + b"second"
    assert b"".join(body for _, body in peers.s3p.read_all(peers.stream)) == data + b"second"
    write_s2s(peers, [b"event"])
    assert peers.released.read(peers.segment, size + 6).data == join_events([b"event"])


@pytest.mark.parametrize("size", [LARGEST, LARGEST + 1, MIB, 2 * MIB, 8 * MIB])
def test_large_events(peers: Peers, size: int) -> None:
    """One that no record can hold is raw pieces to the others, header included, and itself to a segment reader."""
    body = random.Random(size).randbytes(size)
    event = join_events([body])
    peers.released.append(peers.released.writer(peers.segment), [b"before", body, b"behind"], 3)
    assert peers.released.content(peers.segment) == join_events([b"before", body, b"behind"])
    first, *middle, last = [record.body for record in through_s2s(peers)]
    assert (first, last) == (b"before", b"behind")
    assert middle == [body] if size <= LARGEST else b"".join(middle) == event
    assert [body for _, body in peers.s3p.read_all(peers.stream)] == [first, *middle, last]


def test_an_empty_event_is_an_empty_record(peers: Peers) -> None:
    """A segment client may write one; S3P refuses the record, as it does others without a body."""
    write_released(peers, [b"a", b"", b"b"])
    write_draft(peers, [b"", b"c"])
    assert [record.body for record in through_s2s(peers)] == [b"a", b"", b"b", b"", b"c"]
    assert peers.released.content(peers.segment) == join_events([b"a", b"", b"b", b"", b"c"])
    found = peers.s3p.read(peers.stream)
    assert not isinstance(found, S3PError)
    assert [body for _, body in found] == [b"a"]


def test_trims_and_truncations_are_seen_by_all(peers: Peers) -> None:
    """A record that a truncation cuts stays whole for the readers of records."""
    write_released(peers, [b"one", b"two", b"three", b"four"])
    offsets = [0, 11, 22, 35, 47]
    peers.s2.trim(peers.stream, 1).json()
    assert peers.released.info(peers.segment).start_offset == offsets[1]
    peers.released.truncate(peers.segment, offsets[2] + 3)
    assert [row[1] for row in peers.s3p.read_all(peers.stream)] == [b"three", b"four"]
    assert [record["seq_num"] for record in peers.s2.read(peers.stream, seq_num=0).json()["records"]][:2] == [2, 3]
    assert peers.draft.content(peers.segment) == join_events([b"three", b"four"])[3:]
    peers.released.truncate(peers.segment, offsets[3])
    assert peers.draft.content(peers.segment) == join_events([b"four"])
    assert peers.s2.bodies(peers.stream, seq_num=0)[0] == "four"


def test_segments_are_streams(peers: Peers) -> None:
    """A stream that another client made is a segment that exists; to a sealed segment no client appends."""
    made = peers.s2.ensure_stream(f"{peers.stream}-made")
    request = released.CreateSegment(1, peers.segment.replace(peers.stream, made), 0, 0)
    peers.released.expect(released.SegmentAlreadyExists, request)
    write_released(peers, [b"hello"])
    peers.released.seal(peers.segment)
    assert peers.s2.append_json(peers.stream, {"records": [{"body": "x"}]}).status // 100 == 4
    assert peers.s2.bodies(peers.stream, seq_num=0) == ["hello"]


@pytest.mark.parametrize("writer", WRITERS)
def test_followers_of_every_kind(
    peers: Peers,
    writer: str,
    released_socket: Callable[[], ReleasedSocket],
    draft_socket: Callable[[], DraftSocket],
    gateway_s3p: Callable[[], S3PClient],
) -> None:
    """Waiting before anything is written: segment reads of both dialects, S2S, an S3P READ with BLOCK."""
    with released_socket() as one, draft_socket() as two, gateway_s3p() as three:
        one.send(released.ReadSegment(peers.segment, 0, MIB, "", 1))
        two.send(draft.ReadSegment(peers.segment, 0, MIB))
        three.send("READ", peers.stream, ["BLOCK", 5000])
        with peers.s2.read_session(peers.stream, "h1", seq_num=0) as session:
            assert not session.batch().records
            WRITERS[writer](peers, [b"live"])
            assert session.records(1, 5)[0].body == b"live"
        assert one.reply(5).data == join_events([b"live"])
        assert two.reply(5).data == join_events([b"live"])
        assert three.reply()[1] == b"live"


def test_a_writer_of_two_segments_is_two_streams_to_others(peers: Peers) -> None:
    """Segments other than 0 of epoch 0 are streams with names of their own (docs/names.md)."""
    second = peers.segment.replace("0.#epoch.0", "1.#epoch.0")
    peers.released.new(second, b"other")
    write_released(peers, [b"one"])
    assert peers.s2.bodies(peers.stream, seq_num=0) == ["one"]
    assert peers.s2.bodies(f"{peers.stream}/1.#epoch.0", seq_num=0) == ["other"]


def test_a_writers_own_order(peers: Peers) -> None:
    """Writers of every kind at once on one stream: each one's batches are whole and in its order, to every reader."""
    rounds = 10
    writer, connection = peers.released.writer(peers.segment), UUID(int=9)
    peers.draft.setup(peers.segment, connection)
    sizes = [len(join_events([b"draft %02d %d" % (n, i) for i in range(3)])) for n in range(rounds)]
    with peers.s2.append_session(peers.stream, "h1") as session:
        for number in range(rounds):
            named = {name: [b"%b %02d %d" % (name, number, i) for i in range(3)] for name in (b"rel", b"draft", b"s2s")}
            peers.released.send(*append_messages(writer, named[b"rel"], 3 * number + 3, number))
            peers.draft.send(*peers.draft.block(connection, sum(sizes[:number]), named[b"draft"]))
            session.send(append_input(*named[b"s2s"]))
        for _ in range(rounds):
            session.ack()
        while peers.released.reply().event_number < 3 * rounds:
            pass
        peers.draft.acknowledged(connection, sum(sizes))
    bodies = [record.body for record in through_s2s(peers)]
    batches = [bodies[at : at + 3] for at in range(0, len(bodies), 3)]
    for name in (b"rel", b"draft", b"s2s"):
        own = [batch for batch in batches if batch[0].startswith(name + b" ")]
        assert own == [[b"%b %02d %d" % (name, number, i) for i in range(3)] for number in range(rounds)]
    check(peers, bodies)
