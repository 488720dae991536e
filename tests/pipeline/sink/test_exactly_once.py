"""Each row once, in order, in spite of deaths, repetitions, late arrivals and concurrent tasks."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.spark.sink_server import FakeClient, Killed, NoPauses, Runner, World

from penstock.model.failures import OperationFailed
from penstock_spark.sink.columns import ColumnLayout
from penstock_spark.sink.cutting import AppendLimits
from penstock_spark.sink.entries import RowTally
from penstock_spark.sink.failures import RowsDiffer, SinkFailed
from penstock_spark.sink.identity import Identity
from penstock_spark.sink.task import Task, TaskResources
from penstock_spark.sink.writer import Written, commit_batch

LEDGER = "penstock/penstock-sink.q"
STREAMS = ("penstock/a", "penstock/b")
LAYOUT = ColumnLayout(None, headers=False, timestamp=False)


class Job:
    """A streaming query's driver, and Spark's way with its tasks."""

    def __init__(self, world: World, partitions: int, rows: int) -> None:
        self.world = world
        self.partitions = partitions
        self.rows = rows

    def rows_of(self, batch: int, partition: int) -> list[tuple[str, bytes]]:
        random = Random(f"{batch} {partition}")
        return [(random.choice(STREAMS), b"%d %d %d" % (batch, partition, row)) for row in range(self.rows)]

    def task(self, batch: int, partition: int) -> RowTally:
        """An attempt; each cuts its rows in its own way."""
        random = self.world.random
        rows = self.rows_of(batch, partition)
        size = random.randint(1, 6)
        batches = [
            pa.RecordBatch.from_pydict(
                {"stream": [one[0] for one in rows[at : at + size]], "body": [one[1] for one in rows[at : at + size]]},
                schema=pa.schema([("stream", pa.string()), ("body", pa.binary())]),
            )
            for at in range(0, len(rows), size)
        ]
        tools = TaskResources(
            FakeClient(self.world),
            NoPauses,
            LEDGER,
            create=True,
            most_waiting=random.choice((20, 10_000)),
            most_open=random.randint(1, 2),
            limits=AppendLimits(random.randint(1, 4), 10_000),
        )
        return Task(Identity("q", batch, partition, "query"), tools, LAYOUT).write(batches)

    def commit(self, batch: int, tallies: dict[int, RowTally]) -> None:
        messages = [Written(Identity("q", batch, part, "query"), tally, LEDGER) for part, tally in tallies.items()]
        commit_batch(FakeClient(self.world), messages, NoPauses)

    def run(self, batch: int, again: float) -> None:
        """A batch, until it is committed; with probability `again` it is then done again."""
        random = self.world.random
        running: dict[Runner, int] = {}
        tallies: dict[int, RowTally] = {}

        def start(partition: int) -> None:
            running[self.world.start(lambda: self.task(batch, partition))] = partition

        def all_written() -> bool:
            for runner in [one for one in running if one.over]:
                partition = running.pop(runner)
                if runner.error is None:
                    tallies[partition] = runner.result
                elif not isinstance(runner.error, OperationFailed | Killed):
                    raise runner.error
                elif partition not in tallies and partition not in running.values():
                    start(partition)
            if 0 < len(running) < 2 * self.partitions and random.random() < 0.05:  # speculation
                start(random.choice(list(running.values())))
            return len(tallies) == self.partitions

        for partition in range(self.partitions):
            start(partition)
        self.world.until(all_written)
        driver = self.world.start(lambda: self.commit(batch, tallies))
        self.world.until(lambda: driver.over)
        if driver.error is not None and not isinstance(driver.error, OperationFailed | Killed):
            raise driver.error
        if driver.error is not None or random.random() < again:
            self.run(batch, again / 2)


def check(world: World, job: Job, batches: int) -> None:
    """Attempts die or are refused, for good reasons. Each row stands once; those of a task and stream are in order, and
    behind those of earlier batches."""
    for one in [*world.ended, *world.runners]:
        assert one.error is None or isinstance(one.error, OperationFailed | Killed | SinkFailed), repr(one.error)
        assert not isinstance(one.error, RowsDiffer)
    places: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for name in STREAMS:
        last = -1
        for _, body in world.streams[name].records if name in world.streams else ():
            if body == b"foreign":
                continue
            batch, partition, row = map(int, body.split())
            places[batch, partition, name].append(row)
            assert batch >= last
            last = batch
    for batch in range(batches):
        for partition in range(job.partitions):
            rows = list(enumerate(job.rows_of(batch, partition)))
            for name in STREAMS:
                assert places[batch, partition, name] == [row for row, (stream, _) in rows if stream == name]


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from((0.0, 0.02, 0.1)), st.sampled_from((0.0, 0.01, 0.03)), st.booleans())
def test_each_row_once(seed: int, faults: float, deaths: float, foreign: bool) -> None:
    """A story of two batches, some of them done again, and late attempts."""
    random = Random(seed)
    world = World(random, faults, deaths)
    world.foreign, world.targets = (0.05 if foreign else 0.0), list(STREAMS)
    job = Job(world, random.randint(1, 3), random.randint(1, 12))
    for batch in range(2):
        job.run(batch, 0.5)
    for _ in range(2):
        world.start(lambda: job.task(random.randint(0, 1), 0))
    world.settle()
    check(world, job, 2)
    assert world.streams[LEDGER].first > 0 or faults or deaths


@pytest.mark.long
@pytest.mark.timeout(1800)
@settings(max_examples=2000)
@given(st.integers(0, 2**64))
def test_each_row_once_for_long(seed: int) -> None:
    random = Random(seed)
    world = World(random, random.choice((0, 0.05, 0.2)), random.choice((0, 0.02, 0.05)))
    world.foreign, world.targets = random.choice((0.0, 0.1)), list(STREAMS)
    job = Job(world, random.randint(1, 5), random.randint(1, 30))
    for batch in range(4):
        job.run(batch, 0.7)
    world.settle()
    check(world, job, 4)
