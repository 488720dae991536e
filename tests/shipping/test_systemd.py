"""The systemd units: their commands can be run, and their sockets are those of the configuration that they name."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.shipping import ROOT, gateway_arguments

from penstock.app.config import load_config
from penstock.core.address import Address

PLACE: Final = ROOT / "config" / "systemd"
NAMES: Final = ("penstock.service", "penstock.socket")


def values(name: str, section: str, key: str) -> list[str]:
    """All that a unit gives for a key; a key may stand there several times."""
    _, _, text = (PLACE / name).read_text().partition(f"[{section}]\n")
    return re.findall(rf"^{key}=(.*)$", text.partition("\n[")[0], re.MULTILINE)


def test_all_are_looked_at() -> None:
    assert sorted(NAMES) == sorted(file.name for file in PLACE.iterdir())
    for name in NAMES:
        parser = configparser.RawConfigParser(strict=False)
        parser.read(PLACE / name)
        assert "Unit" in parser.sections()


def test_what_is_started() -> None:
    program, command, *arguments = shlex.split(values("penstock.service", "Service", "ExecStart")[0])
    assert (Path(program).name, command) == ("penstock", "serve")
    config = gateway_arguments(arguments, ROOT / "config" / "gateway.toml")
    (directory,) = values("penstock.service", "Service", "StateDirectory")
    assert config.store.directory == f"/var/lib/{directory}"
    assert values("penstock.service", "Service", "Type") == ["notify"]


def test_it_has_time_to_drain() -> None:
    drain = load_config(ROOT / "config" / "gateway.toml").drain
    (seconds,) = values("penstock.service", "Service", "TimeoutStopSec")
    assert int(seconds) > drain.accept_seconds + drain.deadline_seconds


def test_sockets_are_those_of_the_configuration() -> None:
    config = load_config(ROOT / "config" / "gateway.toml")
    bound = {Address.parse(listener.bind) for _, listener in config.listeners.labelled()}
    assert {Address.parse(one) for one in values("penstock.socket", "Socket", "ListenStream")} == bound


def test_systemd_takes_them(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for name in NAMES:
        text = (PLACE / name).read_text()
        here = str(Path(sys.executable).parent / "penstock")
        (tmp_path / name).write_text(text.replace("/opt/penstock/bin/penstock", here))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in NAMES)],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "penstock" in line]
    assert (done.returncode, complaints) == (0, [])
