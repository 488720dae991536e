"""Every command of docs/replay.md is run, in order, on a recording of an S3P client."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.process import GatewayProcess
from support.real_backs import free_ports
from support.s3p import S3PClient

DOCUMENT = Path(__file__).parents[2] / "docs" / "replay.md"
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
EXPECTED = {
    "--fast\n": ["s3p       translated", "1 conversation: 2 messages said", "0 answers different"],
    "--loops": ["s3p       direct", "2 conversations: 4 messages said", "0 answers different"],
    "--until 60 --strict": ["1 conversation: 2 messages said"],
    "--json": ['"appended": 1'],
}
"""What each block prints, by a piece that none before it has."""


@pytest.mark.peer
def test_every_command_works(tmp_path: Path) -> None:
    for program in ("bash", "nc"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    with GatewayProcess(arguments=("--record", str(tmp_path / "recordings"))) as gateway:
        work(gateway.s3p_port)
        assert gateway.terminate() == 0
    blocks = re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    *replays, mock, client = blocks
    with GatewayProcess() as s2, GatewayProcess() as s3p:
        for block, (key, wanted) in zip(replays, EXPECTED.items(), strict=True):
            assert key in block
            block = block.replace(":8080", f":{s2.s2_port}").replace(":7500", f":{s3p.s3p_port}")
            printed = output(block, tmp_path)
            for one in wanted:
                assert one in printed, f"{block}\n{printed}"
        check_copies(s2, "bills", "bills-1", "bills-2", "again-bills")
        check_copies(s3p, "bills", "eu-basin/bills")
    serve_again(mock, client, tmp_path)


def work(port: int) -> None:
    """What the page's client says."""
    with S3PClient(("127.0.0.1", port)) as client:
        assert client.create("bills") == "OK"
        client.append("bills", b"first")


def check_copies(server: GatewayProcess, *streams: str) -> None:
    with S3PClient(("127.0.0.1", server.s3p_port)) as client:
        for stream in streams:
            assert [body for _, body in client.read(stream)] == [b"first"], stream


def serve_again(mock: str, client: str, directory: Path) -> None:
    port = str(free_ports(1)[0])
    arguments = ["bash", "-c", f"exec {mock.replace('7501', port)}"]
    with subprocess.Popen(
        arguments, cwd=directory, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            assert f"1 conversation is played on 127.0.0.1:{port}" in process.stderr.readline()
            assert output(client.replace("7501", port), directory).startswith("+OK\n$1")
            process.wait(30)
            assert "1 connection, 1 conversation played" in process.stdout.read()
        finally:
            process.kill()


def output(block: str, directory: Path) -> str:
    arguments = ["bash", "-e", "-o", "pipefail", "-c", block]
    done = subprocess.run(arguments, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout
