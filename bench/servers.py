"""The servers under measurement as child processes on loopback: the gateway, redis-server, haproxy and its source."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asgi
import wire

__all__ = [
    "Bridge",
    "Client",
    "Gateway",
    "Redis",
    "Relay",
    "Server",
    "Source",
    "Spark",
    "Unavailable",
    "Uvicorn",
    "WideGateway",
    "open_files",
    "processor_seconds",
    "resident_bytes",
    "session_seconds",
    "spawn",
]

START_SECONDS = 30.0
_HERE = Path(__file__).parent
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
"""prctl(2) on Linux."""
_ENDING = {signal.SIGINT, signal.SIGTERM}


class Unavailable(Exception):
    """A program is not installed; the message says how to get it."""


def processor_seconds(pid: int) -> float:
    """Processor time, user and system, that a process used so far in all its threads, to the nanosecond.

    Its clock has the number that clock_getcpuclockid(3) returns on Linux; /proc/PID/stat counts in ticks of 10 ms.
    """
    return time.clock_gettime((~pid << 3) | 2)


def resident_bytes(pid: int) -> int:
    """Memory that a process keeps in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    """Number of file descriptors of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _end_with_parent(parent: int, mask: set[int]) -> None:
    """In a child: ask for SIGTERM when `parent`, the process that started it, ends, however it ends. `mask`: the
    signals that it blocks."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before, so that no signal will come
        os._exit(1)


