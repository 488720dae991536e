"""`GET /positions` in front of servers of every protocol: a consumer changes its protocol in mid-stream, and goes on
exactly where it was."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import pytest
from support.bridges import DIRECT, DRAFT, REAL, SECOND, Bridge
from support.bridges.fronts import Front, ProtobufFront, Record, S2SFront, Seen, SseFront, seen_of_json
from support.bridges.plain_fronts import ReleasedFront, S3PFront
from support.kafka.plain import KafkaSocket
from support.management import ask, management_port
from support.process import BASIN, GatewayProcess, running_gateway
from support.real_backs import BackServer, SecondPenstock
from support.s2.client import BASE64, S2Client, eventually
from support.s3p.client import S3PClient
from support.segment.client import ReleasedSocket

from penstock_proto import s2_pb2

MANAGEMENT = '\n[management]\nbind = "127.0.0.1:0"\n'
BRIDGES = [
    *SECOND.values(),
    REAL["s2"],
    *(
        pytest.param(bridge, marks=[pytest.mark.long, pytest.mark.timeout(300)])
        for bridge in (DIRECT, DRAFT, REAL["s3p"], REAL["segment"])
    ),
]
HEADER = ((b"name", b"value"),)
BATCHES = [
    [Record(b"first"), Record(b"second" * 10)],
    [Record(b"%d" % number) for number in range(6)],
    [Record(b"with a header", HEADER), Record(b"after it")],
    [Record(b"x" * 5000)],
    [Record(b"of one ms %d" % number, HEADER if number % 2 else ()) for number in range(5)],
    [Record(b"last")],
]
"""Those of a batch come within one ms."""
RECORDS = [record for batch in BATCHES for record in batch]
FIRST = 5
"""Of those that a trim leaves."""

_numbers = itertools.count()


@dataclass
class Pair:
    """A gateway and the server behind it, and a stream that has all RECORDS."""

    bridge: Bridge
    server: BackServer
    gateway: GatewayProcess
    stream: str = field(default_factory=lambda: f"positions-{next(_numbers)}")

    def new(self) -> Pair:
        """The same with another stream."""
        pair = Pair(self.bridge, self.server, self.gateway)
        front = ProtobufFront(self.gateway, pair.stream)
        front.create()
        for batch in BATCHES:
            front.append(batch)
        return pair

    def find(self, asked: str, status: int = 200, **names: str) -> Any:
        """Return the gateway's answer about a position."""
        name = "&".join(f"{key}={value}" for key, value in names.items()) or f"stream={BASIN}/{self.stream}"
        got, answer = ask(management_port(self.gateway), f"/positions?{name}&{asked}")
        assert got == status, answer
        return answer


@pytest.fixture(scope="module", params=BRIDGES, ids=str)
def behind(request: pytest.FixtureRequest) -> Iterator[Pair]:
    bridge: Bridge = request.param
    assert bridge.start is not None
    with bridge.start() as server:
        text = bridge.configuration(server.address, server.controller) + MANAGEMENT
        with running_gateway(text) as gateway:
            yield Pair(bridge, server, gateway)


@pytest.fixture
def pair(behind: Pair) -> Pair:
    return behind.new()


# ---- consumers -----------------------------------------------------------------------------------------------


def by_s2(front: Front, hint: dict[str, Any]) -> list[Seen]:
    name, _, value = hint["query"].partition("=")
    assert name == "seq_num"
    assert (hint["basin"], hint["path"]) == (BASIN, f"/v1/streams/{front.stream}/records")
    return front.read(int(value))


def by_sse(front: Front, hint: dict[str, Any]) -> list[Seen]:
    assert isinstance(front, SseFront)
    last = hint["last_event_id"]
    headers = {**BASE64, **({} if last is None else {"last-event-id": last})}
    query = {"seq_num": 0} if last is None else {}
    with front.client.events(front.stream, "h1", headers, **query, wait=0) as events:
        found = [event.json()["records"] for event in events.rest() if event.name == "batch"]
    return [seen_of_json(record) for batch in found for record in batch]


