"""A streaming query in a process of its own, that a test may kill: a gateway's streams into Parquet, with a checkpoint.

    python streaming_query.py ENDPOINT PATTERN DIRECTORY follow|finish

`follow`: until it is killed. `finish`: what is there now, and then the whole table into DIRECTORY/table.arrow.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from penstock_spark.running.session import open_session

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
}


def main(endpoint: str, pattern: str, directory: str, mode: str) -> None:
    place = Path(directory)
    spark = open_session(
        "local[2]", configuration={**CONFIGURATION, "spark.sql.warehouse.dir": str(place / "warehouse")}
    )
    rows = (
        spark.readStream.format("penstock")
        .option("endpoint", endpoint)
        .option("stream_pattern", pattern)
        .option("max_records_per_batch", "20000")
        .load()
    )
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
    if mode == "finish":
        writer = writer.trigger(availableNow=True)
    query = writer.start(str(place / "table"))
    query.awaitTermination()
    table = spark.read.parquet(str(place / "table")).toArrow()
    with pa.OSFile(str(place / "table.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
