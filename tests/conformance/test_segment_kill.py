"""Exactly once for segment writers of both dialects through `kill -9` of the gateway, and what is kept of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from support.killing import kill_under_load
from support.process import BASIN, GatewayProcess
from support.rounds import each_number_of_rounds
from support.s2.client import S2Client
from support.s2.frames import append_input
from support.segment.client import UNKNOWN_WRITER, DraftSocket, ReleasedSocket

from penstock_pravega.codec import append_messages, draft, join_events, released, split_events
from penstock_proto import s2_pb2 as pb

STREAM = "kill"
SEGMENT = f"{BASIN}/{STREAM}/0.#epoch.0"
IN_FLIGHT = 50
Address = tuple[str, int]


def event(name: str, number: int) -> bytes:
    """Fixed sizes per writer, so that a connection offset says which event comes next."""
    return f"{name} {number:08d} ".encode() + b"." * (3 * len(name))


@dataclass
class Released:
    """Appends of one to five events in every form, pipelined; after a reconnect it goes on behind what is stored."""

    name: str
    writer: UUID
    dice: random.Random
    acked: int = 0

    def run(self, address: Address) -> None:
        with ReleasedSocket(address) as client:
            stored = client.setup(SEGMENT, self.writer)
            sent = 0 if stored == UNKNOWN_WRITER else stored
            assert sent >= self.acked, "what was acknowledged is not stored"
            self.acked = sent
            while True:
                while sent - self.acked < IN_FLIGHT:
                    bodies = [event(self.name, sent + 1 + i) for i in range(self.dice.randint(1, 5))]
                    sent += len(bodies)
                    size = self.dice.choice([None, len(join_events(bodies)) - 5, len(join_events(bodies)) + 100])
                    client.send(*append_messages(self.writer, bodies, sent, 7, block_size=size))
                reply = client.reply()
                assert isinstance(reply, released.DataAppended)
                assert reply.previous_event_number in (self.acked, UNKNOWN_WRITER)
                self.acked = reply.event_number


@dataclass
class Draft:
    """Blocks of one to five events, some split; connection offsets are counted in events of one size."""

    name: str
    connection: UUID
    dice: random.Random
    acked: int = 0

    @property
    def size(self) -> int:
        return 8 + len(event(self.name, 0))

    def run(self, address: Address) -> None:
        with DraftSocket(address) as client:
            level = client.setup(SEGMENT, self.connection)
            assert level % self.size == 0, "half an event"
            sent = level // self.size
            assert sent >= self.acked, "what was acknowledged is not stored"
            self.acked = sent
            while True:
                while sent - self.acked < IN_FLIGHT:
                    count = self.dice.randint(1, 5)
                    self.block(client, sent, count)
                    sent += count
                reply = client.reply()
                assert isinstance(reply, draft.DataAppended)
                self.acked = reply.connection_offset_ack_level // self.size

    def block(self, client: DraftSocket, sent: int, count: int) -> None:
        bodies = [event(self.name, sent + 1 + i) for i in range(count)]
        offset = sent * self.size
        if self.dice.random() < 0.5:
            client.send(*client.block(self.connection, offset, bodies))
            return
        begin, end = draft.partials(draft.Event(bodies[-1]), [10])
        after = offset + count * self.size
        client.send(
            draft.BeginAppendBlock(self.connection, offset, (count - 1) * self.size + 19),
            *map(draft.Event, bodies[:-1]),
            begin,
            draft.EndAppendBlock(self.connection, after, count * self.size),
            end,
        )


@dataclass
class S2S:
    """It cannot know what was stored: each round it begins a series of its own."""

    name: str
    rounds: int = 0
    acked: dict[int, int] = field(default_factory=dict)

    def run(self, client: S2Client) -> None:
        self.rounds += 1
        name = f"{self.name}-{self.rounds}"
        with client.append_session(STREAM, "h1") as session:
            for number in range(1, 1_000_000):
                session.send(append_input(event(name, number)))
                if number > 8:
                    session.ack()
                    self.acked[self.rounds] = number - 8


def test_positions_and_tables_are_kept(fresh_gateway: GatewayProcess) -> None:
    """After `kill -9`: writers' event numbers, connection offsets, and tables with their versions."""
    address, table = ("127.0.0.1", fresh_gateway.segment_port), "scope/group_kvtable/0.#epoch.0"
    writer, connection = UUID(int=1), UUID(int=2)
    with ReleasedSocket(address) as client, DraftSocket(address) as draft_client:
        client.new(SEGMENT)
        client.setup(SEGMENT, writer)
        client.append(writer, [b"1", b"2"], 2)
        draft_client.setup(SEGMENT, connection)
        draft_client.append(connection, 0, [b"hello"])
        client.create_table(table)
        versions = client.put(table, (b"a", b"1", -1), (b"b", b"2", -1))
    fresh_gateway.restart(kill=True)
    with ReleasedSocket(address) as client, DraftSocket(address) as draft_client:
        assert client.setup(SEGMENT, writer) == 2
        assert client.append(writer, [b"3"], 3).previous_event_number == 2
        assert draft_client.setup(SEGMENT, connection) == 13
        assert draft_client.append(connection, 13, [b"world"]) == 26
        assert client.content(SEGMENT) == join_events([b"1", b"2", b"hello", b"3", b"world"])
        assert client.get(table, b"a", b"b") == [(b"a", b"1", versions[0]), (b"b", b"2", versions[1])]
        (later,) = client.put(table, (b"a", b"3", versions[0]))
        assert later > versions[1]


