"""Writers and followers that go on while the server behind their gateway is killed, and what must be true afterwards.

Each writer has a stream of its own and appends numbered batches. No writer says a batch again that may have been
taken, save those of segments, which ask first where they are, as their protocol has it. So whatever is there twice
was doubled by the gateway.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from support.bridges.fronts import LOOPBACK, seen_of_json
from support.kafka.plain import KafkaSocket
from support.process import BASIN, GatewayProcess
from support.s2.client import BASE64, S2Client, stream_path
from support.s2.frames import append_input
from support.s3p.client import S3PClient, S3PError, parse_id
from support.segment.client import DraftSocket, ReleasedSocket

from penstock_kafka.codec import KafkaError
from penstock_kafka.codec.batches import read_batches
from penstock_kafka.codec.cluster_messages import MetadataBroker, MetadataRequest, MetadataResponse
from penstock_kafka.codec.record_messages import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock_pravega.codec import join_events
from penstock_proto import s2_pb2 as pb

__all__ = [
    "FOLLOWERS",
    "WRITERS",
    "Load",
    "Lost",
    "Stopping",
    "serving_broker",
    "wait_for_all",
    "wait_for_all_followers",
]

PAUSE_SECONDS = 0.02
"""After an error, as a client would wait."""
PACE_SECONDS = 0.03
"""Between batches: all writers, their followers, and as many processes share a small machine."""
S2_ERRORS = {(502, "hot_server"), (503, "unavailable"), (504, "upstream_timeout")}
S3P_ERRORS = {"ERR_UNAVAILABLE", "ERR_UPSTREAM_TIMEOUT"}
DURABLE_ERRORS = {(503, "hot_server"), (503, "unavailable"), (504, "upstream_timeout")}
KAFKA_ERRORS = {KafkaError.NOT_LEADER_OR_FOLLOWER, KafkaError.REQUEST_TIMED_OUT}
"""Errors that docs/guarantees.md allows."""
SECONDS = 60.0
"""Longest wait for an answer."""


class Lost(Exception):
    """The front's client was told, in its protocol's words, that the server behind the gateway is not there."""


def s2_error(status: int, value: Any) -> Lost:
    """An S2 error, which must be one of those."""
    assert (status, value.get("code")) in S2_ERRORS, (status, value)
    return Lost(f"{status} {value['code']}")


class Stopping(threading.Event):
    """Tells all loads that share it to stop. `failed`: the one of them that failed, which stops the others too."""

    failed: Load | None = None


@dataclass
class Load:
    """One stream of one front: the batches sent and acknowledged, and the records seen."""

    gateway: GatewayProcess
    name: str
    stream: str
    sizes: dict[int, int] = field(default_factory=dict)
    """Records of each batch that was ever sent, by its number."""
    acked: dict[int, Any] = field(default_factory=dict)
    """Position of each acknowledged batch's last record, in the front's terms (None: the front does not tell it)."""
    errors: Counter[str] = field(default_factory=Counter)
    followed: list[tuple[Any, bytes]] = field(default_factory=list)
    followers: dict[str, Load] = field(default_factory=dict)
    stopping: Stopping = field(default_factory=Stopping)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.name)
        self.failure: BaseException | None = None

    @property
    def s2(self) -> S2Client:
        return S2Client((LOOPBACK, self.gateway.s2_port), BASIN)

    def batch(self, most: int = 5) -> tuple[int, list[bytes]]:
        """Return the next number, and up to `most` bodies that name their load and batch.

        It waits for a moment, so that all writers get their turn.
        """
        time.sleep(PACE_SECONDS)
        number = len(self.sizes)
        size = self.dice.randint(1, most)
        self.sizes[number] = size
        filling = b"." * self.dice.choice([0, 10, 1000, 10_000])
        return number, [f"{self.name} {number} {index} ".encode() + filling for index in range(size)]

    def run(self, task: Callable[[Load], None]) -> threading.Thread:
        """Run a task in a thread again and again until told to stop; keep its failure for `check`."""

        def go() -> None:
            try:
                while not self.stopping.is_set():
                    try:
                        task(self)
                    except Lost as lost:
                        self.errors[str(lost)] += 1
                        time.sleep(PAUSE_SECONDS)
            except BaseException as error:
                self.failure = error
                self.stopping.failed = self.stopping.failed or self
                self.stopping.set()

        thread = threading.Thread(target=go, daemon=True)
        thread.start()
        return thread

    def _check_failures(self) -> None:
        """Raise AssertionError if this load has failed, or one that stops it."""
        if (failed := self.stopping.failed) is not None:
            raise AssertionError(f"{failed.name} of {failed.stream}: {failed.failure!r}") from failed.failure

    def wait_for_more(self, count: int, seconds: float = 60) -> None:
        """Wait until `count` more batches are acknowledged. Raises AssertionError if they are not."""
        self.wait_for_acks(len(self.acked) + count, seconds)

    def wait_for_acks(self, goal: int, seconds: float = 60) -> None:
        """Wait until `goal` batches are acknowledged, of all that were sent. Raises AssertionError if they are not."""
        deadline = time.monotonic() + seconds
        while len(self.acked) < goal:
            self._check_failures()
            assert time.monotonic() < deadline, f"{self.name} does not recover: {dict(self.errors)}"
            time.sleep(0.005)

    def wait_for_records(self, goal: int, seconds: float = 60) -> None:
        """Wait until a follower has `goal` records. Raises AssertionError if they do not come."""
        deadline = time.monotonic() + seconds
        while len(self.followed) < goal:
            self._check_failures()
            assert time.monotonic() < deadline, f"{self.name} follows no more after {len(self.followed)} records"
            time.sleep(0.01)

    def wait_for_an_error(self, seconds: float = 60) -> None:
        """Wait until the client got the error of a server that is not there."""
        deadline = time.monotonic() + seconds
        while not self.errors:
            self._check_failures()
            assert time.monotonic() < deadline, f"{self.name} was told nothing"
            time.sleep(0.005)

    def check(self, found: list[bytes], *, doubles: bool) -> None:
        """Check what the server holds: every acknowledged batch, whole and in order; repeated only if `doubles`.

        A batch without an acknowledgement may come behind later ones: it was on its way when its gateway was killed.
        """
        batches = [int(body.split(b" ")[1]) for body in found if body.split(b" ")[2] == b"0"]
        place = 0
        for number in batches:
            for index in range(self.sizes[number]):
                assert found[place].startswith(f"{self.name} {number} {index} ".encode()), f"batch {number} is torn"
                place += 1
        assert place == len(found)
        times = Counter(batches)
        lost = self.acked.keys() - times.keys()
        assert not lost, f"{self.name}: acknowledged, and not there: {sorted(lost)}"
        if not doubles:
            twice = {number for number, count in times.items() if count > 1}
            assert not twice, f"{self.name}: there more than once: {sorted(twice)}"
            latest = accumulate(batches, max)
            late = {number for number, last in zip(batches, latest, strict=True) if number < last}
            assert not late & self.acked.keys(), f"{self.name}: out of order: {sorted(late & self.acked.keys())}"


def wait_for_all(loads: Sequence[Load], counts: Iterable[int], seconds: float = 60) -> None:
    """Wait until each load has so many more acknowledged batches than now. Raises AssertionError if one has not."""
    goals = [len(load.acked) + count for load, count in zip(loads, counts, strict=True)]
    for load, goal in zip(loads, goals, strict=True):
        load.wait_for_acks(goal, seconds)


def wait_for_all_followers(loads: Sequence[Load]) -> None:
    """Wait until each follower of each load has one more record than now. Raises AssertionError if one has not."""
    followers = [follower for load in loads for follower in load.followers.values()]
    for follower, goal in [(follower, len(follower.followed) + 1) for follower in followers]:
        follower.wait_for_records(goal)


# ---- writers: each runs until it is told to stop or raises Lost ------------------------------------------------------


def by_s2s(load: Load) -> None:
    """Append in a session with up to eight batches in flight."""
    waiting: deque[int] = deque()
    with load.s2.append_session(load.stream, "h2") as session:
        if session.stream.status != 200:  # refused before it began
            raise s2_error(session.stream.status, json.loads(session.stream.receive()))
        while True:
            if load.stopping.is_set() and not waiting:
                return
            while len(waiting) < 8 and not load.stopping.is_set():
                number, bodies = load.batch()
                session.send(append_input(*bodies))
                waiting.append(number)
            frame = session.next(60)
            if frame is None:
                raise Lost("the session ended")
            if frame.terminal:
                raise s2_error(*frame.failure)
            number = waiting.popleft()
            ack = pb.AppendAck.FromString(frame.message)
            assert ack.end.seq_num - ack.start.seq_num == load.sizes[number]
            load.acked[number] = ack.end.seq_num - 1


def by_protobuf(load: Load) -> None:
    number, bodies = load.batch()
    answer = load.s2.request(
        "POST",
        stream_path(load.stream) + "/records",
        append_input(*bodies),
        {"content-type": "application/protobuf", "accept": "application/protobuf"},
        timeout=SECONDS,
    )
    if answer.status != 200:
        raise s2_error(answer.status, json.loads(answer.body))
    load.acked[number] = pb.AppendAck.FromString(answer.body).end.seq_num - 1


def by_s3p(load: Load) -> None:
    """Append on one connection, which outlives the server behind the gateway."""
    with S3PClient((LOOPBACK, load.gateway.s3p_port), timeout=SECONDS) as client:
        while not load.stopping.is_set():
            number, bodies = load.batch()
            reply = client.append(load.stream, *bodies)
            if isinstance(reply, S3PError):
                assert reply.code in S3P_ERRORS, reply
                load.errors[reply.code] += 1
                time.sleep(PAUSE_SECONDS)
            else:
                load.acked[number] = parse_id(reply)


def by_released(load: Load) -> None:
    """Append as a writer that reconnects, asks for its last event, and continues after it."""
    segment = f"{BASIN}/{load.stream}/0.#epoch.0"
    writer, last = uuid4(), 0
    batch: tuple[int, list[bytes]] | None = None
    while not load.stopping.is_set() or batch:
        try:
            with ReleasedSocket((LOOPBACK, load.gateway.segment_port), timeout=SECONDS) as client:
                stored = client.setup(segment, writer)
                while not load.stopping.is_set() or batch:
                    number, bodies = batch = batch or load.batch()
                    if stored < last + len(bodies):
                        client.append(writer, bodies, last + len(bodies))
                    last = stored = last + len(bodies)
                    load.acked[number] = None
                    batch = None
        except (EOFError, ConnectionError):
            load.errors["closed"] += 1
            time.sleep(PAUSE_SECONDS)


def by_draft(load: Load) -> None:
    """Append like `by_released`, by offsets of the connection."""
    segment = f"{BASIN}/{load.stream}/0.#epoch.0"
    connection, offset = uuid4(), 0
    batch: tuple[int, list[bytes]] | None = None
    while not load.stopping.is_set() or batch:
        try:
            with DraftSocket((LOOPBACK, load.gateway.segment_port), timeout=SECONDS) as client:
                level = client.setup(segment, connection)
                while not load.stopping.is_set() or batch:
                    number, bodies = batch = batch or load.batch()
                    end = offset + len(join_events(bodies))
                    assert level in (offset, end), "part of a batch is there"
                    if level == offset:
                        level = client.append(connection, offset, bodies)
                    offset = end
                    load.acked[number] = None
                    batch = None
        except (EOFError, ConnectionError):
            load.errors["closed"] += 1
            time.sleep(PAUSE_SECONDS)


def kafka(load: Load) -> KafkaSocket:
    """Connect to the gateway that serves Kafka's clients: of several, any one names it."""
    with KafkaSocket((LOOPBACK, load.gateway.kafka_port), seconds=SECONDS) as client:
        broker = serving_broker(client.call(MetadataRequest(topics=[]), MetadataResponse))
    return KafkaSocket((broker.host, broker.port), seconds=SECONDS)