def by_s3p(front: Front, hint: dict[str, Any]) -> list[Seen]:
    ms, _, seq = hint["min_id"].partition("-")
    assert hint["name"] == front.stream
    return front.read((int(ms), int(seq)))


def by_segment(front: Front, hint: dict[str, Any]) -> list[Seen]:
    assert isinstance(front, ReleasedFront)
    assert hint["segment"] == front.segment
    return front.read(hint["offset"])


class Consumer(NamedTuple):
    """One protocol: how it goes on from a hint, and how it asks for what is behind a record that it has read; `after`
    is the record that it would read next, if any."""

    front: type[Front]
    hint: str
    go_on: Callable[[Front, dict[str, Any]], list[Seen]]
    behind: Callable[[Front, Seen, Seen | None], str]


def behind_segment(front: Front, _read: Seen, after: Seen | None) -> str:
    return f"offset={front.tail() if after is None else after.at}"


CONSUMERS = {
    "S2S": Consumer(S2SFront, "s2", by_s2, lambda _front, read, _: f"seq_num={read.at + 1}"),
    "SSE": Consumer(SseFront, "sse", by_sse, lambda _front, read, _: f"seq_num={read.at + 1}"),
    "S3P": Consumer(S3PFront, "s3p", by_s3p, lambda _front, read, _: f"record_id={read.at[0]}-{read.at[1] + 1}"),
    "segment": Consumer(ReleasedFront, "segment", by_segment, behind_segment),
}


def check_changes(
    pair: Pair, expected: list[Record], places: list[int] | None = None, names: Iterable[str] = CONSUMERS
) -> None:
    """Check each change of protocol behind each of these records: it reads the remaining records exactly once."""
    consumers = {name: CONSUMERS[name] for name in names}
    fronts = {name: consumer.front(pair.gateway, pair.stream) for name, consumer in consumers.items()}
    try:
        for name, consumer in consumers.items():
            seen = fronts[name].read(fronts[name].start())
            assert [one.record for one in seen] == expected, name
            for index in places or range(len(seen)):
                asked = consumer.behind(fronts[name], seen[index], seen[index + 1] if index + 1 < len(seen) else None)
                read_on = pair.find(asked)["read_on"]
                for other, to in consumers.items():
                    rest = to.go_on(fronts[other], read_on[to.hint])
                    got = [one.record for one in (*seen[: index + 1], *rest)]
                    assert got == expected, f"{name} to {other} behind record {index}"
    finally:
        for front in fronts.values():
            front.close()


def check_going_on(pair: Pair, found: Any, expected: list[Record]) -> None:
    """By every protocol from there on; operations are no data."""
    for name, consumer in CONSUMERS.items():
        with closing(consumer.front(pair.gateway, pair.stream)) as front:
            seen = consumer.go_on(front, found["read_on"][consumer.hint])
        assert [one.record for one in seen if not one.record.is_command] == expected, name


def seen_by(pair: Pair, kind: type[Front]) -> list[Seen]:
    """All records by one front."""
    with closing(kind(pair.gateway, pair.stream)) as front:
        return front.read(front.start())


def test_each_record_exactly_once(pair: Pair) -> None:
    check_changes(pair, RECORDS, [0, 4, 9, len(RECORDS) - 1])


@pytest.mark.long
def test_each_record_exactly_once_from_everywhere(pair: Pair) -> None:
    check_changes(pair, RECORDS)


# ---- what is asked -------------------------------------------------------------------------------------------


