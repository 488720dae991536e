"""`backfill`: each row once, in order, however often it is run, and whatever ended it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.process import BASIN, GatewayProcess

from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import parse_endpoint
from penstock_spark.jobs.backfill import ProgressLog, backfill
from penstock_spark.jobs.directories import HadoopDirectory
from penstock_spark.running import JobFailed
from penstock_spark.schemas import RECORDS, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

COLUMNS = spark_schema(RECORDS)


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[StreamClient]:
    client = StreamClient(parse_endpoint(gateway.s2_url))
    yield client
    client.close()


def table(spark: SparkSession, rows: list[tuple[str, int | None]]) -> DataFrame:
    made = [(stream, at, None, [], f"{stream} {at}".encode()) for stream, at in reversed(rows)]
    return spark.createDataFrame(made, COLUMNS)


def bodies(client: StreamClient, stream: str) -> list[bytes]:
    found = client.read(stream, client.first(stream), client.tail(stream))
    return [bytes(body) for rows in found for body in rows.columns.bodies]


def test_each_row_once_and_in_order(
    spark: SparkSession, gateway: GatewayProcess, client: StreamClient, tmp_path: Path
) -> None:
    place = HadoopDirectory(spark, str(tmp_path / "log"))
    options = {"endpoint": gateway.s2_url, "sink": "backfill-test", "ledger": BASIN}
    names = {"b/one": f"{BASIN}/backfill-one", "b/two": f"{BASIN}/backfill-two"}

    def run(rows: list[tuple[str, int | None]]) -> list[dict[str, int]]:
        return [done for _, done in backfill(table(spark, rows), ProgressLog(place), options, names=names, most=30)]

    def expected(name: str, numbers: range) -> list[bytes]:
        return [f"{name} {at}".encode() for at in numbers]

    rows = [*(("b/one", at) for at in range(5, 45)), *(("b/two", at) for at in range(10))]
    assert run(rows) == [{"b/one": 30, "b/two": 10}, {"b/one": 10}]
    assert bodies(client, names["b/one"]) == expected("b/one", range(5, 45))
    assert bodies(client, names["b/two"]) == expected("b/two", range(10))
    assert run(rows) == []

    # Killed behind the last append, and before it was written down: the batch is done again, and appends nothing.
    (tmp_path / "log" / "00000001.done").unlink()
    assert run(rows) == [{"b/one": 10}]
    # What has come since follows.
    assert run([*rows, ("b/one", 45)]) == [{"b/one": 1}]
    assert bodies(client, names["b/one"]) == expected("b/one", range(5, 46))
    # What has come behind cannot.
    with pytest.raises(JobFailed, match=r"stream b/one: 1 records were added to the table before"):
        run([*rows, ("b/one", 45), ("b/one", 3)])


@pytest.mark.parametrize(
    ("rows", "names", "fault"),
    [
        ([("b/a", 0), ("b/a", None)], {}, "stream b/a: 1 records have no sequence number"),
        ([("b/a", 0), ("b/a", 0)], {}, "stream b/a: 1 records have the sequence number of another one"),
        ([("b/a", 0), ("b/b", 0)], {"b/a": "b/b"}, "several streams have the target b/b"),
    ],
)
def test_what_has_no_order(
    spark: SparkSession, tmp_path: Path, rows: list[tuple[str, int | None]], names: dict[str, str], fault: str
) -> None:
    log = ProgressLog(HadoopDirectory(spark, str(tmp_path)))
    with pytest.raises(JobFailed, match=fault):
        list(backfill(table(spark, rows), log, {"endpoint": "http://127.0.0.1:1", "sink": "x"}, names=names))
    assert log.batches == []
