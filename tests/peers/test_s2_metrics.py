"""Metrics and locations with the official clients of S2: Python, TypeScript, and the command line."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
import s2_sdk as s2
from s2_sdk import AppendInput, Record, SeqNum
from support import real_peers
from support.peers import finish, run_client
from support.process import GatewayProcess
from support.s2.sdk import Connect


def test_the_python_client(connect: Connect, basin: str, stream: str) -> None:
    async def main() -> None:
        async with connect() as client:
            events = client.basin(basin).stream(stream)
            await events.append(AppendInput([Record(b"x" * 92)]))
            await events.read(start=SeqNum(0))
            end = int(time.time())
            hour = {"start": end - 3600, "end": end}
            [active] = await client.account_metrics(set=s2.AccountMetricSet.ACTIVE_BASINS, **hour)
            assert isinstance(active, s2.Label) and basin in active.values
            for interval in s2.TimeseriesInterval:
                found = await client.account_metrics(
                    set=s2.AccountMetricSet.ACCOUNT_OPS, interval=interval, start=end - 86_400, end=end
                )
                assert found and all(isinstance(each, s2.Accumulation) for each in found)
                assert {each.interval for each in found if isinstance(each, s2.Accumulation)} == {interval}
            for wanted in s2.BasinMetricSet:
                for each in await client.basin_metrics(basin, set=wanted, **hour):
                    gauge = wanted is s2.BasinMetricSet.STORAGE
                    assert isinstance(each, s2.Gauge if gauge else s2.Accumulation)
            [read] = await client.basin_metrics(basin, set=s2.BasinMetricSet.READ_THROUGHPUT, **hour)
            assert isinstance(read, s2.Accumulation)
            assert (read.unit, sum(value for _, value in read.values)) == (s2.MetricUnit.BYTES, 100)
            [stored] = await client.stream_metrics(basin, stream, set=s2.StreamMetricSet.STORAGE, **hour)
            assert isinstance(stored, s2.Gauge) and len(stored.values) >= 60
            with pytest.raises(s2.S2ServerError) as caught:
                await client.basin_metrics(basin, set=s2.BasinMetricSet.STORAGE, start=end, end=end - 60)
            assert (caught.value.status_code, caught.value.code) == (422, "invalid")

            here = await client.get_default_location()
            assert await client.list_locations() == [here]
            assert await client.set_default_location(here.name) == here
            assert {info.location for info in (await client.list_basins()).items} == {here.name}
            with pytest.raises(s2.S2ServerError):
                await client.set_default_location("aws:us-east-1")

    finish(main())


def test_the_typescript_client(gateway: GatewayProcess, basin: str, stream: str) -> None:
    node = Path(__file__).parent / "node"
    if not (node / "node_modules" / "@s2-dev" / "streamstore").is_dir():
        pytest.skip("the npm clients are not installed: `make node-peers`")
    run_client(["node", "metrics.mjs", gateway.s2_url, basin, stream], cwd=node, seconds=60)


def test_the_command_line(gateway: GatewayProcess, basin: str, stream: str, tmp_path: Path) -> None:
    program = real_peers.s2_program()
    if not program.exists():
        pytest.skip("s2 is not installed: `make peers`")
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "S2_ACCESS_TOKEN": "a-token",
        "S2_ACCOUNT_ENDPOINT": gateway.s2_url,
        "S2_BASIN_ENDPOINT": gateway.s2_url,
    }

    def run(*args: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            [program, *args], env=environment, input=stdin, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, (args, done.stderr)
        return done.stdout.decode() + done.stderr.decode()

    run("append", f"s2://{basin}/{stream}", stdin=b"one\ntwo\n")
    hour = ("--start-ago", "1h", "--end-ago", "0s")
    assert basin in run("get-account-metrics", "active-basins", *hour)
    run("get-account-metrics", "account-ops", *hour, "--interval", "minute")
    for wanted in ("append-ops", "append-throughput", "read-ops", "read-throughput", "basin-ops"):
        run("get-basin-metrics", basin, wanted, *hour)
    assert re.search(r"\b22\b", run("get-basin-metrics", basin, "append-throughput", *hour))  # twice 8 + 3 bytes
    run("get-basin-metrics", basin, "storage", *hour)
    run("get-stream-metrics", f"s2://{basin}/{stream}", "storage", *hour)
