"""Every command of docs/recording.md and docs/comparing.md is run, in order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.captures import s3p_talk, written
from support.peers import need
from support.ports import free_ports
from support.process import running_gateway
from support.s3p.client import S3PClient, options

DOCS = Path(__file__).parents[2] / "docs"
PATIENCE_SECONDS = 30.0
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def blocks(document: str) -> list[str]:
    return re.findall(r"```sh\n(.*?)```", (DOCS / document).read_text(), re.DOTALL)


def run(block: str, directory: Path, *, code: int = 0) -> str:
    """Run a block and return the output of its last command."""
    arguments = ["bash", "-o", "pipefail", "-c", block]
    done = subprocess.run(arguments, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def serving(block: str, directory: Path) -> Iterator[None]:
    """A gateway as a block starts it, from when it listens until it is told to end."""
    arguments = ["bash", "-c", f"exec {block}"]
    with subprocess.Popen(
        arguments, cwd=directory, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as gateway:
        assert gateway.stdout is not None
        try:
            assert gateway.stdout.readline(), "it prints its banner when it listens"
            yield
            gateway.send_signal(signal.SIGTERM)
            _, complaints = gateway.communicate(timeout=PATIENCE_SECONDS)
        finally:
            gateway.kill()
        assert gateway.returncode == 0, complaints.decode()


@pytest.mark.peer
def test_the_tour(tmp_path: Path) -> None:
    for program in ("bash", "curl"):
        need(program)
    first, s3p, second = free_ports(3)
    ports = {":8080": f":{first}", ":7500": f":{s3p}", ":8081": f":{second}"}
    found = []
    for block in blocks("recording.md"):
        for usual, free in ports.items():
            block = block.replace(usual, free)
        found.append(block)
    record, say, look, serve, replay, compare = found
    listeners = f" --s2 127.0.0.1:{first} --s3p 127.0.0.1:{s3p}"
    listeners += "".join(f" --{kind} off" for kind in ("durable", "kafka", "segment", "controller"))
    with serving(record.strip() + listeners, tmp_path):
        assert '"seq_num":3' in run(say, tmp_path)
        until_recorded(tmp_path)
        printed = run(look, tmp_path)
        assert "APPEND" in printed and '"body":"second"' in printed and '"body":"third"' in printed
    files = b"".join(path.read_bytes() for path in (tmp_path / "recordings").iterdir())
    assert b"Bearer secret" not in files
    with serving(serve.strip(), tmp_path):
        assert "3" in run(replay, tmp_path)
        assert run(compare, tmp_path).splitlines()[-1] == "equal: 1 stream"


def until_recorded(directory: Path) -> None:
    """Wait until messages have reached the file, which takes up to a twentieth of a second."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while b"Bearer ******" not in b"".join(path.read_bytes() for path in (directory / "recordings").iterdir()):
        assert time.monotonic() < deadline, "it was not recorded"
        time.sleep(0.01)


@pytest.mark.peer
def test_comparing(tmp_path: Path) -> None:
    talk = written(s3p_talk(rounds=3))
    for name, capture in (("before", talk), ("after", talk), ("altered", talk.replace(b"record 1", b"record X"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "penstock-1.pcapng").write_bytes(capture)
    need("bash")
    with running_gateway() as gateway, S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
        client.send("CREATE", "orders", options())
        assert client.reply() == "OK"
        assert isinstance(client.append("orders", b"record 0", b"record 1", b"record 2"), bytes)
        equal, other = (block.replace(":8080", f":{gateway.s2_port}") for block in blocks("comparing.md"))
        assert run(equal, tmp_path).count("equal: 1 stream") == 2
    different, exact = other.strip().splitlines()
    assert "1 altered" in run(different, tmp_path, code=1)
    assert '"equal":true' in run(exact, tmp_path)
