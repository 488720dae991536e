"""One session of a real Spark for all tests that need one; they are marked `spark`, skipped where Java is missing. One
gateway through which an S3P server is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.process import GatewayProcess
from support.spark.gateways import gateway_before_s3p

from penstock_spark.running.session import CannotRun, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session. It takes some 15 s to start, so that a test which can do without should. Tasks may fail three times,
    as tests of the sink make them do."""
    warehouse = tmp_path_factory.mktemp("spark")
    try:
        session = open_session(
            "local[2,4]", configuration={**CONFIGURATION, "spark.sql.warehouse.dir": str(warehouse / "warehouse")}
        )
    except CannotRun as reason:
        pytest.skip(str(reason))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3p_gateway(gateway: GatewayProcess) -> Iterator[GatewayProcess]:
    """A gateway before the S3P listener of the shared one, which is the S3P server here."""
    with gateway_before_s3p(gateway.s3p_port) as process:
        yield process
