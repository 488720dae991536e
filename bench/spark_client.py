"""The benchmark's Spark: a session on one core in a process of its own, which takes jobs as `client.py` does.

Each job runs once and gives its seconds and the processor seconds of this process, its JVM and their workers.
"""

from __future__ import annotations

import json
import os
import random
import sys
import traceback
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from penstock_spark.capture.decoding import decode_rows
from penstock_spark.capture.files import find_captures
from penstock_spark.capture.grouping import RecordingPart
from penstock_spark.capture.recordings import recordings_of
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.running.session import open_session
from penstock_spark.schemas import RECORDS, SEEN_RECORDS, arrow_schema, spark_schema
from penstock_spark.source.arrow import to_batches

_TICKS = os.sysconf("SC_CLK_TCK")
CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.files.maxPartitionBytes": str(1 << 30),
}
APPEND_BYTES = 900_000
"""Of bodies in one append; S2 takes 1 MiB metered, and 1,000 records."""
SCHEMA = spark_schema(RECORDS)


def processor_seconds() -> float:
    """Of this process and all that it began, with those of them that have ended and were waited for."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        number = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(number)
        used[number] = sum(map(int, fields[11:15]))
    found, waiting = 0, [os.getpid()]
    while waiting:
        number = waiting.pop()
        found += used.get(number, 0)
        waiting += children.get(number, ())
    return found / _TICKS


def append_count(size: int) -> int:
    """Records of one append."""
    return min(1000, APPEND_BYTES // (size + 8))


def endpoint(job: dict[str, Any]) -> Endpoint:
    """The gateway."""
    return Endpoint("127.0.0.1", job["port"])


def batches(job: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """The plain loop: the source's client and its Arrow batches, without Spark."""
    client = StreamClient(endpoint(job))
    try:
        rows = client.read(job["stream"], client.first(job["stream"]), client.tail(job["stream"]))
        yield from to_batches(job["stream"], (row.columns for row in rows), SCHEMA)
    finally:
        client.close()


class Jobs:
    """The jobs by name. Each returns the number of rows that it worked on, if that can be known."""

    def __init__(self) -> None:
        self._spark = open_session("local[1]", name="penstock-bench", configuration=CONFIGURATION)

    def fill(self, job: dict[str, Any]) -> int:
        """Makes what is to be read: a stream of rows whose bodies differ, and Parquet of the same rows."""
        self.append(job)
        found = batches(job)
        first = next(found)
        with pq.ParquetWriter(self._file(job), first.schema, compression="zstd") as writer:
            for batch in chain([first], found):
                writer.write_batch(batch)
        return int(job["rows"])

    def append(self, job: dict[str, Any]) -> int:
        """The rows into a stream."""
        dice, size = random.Random(job["size"]), job["size"]
        noise = dice.randbytes(1 << 20)
        client = StreamClient(endpoint(job))
        appender = client.appender(job["stream"])
        count = append_count(size)
        for start in range(0, job["rows"], count):
            places = [dice.randrange(len(noise) - size) for _ in range(min(count, job["rows"] - start))]
            bodies = [
                number.to_bytes(8, "big") + noise[place : place + size - 8]
                for number, place in enumerate(places, start)
            ]
            appender.append(bodies, {}, None, start)
        appender.flush()
        appender.close()
        client.close()
        return int(job["rows"])

    def loop_source(self, job: dict[str, Any]) -> int:
        """The plain loop that reads."""
        return sum(batch.num_rows for batch in batches(job))

    def spark_source(self, job: dict[str, Any]) -> None:
        """The source, every column of every row, into nothing."""
        options = {"endpoint": f"http://127.0.0.1:{job['port']}", "stream": job["stream"]}
        self._spark.read.format("penstock").options(**options).load().write.format("noop").mode("overwrite").save()

    def parquet_source(self, job: dict[str, Any]) -> None:
        """The same rows from Parquet."""
        self._spark.read.parquet(self._file(job)).write.format("noop").mode("overwrite").save()

    def loop_sink(self, job: dict[str, Any]) -> int:
        """The plain loop that appends: Parquet by pyarrow, and the sink's client."""
        client = StreamClient(endpoint(job))
        appender = client.appender(job["target"])
        expected = 0
        count = append_count(job["size"])
        for batch in pq.ParquetFile(self._file(job)).iter_batches(count, columns=["body"]):
            bodies = batch.column(0).to_pylist()
            appender.append(bodies, {}, None, expected)
            expected += len(bodies)
        appender.flush()
        appender.close()
        client.close()
        return expected

    def spark_sink(self, job: dict[str, Any]) -> None:
        """The sink, of the rows that are in Parquet."""
        options = {"endpoint": f"http://127.0.0.1:{job['port']}", "stream": job["target"]}
        rows = self._spark.read.parquet(self._file(job)).select("body").coalesce(1)
        rows.write.format("penstock").options(**options).mode("append").save()

    def parquet_sink(self, job: dict[str, Any]) -> None:
        """The same rows into Parquet again."""
        rows = self._spark.read.parquet(self._file(job)).select("body").coalesce(1)
        rows.write.mode("overwrite").parquet(self._file(job) + ".copy")

    def loop_capture(self, job: dict[str, Any]) -> int:
        """The plain loop over a capture: the reader's own Arrow batches, without Spark."""
        schema = arrow_schema(spark_schema(SEEN_RECORDS))
        (recording,) = recordings_of(find_captures((job["capture"],)))
        return sum(batch.num_rows for batch in decode_rows(RecordingPart(recording, "records", recording.file), schema))

    def spark_capture(self, job: dict[str, Any]) -> None:
        """The records of a capture, every column, into nothing."""
        self._capture(job).write.format("noop").mode("overwrite").save()

    def parquet_capture(self, job: dict[str, Any]) -> None:
        """The same table from Parquet."""
        place = Path(job["directory"]) / f"{job['size']}-seen.parquet"
        if not place.exists():
            self._capture(job).write.parquet(str(place))
        self._spark.read.parquet(str(place)).write.format("noop").mode("overwrite").save()

    def _capture(self, job: dict[str, Any]) -> DataFrame:
        options = {"table": "records", "groups": "1"}
        return self._spark.read.format("penstock-capture").options(**options).load(job["capture"])

    @staticmethod
    def _file(job: dict[str, Any]) -> str:
        return str(Path(job["directory"]) / f"{job['size']}.parquet")


def run(jobs: Jobs, job: dict[str, Any]) -> dict[str, Any]:
    """One job and what it took."""
    cpu, begin = processor_seconds(), perf_counter()
    found = getattr(jobs, job["job"])(job)
    seconds = perf_counter() - begin
    if found not in (None, job["rows"]):
        raise RuntimeError(f"{found} rows of {job['rows']}")
    return {"seconds": seconds, "cpu": processor_seconds() - cpu}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed here
    jobs = Jobs()
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = run(jobs, job)
        except Exception as error:
            answer = {"error": repr(error), "trace": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
