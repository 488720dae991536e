"""A real gateway in a process of its own, on free ports and a temporary directory."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.ports import free_ports

__all__ = ["BASIN", "CONFIG", "GatewayFailed", "GatewayProcess", "running_gateway"]

BASIN = "penstock"
"""The basin that is there from the start; it creates streams on append and on read, and S3P streams live in it."""

MANAGEMENT = """
[management]
bind = "127.0.0.1:{management_port}"
"""
"""Added to configurations without a management listener: the usual port may be another gateway's."""

LISTENERS = ("s2", "s3p", "segment", "controller", "durable", "kafka")
"""Each has an attribute here, and a place in the configuration's template, called `<kind>_port`."""

START_SECONDS = 120.0
_POLL_SECONDS = 0.01

CONFIG = """\
[listeners.s2]
bind = "127.0.0.1:{s2_port}"

[listeners.s3p]
bind = "127.0.0.1:{s3p_port}"
basin = "{basin}"

[listeners.segment]
bind = "127.0.0.1:{segment_port}"
basin = "{basin}"

[listeners.controller]
bind = "127.0.0.1:{controller_port}"

[listeners.durable]
bind = "127.0.0.1:{durable_port}"
basin = "{basin}"

[listeners.kafka]
bind = "127.0.0.1:{kafka_port}"
basin = "{basin}"

[store]
directory = "{data}"

[[store.basins]]
name = "{basin}"
create_stream_on_append = true
create_stream_on_read = true

[log]
level = "info"
format = "json"
"""
"""All six listeners and the basin."""


class GatewayFailed(AssertionError):
    """The gateway did not do what was asked of it; the message ends with its log."""


class GatewayProcess:
    """`penstock serve` as a child process; use it as a context manager, from sync or async tests.

    `config`: TOML text to run instead of the default, in which the ports of LISTENERS (`{s2_port}` and so on),
    `{management_port}`, `{data}` and `{basin}` are filled in and every other brace is doubled. `directory`: where
    configuration, data and logs go; a temporary directory, removed at the end, where it is None. `arguments`: further
    flags for `penstock serve`.
    """

    def __init__(self, config: str = CONFIG, *, directory: Path | None = None, arguments: tuple[str, ...] = ()) -> None:
        self._template = config if "[management]" in config else config + MANAGEMENT
        self._arguments = arguments
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix="penstock-test-")
        self.directory = Path(directory or self._temporary.name)  # type: ignore[union-attr]
        self.data = self.directory / "data"
        self.log_path = self.directory / "stderr.log"
        self.banner_path = self.directory / "stdout.log"
        ports = free_ports(len(LISTENERS) + 1)  # which it has again after a restart
        self.s2_port, self.s3p_port, self.segment_port, self.controller_port = ports[:4]
        self.durable_port, self.kafka_port, self.management_port = ports[4:]
        self._log_from = 0
        self.process: subprocess.Popen[bytes] | None = None

    # ---- life ----

    def start(self) -> Self:
        """Start it and wait until it listens; raises GatewayFailed with the log where it does not."""
        assert self.process is None or self.process.poll() is not None, "it is running"
        config_path = self.directory / "gateway.toml"
        ports = {f"{kind}_port": getattr(self, f"{kind}_port") for kind in (*LISTENERS, "management")}
        config_path.write_text(self._template.format(**ports, data=self.data, basin=BASIN))
        self._log_from = self.log_path.stat().st_size if self.log_path.exists() else 0
        command = [sys.executable, "-m", "penstock", "serve", "--config", str(config_path), *self._arguments]
        with self.log_path.open("ab") as log, self.banner_path.open("wb") as banner:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=banner, stderr=log, cwd=self.directory
            )
        try:
            self._wait_until_listening()
        except BaseException:
            self.kill()
            raise
        return self

    def kill(self) -> None:
        """SIGKILL: the power goes out. Does nothing where it has ended already."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def terminate(self, timeout: float = 20.0) -> int:
        """SIGTERM, and wait for it to drain; the exit code. Raises GatewayFailed after `timeout` seconds."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise GatewayFailed(f"not gone {timeout} s after SIGTERM\n{self.log_tail()}") from None

    def restart(self, *, kill: bool = False) -> Self:
        """Stop it (by SIGTERM, or SIGKILL with `kill`) and start it on the same ports and data."""
        if kill:
            self.kill()
        else:
            self.terminate()
        return self.start()

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self.process is not None
        return self.process.pid

    @property
    def running(self) -> bool:
        """True while the process runs."""
        return self.process is not None and self.process.poll() is None

    # ---- where ----

    @property
    def s2_url(self) -> str:
        """`http://127.0.0.1:PORT`, without `/v1`."""
        return f"http://127.0.0.1:{self.s2_port}"

    @property
    def durable_url(self) -> str:
        """The URL of Durable Streams, to which a stream's name is added."""
        return f"http://127.0.0.1:{self.durable_port}/v1/stream/"

    # ---- what it said ----

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return the log's events since the last start, as objects; those called `name`, or all."""
        with self.log_path.open("rb") as file:
            file.seek(self._log_from)
            lines = file.read().split(b"\n")[:-1]
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):  # output of Python itself is not JSON
                event = json.loads(line)
                if isinstance(event, dict) and name in (None, event.get("event")):
                    found.append(event)
        return found

    def log_tail(self, lines: int = 60) -> str:
        """Return the end of the log, for people."""
        if not self.log_path.exists():
            return "(no log)"
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def banner(self) -> str:
        """Wait for the text that it prints on standard output shortly after it listens, and return it."""
        deadline = time.monotonic() + START_SECONDS
        while not (printed := self.banner_path.read_text()) and self.running and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return printed

    def resident_bytes(self) -> int:
        """Memory that the process holds now (Linux)."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    # ---- the rest ----

    def _wait_until_listening(self) -> None:
        assert self.process is not None
        wanted = {f"listeners.{kind}" for kind in LISTENERS if f"[listeners.{kind}]" in self._template}
        if "[management]\nenabled = false" not in self._template:
            wanted.add("management")
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            bound: dict[str, int] = {}
            for event in self.events("listening"):  # of several listeners of a kind the first counts
                bound.setdefault(".".join(event["listener"].split(".")[:2]), event["port"])
            if wanted <= bound.keys():
                for kind in LISTENERS:
                    setattr(self, f"{kind}_port", bound.get(f"listeners.{kind}", 0))
                self.management_port = bound.get("management", 0)
                return
            if self.process.poll() is not None:
                raise GatewayFailed(f"exited with {self.process.returncode} at start\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)
        raise GatewayFailed(f"not listening after {START_SECONDS} s\n{self.log_tail()}")

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._remove()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        if error is not None:
            print(f"---- the gateway's log ----\n{self.log_tail()}", file=sys.stderr)
        self._remove()

    def _remove(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()


@contextlib.contextmanager
def running_gateway(config: str = CONFIG, **options: Any) -> Iterator[GatewayProcess]:
    """A gateway that is stopped by SIGTERM at the end and must exit with 0."""
    with GatewayProcess(config, **options) as gateway:
        yield gateway
        if gateway.running:
            code = gateway.terminate()
            if code != 0:
                raise GatewayFailed(f"exited with {code} after SIGTERM\n{gateway.log_tail()}")
