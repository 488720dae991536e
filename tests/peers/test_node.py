"""Clients from npm, unmodified: the official TypeScript client over both its transports, and EventSource."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.peers import create_basin, run_client
from support.process import GatewayProcess

NODE = Path(__file__).parent / "node"

SCENARIOS = re.findall(r"^  async (\w+)\(\) \{$", (NODE / "scenarios.mjs").read_text(), re.MULTILINE)


@functools.cache
def missing() -> str | None:
    """Return why the clients cannot run here and how to fix it, or None if they can."""
    if shutil.which("node") is None:
        return "node is not installed: install Node.js 20 or newer, then `make node-peers`"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True, timeout=20).stdout
    if int(version.lstrip("v").split(".")[0]) < 20:
        return f"node is {version.strip()}, the clients need 20 or newer"
    if not (NODE / "node_modules" / "@s2-dev" / "streamstore").is_dir():
        return "the npm clients are not installed: `make node-peers`"
    return None


@functools.cache
def has_zstd() -> bool:
    code = "process.exit(require('node:zlib').createZstdCompress ? 0 : 1)"
    return subprocess.run(["node", "-e", code], check=False, timeout=20).returncode == 0


@pytest.fixture(autouse=True)
def node() -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) > 8


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(
    ("transport", "compression"), [("s2s", "none"), ("s2s", "gzip"), ("s2s", "zstd"), ("fetch", "none")]
)
def test_streamstore(gateway: GatewayProcess, basin: str, scenario: str, transport: str, compression: str) -> None:
    if compression == "zstd" and not has_zstd():
        pytest.skip("this node has no zstd: install Node.js 22.15 or newer")
    run_client(["node", "scenarios.mjs", scenario, gateway.s2_url, basin, transport, compression], cwd=NODE, seconds=60)


@pytest.mark.parametrize("mode", ["host", "query"])
def test_eventsource_follows_and_resumes(gateway: GatewayProcess, basin: str, stream: str, mode: str) -> None:
    run_client(["node", "eventsource.mjs", mode, gateway.s2_url, basin, stream], cwd=NODE, seconds=45)


@pytest.mark.parametrize("transport", ["s2s", "fetch"])
def test_streamstore_lives_on_across_a_drain(fresh_gateway: GatewayProcess, transport: str) -> None:
    """Its sessions come back by themselves: nothing acknowledged is lost, nothing is there twice."""
    create_basin(fresh_gateway.s2_port, "restart-basin")
    command = ["node", "restart.mjs", fresh_gateway.s2_url, "restart-basin", transport]
    with subprocess.Popen(command, cwd=NODE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        try:
            assert client.stdout is not None and client.stderr is not None
            assert client.stdout.readline() == "go\n", client.stderr.read()
            fresh_gateway.restart()
            _, complaints = client.communicate(timeout=60)
        finally:
            client.kill()
    assert client.returncode == 0, complaints
