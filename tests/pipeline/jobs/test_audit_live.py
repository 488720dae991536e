"""One stream of a real gateway, read through two protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.process import GatewayProcess

import penstock_spark
from penstock_spark.clients import open_client
from penstock_spark.clients.endpoint import parse_endpoint
from penstock_spark.jobs.audit import audit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

STREAM = "audited-live"
_BATCH = 1_000


def _fill(gateway: GatewayProcess, records: int) -> None:
    client = open_client(parse_endpoint(gateway.s2_url))
    client.create(f"penstock/{STREAM}")
    appender = client.appender(f"penstock/{STREAM}")
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
def test_s2s_and_s3p_give_the_same_stream(spark: SparkSession, gateway: GatewayProcess, records: int) -> None:
    _fill(gateway, records)
    left = _load(spark, gateway.s2_url, f"penstock/{STREAM}")
    right = _load(spark, f"s3p://127.0.0.1:{gateway.s3p_port}", STREAM)
    same = audit(left, right, also=["timestamp"])
    (row,) = same.verdicts.collect()
    same.close()
    assert (row.stream, row.right_stream, row.verdict) == (f"penstock/{STREAM}", STREAM, "equal")
    assert row.left_records == row.right_records == records
    assert row.left_digest == row.right_digest
