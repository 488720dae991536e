"""One session of a real Spark for all tests that need one; they are marked `spark`, skipped where Java is missing.
Gateways through which servers of other protocols are reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING

import pytest
from support.process import GatewayProcess
from support.spark.gateways import gateway_before

from penstock_spark.running.session import CannotRun, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # Java code that is made and compiled for each query takes longer than queries of some rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
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
def bridge(gateway: GatewayProcess) -> Iterator[Callable[[str], GatewayProcess]]:
    """Return a gateway before the shared one, by the kind of its back: each kind has one. The listener of that kind of
    the shared gateway is the server."""
    ports = {"segment": gateway.controller_port}
    with ExitStack() as stack:

        def open_bridge(kind: str) -> GatewayProcess:
            port = ports.get(kind) or getattr(gateway, f"{kind}_port")
            return stack.enter_context(gateway_before(kind, f"127.0.0.1:{port}"))

        yield cache(open_bridge)