def serving_broker(found: MetadataResponse) -> MetadataBroker:
    """Return the broker that serves the clients. Raises Lost if there is none: the last one was killed, and its
    successor has not taken over yet."""
    for broker in found.brokers:
        if broker.node_id == found.controller_id:
            return broker
    raise Lost("no gateway serves")


def kafka_error(code: int) -> Lost:
    """An error of Kafka, which must be one of those."""
    assert code in KAFKA_ERRORS, code
    return Lost(KafkaError(code).name)


def by_kafka(load: Load) -> None:
    """Append on one connection, without a producer id."""
    with kafka(load) as client:
        while not load.stopping.is_set():
            number, bodies = load.batch()
            found = client.produce(load.stream, *bodies)
            if found.error_code:
                raise kafka_error(found.error_code)
            load.acked[number] = found.base_offset + len(bodies) - 1


def by_durable(load: Load) -> None:
    """Append a record, which is a POST, and all that a stream of bytes has room for."""
    number, [body] = load.batch(most=1)
    url = urlsplit(load.gateway.durable_url + load.stream)
    connection = http.client.HTTPConnection(url.netloc, timeout=SECONDS)
    try:
        connection.request("POST", url.path, body, {"content-type": "application/octet-stream"})
        answer = connection.getresponse()
        said = answer.read()
    finally:
        connection.close()
    if answer.status != 204:
        code = json.loads(said)["error"]["code"]
        assert (answer.status, code) in DURABLE_ERRORS, (answer.status, code)
        raise Lost(f"{answer.status} {code}")
    load.acked[number] = int(answer.headers["stream-next-offset"].partition("_")[0]) - 1


