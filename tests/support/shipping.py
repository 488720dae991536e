"""Runs the commands of shipped files, with free ports and a directory of the test."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from support.walking import ports_for_usual, with_ports

from penstock.app.config import Config, load_config
from penstock.cli.overrides import overridden
from penstock.cli.serving import serve_command
from penstock.core.address import Address

__all__ = ["ROOT", "Served", "gateway_arguments", "install_packages", "pip", "ports_of", "serving"]

ROOT: Final = Path(__file__).parents[2]
START_SECONDS: Final = 120.0
UNREACHABLE: Final = re.compile(r"NewConnectionError|Temporary failure in name resolution|Network is unreachable")
RUNNING: Final = "Penstock is running"


def pip(*arguments: object) -> None:
    """Run pip; the test is skipped where it finds no packages."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    completed = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=110, check=False)
    if completed.returncode and UNREACHABLE.search(completed.stderr + completed.stdout):
        pytest.skip("pip finds no packages: neither the network nor its cache has them")
    assert completed.returncode == 0, completed.stderr


def install_packages(environment: Path, *arguments: object) -> None:
    """Install packages into a virtual environment, with the options of `pip install`."""
    pip("--python", environment / "bin" / "python", "install", "--no-compile", *arguments)


def gateway_arguments(arguments: Sequence[str], config: Path) -> Config:
    """Return the configuration that `penstock serve` would use with these flags, with `config` as its file.

    Raises click.UsageError for an unknown flag.
    """
    given = dict(serve_command.make_context("serve", list(arguments), resilient_parsing=False).params)
    assert given.pop("path") is not None, "which configuration?"
    return overridden(load_config(config), **given)


def ports_of(config: Config) -> list[int]:
    """Return the ports of all listeners for clients."""
    return [Address.parse(listener.bind).port for _, listener in config.listeners.labelled()]


@dataclass(frozen=True, slots=True)
class Served:
    """A gateway that runs, and on which ports what files say is meant."""

    ports: dict[int, int]

    def check(self, command: Sequence[str]) -> None:
        """Run a command that must succeed."""
        subprocess.run(self._here(command), check=True, timeout=20, env=_environment())

    def first_line(self, script: str) -> str:
        """Run a Python script, which never ends by itself, and return the first line that it prints."""
        command = self._here([sys.executable, "-uc", script])
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment()) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            process.kill()
        return line.decode()

    def _here(self, command: Sequence[str]) -> list[str]:
        return [with_ports(sys.executable if part == "python" else part, self.ports) for part in command]


@contextlib.contextmanager
def serving(
    arguments: Sequence[str], config: Path | str, data: Path, python: Path = Path(sys.executable)
) -> Iterator[Served]:
    """`penstock serve` with the arguments of a shipped file, its configuration and its directory here. It must end well
    when it is told to. `config`: a file, or its text; `python`: of the environment that has it."""
    ports = ports_for_usual()
    text = config.read_text() if isinstance(config, Path) else config
    file = data.parent / "gateway.toml"
    file.write_text(with_ports(text.replace("/var/lib/penstock", str(data)), ports))
    places = {"/etc/penstock/gateway.toml": str(file), "/var/lib/penstock": str(data), "0.0.0.0": "127.0.0.1"}
    words = []
    for word in arguments:
        for there, here in places.items():
            word = word.replace(there, here)
        words.append(with_ports(word, ports))
    log, banner = data.parent / "log", data.parent / "banner"
    with log.open("wb") as errors, banner.open("wb") as output:
        process = subprocess.Popen([python, "-m", "penstock", *words], cwd=data.parent, stdout=output, stderr=errors)
    try:
        deadline = time.monotonic() + START_SECONDS
        while RUNNING not in banner.read_text() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert RUNNING in banner.read_text(), log.read_text()
        yield Served(ports)
        process.terminate()
        assert process.wait(20) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
