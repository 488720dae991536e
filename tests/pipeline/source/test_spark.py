"""The source in a real Spark, with streams of a real gateway."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.process import GatewayProcess

from penstock.model.records import EVENT_TIME, Header
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import parse_endpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BASIN = "penstock"


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[StreamClient]:
    client = StreamClient(parse_endpoint(gateway.s2_url))
    yield client
    client.close()


def fill(client: StreamClient, stream: str, bodies: Sequence[bytes]) -> None:
    """Appended at the end, stamped by their number, each tenth with a header."""
    client.create(stream)
    at = client.tail(stream)
    headers = {index: (Header(b"n", b"%d" % (at + index)),) for index in range(0, len(bodies), 10)}
    appender = client.appender(stream)
    appender.append(bodies, headers, range(1000 + at, 1000 + at + len(bodies)), at)
    appender.flush()
    appender.close()


def load(spark: SparkSession, gateway: GatewayProcess, schema: str | None = None, **given: str) -> DataFrame:
    reader = spark.read.format("penstock").option("endpoint", gateway.s2_url).options(**given)
    return (reader if schema is None else reader.schema(schema)).load()


def ours(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.select("seq_num", "body").orderBy("stream", "seq_num").collect()]


def test_streams_of_a_pattern_as_a_table(spark: SparkSession, gateway: GatewayProcess, client: StreamClient) -> None:
    for name, count in (("a", 50), ("b", 20)):
        fill(client, f"{BASIN}/source-table/{name}", [b"%s%d" % (name.encode(), at) for at in range(count)])
    frame = load(spark, gateway, basin=BASIN, stream_pattern="source-table/*", min_partitions="3", end="seq_num:40")
    rows = frame.selectExpr("stream", "seq_num", "unix_millis(timestamp) AS ms", "headers", "body").collect()
    assert sorted((row.stream[-1], row.seq_num, row.ms, row.body) for row in rows) == [
        (name, at, 1000 + at, b"%s%d" % (name.encode(), at))
        for name, count in (("a", 40), ("b", 20))
        for at in range(count)
    ]
    headers = {row.seq_num: [tuple(one) for one in row.headers] for row in rows if row.stream.endswith("a")}
    assert headers == {at: [] if at % 10 else [(b"n", b"%d" % at)] for at in range(40)}
    # Spark keeps what it planned for a DataFrame; another use of it must not miss rows for that.
    assert frame.where("seq_num < 5").count() == 10
    assert frame.count() == 60


def test_branches_with_different_filters(spark: SparkSession, gateway: GatewayProcess, client: StreamClient) -> None:
    stream = f"{BASIN}/source-branches"
    fill(client, stream, [b"%d" % at for at in range(100)])
    frame = load(spark, gateway, stream=stream)
    rows = frame.where("seq_num < 10").union(frame.where("seq_num >= 90")).collect()
    assert sorted(row.seq_num for row in rows) == [*range(10), *range(90, 100)]


def test_columns_by_name(spark: SparkSession, gateway: GatewayProcess, client: StreamClient) -> None:
    stream = f"{BASIN}/source-columns"
    fill(client, stream, [b"x", b"y"])
    frame = load(spark, gateway, "body binary NOT NULL, SEQ_NUM bigint", stream=stream)
    assert [(row.body, row.SEQ_NUM) for row in frame.collect()] == [(b"x", 0), (b"y", 1)]
    with pytest.raises(Exception, match="body: is binary, not string\n  more: no such column") as caught:
        load(spark, gateway, "body string, more int", stream=stream, token="s3cr3t").collect()
    assert "s3cr3t" not in str(caught.value)


def test_a_watermark_by_event_time_drops_what_is_late(
    spark: SparkSession, gateway: GatewayProcess, client: StreamClient, tmp_path: Path
) -> None:
    """Timestamps of a stream never fall, so one by `timestamp` would drop nothing."""
    stream = f"{BASIN}/source-late"
    fill(client, stream, [b"on time"])
    reader = spark.readStream.format("penstock").option("endpoint", gateway.s2_url).option("stream", stream)
    counts = reader.load().withWatermark("event_time", "1 second").groupBy("event_time").count()
    for late in (False, True):
        appender = client.appender(stream)
        at = client.tail(stream)
        event = {0: (Header(EVENT_TIME, b"5"),)} if late else {}
        appender.append([b"x"], event, [100_000 + at], at)
        appender.flush()
        appender.close()
        writer = counts.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        query.awaitTermination()
    dropped = sum(one["numRowsDroppedByWatermark"] for run in query.recentProgress for one in run["stateOperators"])
    assert dropped == 1


def test_the_token_is_in_no_plan(spark: SparkSession, gateway: GatewayProcess, capsys: Any) -> None:
    frame = load(spark, gateway, stream=f"{BASIN}/source-token", token="s3cr3t")
    frame.where("seq_num < 5").explain("extended")
    frame.explain("formatted")
    shown = capsys.readouterr().out
    assert "penstock" in shown and "s3cr3t" not in shown


class Target:
    """A streaming query into Parquet that is started again and again."""

    def __init__(self, spark: SparkSession, gateway: GatewayProcess, directory: Path, **given: str) -> None:
        self.spark = spark
        self.url = gateway.s2_url
        self.directory = directory
        self.given = given

    def run(self, **given: str) -> list[int]:
        """All that is there now: the rows of each micro-batch."""
        reader = self.spark.readStream.format("penstock").option("endpoint", self.url)
        writer = reader.options(**{**self.given, **given}).load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.directory / "checkpoint")).trigger(availableNow=True)
        query = writer.start(str(self.directory / "table"))
        query.awaitTermination()
        return [found for progress in query.recentProgress if (found := progress["numInputRows"])]

    def table(self) -> list[tuple[Any, ...]]:
        frame = self.spark.read.parquet(str(self.directory / "table"))
        return sorted(
            (row.stream, row.seq_num, row.body) for row in frame.select("stream", "seq_num", "body").collect()
        )


def test_a_query_that_goes_on_at_its_checkpoint(
    spark: SparkSession, gateway: GatewayProcess, client: StreamClient, tmp_path: Path
) -> None:
    one, other = f"{BASIN}/source-stream/one", f"{BASIN}/source-stream/other"
    fill(client, one, [b"%d" % at for at in range(50)])
    target = Target(spark, gateway, tmp_path, basin=BASIN, stream_pattern="source-stream/*")
    assert target.run(max_records_per_batch="20") == [20, 20, 10]
    fill(client, one, [b"%d" % at for at in range(50, 60)])
    fill(client, other, [b"%d" % at for at in range(30)])
    _forget_the_last_batch(tmp_path)
    assert target.run() == [10, 10, 30]
    expected = [(name, at, b"%d" % at) for name, count in ((one, 60), (other, 30)) for at in range(count)]
    assert target.table() == sorted(expected)


def _forget_the_last_batch(directory: Path) -> None:
    """Remove the commits of the last batch, as if the driver had died after writing its rows: it is done again."""
    for log in (directory / "checkpoint" / "commits", directory / "table" / "_spark_metadata"):
        last = max(int(path.name) for path in log.iterdir() if path.name.isdigit())
        for path in log.glob(f"*{last}*"):
            path.unlink()


def test_a_view_of_a_stream(spark: SparkSession, gateway: GatewayProcess, client: StreamClient) -> None:
    """In SQL alone. `CREATE TABLE` cannot be had: Spark gives the reader of a table no options."""
    fill(client, f"{BASIN}/as-a-view", [b"first", b"second"])
    options = f"endpoint '{gateway.s2_url}', stream '{BASIN}/as-a-view'"
    spark.sql(f"CREATE TEMPORARY VIEW penstock_orders USING penstock OPTIONS ({options})")
    try:
        found = spark.sql("SELECT seq_num, cast(body AS string) AS body FROM penstock_orders ORDER BY seq_num")
        assert [tuple(row) for row in found.collect()] == [(0, "first"), (1, "second")]
    finally:
        spark.sql("DROP VIEW penstock_orders")
