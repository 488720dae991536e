"""`s2 bench` of S2's own command-line client: one writer and one follower, then a catch-up read of what was written.

The server beside the gateway is S2's own too, `s2 lite`, with its files in a directory. `make peers` builds both from
one crate, for tests and quickly; `make peers ARGS="--only 's2 lite, optimized'"` as its authors do, in twenty minutes.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import wire
from duties import Row
from gateways import GatewaysBench
from servers import START_SECONDS, Gateway, Server, free_port, resident_bytes, spawn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.real_peers import S2_VERSION, s2_program

__all__ = ["OFFICIAL", "S2_LITE", "S2BenchBench"]

OFFICIAL = "s2 bench"
PENSTOCK, S2_LITE = "Penstock", "s2 lite"
TARGET_MIB = 100
"""Target of the writer, in MiB/s (`-t`)."""
_SECONDS = 4
_RATES = re.compile(r"^(Write|Catchup): ([0-9.]+) MiB/s, [0-9.]+ records/s \([0-9]+ bytes, ([0-9]+) records", re.M)
_P99 = re.compile(r"^p99 *: *([0-9.]+)(ms|s|µs) +p99 *: *([0-9.]+)(ms|s|µs)", re.M)
_MILLISECONDS = {"µs": 0.001, "ms": 1.0, "s": 1000.0}


class S2Lite(Server):
    """`s2 lite` with its files in `directory`, and the bench's basin."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.port = free_port()
        command = [program(), "lite", "--port", str(self.port), "--local-root", directory / "root"]
        (directory / "root").mkdir()
        quiet = {**os.environ, "RUST_LOG": "warn", "NO_COLOR": "1"}
        with (directory / "log").open("wb") as log:
            self.process = spawn(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=quiet)
        deadline = time.monotonic() + START_SECONDS
        while not self._has_basin():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"s2 lite did not start\n{(directory / 'log').read_text()}")
            time.sleep(0.1)

    def _has_basin(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        headers = {"content-type": "application/json", "authorization": "Bearer bench"}
        try:
            connection.request("POST", "/v1/basins", json.dumps({"basin": wire.BASIN}), headers)
            return connection.getresponse().status in (201, 409)
        except OSError:
            return False
        finally:
            connection.close()


def program() -> Path:
    """The client, which is the server too: the optimized one if it is there."""
    optimized = s2_program(optimized=True)
    return optimized if optimized.exists() else s2_program()


def run_bench(port: int, size: int, home: Path) -> dict[str, float]:
    """Run the client against a server, and return its figures. Raises RuntimeError if it fails."""
    url = f"http://127.0.0.1:{port}"
    place = {"S2_ACCOUNT_ENDPOINT": url, "S2_BASIN_ENDPOINT": url, "S2_ACCESS_TOKEN": "bench", "HOME": str(home)}
    options = ["-b", str(size), "-t", str(TARGET_MIB), "-d", f"{_SECONDS}s", "-w", "1s"]
    command = [program(), "bench", wire.BASIN, *options]
    done = subprocess.run(command, env={**os.environ, **place}, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    rates = {name: (float(rate), int(records)) for name, rate, records in _RATES.findall(said)}
    found = _P99.search(said)
    if done.returncode or found is None or rates.keys() != {"Write", "Catchup"}:
        raise RuntimeError(f"s2 bench failed\n{said}")
    if rates["Write"][1] != rates["Catchup"][1]:
        raise RuntimeError(f"{rates['Write'][1]} records were written, {rates['Catchup'][1]} were read")
    ack, ack_unit, delivery, delivery_unit = found.groups()
    return {
        "records": rates["Write"][1],
        "write_mib": rates["Write"][0],
        "catch_up_mib": rates["Catchup"][0],
        "ack_p99_ms": float(ack) * _MILLISECONDS[ack_unit],
        "delivery_p99_ms": float(delivery) * _MILLISECONDS[delivery_unit],
    }


class S2BenchBench(GatewaysBench):
    """See `Bench`."""

    def official(self, size: int) -> Iterator[Row]:
        """The client's figures, the processor time of a record (written, followed, and read again), and memory."""
        if not program().exists():
            self._say(f"s2 {S2_VERSION} is not installed (make peers): its rows are left out")
            return
        if program() == s2_program():
            self._say("s2 lite is built for tests, with little optimization (bench/README.md)")
        with ExitStack() as stack:
            directory = self._directory / f"s2-bench-{size}"
            directory.mkdir()
            gateway = stack.enter_context(Gateway(directory / "gateway", self._command))
            lite = stack.enter_context(S2Lite(directory / "lite"))
            servers: dict[str, tuple[Server, int]] = {PENSTOCK: (gateway, gateway.s2_port), S2_LITE: (lite, lite.port)}

            def measure(name: str) -> dict[str, float]:
                server, port = servers[name]
                before = server.cpu()
                figures = run_bench(port, size, directory)
                cpu = server.cpu() - before
                memory = resident_bytes(server.process.pid) / (1 << 20)
                return {**figures, "cpu_us": cpu / figures["records"] * 1e6, "memory_mib": memory}

            yield from self._rows(OFFICIAL, size, 1, {name: lambda n=name: measure(n) for name in servers})