WRITERS: dict[str, Callable[[Load], None]] = {
    "S2S": by_s2s,
    "protobuf": by_protobuf,
    "S3P": by_s3p,
    "segment-draft": by_draft,
    "segment-released": by_released,
    "Kafka": by_kafka,
    "Durable-Streams": by_durable,
}

# ---- followers -------------------------------------------------------------------------------------------------------


def follow_s2s(load: Load) -> None:
    """Goes on behind what it has, each time it is told that the server is not there."""
    place = load.followed[-1][0] + 1 if load.followed else 0
    with load.s2.read_session(load.stream, "h2", seq_num=place) as session:
        if session.stream.status != 200:
            raise s2_error(session.stream.status, json.loads(session.stream.receive()))
        while not load.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                frame = session.next(0.5)
                if frame is None:
                    raise Lost("the session ended")
                if frame.terminal:
                    raise s2_error(*frame.failure)
                records = pb.ReadBatch.FromString(frame.message).records
                load.followed += [(record.seq_num, record.body) for record in records]


def follow_events(load: Load) -> None:
    """Reconnect as EventSource does: with the last id that it saw."""
    place = load.followed[-1][0] + 1 if load.followed else 0
    with load.s2.events(load.stream, "h1", BASE64, seq_num=place) as events:
        if events.stream.status != 200:
            raise s2_error(events.stream.status, json.loads(events.stream.receive()))
        while not load.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                event = events.next(0.5)
                if event is None:
                    raise Lost("the stream ended")
                if event.name == "error":
                    raise Lost(f"error event {event.json().get('code')}")
                if event.name == "batch":
                    seen = map(seen_of_json, event.json()["records"])
                    load.followed += [(one.at, one.record.body) for one in seen]


def follow_kafka(load: Load) -> None:
    """Fetch from the record on that comes next, and wait for a moment if there is none."""
    with kafka(load) as client:
        while not load.stopping.is_set():
            place = load.followed[-1][0] + 1 if load.followed else 0
            part = FetchPartition(partition=0, fetch_offset=place, partition_max_bytes=1 << 20)
            topics = [FetchTopic(topic=load.stream, partitions=[part])]
            found = client.call(FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics), FetchResponse)
            result = found.topics[0].partitions[0]
            if result.error_code:
                raise kafka_error(result.error_code)
            for batch in read_batches(result.records or b""):
                load.followed += zip(batch.offsets, (value or b"" for value in batch.values), strict=True)


FOLLOWERS: dict[str, Callable[[Load], None]] = {"S2S": follow_s2s, "SSE": follow_events, "Kafka": follow_kafka}
