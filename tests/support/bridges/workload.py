"""The matrix: operations run through each pair of front and back, and checks of their results."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import strategies as st
from support.bridges.client_fronts import DurableFront, KafkaFront
from support.bridges.fronts import (
    NO_SUCH_THING,
    TRIM,
    Front,
    JsonFront,
    NotCarried,
    ProtobufFront,
    Record,
    S2SFront,
    Seen,
    SseFront,
)
from support.bridges.plain_fronts import DraftFront, ReleasedFront, S3PFront
from support.process import GatewayProcess
from support.s2.client import eventually

from penstock.model.envelope import is_marked
from penstock.model.records import EVENT_TIME
from penstock_kafka.codec.carrying import KEY, NULL

__all__ = ["ASPECTS", "CARRIED", "Plan", "Shape", "Workload", "plans"]

CARRIED = "yes"
ASPECTS = ("records", "headers", "positions", "following", "trim", "condition", "fence")
"""Aspects examined for each pair: the result of each is CARRIED, or the reason why not."""
OTHERS: Sequence[type[Front]] = (S2SFront, SseFront, JsonFront, ProtobufFront, S3PFront, DraftFront, ReleasedFront)
BEGINNINGS = (b"", b"\r\n", b"$3\r\nabc\r\n", b"data: x\n\n", b"\xf5PEN\x01", b"\x00\xff", b"\xe2\x98")
"""Of bodies, which some protocol might take for something else."""
TRIM_SECONDS = 20
"""A server may take its time to trim."""

_numbers = itertools.count()


class Shape(NamedTuple):
    """A record to be made: random bytes behind a beginning, cut to a size. It is short where its record is long."""

    seed: int
    size: int
    beginning: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def made(self, *, plain: bool) -> Record:
        """The record; where `plain`, without what bare bodies cannot say: an event that begins like an envelope and is
        none is a record with a label (docs/loss.md)."""
        body = (self.beginning + random.Random(self.seed).randbytes(self.size))[: self.size]
        if not plain:
            return Record(body, self.headers)
        return Record(b"-" + body if is_marked(body) or not body else body)


@dataclass(frozen=True)
class Plan:
    """Batches to append, in order, and the dice for the rest: where to read from, and to trim."""

    batches: list[list[Shape]]
    seed: int = 0

    def with_text_names(self) -> Plan:
        """The same with names of headers that are UTF-8, and without the zero at which librdkafka ends them."""

        def changed(shape: Shape) -> Shape:
            names = [name.replace(b"\0", b"0").decode("latin-1").encode() for name, _ in shape.headers]
            return shape._replace(headers=tuple(zip(names, [value for _, value in shape.headers], strict=True)))

        return Plan([[changed(shape) for shape in batch] for batch in self.batches], self.seed)

    def for_front(self, front: Front) -> list[list[Record]]:
        """Return the batches as far as this front can express them."""
        return [[front.formed(shape.made(plain=front.plain)) for shape in batch] for batch in self.batches]


def plans(*, larger: bool = False) -> st.SearchStrategy[Plan]:
    """Plans of random sizes, contents and headers."""
    small = st.sampled_from([1, 2, 7, 100, 1000, 4096]) | st.integers(1, 5000)
    sizes = small | (st.integers(0, 300_000) if larger else st.sampled_from([0, 65_528, 65_536]))
    # Headers of the gateway's own have tests of their own, tests/penstock_kafka/codec.
    names = st.binary(min_size=1, max_size=20).filter(lambda name: name not in (KEY, NULL, EVENT_TIME))
    pairs = st.tuples(names, st.binary(max_size=20))
    headers = st.just(()) | st.lists(pairs, max_size=3).map(tuple)
    shapes = st.builds(Shape, st.integers(0, 1 << 30), sizes, st.sampled_from(BEGINNINGS), headers)
    batches = st.lists(st.lists(shapes, min_size=1, max_size=6), min_size=3, max_size=12 if larger else 5)
    return st.builds(Plan, batches, st.integers(0, 1 << 30))


@dataclass
class Workload:
    """One run of a plan through one front, on a stream of its own."""

    gateway: GatewayProcess
    front_class: type[Front]
    plan: Plan
    trims_by_record: bool = False
    """True if the server behind gets every trim as a command record, as an S2 server does."""
    model: list[Record] = field(default_factory=list)
    """Every record, by sequence number."""
    first: int = 0
    """Of those that are kept."""

    def run(self) -> dict[str, str]:
        """Run all aspects and return, for each, whether it is carried. Raises AssertionError for wrong results."""
        self.stream = f"matrix-{next(_numbers)}"
        self.dice = random.Random(self.plan.seed)
        self.front = self.front_class(self.gateway, self.stream)
        try:
            self.front.create()
            try:
                self.append_all()
            except NotCarried as reason:
                assert self.front.read(self.front.start()) == []
                return dict.fromkeys(ASPECTS, NO_SUCH_THING) | {"records": str(reason)}
            found = {"records": CARRIED, "headers": NO_SUCH_THING if self.front.plain else CARRIED}
            self.read_from_anywhere()
            self.compare_positions()
            found["positions"] = CARRIED
            self.follow()
            found["following"] = CARRIED
            for aspect, check in (("condition", self.condition), ("trim", self.trim), ("fence", self.fence)):
                found[aspect] = self.try_(check)
            return {aspect: found[aspect] for aspect in ASPECTS}
        finally:
            self.front.close()

    def try_(self, check: Callable[[], None]) -> str:
        """Run a check and return CARRIED or the reason why not. The records must be the same afterwards."""
        try:
            check()
            found = CARRIED
        except NotCarried as reason:
            found = str(reason)
        self.expect(self.front, self.front.read(self.front.start()), self.first)
        return found

    # ---- what is expected ----

    def expect(self, front: Front, seen: list[Seen], index: int) -> None:
        """These are the records from that number on, at rising positions."""
        numbered = [one for one in enumerate(self.model[index:], index) if front.commands or not one[1].is_command]
        wanted, found = [record for _, record in numbered], [one.record for one in seen]
        assert found == wanted, f"{front.name}: {difference(found, wanted)}"
        places = [one.at for one in seen]
        assert all(one < other for one, other in itertools.pairwise(places)), places
        if front.numbered:
            assert places == [number for number, _ in numbered]

    def others(self) -> Sequence[type[Front]]:
        """Return the fronts that can read the records as they are."""
        names = [name for record in self.model for name, _ in record.headers]
        return [*OTHERS, KafkaFront] if all(is_kafka_name(name) for name in names) else OTHERS

    def positions(self, front_class: type[Front]) -> list[Seen]:
        """Read all records through a front."""
        front = front_class(self.gateway, self.stream)
        try:
            seen = front.read(front.start())
            self.expect(front, seen, self.first)
            return seen
        finally:
            front.close()

    # ---- steps ----

    def append_all(self) -> None:
        for batch in self.plan.for_front(self.front):
            self.front.append(batch)
            self.model += batch

    def read_from_anywhere(self) -> None:
        """Check reads from the beginning, and from random records, by positions of this front's own."""
        seen = self.front.read(self.front.start())
        self.expect(self.front, seen, 0)
        for index in self.dice.sample(range(len(seen)), min(4, len(seen))):
            assert self.front.read(seen[index].at) == seen[index:]
        assert self.front.read(self.front.tail()) == []

    def compare_positions(self) -> None:
        """Check that every front reads the same records, and that each record's positions denote one place."""
        views = {front: self.positions(front) for front in self.others()}
        numbered, named = views[ProtobufFront], views[S3PFront]
        assert [one.timestamp for one in numbered] == [one.timestamp for one in named]
        assert [one.at for one in named] == identifiers(one.timestamp for one in numbered)
        for front in (S2SFront, SseFront, JsonFront):
            assert views[front] == numbered, front.name
        assert views[DraftFront] == views[ReleasedFront]
        if KafkaFront in views:
            assert views[KafkaFront] == numbered
        if not isinstance(self.front, DurableFront):
            assert DurableFront(self.gateway, self.stream).content() == b"".join(record.body for record in self.model)
        for front_class, seen in views.items():
            index = self.dice.randrange(len(seen))
            front = front_class(self.gateway, self.stream)
            try:
                assert front.read(seen[index].at) == seen[index:], f"{front.name} from record {index}"
            finally:
                front.close()
        stamp = self.dice.choice(numbered).timestamp
        assert stamp is not None
        client = ProtobufFront(self.gateway, self.stream).client
        page = client.read_proto(self.stream, timestamp=stamp).records
        assert page[0].seq_num == next(one.at for one in numbered if (one.timestamp or 0) >= stamp)

    def follow(self) -> None:
        """Check that records appended while a reader waits at the tail are delivered to it."""
        start = len(self.model)
        with self.front.follow(self.front.tail()) as take:
            for batch in self.plan.for_front(self.front)[:2]:
                self.front.append(batch)
                self.model += batch
            seen = take(len(self.model) - start)
        self.expect(self.front, seen, start)

    def condition(self) -> None:
        """Check that an append on a condition that does not hold is refused, and one on a condition that holds is
        stored.
        """
        assert not self.front.append_if(False, Record(b"must not be there"))
        record = self.front.formed(Record(b"on a condition"))
        assert self.front.append_if(True, record)
        self.model.append(record)

    def trim(self) -> None:
        """Trim to a record and check that earlier records are deleted and later ones keep their positions."""
        self.positions(ProtobufFront)  # records that are trimmed before they are counted never get a number
        seen = self.front.read(self.front.start())
        index = self.dice.randrange(1, len(seen))
        at = seen[index].at
        self.front.trim(at)
        self.first += index
        if self.trims_by_record or self.front.commands:
            self.model.append(Record(self.first.to_bytes(8, "big"), ((b"", TRIM),)))
        count = len([record for record in self.model[self.first :] if self.front.commands or not record.is_command])
        for _ in eventually(TRIM_SECONDS):
            kept = self.front.read(self.front.start())
            if len(kept) <= count:
                break
        self.expect(self.front, kept, self.first)
        assert kept[: len(seen) - index] == seen[index:], "a trim moved what it kept"
        more = [self.front.formed(Record(b"after the trim"))]
        self.front.append(more)
        self.model += more
        for other in self.others():
            self.positions(other)

    def fence(self) -> None:
        """Check that appends with the fencing token succeed and others fail."""
        self.front.fence()
        self.model += [Record(b"token", ((b"", b"fence"),)), Record(b"yes")]


def is_kafka_name(name: bytes) -> bool:
    """Return whether librdkafka can tell a header's name: UTF-8, without the zero at which it ends names."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in name


def difference(found: list[Record], wanted: list[Record]) -> str:
    """Return the first difference, in short."""
    for index, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other:
            shown = [(len(each.body), each.body[:40], each.headers) for each in (one, other)]
            return f"record {index} is {shown[0]}, not {shown[1]}"
    return f"{len(found)} records, not {len(wanted)}"


def identifiers(stamps: Any) -> list[tuple[int, int]]:
    """S3P's, from the timestamps: the second number counts the records of one ms."""
    found: list[tuple[int, int]] = []
    for stamp in stamps:
        found.append((stamp, found[-1][1] + 1 if found and found[-1][0] == stamp else 0))
    return found