def test_every_start_finds_the_same_record(pair: Pair) -> None:
    """By number, identifier, offset, and the place before the tail; by timestamp the first one of its ms."""
    numbered, named, seen = (seen_by(pair, front) for front in (ProtobufFront, S3PFront, ReleasedFront))
    count = len(RECORDS)
    assert len(numbered) == len(named) == len(seen) == count
    for index in (0, 1, 4, 8, 9, 12, count - 1):
        one, with_id, with_offset = numbered[index], named[index], seen[index]
        identifier = "{}-{}".format(*with_id.at)
        expected = {
            "seq_num": index,
            "timestamp": one.timestamp,
            "record_id": identifier,
            "offset": with_offset.at,
            "at_tail": False,
        }
        for asked in (
            f"seq_num={index}",
            f"record_id={identifier}",
            f"offset={with_offset.at}",
            f"tail_offset={count - index}",
        ):
            assert pair.find(asked)["position"] == expected, asked
        of_ms = pair.find(f"timestamp={one.timestamp}")["position"]
        assert of_ms == pair.find(f"record_id={one.timestamp}-0")["position"]
        assert of_ms["seq_num"] == next(each.at for each in numbered if each.timestamp == one.timestamp)
        assert pair.find(f"offset={with_offset.at + 1}")["position"]["seq_num"] == index + 1
    assert pair.find("seq_num=3", segment=f"{BASIN}/{pair.stream}/0.%23epoch.0") == pair.find("seq_num=3")
    assert pair.find("seq_num=3", s3p=pair.stream) == pair.find("seq_num=3")


STARTS = ["seq_num={}", "timestamp={}", "record_id={}-0", "offset={}", "tail_offset={}"]


def test_at_the_tail_and_in_the_future(pair: Pair) -> None:
    """Positions beyond the tail are the tail, and every protocol reads the next records from there."""
    tail = pair.find("tail_offset=0")
    assert (tail["position"]["seq_num"], tail["position"]["at_tail"]) == (len(RECORDS), True)
    for asked in STARTS[:4]:
        far = pair.find(asked.format(1 << 60))
        assert far == tail, asked
    assert pair.find(f"seq_num={len(RECORDS)}") == tail
    assert pair.find(f"offset={tail['position']['offset']}") == tail
    more = [Record(b"after the tail"), Record(b"and after", HEADER)]
    ProtobufFront(pair.gateway, pair.stream).append(more)
    check_going_on(pair, tail, more)


def test_an_empty_stream(behind: Pair) -> None:
    pair = Pair(behind.bridge, behind.server, behind.gateway)
    ProtobufFront(pair.gateway, pair.stream).create()
    places = [pair.find(asked.format(0)) for asked in STARTS]
    assert [place["position"]["seq_num"] for place in places] == [0] * len(STARTS)
    assert all(place["position"]["at_tail"] for place in places)
    ProtobufFront(pair.gateway, pair.stream).append(RECORDS[:2])
    for place in places:
        check_going_on(pair, place, RECORDS[:2])


@dataclass
class Trimmed:
    """A stream of which the first records were trimmed, in the middle of a ms, and what was said of the rest before."""

    pair: Pair
    before: list[Any]

    @classmethod
    def of(cls, pair: Pair) -> Trimmed:
        before = [pair.find(f"seq_num={index}") for index in range(FIRST, len(RECORDS))]
        assert not before[0]["position"]["record_id"].endswith("-0")
        with closing((S2SFront if pair.bridge.kind == "s2" else S3PFront)(pair.gateway, pair.stream)) as front:
            front.trim(front.read(front.start())[FIRST].at)
        wait_for_trim(pair)
        return cls(pair, before)

    def check(self) -> None:
        """The first record that is kept, and from there on as ever."""
        kept = self.before[0]
        starts = ["seq_num=0", "timestamp=0", "record_id=0-0", "offset=0", "tail_offset=1000", f"seq_num={FIRST - 1}"]
        for asked in (*starts, f"record_id={kept['position']['record_id']}"):
            assert self.pair.find(asked) == kept, asked
        assert [self.pair.find(f"seq_num={index}") for index in range(FIRST, len(RECORDS))] == self.before
        check_going_on(self.pair, kept, RECORDS[FIRST:])


def test_before_a_trim_point(pair: Pair) -> None:
    Trimmed.of(pair).check()


def wait_for_trim(pair: Pair) -> None:
    """Until the records before FIRST are gone: a server may take its time."""
    front = ProtobufFront(pair.gateway, pair.stream)
    for _ in eventually(20):
        first = front.read(0)[0].at
        if first >= FIRST:
            break
    assert first == FIRST


def test_streams_that_are_not_there(behind: Pair) -> None:
    pair = Pair(behind.bridge, behind.server, behind.gateway)
    for asked in STARTS:
        assert pair.find(asked.format(1), 404)["code"] == "stream_not_found"


