"""An acknowledged record survives `kill -9`, whichever protocol it came by."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from support.killing import kill_under_load
from support.process import BASIN, GatewayProcess
from support.rounds import each_number_of_rounds
from support.s2.client import S2Client
from support.s2.frames import append_input
from support.s3p.client import S3PClient, following, parse_id

from penstock_proto import s2_pb2 as pb

KINDS = ("s2s-h1", "s2s-h2", "json", "s3p")


@dataclass
class Acked:
    """A batch that was acknowledged: where its last record is, and its timestamps."""

    name: str
    number: int
    end_seq_num: int | None = None  # S2
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    last_id: bytes | None = None  # S3P


@dataclass
class Load:
    """Writers of every kind on one stream, until the gateway is gone."""

    s2: S2Client
    s3p: tuple[str, int]
    stream: str
    dice: random.Random
    acked: list[Acked] = field(default_factory=list)
    sizes: dict[tuple[str, int], int] = field(default_factory=dict)  # of every batch that was ever sent
    seen: dict[int, tuple[int, bytes]] = field(default_factory=dict)  # timestamp and body by seq_num, by a follower

    def batch(self, name: str, number: int) -> list[bytes]:
        """The bodies of a batch; each says whose it is, where in the batch and how large the batch is."""
        size = self.dice.randint(1, 8)
        self.sizes[name, number] = size
        filling = b"." * self.dice.choice([0, 10, 1000, 20_000])
        return [f"{name} {number} {index} {size} ".encode() + filling for index in range(size)]

    def by_s2s(self, name: str, carrier: str) -> None:
        """Pipelined: up to ten inputs are in flight."""
        with self.s2.append_session(self.stream, carrier) as session:
            for number in range(1_000_000):
                session.send(append_input(*self.batch(name, number)))
                if number >= 10:
                    ack = session.ack()
                    at = Acked(name, number - 10, ack.end.seq_num, ack.start.timestamp, ack.end.timestamp)
                    self.acked.append(at)

    def by_json(self, name: str) -> None:
        for number in range(1_000_000):
            records = [{"body": body.decode()} for body in self.batch(name, number)]
            ack = self.s2.append_json(self.stream, {"records": records}).json()
            start, end = ack["start"], ack["end"]
            self.acked.append(Acked(name, number, end["seq_num"], start["timestamp"], end["timestamp"]))

    def by_s3p(self, name: str) -> None:
        """Pipelined: three commands are in flight."""
        with S3PClient(self.s3p) as client:
            for number in range(1_000_000):
                client.send("APPEND", self.stream, [], self.batch(name, number))
                if number >= 3:
                    reply = client.reply()
                    assert isinstance(reply, bytes), reply
                    self.acked.append(Acked(name, number - 3, last_id=reply))

    def follow(self) -> None:
        """Follow the stream: a record that a reader has seen must not disappear either."""
        with self.s2.read_session(self.stream, "h2", seq_num=0) as session:
            while True:
                for record in session.batch().records:
                    self.seen[record.seq_num] = record.timestamp, record.body

    def run(self, gateway: GatewayProcess, seconds: float, enough: Callable[[], bool]) -> None:
        """Write, and kill the gateway after some time, once enough was acknowledged."""
        clients = [
            partial(self.by_s2s, "s2s-h1", "h1"),
            partial(self.by_s2s, "s2s-h2", "h2"),
            partial(self.by_json, "json"),
            partial(self.by_s3p, "s3p"),
            self.follow,
        ]
        kill_under_load(gateway, clients, seconds, enough)


@dataclass
class Stored:
    """A record that is there after the restart."""

    seq_num: int
    timestamp: int
    identifier: bytes
    body: bytes


def stored_records(load: Load) -> list[Stored]:
    """The whole stream, read through S2S, and through S3P for the identifiers."""
    s2 = load.s2
    with s2.read_session(load.stream, "h2", seq_num=0, wait=0) as session:
        found = []
        while (frame := session.next()) is not None:
            found += pb.ReadBatch.FromString(frame.message).records
    with S3PClient(load.s3p) as client:
        pairs = client.read_all(load.stream)
    assert [body for _, body in pairs] == [record.body for record in found]
    return [
        Stored(record.seq_num, record.timestamp, identifier, record.body)
        for record, (identifier, _) in zip(found, pairs, strict=True)
    ]


def check(load: Load) -> int:
    """Everything that was acknowledged is there as acknowledged, and every batch is whole; how many records."""
    records = stored_records(load)
    assert [record.seq_num for record in records] == list(range(len(records)))
    assert load.s2.tail(load.stream)["seq_num"] == len(records)
    ids = [parse_id(record.identifier) for record in records]
    assert ids == sorted(set(ids))
    assert [ms for ms, _ in ids] == [record.timestamp for record in records]

    found = {record.seq_num: (record.timestamp, record.body) for record in records}
    assert load.seen.items() <= found.items(), "a follower saw what is not there any more"

    batches = dict(whole_batches(records, load))
    for name in KINDS:
        numbers = [number for writer, number in batches if writer == name]
        assert numbers == list(range(len(numbers))), f"{name}: batches are missing or out of order"
    for acked in load.acked:
        first, last = batches[acked.name, acked.number]
        if acked.last_id is not None:
            assert acked.last_id == last.identifier
        else:
            assert (acked.end_seq_num, acked.first_timestamp, acked.last_timestamp) == (
                last.seq_num + 1,
                first.timestamp,
                last.timestamp,
            )
    return len(records)


def whole_batches(records: list[Stored], load: Load) -> Iterator[tuple[tuple[str, int], tuple[Stored, Stored]]]:
    """The batches in order, each checked to be whole and contiguous, with its first and last record."""
    at = 0
    while at < len(records):
        name, number, index, size, _ = records[at].body.decode().split(" ")
        key, length = (name, int(number)), int(size)
        assert int(index) == 0
        assert load.sizes[key] == length
        batch = records[at : at + length]
        expected = [f"{name} {number} {place} {size} ".encode() for place in range(length)]
        assert [record.body.rstrip(b".") for record in batch] == expected, f"half of {key} is there"
        yield key, (batch[0], batch[-1])
        at += length


def enough(loads: list[Load]) -> bool:
    """Return whether so much was acknowledged and seen that losing none of it means something."""
    kinds = {batch.name for load in loads for batch in list(load.acked)}
    written = sum(bool(load.acked) for load in loads)
    return kinds == {*KINDS} and written >= len(loads) // 2 and any(load.seen for load in loads)


@pytest.mark.timeout(900)
@each_number_of_rounds
def test_kill_nine_in_the_middle_of_a_load(tmp_path: Path, rounds: int) -> None:
    loads: list[Load] = []
    began = time.monotonic()
    with GatewayProcess(directory=tmp_path) as gateway:
        for number in range(rounds):
            if number:
                gateway.start()
                check(loads[-1])
            s2 = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
            load = Load(s2, ("127.0.0.1", gateway.s3p_port), f"round-{number}", random.Random(number))
            with S3PClient(load.s3p) as client:
                assert client.create(load.stream) == "OK"
            loads.append(load)
            last = number == rounds - 1
            load.run(gateway, load.dice.uniform(0.1, 0.7), lambda last=last: not last or enough(loads))
        gateway.start()
        # Once more everything, since later rounds must not harm earlier ones; and streams go on where they were.
        total = sum(check(load) for load in loads)
        for load in loads:
            tail = load.s2.tail(load.stream)
            ack = load.s2.append(load.stream, "after")
            assert ack["start"]["seq_num"] == tail["seq_num"]
            assert ack["start"]["timestamp"] >= tail["timestamp"]
    acked = [len(load.acked) for load in loads]
    print(f"{rounds} rounds in {time.monotonic() - began:.0f} s: {sum(acked)} acked batches, {total} records stored")
    assert enough(loads)


def test_a_trim_a_fence_and_a_configuration_survive(fresh_gateway: GatewayProcess) -> None:
    """Other acknowledged operations: command records act after the restart as before."""
    s2 = S2Client(("127.0.0.1", fresh_gateway.s2_port)).ensure_basin("durable-basin", create_stream_on_append=True)
    s2.ensure_stream("s", retention_policy={"age": 77})
    s2.append("s", *"abcde")
    s2.trim("s", 3).json()
    s2.fence("s", "tok").json()
    with S3PClient(("127.0.0.1", fresh_gateway.s3p_port)) as s3p:
        assert s3p.create("t") == "OK"
        last = s3p.append("t", b"far ahead", ID=2**62)
    fresh_gateway.restart(kill=True)
    assert s2.append_json("s", {"records": [{"body": "x"}], "fencing_token": "no"}).json(412) == {
        "fencing_token_mismatch": "tok"
    }
    assert s2.append("s", "x", fencing_token="tok", match_seq_num=7)["end"]["seq_num"] == 8
    assert s2.read("s", seq_num=0).json()["records"][0]["seq_num"] == 3
    assert s2.request("GET", "/v1/streams/s").json()["retention_policy"] == {"age": 77}
    with S3PClient(("127.0.0.1", fresh_gateway.s3p_port)) as s3p:
        assert s3p.append("t", b"next") == following(last)
