"""A gateway that records under load: its disk is full, or it is killed. Its clients notice neither."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from support.peers import need
from support.ports import free_ports
from support.process import CONFIG, GatewayProcess, running_gateway
from support.rounds import each_number_of_rounds
from support.s3p.client import S3PClient, options
from support.store.disks import small_file_system

PENSTOCK = Path(sys.executable).parent / "penstock"
PATIENCE_SECONDS = 60.0
BODY = b"x" * 16_000
BATCH = 16
DISK_MIB = 24


class Load:
    """Clients that append without a pause, each to a stream of its own, and count acknowledged appends."""

    def __init__(self, port: int, clients: int) -> None:
        self.acknowledged = [0] * clients
        self.failures: list[BaseException | object] = []
        self._port = port
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)

    def _run(self, number: int) -> None:
        try:
            with S3PClient(("127.0.0.1", self._port)) as client:
                client.send("CREATE", f"load-{number}", options())
                assert client.reply() == "OK"
                while not self._over.is_set():
                    said = client.append(f"load-{number}", *[BODY] * BATCH)
                    assert isinstance(said, bytes), said
                    self.acknowledged[number] += BATCH
        except (AssertionError, OSError, EOFError) as error:
            self.failures.append(error)


def until(what: Callable[[], bool], words: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline, words
        time.sleep(0.02)


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("penstock-*.pcapng"))


def can_be_looked_at(directory: Path) -> None:
    """By tshark, each file by itself, and by our own command, all of them as one recording."""
    program = need("tshark")
    for path in files(directory):
        done = subprocess.run(
            [program, "-n", "-r", str(path), "-q", "-z", "io,stat,0"], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0 or "cut short in the middle of a packet" in done.stderr, done.stderr
    show = subprocess.run(
        [PENSTOCK, "show", "--kind", "APPEND", directory], capture_output=True, text=True, timeout=100
    )
    assert show.returncode == 0 and "APPEND" in show.stdout, show.stderr
    assert "Traceback" not in show.stderr


@contextmanager
def recording_on(disk: Path) -> Iterator[tuple[GatewayProcess, Callable[[], dict[str, Any]]]]:
    """A gateway, and what its only recording says of itself."""
    (port,) = free_ports(1)
    recorder = f'[recorder]\ndirectory = "{disk}"\nrotate_bytes = 4194304\npriority = "recording"\n'
    config = f'{CONFIG}\n[management]\nbind = "127.0.0.1:{port}"\n{recorder}'

    def status() -> dict[str, Any]:
        with urlopen(f"http://127.0.0.1:{port}/recordings", timeout=20) as answer:
            (recording,) = json.load(answer)["recordings"]
        found: dict[str, Any] = recording
        return found

    with running_gateway(config) as gateway:
        yield gateway, status


@pytest.mark.peer
def test_a_full_disk_is_no_matter_for_clients(tmp_path: Path) -> None:
    with (
        small_file_system(tmp_path / "disk", DISK_MIB) as disk,
        recording_on(disk) as (gateway, status),
        Load(gateway.s3p_port, 2) as load,
    ):
        until(lambda: "suspended" in json.dumps(status()), "the disk was never full")
        full = sum(load.acknowledged)
        until(lambda: sum(load.acknowledged) > full + 20 * BATCH, "appends go on")
        for path in files(disk)[:-2]:
            path.unlink()
        until(lambda: "suspended" not in json.dumps(status()), "there is room")
        before = sum(load.acknowledged)
        until(lambda: sum(load.acknowledged) > before + 20 * BATCH, "appends go on")
        load.stop()
        assert not load.failures, load.failures
        errors = [line for line in gateway.events() if line["level"] == "error"]
        assert {line["event"] for line in errors} == {"recording_suspended"}, errors
        assert gateway.events("recording_resumed")
        for number, count in enumerate(load.acknowledged):
            with S3PClient(("127.0.0.1", gateway.s3p_port)) as client:
                assert len(client.read_all(f"load-{number}")) == count
        can_be_looked_at(disk)


@each_number_of_rounds
@pytest.mark.peer
def test_kill_9_under_load(tmp_path: Path, rounds: int) -> None:
    for number in range(rounds):
        kill_under_load(tmp_path / str(number), (number % 5 + 2) * 7 * BATCH)
        can_be_looked_at(tmp_path / str(number))


def kill_under_load(directory: Path, acknowledged: int) -> None:
    with GatewayProcess(arguments=("--record", str(directory))) as gateway, Load(gateway.s3p_port, 3) as load:
        until(lambda: sum(load.acknowledged) > acknowledged, "appends are acknowledged")
        gateway.kill()