def spawn(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
    """Start a program that ends with this process, also if this process is killed. `options`: those of `Popen`."""
    # A signal waits for the end of the fork: Python drops what a handler raises in a function that runs at a fork.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    process = None
    try:
        process = subprocess.Popen(command, preexec_fn=partial(_end_with_parent, os.getpid(), mask), **options)
    finally:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        except BaseException:
            if process is not None:
                process.kill()
                process.wait()
            raise
    return process


def session_seconds(command: Sequence[str], directory: Path) -> float:
    """Run a program to its end, and return the processor seconds of all processes of its session: of those that ended
    as they were last seen, every 20 ms. Raises RuntimeError with its output if it fails."""
    used: dict[str, float] = {}
    with (directory / "log").open("wb") as log:
        process = spawn(command, cwd=directory, stdout=log, stderr=log, start_new_session=True)
        try:
            while process.poll() is None:
                for number in (path.parent.name for path in Path("/proc").glob("[0-9]*/stat")):
                    try:
                        if os.getsid(int(number)) == process.pid:
                            used[number] = processor_seconds(int(number))
                    except OSError:
                        continue  # it ended meanwhile
                time.sleep(0.02)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed\n{(directory / 'log').read_text()}")
    return sum(used.values())


def free_port() -> int:
    """A port that was free a moment ago, for programs that cannot be told to choose one."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def wait_for(port: int, process: subprocess.Popen[Any]) -> None:
    """Waits until something listens; raises RuntimeError where the process ends or START_SECONDS pass before."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"{process.args} does not listen on {port}")


class Server:
    """A child process that is ended with the `with` block."""

    process: subprocess.Popen[Any]

    def cpu(self) -> float:
        """Processor seconds used so far."""
        return processor_seconds(self.process.pid)

    def __enter__(self) -> Self:
        return self

    def stop(self) -> None:
        """End the process, by force where it takes more than 15 s."""
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in filter(None, (self.process.stdin, self.process.stdout)):
            with suppress(BrokenPipeError):  # it ended before it had read everything
                pipe.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


class Gateway(Server):
    """`penstock serve` with its embedded store in `directory`, as durable as it always is."""

    _CONFIG = """\
[listeners.s2]
bind = "127.0.0.1:0"

[listeners.s3p]
bind = "127.0.0.1:0"
basin = "{basin}"

[listeners.segment]
bind = "127.0.0.1:0"

[store]
directory = "{data}"

[[store.basins]]
name = "{basin}"
create_stream_on_append = true
create_stream_on_read = true

[management]
enabled = false

[log]
level = "info"
format = "json"
"""

    _LISTENERS = 3

    def __init__(self, directory: Path, command: tuple[str, ...], **settings: object) -> None:
        """`command`: what runs it, up to its `serve`; `settings`: more of what its configuration wants to know."""
        directory.mkdir()
        self._directory = directory
        self._command = command
        self._log = directory / "log"
        self._config = directory / "gateway.toml"
        self._config.write_text(self._CONFIG.format(data=directory / "data", basin=wire.BASIN, **settings))
        self._start()

    def _start(self) -> None:
        with self._log.open("wb") as log:
            self.process = spawn(
                [*self._command, "serve", "--config", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=self._directory,
            )
        deadline = time.monotonic() + START_SECONDS
        while len(ports := self._ports()) < self._LISTENERS:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"the gateway did not start\n{self._log.read_text()}")
            time.sleep(0.02)
        self.s2_port = ports["listeners.s2"]
        self.s3p_port, self.segment_port = ports.get("listeners.s3p", 0), ports.get("listeners.segment", 0)
        self.kafka_port, self.durable_port = ports.get("listeners.kafka", 0), ports.get("listeners.durable", 0)

    def restart(self) -> None:
        """Stop it and start it anew on the same data, so that nothing is in its memory; the ports change."""
        self.stop()
        self._start()

    def _ports(self) -> dict[str, int]:
        found = {}
        for line in self._log.read_text().split("\n")[:-1]:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("event") == "listening":
                found[event["listener"]] = event["port"]
        return found


class WideGateway(Gateway):
    """The same with listeners for Kafka and Durable Streams, too."""

    _CONFIG = (
        Gateway._CONFIG
        + """
[listeners.kafka]
bind = "127.0.0.1:0"
basin = "{basin}"

[listeners.durable]
bind = "127.0.0.1:0"
basin = "{basin}"
"""
    )
    _LISTENERS = 5


class Bridge(Gateway):
    """`penstock serve` in front of an S2 server on `back`; S2S sessions pass through it."""

    _CONFIG = """\
[listeners.s2]
bind = "127.0.0.1:0"

[store]
directory = "{data}"

[backs.source]
kind = "s2"
address = "127.0.0.1:{back}"

[[routes]]
name = "all"
back = "source"

[management]
enabled = false

[log]
format = "json"
"""
    _LISTENERS = 1


class Redis(Server):
    """`redis-server` with an append-only file in `directory`; `fsync` is "always" or "everysec"."""

    def __init__(self, directory: Path, fsync: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise Unavailable("redis-server is not installed (apt-get install redis-server): its rows are left out")
        directory.mkdir()
        self.port = free_port()
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(directory),
            "appendonly": "yes",
            "appendfsync": fsync,
            "auto-aof-rewrite-percentage": "0",
            "save": "",
            "daemonize": "no",
        }
        arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
        self.process = spawn([program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_for(self.port, self.process)


class Uvicorn(Server):
    """`uvicorn` with a parser of HTTP/1.1 and an application of `asgi.py`: `answering`, or `storing` in `directory`."""

    def __init__(self, parser: str, directory: Path | None = None) -> None:
        for name in {"uvicorn", parser}:
            if importlib.util.find_spec(name) is None:
                raise Unavailable(f"{name} is not installed (pip install --group bench): its rows are left out")
        self.port = free_port()
        flags = ("--http", parser, "--loop", "asyncio", "--no-access-log", "--log-level", "warning")
        application, environment = "answering", dict(os.environ)
        if directory is not None:
            directory.mkdir()
            application, environment = "storing", environment | {asgi.DIRECTORY: str(directory)}
        command = (sys.executable, "-m", "uvicorn", f"asgi:{application}", *flags, "--port", str(self.port))
        self.process = spawn(command, cwd=_HERE, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_for(self.port, self.process)


class Source(Server):
    """Answers every connection with the bytes of `payload`, whatever is asked."""

    def __init__(self, payload: Path) -> None:
        self.process = spawn(
            [sys.executable, str(_HERE / "source.py"), str(payload)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self.process.stdout.readline())


class Relay(Server):
    """haproxy as a plain TCP relay in front of what listens on `backs`, which get connections in turn."""

    _CONFIG = """\
global
    nbthread 1
    maxconn 1000
    tune.bufsize 65536
defaults
    mode tcp
    balance roundrobin
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen relay
    {option}
    bind 127.0.0.1:{port}
{servers}
"""

    def __init__(self, directory: Path, *backs: int, splice: bool = False) -> None:
        """`splice`: the kernel moves the bytes between the sockets, without haproxy's buffers."""
        program = shutil.which("haproxy")
        if program is None:
            raise Unavailable("haproxy is not installed (apt-get install haproxy): its rows are left out")
        directory.mkdir()
        self.port = free_port()
        config = directory / "haproxy.cfg"
        servers = "\n".join(f"    server back-{back} 127.0.0.1:{back}" for back in backs)
        option = "option splice-response" if splice else ""
        config.write_text(self._CONFIG.format(port=self.port, servers=servers, option=option))
        self.process = spawn([program, "-q", "-db", "-f", str(config)], stdin=subprocess.DEVNULL)
        wait_for(self.port, self.process)


class Client(Server):
    """The client process; `do` gives it a job and waits for the answer."""

    _PROGRAM = "client.py"

    def __init__(self) -> None:
        self.process = spawn(
            [sys.executable, str(_HERE / self._PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, job: str, **arguments: object) -> dict[str, Any]:
        """The answer of client.py's function of that name; raises RuntimeError with its traceback where it failed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"job": job, **arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the client process ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{job} {arguments}: {answer['error']}\n{answer['trace']}")
        return answer


class Spark(Client):
    """A session of Spark on one core, which takes jobs as the client does."""

    _PROGRAM = "spark_client.py"
