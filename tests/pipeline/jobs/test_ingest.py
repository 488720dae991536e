"""`ingest`: each row once, however often it is run, and whatever ended it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from support.captures.small_recording import small_recording
from support.captures.tables import read
from support.process import BASIN, GatewayProcess

from penstock.model.records import Header
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import parse_endpoint
from penstock_spark.jobs.ingest import capture_tables, ingest, live_streams, source_options
from penstock_spark.jobs.tables import TABLES, stream_dir
from penstock_spark.jobs.target import checkpoint_of, read_table
from penstock_spark.running import CaptureSettings, JobFailed, SourceSettings, TargetSettings
from penstock_spark.schemas import CAPTURE_TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = "x" * 200
STREAMS = [f"{BASIN}/ingest/{name}" for name in ("a", "A", "007", f"größe/{LONG}", f"größe/{LONG}b")]


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[StreamClient]:
    client = StreamClient(parse_endpoint(gateway.s2_url))
    yield client
    client.close()


def append(client: StreamClient, stream: str, *bodies: bytes) -> None:
    client.create(stream)
    at = client.tail(stream)
    appender = client.appender(stream)
    appender.append(bodies, {0: (Header(b"n", b"v"),)}, None, at)
    appender.flush()
    appender.close()


class Ingest:
    """The same command again and again, on one target."""

    def __init__(self, spark: SparkSession, gateway: GatewayProcess, place: Path) -> None:
        self.spark = spark
        self.target = TargetSettings(path=str(place))
        self.source = SourceSettings(endpoint=gateway.s2_url, streams=(f"{BASIN}/ingest/*",))

    def run(self) -> None:
        query = ingest(live_streams(self.spark, self.source), self.target)
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def rows(self) -> list[tuple[str, int, bytes]]:
        table = read_table(self.spark, "streams", self.target)
        assert table is not None
        return sorted((row.stream, row.seq_num, bytes(row.body)) for row in table.collect())

    def seen_by_others(self) -> list[tuple[str, int]]:
        """By a program that reads all Parquet files below a directory."""
        found = pq.read_table(Path(self.target.path) / "streams").select(["stream", "seq_num"]).to_pylist()
        return sorted((row["stream"], row["seq_num"]) for row in found)


@pytest.mark.spark
def test_each_row_once(spark: SparkSession, gateway: GatewayProcess, client: StreamClient, tmp_path: Path) -> None:
    for stream in STREAMS:
        append(client, stream, b"first", b"second")
    runs = Ingest(spark, gateway, tmp_path / "tables")
    assert read_table(spark, "streams", runs.target) is None
    runs.run()
    first = sorted((stream, at, (b"first", b"second")[at]) for stream in STREAMS for at in range(2))
    assert runs.rows() == first

    append(client, STREAMS[0], b"third")
    runs.run()
    both = sorted([*first, (STREAMS[0], 2, b"third")])
    assert runs.rows() == both

    # Killed behind the write and before the checkpoint says so: the batch is done again. What it had begun to write
    # goes away.
    table = tmp_path / "tables" / "streams"
    for name in ("1", ".1.crc"):
        (table / "_checkpoint" / "commits" / name).unlink()
    (table / ".spark-staging-killed").mkdir()
    runs.run()
    assert runs.rows() == both
    assert runs.seen_by_others() == [(stream, at) for stream, at, _ in both]
    assert not (table / ".spark-staging-killed").exists()
    assert len(list(table.glob("date=*/protocol=s2s/stream_dir=*/batch=0/*.parquet"))) == len(STREAMS)

    # Without its checkpoint the table's content is unknown.
    (table / "_checkpoint").rename(tmp_path / "lost")
    with pytest.raises(JobFailed, match=r"streams has rows, but .*_checkpoint is gone"):
        runs.run()


@pytest.mark.spark
def test_recordings_are_decoded_once_for_all_tables(spark: SparkSession, tmp_path: Path) -> None:
    """One query writes them: each row once, however often it is run, and nothing where a table was taken away."""
    recordings = small_recording(tmp_path / "recorded")
    target = TargetSettings(path=str(tmp_path / "tables"))
    captures = CaptureSettings(path=(str(recordings),), options={"settle_seconds": 0})

    def run() -> None:
        [incoming] = capture_tables(spark, captures, target)
        query = ingest(incoming, target)
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def found() -> dict[str, int]:
        return {name: pq.read_table(tmp_path / "tables" / name).num_rows for name in CAPTURE_TABLES}

    run()
    rows = found()
    assert rows == {name: len(read(recordings, name)) for name in CAPTURE_TABLES}
    for name in ("0", ".0.crc"):  # killed behind the writes and before the checkpoint says so
        (tmp_path / "tables" / "_checkpoint" / "recordings" / "commits" / name).unlink()
    run()
    assert found() == rows
    (tmp_path / "tables" / "messages").rename(tmp_path / "away")
    with pytest.raises(JobFailed, match=r"messages is gone, but .*recordings says that its rows were written"):
        run()
    (tmp_path / "tables" / "_checkpoint").rename(tmp_path / "lost")
    with pytest.raises(JobFailed, match=r"connections has rows, but .*_checkpoint/recordings is gone"):
        run()


@pytest.mark.spark
def test_names_of_streams_as_directories(spark: SparkSession) -> None:
    names = [*STREAMS, "a b", "a+b", "a~20b", "a%20b", "ä", "ä".upper(), "y" * 121, "y" * 120, "..", "*"]
    frame = spark.createDataFrame([(name,) for name in names], "stream string")
    made = [row[0] for row in frame.select(stream_dir(frame.stream)).collect()]
    assert len({name.lower() for name in made}) == len(names)
    assert all(name.isascii() and len(name) <= 120 and "/" not in name for name in made)
    assert made[5:8] == ["a+b", "a~2bb", "a~7e20b"]


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_format_whose_jar_is_missing(spark: SparkSession, gateway: GatewayProcess, kind: str, tmp_path: Path) -> None:
    runs = Ingest(spark, gateway, tmp_path)
    runs.target = TargetSettings(path=str(tmp_path), format=kind)  # type: ignore[arg-type]
    with pytest.raises(JobFailed, match=rf"target.format is {kind}, and Spark has no .*spark.jars.packages="):
        runs.run()
    assert not list(tmp_path.iterdir())


def test_names_and_patterns_are_told_apart() -> None:
    source = SourceSettings(
        endpoint="http://h:1", streams=("b/a", "b/x*", "b/c", "b/[ab]"), options={"fail_on_data_loss": False}
    )
    assert source_options(source) == {
        "endpoint": "http://h:1",
        "streams": '["b/a", "b/c"]',
        "stream_pattern": '["b/x*", "b/[ab]"]',
        "fail_on_data_loss": "false",
    }


def test_where_checkpoints_are() -> None:
    table = (TABLES["streams"],)
    assert checkpoint_of(table, TargetSettings(path="s3a://b/t/")) == "s3a://b/t/streams/_checkpoint"
    assert checkpoint_of(table, TargetSettings(path="/t", format="iceberg")) == "/t/_checkpoint/streams"
