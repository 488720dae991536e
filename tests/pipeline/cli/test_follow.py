"""`ingest --follow` in a process of its own: new records are written, a signal ends it, and the next run resumes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.process import BASIN, GatewayProcess
from support.s2.client import S2Client

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(400)]

SETTINGS = """
[target]
interval_seconds = 0.5
[spark]
driver_memory = "1g"
[spark.conf]
"spark.ui.enabled" = false
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"""


def rows(table: Path) -> list[int]:
    """The sequence numbers in the table, as any program sees them."""
    try:
        return sorted(pq.read_table(table).column("seq_num").to_pylist())
    except (OSError, pa.ArrowInvalid, KeyError):  # not there yet
        return []


def test_until_a_signal(gateway: GatewayProcess, tmp_path: Path) -> None:
    client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
    settings, tables = tmp_path / "pipeline.toml", tmp_path / "tables"
    settings.write_text(SETTINGS)
    command = [sys.executable, "-m", "penstock", "pipeline", "ingest", "--follow", "--config", str(settings)]
    command += ["--endpoint", gateway.s2_url, "--stream", f"{BASIN}/followed", "--target", str(tables)]
    written = 0
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                for _ in range(2):
                    client.append_json("followed", {"records": [{"body": "x"}] * 3}).json()
                    written += 3
                    deadline = time.monotonic() + 100
                    while len(rows(tables / "streams")) < written and time.monotonic() < deadline:
                        assert process.poll() is None, process.stderr and process.stderr.read()
                        time.sleep(0.2)
                    assert rows(tables / "streams") == list(range(written))
                process.send_signal(number)
                printed, said = process.communicate(timeout=60)
            finally:
                process.kill()
        if number != signal.SIGKILL:
            assert process.returncode == 0, said
            assert printed == "" and "Traceback" not in said and "Error" not in said
