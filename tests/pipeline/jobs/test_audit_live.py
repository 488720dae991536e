"""One stream of a real gateway, read from it and through a gateway before its S3P listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from support.process import GatewayProcess

import penstock_spark
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.endpoint import parse_endpoint
from penstock_spark.jobs.audit import audit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

_BATCH = 1_000


def _fill(gateway: GatewayProcess, stream: str, records: int) -> None:
    client = StreamClient(parse_endpoint(gateway.s2_url))
    client.create(stream)
    appender = client.appender(stream)
    for start in range(0, records, _BATCH):
        bodies = [b"record %d" % number for number in range(start, min(start + _BATCH, records))]
        appender.append(bodies, {}, None, start)
    appender.flush()
    appender.close()
    client.close()


def _load(spark: SparkSession, endpoint: str, stream: str) -> DataFrame:
    penstock_spark.register(spark)
    return spark.read.format("penstock").option("endpoint", endpoint).option("stream", stream).load()


@pytest.mark.parametrize("records", [2_000, pytest.param(200_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_a_gateway_before_an_s3p_server_gives_the_same_stream(
    spark: SparkSession, gateway: GatewayProcess, bridge: Callable[[str], GatewayProcess], records: int
) -> None:
    stream = f"penstock/audited-live-{records}"
    _fill(gateway, stream, records)
    left, right = (_load(spark, one.s2_url, stream) for one in (gateway, bridge("s3p")))
    same = audit(left, right, also=["timestamp"])
    (row,) = same.verdicts.collect()
    same.close()
    assert (row.stream, row.right_stream, row.verdict) == (stream, stream, "equal")
    assert row.left_records == row.right_records == records
    assert row.left_digest == row.right_digest
