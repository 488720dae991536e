"""Every command of docs/replay.md is run, in order, on a recording of an S3P client."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.captures import written
from support.captures.replay import Recording, append, create
from support.peers import need
from support.ports import free_ports
from support.process import GatewayProcess
from support.s3p.client import S3PClient

from penstock.cli.main import main
from penstock.model.records import RecordId
from penstock_s3p.codec import AppendedId, Ok

DOCUMENT = Path(__file__).parents[2] / "docs" / "replay.md"
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
EXPECTED = {
    "--fast\n": ["s3p       translated", "1 conversation: 2 messages said", "0 answers different"],
    "--loops": ["s3p       direct", "2 conversations: 4 messages said", "0 answers different"],
    "--until 60 --strict": ["1 conversation: 2 messages said"],
    "--json": ['"appended":1'],
}
"""Output of each block, by a piece of its text that no earlier block has."""


@pytest.mark.peer
def test_every_command_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("bash", "nc"):
        need(program)
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "one.pcapng").write_bytes(written(recorded().events))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    *replays, mock, client = blocks
    with GatewayProcess() as s2, GatewayProcess() as s3p:
        for block, (key, wanted) in zip(replays, EXPECTED.items(), strict=True):
            assert key in block
            block = block.replace(":8080", f":{s2.s2_port}").replace(":7500", f":{s3p.s3p_port}")
            printed = "".join(map(replayed, block.replace("\\\n", "").splitlines()))
            for one in wanted:
                assert one in printed, f"{block}\n{printed}"
        check_copies(s2, "bills", "bills-1", "bills-2", "again-bills")
        check_copies(s3p, "bills", "eu-basin/bills")
    serve_again(mock, client, tmp_path)


def recorded() -> Recording:
    """Return a recording of the page's client."""
    recording = Recording()
    recording.asked(create("bills"))
    recording.answered(Ok())
    recording.asked(append(b"first", name="bills"))
    recording.answered(AppendedId(RecordId(1_700_000_000_000, 0)))
    recording.closed()
    return recording


def replayed(command: str) -> str:
    """Run a replay in this process and return its output."""
    program, *arguments = shlex.split(command)
    assert program == "penstock"
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, f"{command}\n{result.output}"
    return result.output


def check_copies(server: GatewayProcess, *streams: str) -> None:
    with S3PClient(("127.0.0.1", server.s3p_port)) as client:
        for stream in streams:
            assert [body for _, body in client.read(stream)] == [b"first"], stream


def serve_again(mock: str, client: str, directory: Path) -> None:
    port = str(free_ports(1)[0])
    arguments = ["bash", "-c", f"exec {mock.replace('7501', port)}"]
    with subprocess.Popen(arguments, cwd=directory, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == f"penstock: s3p on 127.0.0.1:{port}\n"
            assert output(client.replace("7501", port), directory).startswith("+OK\n$1")
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert "2 requests answered from the recording, 0 not recorded, 0 never asked" in process.stderr.read()
        finally:
            process.kill()


def output(block: str, directory: Path) -> str:
    arguments = ["bash", "-e", "-o", "pipefail", "-c", block]
    done = subprocess.run(arguments, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout
