"""Errors of a task or a driver about input and state that cannot be right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pyarrow as pa
import pytest
from support.spark.sink_server import FakeClient, NoPauses, World

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock_spark.clients.appending import Appender
from penstock_spark.sink.appending import StreamWriter
from penstock_spark.sink.columns import ColumnLayout
from penstock_spark.sink.cutting import AppendLimits, AppendRows
from penstock_spark.sink.entries import RowTally
from penstock_spark.sink.failures import RowsDiffer, SinkFailed
from penstock_spark.sink.identity import Identity
from penstock_spark.sink.ledger import Ledger
from penstock_spark.sink.task import Task, TaskResources
from penstock_spark.sink.writer import Written, commit_batch, open_one_off

LEDGER = "penstock/penstock-sink.s"
A, B = "penstock/a", "penstock/b"
LAYOUT = ColumnLayout(None, headers=False, timestamp=False)
ME = Identity("s", 1, 0)


@pytest.fixture
def world() -> World:
    return World(Random(0))


def batch(rows: Sequence[tuple[str, bytes]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"stream": [one[0] for one in rows], "body": [one[1] for one in rows]})


def rows(stream: str, *bodies: bytes) -> list[tuple[str, bytes]]:
    return [(stream, body) for body in bodies]


def write(
    world: World,
    found: Sequence[tuple[str, bytes]],
    me: Identity = ME,
    create: bool = False,
    dies: bool = False,
) -> RowTally:
    """An attempt, with appends of two rows."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(found)
        if dies:
            raise TimeoutError("died")

    tools = TaskResources(FakeClient(world), NoPauses, LEDGER, create, AppendLimits(2, 1000))
    return Task(me, tools, LAYOUT).write(batches())


def attempt(world: World, found: Sequence[tuple[str, bytes]]) -> None:
    """An attempt that dies when what it has sent was stored."""
    with pytest.raises(TimeoutError):
        write(world, found, dies=True)
    for session in world.sessions:
        while session.pending:
            session.arrive()


def commit(world: World, **tallies: RowTally) -> None:
    messages = [Written(Identity("s", 1, int(part[1:])), tally, LEDGER) for part, tally in tallies.items()]
    commit_batch(FakeClient(world), messages, NoPauses)


