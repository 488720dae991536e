"""Durable Streams in a real Spark, from and to the gateway and the reference server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest
from support.peers import unique
from support.process import GatewayProcess
from support.real_backs import DurableReference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer]


@pytest.fixture(scope="module")
def reference() -> Iterator[DurableReference]:
    with DurableReference() as server:
        yield server


@pytest.fixture(params=["gateway", "reference"])
def authority(request: pytest.FixtureRequest) -> str:
    if request.param == "gateway":
        gateway: GatewayProcess = request.getfixturevalue("gateway")
        return f"127.0.0.1:{gateway.durable_port}"
    host, port = request.getfixturevalue("reference").address
    return f"{host}:{port}"


def send(authority: str, method: str, stream: str, *messages: object) -> bytes:
    body = json.dumps(messages).encode() if messages else None
    url, kind = f"http://{authority}/v1/stream/{stream}", {"content-type": "application/json"}
    with urlopen(Request(url, body, kind, method=method), timeout=20) as answer:
        found: bytes = answer.read()
    return found


def test_a_query_that_is_restarted_reads_and_writes_each_record_once(
    spark: SparkSession, authority: str, tmp_path: Path
) -> None:
    source, target = unique("spark-source"), unique("spark-target")
    for stream in (source, target):
        send(authority, "PUT", stream)
    endpoint = f"durable://{authority}"

    def copy() -> None:
        """Run the query from its checkpoint to the end, in batches that end amid the server's answers."""
        query = (
            spark.readStream.format("penstock")
            .options(endpoint=endpoint, stream=source, start="earliest", max_records_per_batch="70")
            .load()
            .select("body")
            .writeStream.format("penstock")
            .options(endpoint=endpoint, stream=target, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    done = 0
    for count in (150, 1, 60):
        send(authority, "POST", source, *({"n": number} for number in range(done, done + count)))
        done += count
        copy()
    assert json.loads(send(authority, "GET", target)) == [{"n": number} for number in range(done)]
    table = spark.read.format("penstock").options(endpoint=endpoint, stream=target, start="seq_num:5").load()
    rows = sorted((row.seq_num, row.timestamp, json.loads(row.body)["n"]) for row in table.collect())
    assert rows == [(number, None, number) for number in range(5, done)]