@pytest.mark.timeout(900)
@each_number_of_rounds
def test_exactly_once(tmp_path: Path, rounds: int) -> None:
    dice = random.Random(3)
    writers = [Released(f"rel-{n}", UUID(int=n + 1), dice) for n in range(2)]
    connections = [Draft(f"draft-{n}", UUID(int=n + 100), dice) for n in range(2)]
    s2s = S2S("s2s")

    def enough() -> bool:
        return min(one.acked for one in (*writers, *connections)) > rounds < sum(list(s2s.acked.values()))

    with GatewayProcess(directory=tmp_path) as gateway:
        for number in range(rounds):
            if number:
                gateway.start()
            address = "127.0.0.1", gateway.segment_port
            s2 = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
            if not number:
                with ReleasedSocket(address) as client:
                    client.create(SEGMENT)
            runs = [partial(one.run, address) for one in (*writers, *connections)]
            last = number == rounds - 1
            kill_under_load(
                gateway, [*runs, partial(s2s.run, s2)], dice.uniform(0.1, 0.5), lambda last=last: not last or enough()
            )
        gateway.start()
        check(gateway, [*writers, *connections], s2s, rounds)


def check(gateway: GatewayProcess, writers: list[Released | Draft], s2s: S2S, rounds: int) -> None:
    """Each writer's events are there once, in order, as far as they go, which is at least as far as acknowledged."""
    with ReleasedSocket(("127.0.0.1", gateway.segment_port)) as client:
        bodies = split_events(client.content(SEGMENT))
        for one in writers:
            level = client.setup(SEGMENT, one.writer if isinstance(one, Released) else one.connection)
            count = level if isinstance(one, Released) else level // one.size
            found = [body for body in bodies if body.startswith(one.name.encode() + b" ")]
            assert count >= one.acked > rounds
            assert found == [event(one.name, number) for number in range(1, count + 1)]
    for number in range(1, rounds + 1):
        found = [body for body in bodies if body.startswith(f"s2s-{number} ".encode())]
        assert found == [event(f"s2s-{number}", n) for n in range(1, len(found) + 1)]
        assert len(found) >= s2s.acked.get(number, 0)
    with S2Client(("127.0.0.1", gateway.s2_port), BASIN).read_session(STREAM, "h2", seq_num=0, wait=0) as session:
        batches = [pb.ReadBatch.FromString(frame.message) for frame in session.rest()]
    assert [record.body for batch in batches for record in batch.records] == bodies
    assert sum(s2s.acked.values()) > rounds