def bodies(world: World, stream: str) -> list[bytes]:
    return [body for _, body in world.streams[stream].records]


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has appends in flight when a task dies arrive all the same."""
    monkeypatch.setattr("support.spark.sink_server.FakeAppender.close", lambda _: None)


@pytest.mark.usefixtures("lasting")
@pytest.mark.parametrize(
    ("again", "why"),
    [
        (
            rows(A, b"1", b"2", b"x", b"4", b"5"),
            "penstock/a: sink s, batch 1, partition 0 already stored other rows than these 4",
        ),
        (rows(A, b"1", b"2"), "penstock/a: sink s, batch 1, partition 0 stored 4 rows, and has fewer now"),
        (rows(B, b"1"), "penstock/a: sink s, batch 1, partition 0 stored 4 rows, and has none now"),
    ],
)
def test_other_rows_than_before_are_refused(world: World, again: list[tuple[str, bytes]], why: str) -> None:
    attempt(world, rows(A, b"1", b"2", b"3", b"4", b"5"))
    with pytest.raises(RowsDiffer, match=why):
        write(world, again)


def test_a_batch_that_was_committed_is_compared(world: World) -> None:
    tally = write(world, rows(A, b"1", b"2", b"3"))
    commit(world, p0=tally)
    assert write(world, rows(A, b"1", b"2", b"3")) == tally
    with pytest.raises(RowsDiffer, match="was committed with 3 rows; now it has 3, or other ones"):
        write(world, rows(A, b"1", b"2", b"4"))
    with pytest.raises(RowsDiffer, match="was committed with 0 rows; now it has 1"):
        write(world, rows(A, b"1"), Identity("s", 1, 1))
    assert bodies(world, A) == [b"1", b"2", b"3"]


def test_a_task_remembers_places_of_its_own_only(world: World) -> None:
    for partition in range(3):
        write(world, [*rows(A, b"1"), *rows(B, b"2")], Identity("s", 1, partition))
    ledger = Ledger(FakeClient(world), LEDGER, "", NoPauses, partition=1)
    ledger.look()
    assert ledger.touched == {(1, 0): {}, (1, 1): {A: 1, B: 1}, (1, 2): {}}


def test_a_batch_is_committed_once(world: World) -> None:
    tally = write(world, rows(A, b"1", b"2", b"3"))
    commit(world, p0=tally)
    entries = len(world.streams[LEDGER].records)
    commit(world, p0=tally)
    assert len(world.streams[LEDGER].records) == entries
    with pytest.raises(RowsDiffer, match="was committed with other rows or partitions"):
        commit(world, p0=RowTally(3, "x"))


def test_other_partitions_than_before_are_refused(world: World) -> None:
    write(world, rows(A, b"3"), Identity("s", 1, 1))
    tally = write(world, rows(A, b"1", b"2", b"3"))
    with pytest.raises(RowsDiffer, match="has 1 partitions with rows; an earlier attempt at it also had 1, so"):
        commit(world, p0=tally)


def test_batches_without_rows_leave_nothing(world: World) -> None:
    commit(world, p0=write(world, []))
    assert world.streams == {}


def test_a_sink_belongs_to_one_query(world: World) -> None:
    write(world, rows(A, b"1"), Identity("s", 1, 0, "one"))
    with pytest.raises(SinkFailed, match="this sink belongs to the query one, not to the query other; use"):
        write(world, rows(A, b"1"), Identity("s", 1, 0, "other"))
    with pytest.raises(SinkFailed, match="not to batch jobs"):
        write(world, rows(A, b"1"))


def test_numbers_of_batches_grow(world: World) -> None:
    late = Identity("s", 2, 0)
    tally = write(world, rows(A, b"1"), late)
    commit_batch(FakeClient(world), [Written(late, tally, LEDGER)], NoPauses)
    with pytest.raises(SinkFailed, match="comes too late: batch 2"):
        write(world, rows(A, b"1"))


def test_what_is_no_ledger_is_named(world: World) -> None:
    world.store(LEDGER, [b"hello"], {})
    with pytest.raises(SinkFailed, match=f"{LEDGER}: record 0 is not an entry of a sink's ledger"):
        write(world, rows(A, b"1"))


@pytest.mark.usefixtures("lasting")
def test_what_was_trimmed_cannot_be_told(world: World) -> None:
    attempt(world, rows(A, b"1", b"2", b"3"))
    world.streams[A].first = 1
    with pytest.raises(SinkFailed, match="penstock/a: records from 0 on were trimmed while sink s, batch 1"):
        write(world, rows(A, b"1", b"2", b"3"))


@pytest.mark.usefixtures("lasting")
def test_a_stream_that_was_deleted_meanwhile_is_named(world: World) -> None:
    world.store(A, [b"x"] * 5, {})
    attempt(world, rows(A, b"1", b"2", b"3"))
    del world.streams[A]
    with pytest.raises(SinkFailed, match="penstock/a: it had 5 records and has 0: it was deleted meanwhile"):
        write(world, rows(A, b"1", b"2", b"3"))


def test_a_stream_that_is_not_there(world: World) -> None:
    world.store(LEDGER, [], {})
    world.creates = False
    world.streams[LEDGER].records.clear()
    with pytest.raises(SinkFailed, match=r"penstock/a: .*set the option create = true"):
        write(world, rows(A, b"1"))
    write(world, rows(A, b"1"), create=True)
    assert bodies(world, A) == [b"1"]


def test_tasks_of_a_job_that_is_over_do_nothing(world: World) -> None:
    me = Identity("s", 0, 0, one_off=True)
    client = FakeClient(world)
    open_one_off(client, LEDGER, NoPauses)
    write(world, rows(A, b"1"), me)
    write(world, rows(A, b"1"), me)
    client.delete(LEDGER)
    for _ in range(2):
        with pytest.raises(SinkFailed, match="the job has ended"):
            write(world, rows(A, b"1"), me)
        client.create(LEDGER)  # as a server may, to which a reader comes
    assert bodies(world, A) == [b"1"]


def test_a_server_that_refuses_is_not_asked_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def append(self: object, *args: object) -> None:
        raise fail(FailureCode.SEQ_NUM_MISMATCH, "no")

    world.store(LEDGER, [], {})
    FakeClient(world).create(A)
    write(world, rows(B, b"1"))
    monkeypatch.setattr("penstock_spark.sink.appending.StreamWriter._append", append)
    with pytest.raises(SinkFailed, match="although no other append came between"):
        write(world, [*rows(A, b"1"), *rows(B, b"1")])


def test_what_the_server_says_reaches_the_task(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def append(self: object, *args: object) -> None:
        raise fail(FailureCode.PERMISSION_DENIED, "not you")

    monkeypatch.setattr("penstock_spark.sink.appending.StreamWriter._append", append)
    with pytest.raises(OperationFailed, match="not you"):
        write(world, rows(A, b"1"))


def test_a_task_that_others_hold_up_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, before = StreamWriter._append, iter(range(130))

    def append(self: StreamWriter, appender: Appender, cut: AppendRows) -> None:
        if next(before, None) is not None:
            world.store(A, [b"foreign"], {})
        real(self, appender, cut)

    monkeypatch.setattr(StreamWriter, "_append", append)
    write(world, rows(A, b"1"))
    assert [record.getMessage() for record in caplog.records] == [
        f"{A}: appends of others came between {times} times and delay this task" for times in (64, 128)
    ]
    assert bodies(world, A) == [b"foreign"] * 130 + [b"1"]
