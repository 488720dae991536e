"""The benchmark ends its servers, however it ends; what waits is measured with connections of all protocols."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.shipping import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark reads /proc")
SECONDS = 60.0
ARGUMENTS = ("--quick", "--duties", "read", "--connections", "1", "--directory")


def children(pid: int) -> set[int]:
    """Processes that a process started, and those that they started."""
    found = {int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return found.union(*(children(one) for one in found if alive(one)))


def alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(true: object, what: str) -> None:
    """Wait until `true()`, or fail."""
    deadline = time.monotonic() + SECONDS
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The benchmark while it runs."""
    command = [sys.executable, str(ROOT / "bench/run.py"), *ARGUMENTS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        yield running
        running.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("moment", ["while its gateway starts", "while it measures"])
def test_it_leaves_no_process_when_a_signal_ends_it(
    number: signal.Signals, moment: str, bench: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    log = "scratch-*/*/gateway/log" if moment == "while its gateway starts" else "scratch-*/*/relay-*"
    wait_until(lambda: list(tmp_path.glob(log)), "it started nothing")
    started = children(bench.pid)
    bench.send_signal(number)
    assert started
    assert bench.wait(SECONDS) == (-number if number == signal.SIGKILL else 128 + number)
    wait_until(lambda: not any(map(alive, started)), f"{started} are left")
    assert number == signal.SIGKILL or not list(tmp_path.iterdir())


KILLED_IN_A_FORK = """
import ctypes, os, signal, sys, time
import servers

class Libc:
    def prctl(self, *arguments):
        parent = os.getppid()
        os.kill(parent, signal.SIGKILL)
        while os.getppid() == parent:
            time.sleep(0.001)
        return ctypes.CDLL(None).prctl(*arguments)

servers._LIBC = Libc()
servers.spawn([sys.executable, "-c", "print('started')"])
"""


def test_a_program_does_not_start_if_the_benchmark_was_killed_in_between() -> None:
    command = [sys.executable, "-c", KILLED_IN_A_FORK]
    ended = subprocess.run(command, cwd=ROOT / "bench", stdout=subprocess.PIPE, timeout=SECONDS)  # until both ended
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, b"")


SIGNALLED_IN_A_FORK = """
import os, signal, sys
import servers
from run import stop

signal.signal(signal.SIGTERM, stop)
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
servers.spawn(["sleep", "60"])
print("went on")
"""


def test_a_signal_in_a_fork_ends_the_benchmark_and_the_program() -> None:
    command = [sys.executable, "-c", SIGNALLED_IN_A_FORK]
    ended = subprocess.run(command, cwd=ROOT / "bench", stdout=subprocess.PIPE, timeout=SECONDS)  # until both ended
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, b"")


def test_connections_of_all_protocols_are_measured_before_a_request_and_after_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import small
    from duties import QUICK
    from servers import Client

    monkeypatch.setattr(small, "HELD", 50)
    monkeypatch.setattr(small, "HEARTBEATS_SECONDS", 0.1)
    monkeypatch.setattr(small, "REST_SECONDS", 0.1)
    with Client() as client:
        bench = small.SmallBench(QUICK, tmp_path, client, print, (sys.executable, "-m", "penstock"))
        rows = {row.candidate: row.figures["kib"] for row in bench.idle(100)}
    waiting = ("HTTP", "Durable Streams", "Kafka", "S3P", "segment")
    assert list(rows) == [
        "SSE",
        "S2S h1",
        "S2S h2",
        "S2S h2, shared",
        *(name + more for name in waiting for more in ("", ", asked once")),
    ]
    assert all(0 < kib < 200 for kib in rows.values()), rows
