"""Spark writes to a gateway, which mirrors the stream to a server without conditional appends."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.bridges.copies import bodies_at_server, mirror_of, until_compared
from support.process import BASIN, GatewayProcess, running_gateway
from support.real_backs import BackServer, DurableReference, PravegaStandalone, SecondPenstock
from support.s2.client import S2Client

from penstock_spark.sink.writer import PenstockWriter
from penstock_spark.source.datasource import PenstockDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[3] / "docs" / "pipeline.md"
STREAM = "orders"
JOBS = 2
ROWS = 12_000
PATIENCE_SECONDS = 60.0
SERVERS: dict[str, Callable[[], BackServer]] = {
    "reference": lambda: DurableReference(durable=True),
    "Penstock durable": lambda: SecondPenstock("durable"),
    "Pravega": PravegaStandalone,
    "Penstock segment": lambda: SecondPenstock("segment"),
}


def configuration(server: BackServer) -> str:
    """Return the page's configuration, with this server behind it, and the ports and the directory of a test."""
    section = PAGE.read_text().partition("### Writing to servers of other protocols")[2]
    text = section.partition("```toml\n")[2].partition("```")[0]
    text = text.replace(":8080", ":{s2_port}").replace(":9600", ":{management_port}")
    if server.kind == "durable":
        durable = f'kind = "durable"\naddress = "127.0.0.1:{server.address[1]}"\n'
        text = re.sub(r'kind = "segment"\n.*?(?=\n\[\[routes)', durable, text, flags=re.DOTALL)
    else:
        assert server.controller is not None
        text = text.replace("127.0.0.1:9091", f"127.0.0.1:{server.controller[1]}")
    return text.replace('directory = "data"', 'directory = "{data}"') + '\n[log]\nformat = "json"\n'


def killing_format(pid: int, killed: Path) -> type[PenstockDataSource]:
    """The format with a writer whose first task kills a process when it has half of its rows, and dies. `killed`: a
    file that says so. Defined in a function, so that workers get it by value."""

    class KillingWriter(PenstockWriter):
        def write(self, iterator: Any) -> Any:
            def pieces() -> Iterator[Any]:
                for batch in iterator:
                    half = batch.num_rows // 2
                    yield batch.slice(0, half)
                    with suppress(FileExistsError):
                        killed.touch(exist_ok=False)
                        os.kill(pid, signal.SIGKILL)
                        raise RuntimeError("died halfway")
                    yield batch.slice(half)

            return super().write(pieces())

    class Killing(PenstockDataSource):
        @classmethod
        def name(cls) -> str:
            return "killing"

        def writer(self, schema: Any, overwrite: bool) -> PenstockWriter:
            return KillingWriter(self.options, schema, overwrite)

    return Killing


def restart_when_killed(gateway: GatewayProcess) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while gateway.running:
        assert time.monotonic() < deadline, "nothing has killed the gateway"
        time.sleep(0.01)
    gateway.restart(kill=True)


def stored(gateway: GatewayProcess) -> list[bytes]:
    """Return the bodies of the gateway's stream, in order."""
    client, bodies = S2Client(("127.0.0.1", gateway.s2_port), BASIN), list[str]()
    while len(bodies) < client.tail(STREAM)["seq_num"]:
        bodies += client.bodies(STREAM, seq_num=len(bodies))
    return [body.encode() for body in bodies]


@pytest.mark.parametrize("name", SERVERS)
def test_each_row_is_once_at_the_server(name: str, spark: SparkSession, tmp_path: Path) -> None:
    """In each job the gateway is killed while tasks write and the mirror copies. Later the job is done again."""
    with SERVERS[name]() as server, running_gateway(configuration(server)) as gateway, ThreadPoolExecutor() as pool:
        for job in range(1, JOBS + 1):
            spark.dataSource.register(killing_format(gateway.pid, tmp_path / f"killed-{job}"))
            frame = spark.range((job - 1) * ROWS, job * ROWS, numPartitions=2).selectExpr("cast(id as string) body")
            options = {"endpoint": gateway.s2_url, "stream": f"{BASIN}/{STREAM}", "sink": "orders", "batch": str(job)}
            save = frame.write.mode("append").options(**options)
            restarted = pool.submit(restart_when_killed, gateway)
            save.format("killing").save()
            restarted.result()
            save.format("penstock").save()
        mirror = until_compared(gateway, JOBS * ROWS)
        assert sorted(map(int, stored(gateway))) == list(range(JOBS * ROWS))
        assert bodies_at_server(server, STREAM) == stored(gateway)
        assert mirror["state"] == mirror_of(gateway)["state"] == "equal"
