"""Servers of other protocols in a real Spark, each read through a gateway before it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest
from support.peers import unique
from support.process import BASIN, GatewayProcess
from support.real_backs import BackServer, DurableReference, PravegaStandalone, S3PReference, SecondPenstock
from support.spark.gateways import gateway_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer]
URLS = {
    "s3p": "s3p://{}:{}/{}",
    "durable": "durable://{}:{}/{}",
    "segment": f"pravega://{{}}:{{}}/{BASIN}/{{}}",
}
"""URLs of the servers' streams, by the kind of the back."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(S3PReference, id="S3P reference server"),
        pytest.param(partial(SecondPenstock, "s3p"), id="S3P"),
        pytest.param(DurableReference, id="Durable Streams"),
        pytest.param(partial(SecondPenstock, "segment"), id="segments"),
        pytest.param(PravegaStandalone, id="Pravega", marks=pytest.mark.long),
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[BackServer]:
    make: Callable[[], BackServer] = request.param
    with make() as running:
        yield running


@pytest.fixture(scope="module")
def near(server: BackServer) -> Iterator[GatewayProcess]:
    """The gateway before the server."""
    host, port = server.controller or server.address
    with gateway_before(server.kind, f"{host}:{port}") as process:
        yield process


@pytest.fixture
def stream(server: BackServer) -> str:
    """The name of a new stream on the server."""
    name = unique("spark-source")
    if server.kind == "segment":
        penstock("create", url_of(server, name))
    elif server.kind == "durable":
        host, port = server.address
        kind = {"content-type": "application/json"}
        urlopen(Request(f"http://{host}:{port}/v1/stream/{name}", None, kind, method="PUT"), timeout=20).close()
    return name


def url_of(server: BackServer, stream: str) -> str:
    return URLS[server.kind].format(*(server.controller or server.address), stream)


def penstock(*words: str, lines: str = "") -> None:
    """Run a command, which speaks the server's own protocol."""
    subprocess.run([sys.executable, "-m", "penstock", *words], input=lines.encode(), check=True, capture_output=True)


def test_a_query_that_is_restarted_copies_each_record_once(
    spark: SparkSession, gateway: GatewayProcess, server: BackServer, near: GatewayProcess, stream: str, tmp_path: Path
) -> None:
    target = f"{BASIN}/{unique('spark-target')}"

    def copy() -> None:
        """Run the query from its checkpoint to the end, in batches that end amid the server's answers."""
        query = (
            spark.readStream.format("penstock")
            .options(endpoint=near.s2_url, stream=f"{BASIN}/{stream}", start="earliest", max_records_per_batch="70")
            .load()
            .select("body")
            .writeStream.format("penstock")
            .options(endpoint=gateway.s2_url, stream=target, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def table(endpoint: str, name: str) -> list[tuple[int, object]]:
        reader = spark.read.format("penstock").options(endpoint=endpoint, stream=name, start="seq_num:5")
        rows = reader.option("min_partitions", "3").load().select("seq_num", "body").collect()
        return sorted((row.seq_num, json.loads(row.body)["n"]) for row in rows)

    done = 0
    for count in (150, 1, 60):
        numbers = range(done, done + count)
        penstock("append", url_of(server, stream), lines="".join(f'{{"n": {number}}}\n' for number in numbers))
        done += count
        copy()
    expected = [(number, number) for number in range(5, done)]
    assert table(near.s2_url, f"{BASIN}/{stream}") == expected
    assert table(gateway.s2_url, target) == expected
