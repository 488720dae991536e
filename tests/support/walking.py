"""A document's commands, run in order in a directory of their own: gateways in the background, ports that are free."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import pytest
from support.ports import free_ports

__all__ = ["Block", "Walk", "blocks_of", "ports_for_usual", "with_ports"]

ROOT: Final = Path(__file__).parents[2]
PORTS: Final = (
    *(8080, 8081, 8082, 8090, 8091, 7500, 7501, 7600, 9090, 9092, 12345, 12346, 4437, 4441),
    *(9094, 9095, 9096, 9097, 9191, 9600, 9601),
)
"""Those that documents and shipped configurations name; each stands for a free one."""
_ASKS: Final = re.compile(
    r"\bpenstock (backs|connections|drain|log-level|recordings|reload|routes|tail|record (start|stop|list))\b(?!`)"
)
"""Commands that ask the management listener at its usual port."""
START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 20.0


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str


def blocks_of(document: str) -> list[Block]:
    """Return the fenced blocks of a document below `docs`, in order."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    return [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)]


class Walk:
    """Use it as a context manager. In `directory` there is a copy of `config/`."""

    def __init__(self, directory: Path, programs: Path = Path(sys.executable).parent) -> None:
        """`programs`: the folder of programs of the environment that the document's reader has activated."""
        if shutil.which("bash") is None or shutil.which("curl") is None:
            pytest.skip("bash or curl is not installed")
        self.directory = directory
        self._ports = ports_for_usual()
        self._gateways: list[subprocess.Popen[bytes]] = []
        self._environment = {
            name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
        } | {"PATH": f"{programs}:{os.environ['PATH']}"}
        for file in sorted((ROOT / "config").glob("*.toml")):
            self.write(f"config/{file.name}", file.read_text(encoding="utf-8"))

    def here(self, text: str) -> str:
        """Return the text with the ports of this walk."""
        management = f" --management 127.0.0.1:{self._ports[9600]}"
        return re.sub(_ASKS, lambda found: found[0] + management, with_ports(text, self._ports))

    def write(self, name: str, text: str) -> None:
        """A file, with the ports that it has here."""
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(self.here(text), encoding="utf-8")

    def run(self, text: str) -> str:
        """Run a block, which must succeed, and return what it prints on both outputs."""
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", self.here(text)],
            cwd=self.directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
        )
        if entered := re.search(r"^cd (\w+)$", text, re.MULTILINE):  # the terminal's, for the blocks that follow
            self.directory /= entered[1]
        printed = done.stdout.decode(errors="replace")
        assert done.returncode == 0, f"{text}\nexited with {done.returncode}\n{printed}\n{self._log()}"
        return printed

    def serve(self, text: str) -> None:
        """Run a gateway in the background; returns when it listens."""
        if "--management" not in text and "--no-others" not in text:  # its usual port may be in use
            text = f"{text.rstrip()} --management 127.0.0.1:9600"
        log, banner = self.directory / "log", self.directory / f"banner-{len(self._gateways)}"
        with log.open("ab") as errors, banner.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self.here(text)}"],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
        self._gateways.append(process)
        deadline = time.monotonic() + START_SECONDS
        while not banner.stat().st_size and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert banner.stat().st_size, f"{text}\n{self._log()}"

    def ended(self) -> None:
        """Wait until the gateway that was started last has ended by itself; it must end well."""
        assert self._gateways.pop().wait(STOP_SECONDS) == 0, self._log()

    def stop(self) -> None:
        """Stop the gateway that was started last, as an operator does; it must end well."""
        process = self._gateways.pop()
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0, self._log()

    def _log(self) -> str:
        with contextlib.suppress(OSError):
            return (self.directory / "log").read_text(errors="replace")[-3000:]
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._gateways:
            process.kill()
            process.wait()


def with_ports(text: str, ports: dict[int, int]) -> str:
    """Return the text with other ports than the usual ones."""
    for usual, port in ports.items():
        text = re.sub(rf"(?<=[: ]){usual}\b", str(port), text)
    return text


def ports_for_usual() -> dict[int, int]:
    """Return a free port for each usual one."""
    return dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
