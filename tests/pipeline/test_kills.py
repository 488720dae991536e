"""Streaming into Parquet while query and gateway are killed: the table equals the streams, record for record."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
from support.process import BASIN, GatewayProcess
from support.spark import streaming_query

from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import Endpoint

pytestmark = [pytest.mark.spark, pytest.mark.long]

STREAMS = ("kills/a", "kills/b", "kills/c")
QUERY_KILLS = 10
GATEWAY_KILLS_AT = (3, 7)
"""Before the query is killed for the so manieth time."""
PATIENCE_SECONDS = 300.0


class Load:
    """Appends to all streams without a pause. Each record differs from its neighbours.

    An append that failed or was not answered is simply repeated, so that the streams hold some records twice.
    """

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_SECONDS)

    def _run(self) -> None:
        turn = 0
        while not self._over.is_set():
            turn += 1
            for stream in STREAMS:
                records = [
                    {"body": f"{stream} {turn} {index}", "headers": [["turn", str(turn)]]} for index in range(50)
                ]
                with contextlib.suppress(URLError, OSError):
                    self._append(stream, records)
            self._over.wait(0.1)

    def _append(self, stream: str, records: list[dict[str, object]]) -> None:
        request = Request(
            f"{self._gateway.s2_url}/v1/streams/{stream.replace('/', '%2F')}/records",
            json.dumps({"records": records}).encode(),
            {"s2-basin": BASIN, "content-type": "application/json"},
        )
        with urlopen(request, timeout=20) as answer:
            answer.read()


class Query:
    """The program of `streaming_query`, in a process group of its own with its JVM."""

    def __init__(self, gateway: GatewayProcess, directory: Path, how: str) -> None:
        what = (gateway.s2_url, f"{BASIN}/kills/*", str(directory), how)
        self._command = [sys.executable, streaming_query.__file__, *what]
        self._directory = directory
        self._checkpoint = streaming_query.checkpoint(how, directory)
        self._log = directory / "query.log"

    @contextlib.contextmanager
    def following(self) -> Iterator[subprocess.Popen[bytes]]:
        """While it runs; it is killed at the end, with all that belongs to it."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [*self._command, "follow"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def finish(self) -> pa.Table:
        """Let it read what is left; the whole table."""
        with self._log.open("ab") as log:
            done = subprocess.run([*self._command, "finish"], stdout=log, stderr=log, timeout=PATIENCE_SECONDS)
        assert done.returncode == 0, self.log()
        with pa.memory_map(str(self._directory / "table.arrow")) as file:
            return pa.ipc.open_file(file).read_all()

    @property
    def commits(self) -> int:
        """Number of batches that the query has finished, over all its runs."""
        return len([path for path in (self._checkpoint / "commits").glob("*") if path.name.isdigit()])

    def log(self) -> str:
        """Return the end of its log."""
        return self._log.read_text(errors="replace")[-6000:]


def until(what: Callable[[], bool], process: subprocess.Popen[bytes], words: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert process.poll() is None and time.monotonic() < deadline, words()
        time.sleep(0.02)


def stored(gateway: GatewayProcess) -> dict[str, list[tuple[int, int, tuple[tuple[bytes, bytes], ...], bytes]]]:
    """Return the content of the streams, read without Spark."""
    client = StreamClient(Endpoint("127.0.0.1", gateway.s2_port))
    found = {}
    for stream in (f"{BASIN}/{name}" for name in STREAMS):
        records = found[stream] = []
        for columns, _ in client.read(stream, client.first(stream), client.tail(stream)):
            for index, (number, stamp, body) in enumerate(
                zip(columns.seq_nums, columns.timestamps, columns.bodies, strict=True)
            ):
                headers = tuple((name, value) for name, value in columns.headers.get(index, ()))
                records.append((number, stamp, headers, body))
    client.close()
    return found


def rows(table: pa.Table) -> dict[str, list[tuple[int, int, tuple[tuple[bytes, bytes], ...], bytes]]]:
    """The table's, by stream, in the order of their numbers."""
    found: dict[str, list[tuple[int, int, tuple[tuple[bytes, bytes], ...], bytes]]] = {}
    for row in table.sort_by([("stream", "ascending"), ("seq_num", "ascending")]).to_pylist():
        headers = tuple((header["name"], header["value"]) for header in row["headers"])
        stamp = round(row["timestamp"].timestamp() * 1000)
        found.setdefault(row["stream"], []).append((row["seq_num"], stamp, headers, row["body"]))
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", ["spark", "ingest"])
def test_each_record_once_whichever_process_is_killed(fresh_gateway: GatewayProcess, tmp_path: Path, how: str) -> None:
    dice = random.Random(6)
    query = Query(fresh_gateway, tmp_path, how)
    with Load(fresh_gateway):
        for turn in range(QUERY_KILLS):
            before = query.commits
            with query.following() as process:
                if turn in GATEWAY_KILLS_AT:
                    until(lambda seen=before: query.commits > seen, process, query.log)
                    fresh_gateway.restart(kill=True)
                    before = query.commits
                until(lambda seen=before: query.commits > seen, process, query.log)
                time.sleep(dice.uniform(0, 1.0))  # in whatever it is doing then
    found = rows(query.finish())
    expected = stored(fresh_gateway)
    assert found.keys() == expected.keys()
    for stream, records in expected.items():
        assert len(records) > 1000
        assert found[stream] == records
