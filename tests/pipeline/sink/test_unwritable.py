"""Rows that are no records: refused by name, left out, or kept aside, the same ones in each attempt."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.spark.sink_server import FakeClient, NoPauses, World

from penstock_spark.options import WrongOptions
from penstock_spark.schemas import RECORDS, arrow_schema, spark_schema
from penstock_spark.sink.columns import ColumnLayout
from penstock_spark.sink.cutting import AppendLimits
from penstock_spark.sink.entries import RowTally
from penstock_spark.sink.failures import SinkFailed
from penstock_spark.sink.identity import Identity
from penstock_spark.sink.marker import marker_room
from penstock_spark.sink.options import read_settings
from penstock_spark.sink.task import Task, TaskResources
from penstock_spark.sink.unwritable import Unwritable

ME = Identity("copies", 1, 3)
STREAM = "penstock/a"
SCHEMA = arrow_schema(spark_schema(RECORDS))
MOST = 500


def row(number: int, body: bytes | None = b"x", *headers: tuple[bytes, bytes], ms: int | None = 5) -> dict[str, object]:
    pairs = [{"name": name, "value": value} for name, value in headers]
    time = None if ms is None else ms * 1000
    return {"stream": STREAM, "seq_num": number, "timestamp": time, "headers": pairs, "body": body}


ROWS = [
    row(100, b"first", (b"n", b"v"), (b"m", b"w")),
    row(101, b"token", (b"", b"fence")),
    row(102, bytes(8), (b"", b"trim")),
    row(103, b"second"),
    row(104, bytes(MOST)),
    row(105, bytes(MOST - 30), (b"name", b"v" * 20)),
    row(106, None),
    row(107, b"early", ms=-1),
    row(108, b"third", (b"penstock-sink", b"v" * MOST)),  # that header is left out, so that the rest fits
]
REASONS = {
    101: "it is a command to the server (such as fence or trim), not a record",
    102: "it is a command to the server (such as fence or trim), not a record",
    104: f"is {MOST + 8} bytes (metered, with its headers); at most {MOST} can be appended",
    105: f"is {MOST + 4} bytes (metered, with its headers); at most {MOST} can be appended",
    106: "has no body",
    107: "has a timestamp before 1970, which records cannot have",
}


def write(world: World, rows: list[dict[str, object]], unwritable: Unwritable | None = None) -> RowTally:
    limits = AppendLimits(2, MOST + marker_room(ME.owner))
    tools = TaskResources(FakeClient(world), NoPauses, "penstock/penstock-sink.copies", limits=limits)
    batches = [pa.RecordBatch.from_pylist(rows[:4], SCHEMA), pa.RecordBatch.from_pylist(rows[4:], SCHEMA)]
    return Task(ME, tools, ColumnLayout(None, headers=True, timestamp=True), unwritable).write(batches)


@pytest.mark.parametrize("at", [at for at, one in enumerate(ROWS) if one["seq_num"] in REASONS])
def test_a_row_that_is_no_record_is_named_with_its_stream(at: int) -> None:
    number = ROWS[at]["seq_num"]
    assert isinstance(number, int)
    with pytest.raises(SinkFailed) as caught:
        write(World(Random(0)), [*ROWS[:1], *ROWS[at : at + 1]])
    said = str(caught.value)
    assert said.startswith(f"{STREAM}: row 1 of this task (record {number}) ") and REASONS[number] in said


@pytest.mark.parametrize("policy", ["skip", "keep"])
def test_the_others_are_written_once_whatever_is_done_with_these(
    policy: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(Random(0))
    place = tmp_path / "aside"
    tallies = {write(world, ROWS, Unwritable(ME, policy, str(place))) for _ in range(2)}  # the second time again
    assert len(tallies) == 1
    assert [body for _, body in world.streams[STREAM].records] == [b"first", b"second", b"third"]
    assert f"{STREAM}: row 1 of this task (record 101) has a header without name" in caplog.text
    if policy == "skip":
        assert not place.exists()
        return
    assert [file.name for file in place.iterdir()] == ["copies-1-3.parquet"]
    kept = pq.read_table(place).to_pylist()
    assert {
        one["seq_num"]: one["unwritable_reason"].partition(": ")[2] or one["unwritable_reason"] for one in kept
    } == REASONS
    assert [one["unwritable_row"] for one in kept] == [1, 2, 4, 5, 6, 7]
    assert kept[0]["body"] == b"token" and kept[0]["headers"] == [{"name": b"", "value": b"fence"}]


def test_rows_without_a_stream(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    world = World(Random(0))
    write(world, [row(1, b"a"), {**row(2), "stream": None}, row(3, b"b")], Unwritable(ME, "skip"))
    assert [body for _, body in world.streams[STREAM].records] == [b"a", b"b"]
    assert "row 1 of this task (record 2) has no stream" in caplog.text


def test_what_is_kept_needs_a_place() -> None:
    given = {"endpoint": "http://h", "stream": STREAM}
    assert read_settings({**given, "unwritable": "keep", "unwritable_path": "/p"}, streaming=False).unwritable == "keep"
    for wrong in ({"unwritable": "keep"}, {"unwritable_path": "/p"}, {"unwritable": "drop"}):
        with pytest.raises(WrongOptions, match="unwritable"):
            read_settings({**given, **wrong}, streaming=False)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkFailed, match="cannot save rows there"):
        write(World(Random(0)), ROWS, Unwritable(ME, "keep", str(tmp_path / "file" / "below")))