# ---- what must change nothing --------------------------------------------------------------------------------


def everything(pair: Pair) -> list[Any]:
    return [pair.find(f"seq_num={index}") for index in (0, 3, 8, 9, 13, len(RECORDS) - 1, len(RECORDS))]


def foreign_append(pair: Pair, *bodies: bytes) -> None:
    """Append directly to the server."""
    host, port = pair.server.address
    if pair.bridge.kind == "s2":
        S2Client((host, port), BASIN).append(pair.stream, *(body.decode() for body in bodies))
    elif pair.bridge.kind == "s3p":
        with S3PClient((host, port)) as s3p:
            assert isinstance(s3p.append(pair.stream, *bodies), bytes)
    elif pair.bridge.kind == "durable":
        content = s2_pb2.AppendInput(records=[s2_pb2.AppendRecord(body=body) for body in bodies])
        url = f"http://{host}:{port}/v1/stream/{pair.stream}"
        head = {"content-type": "application/vnd.penstock.records"}
        with urlopen(Request(url, content.SerializeToString(), head)) as answer:
            assert answer.status in (200, 204)
    elif pair.bridge.kind == "kafka":
        with KafkaSocket((host, port)) as kafka:
            assert kafka.produce(pair.stream, *bodies).error_code == 0
    else:
        with ReleasedSocket((host, port)) as segment:
            writer = segment.writer(f"{BASIN}/{pair.stream}/0.#epoch.0")
            segment.append(writer, bodies, len(bodies))


def test_another_client_appends_at_the_server(pair: Pair) -> None:
    before = everything(pair)[:-1]
    foreign_append(pair, b"foreign", b"foreign too")
    assert pair.find("tail_offset=0")["position"]["seq_num"] == len(RECORDS) + 2
    ProtobufFront(pair.gateway, pair.stream).append([Record(b"own")])
    foreign_append(pair, b"foreign again")
    assert everything(pair)[:-1] == before
    expected = [*RECORDS, *map(Record, (b"foreign", b"foreign too", b"own", b"foreign again"))]
    check_changes(pair, expected, [len(RECORDS) - 1, len(RECORDS) + 2])


def test_a_gateway_that_was_killed_says_the_same(pair: Pair) -> None:
    before, trimmed = everything(pair), Trimmed.of(pair.new())
    pair.gateway.kill()
    foreign_append(pair, b"meanwhile")
    pair.gateway.start()
    trimmed.check()
    assert everything(pair)[:-1] == before[:-1]
    check_changes(pair, [*RECORDS, Record(b"meanwhile")], [6, len(RECORDS) - 1])


def test_a_source_of_events() -> None:
    """An S2 server that is read only as server-sent events does not let a reader resume from an identifier."""
    bridge = Bridge("s2-sse", "Penstock", lambda: SecondPenstock("s2"))
    with ExitStack() as stack:
        server = stack.enter_context(SecondPenstock("s2"))
        text = bridge.configuration(server.address) + MANAGEMENT
        only = text.replace('name = "all"', 'name = "all"\nlisteners = ["s2", "segment", "controller"]')
        gateway = stack.enter_context(running_gateway(only))
        pair = Pair(bridge, server, gateway)
        client = S2Client(server.address, BASIN)
        client.append(pair.stream, *(f"record {number}" for number in range(7)))
        expected = [Record(b"record %d" % number) for number in range(7)]
        check_changes(pair, expected, [0, 3, 6], ["S2S", "SSE", "segment"])
        tail = pair.find("tail_offset=0")
        assert (tail["position"]["seq_num"], tail["position"]["at_tail"], tail["read_on"]["s3p"]) == (7, True, None)
        for asked in ("seq_num=100", f"timestamp={1 << 60}", "offset=100000"):
            assert pair.find(asked) == tail
        assert pair.find("tail_offset=3") == pair.find("seq_num=4")
        assert pair.find("timestamp=0") == pair.find("offset=0") == pair.find("seq_num=0")
        assert pair.find("record_id=0-0", 501)["code"] == "not_implemented"
        pair.stream = "none"
        assert pair.find("seq_num=0", 404)["code"] == "stream_not_found"
