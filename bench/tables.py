"""Duties of the pipeline on one core: source, sink and capture reader, beside Parquet and a loop without Spark.

The loops do the same with the same clients and codecs, and end at Arrow batches (or begin there): what they leave out
is Spark. Each is in the process of the session, so that `CPU` counts what the row of Spark counts, too.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import wire
from duties import Row
from recordings import RecordBench
from servers import Gateway, Spark, session_seconds

__all__ = ["CAPTURE", "LOOP", "SINK", "SMALL_RUN", "SOURCE", "SPARK", "TableBench"]

SOURCE, SINK, CAPTURE = "spark source", "spark sink", "spark capture"
SMALL_RUN = "small run"
LOOP, SPARK, PARQUET = "loop", "Spark", "Spark, Parquet"
ROUNDS = 5
"""At the least: the machine's other core has the gateway, and the JVM's compiler and collector."""
WARM_UP = 2
"""Rounds that do not count: workers start, and the JVM compiles what it runs often."""

_SOURCE_BYTES = 1 << 30
"""So much is read that what a job of Spark costs by itself, some tenths of a second, is a small part."""
_BYTES = 256 << 20
_MOST_ROWS = 2_000_000
_CAPTURED_ROWS = 300_000
_SMALL_ROWS = 90
"""As many as the README's tour makes."""


class Recorded(Gateway):
    """`penstock serve` that records all of everything."""

    _CONFIG = Gateway._CONFIG + '\n[recorder]\ndirectory = "{captures}"\npriority = "recording"\n'


class TableBench(RecordBench):
    """See `Bench`."""

    def tables(self, size: int, connections: int) -> Iterator[Row]:
        """All three, with one session; once, whatever the numbers of connections are."""
        if connections != self._scale.connections[0]:
            return
        with ExitStack() as stack:
            spark = stack.enter_context(Spark())
            yield from self._stream_rows(spark, size)
            yield from self._capture_rows(spark, size)
            if size == min(self._scale.sizes):
                yield from self._small_run(spark, size)

    def _stream_rows(self, spark: Spark, size: int) -> Iterator[Row]:
        for duty, most in ((SOURCE, _SOURCE_BYTES), (SINK, _BYTES)):
            job = {"size": size, "rows": min(_MOST_ROWS, most // size), "port": self.gateway.s2_port}
            job |= {"stream": f"{wire.BASIN}/{self._streams(1)[0]}", "directory": str(self._directory)}
            spark.do("fill", **job)
            self.gateway.restart()
            job["port"] = self.gateway.s2_port
            yield from self._measured(spark, duty, job)

    def _capture_rows(self, spark: Spark, size: int) -> Iterator[Row]:
        captures = self._directory / "captures"
        job: dict[str, Any] = {"size": size, "rows": min(_CAPTURED_ROWS, _BYTES // 4 // size)}
        with Recorded(self._directory / "recorded", self._command, captures=captures) as gateway:
            job |= {"port": gateway.s2_port, "stream": f"{wire.BASIN}/captured", "directory": str(captures)}
            spark.do("append", **job)
        job |= {"capture": str(captures), "directory": str(self._directory)}
        yield from self._measured(spark, CAPTURE, job)

    def _small_run(self, spark: Spark, size: int) -> Iterator[Row]:
        """`penstock pipeline run` on a recording of some records, in processes of its own."""
        place = self._directory / "small"
        with Recorded(place, self._command, captures=place / "captures") as gateway:
            job = {"size": size, "port": gateway.s2_port, "stream": f"{wire.BASIN}/small"}
            spark.do("append", rows=_SMALL_ROWS, **job)

        def run() -> dict[str, float]:
            shutil.rmtree(place / "tables", ignore_errors=True)
            words = ("pipeline", "run", str(place / "captures"), "--target", str(place / "tables"))
            return {"cpu_s": session_seconds((sys.executable, "-m", "penstock", *words), place)}

        yield from self._rows(SMALL_RUN, size, 1, {SPARK: run}, rounds=1)

    def _measured(self, spark: Spark, duty: str, job: dict[str, Any]) -> Iterator[Row]:
        def candidate(kind: str) -> Callable[[], dict[str, float]]:
            def run() -> dict[str, float]:
                target = f"{wire.BASIN}/{self._streams(1)[0]}"
                answer = spark.do(f"{kind}_{duty.split()[1]}", **job, target=target)
                rate = job["rows"] / answer["seconds"]
                cpu = answer["cpu"] / job["rows"] * 1e6
                return {"records_s": rate, "mb_s": rate * job["size"] / 1e6, "cpu_us": cpu}

            return run

        candidates = {LOOP: candidate("loop"), SPARK: candidate("spark"), PARQUET: candidate("parquet")}
        for _ in range(WARM_UP):
            for run in candidates.values():
                run()
        yield from self._rows(duty, job["size"], 1, candidates, rounds=max(ROUNDS, self._scale.rounds))
