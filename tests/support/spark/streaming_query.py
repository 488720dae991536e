"""A streaming query in a process of its own, that a test may kill: a gateway's streams into Parquet, with a checkpoint.

    python streaming_query.py ENDPOINT PATTERN DIRECTORY spark|ingest follow|finish

`spark`: through Spark's own file sink; `ingest`: by the job of that name. `follow`: until it is killed. `finish`: what
is there now; the whole table then goes into DIRECTORY/table.arrow.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import dataset

from penstock_spark.jobs.ingest import ingest, live_streams
from penstock_spark.running import SourceSettings, TargetSettings, open_session
from penstock_spark.schemas import RECORDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
}
BATCH_RECORDS = 20_000


def by_spark(spark: SparkSession, source: SourceSettings, place: Path, follow: bool) -> StreamingQuery:
    """Run the query that users would write."""
    rows = live_streams(spark, source).frame
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(checkpoint("spark", place)))
    if not follow:
        writer = writer.trigger(availableNow=True)
    return writer.start(str(place / "table"))


def by_ingest(spark: SparkSession, source: SourceSettings, place: Path, follow: bool) -> StreamingQuery:
    """Run the `ingest` job."""
    return ingest(live_streams(spark, source), TargetSettings(path=str(place), interval_seconds=0), follow=follow)


def checkpoint(how: str, place: Path) -> Path:
    """Return the path of the query's checkpoint."""
    return place / "checkpoint" if how == "spark" else place / "streams" / "_checkpoint"


def main(endpoint: str, pattern: str, directory: str, how: str, mode: str) -> None:
    place = Path(directory)
    configuration = {**CONFIGURATION, "spark.sql.warehouse.dir": str(place / "warehouse")}
    spark = open_session("local[2]", configuration=configuration)
    source = SourceSettings(endpoint=endpoint, streams=(pattern,), options={"max_records_per_batch": BATCH_RECORDS})
    begin = by_spark if how == "spark" else by_ingest
    begin(spark, source, place, mode == "follow").awaitTermination()
    names = [column.name for column in RECORDS]
    if how == "spark":
        table = spark.read.parquet(str(place / "table")).select(names).toArrow()
    else:  # by a program that knows nothing of Spark
        table = dataset.dataset(str(place / "streams"), partitioning="hive").to_table(columns=names)
    with pa.OSFile(str(place / "table.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
