"""The Dockerfile and the compose file are true: their sources and flags exist, and their ports are bound.

No image is built here (`test_image.py` does that): the commands of an image are run.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest
import yaml
from support.shipping import ROOT, gateway_arguments, ports_of, serving

from penstock.app.config import load_config
from penstock.core.address import Address

DOCKERFILE: Final = (ROOT / "Dockerfile").read_text()
COMPOSE: Final = yaml.safe_load((ROOT / "compose.yaml").read_text())
CONTEXT: Final = (
    "pyproject.toml",
    "requirements.lock",
    "README.md",
    "LICENSE",
    "proto",
    "codecs",
    "gateway",
    "pipeline",
    "config",
)


def instructions(name: str) -> list[str]:
    """The arguments of each instruction of this name, on one line."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    return re.findall(rf"^{name} +(.+)$", text, re.MULTILINE)


def command() -> list[str]:
    return [*json.loads(instructions("ENTRYPOINT")[0]), *json.loads(instructions("CMD")[0])]


def test_what_is_copied_is_there_and_is_sent_to_the_build() -> None:
    admitted = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = [source for line in instructions("COPY") if "--from" not in line for source in line.split()[:-1]]
    assert set(sources) == set(CONTEXT)
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(fnmatch.fnmatch(source, one) or source.startswith(f"{one}/") for one in admitted), source


def test_what_the_wheel_needs_is_copied(pyproject: dict[str, object]) -> None:
    packages = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]  # type: ignore[index]
    assert {package.split("/")[0] for package in packages} < set(CONTEXT)


def test_it_runs_as_an_unprivileged_user_and_writes_to_its_volume_only() -> None:
    (user,), (volume,), (home,) = instructions("USER"), instructions("VOLUME"), instructions("WORKDIR")[-1:]
    assert int(user.split(":")[0]) > 0
    assert json.loads(volume) == [home]
    arguments = command()
    assert arguments[arguments.index("--data") + 1] == home
    assert f"config/gateway.toml {arguments[arguments.index('--config') + 1]}" in DOCKERFILE


def test_its_command_binds_what_is_exposed() -> None:
    config = gateway_arguments(command()[2:], ROOT / "config" / "gateway.toml")
    exposed = sorted(map(int, instructions("EXPOSE")[0].split()))
    assert sorted([*ports_of(config), Address.parse(config.management.bind).port]) == exposed
    binds = [listener.bind for _, listener in config.listeners.labelled()]
    assert all(bind.startswith("0.0.0.0:") for bind in [*binds, config.management.bind])
    assert config.listeners.s2[0].hosts == ("penstock",), "the name by which other containers reach it"


def test_its_health_is_asked_of_the_management_listener() -> None:
    config = gateway_arguments(command()[2:], ROOT / "config" / "gateway.toml")
    (url,) = re.findall(r"http://([^/]+)/(\w+)", instructions("HEALTHCHECK")[0])
    assert url == (config.management.bind.replace("0.0.0.0", "127.0.0.1"), "live")


def test_the_command_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the image's own arguments, its health check, and the token that it prints for operators; nothing is written
    but to its volume."""
    monkeypatch.delenv("PENSTOCK_MANAGEMENT_TOKEN", raising=False)
    data = tmp_path / "data"
    data.mkdir()
    (health,) = re.findall(r"CMD (\[.*\])$", instructions("HEALTHCHECK")[0])
    with serving(command()[1:], ROOT / "config" / "gateway.toml", data) as gateway:
        gateway.check(json.loads(health))
        token = (tmp_path / "banner").read_text().splitlines()[0].split()[-1]
        gateway.check([sys.executable, "-m", "penstock", "backs", "--management", "127.0.0.1:9600", "--token", token])
        with pytest.raises(subprocess.CalledProcessError):
            gateway.check([sys.executable, "-m", "penstock", "backs", "--management", "127.0.0.1:9600"])
        assert {file.name for file in tmp_path.iterdir()} <= {"data", "log", "banner", "gateway.toml"}
    assert list(data.iterdir())


# ---- compose ------------------------------------------------------------------------------------------------------


def test_the_application_shares_the_gateways_network() -> None:
    gateway, application = COMPOSE["services"]["penstock"], COMPOSE["services"]["application"]
    assert application["network_mode"] == "service:penstock"
    assert gateway["ports"] == ["127.0.0.1:9600:9600"], "operators alone, on this machine"
    assert application["depends_on"]["penstock"]["condition"] == "service_healthy"
    config = gateway_arguments(gateway["command"][1:], ROOT / "config" / "gateway.toml")
    assert all(listener.bind.startswith("127.0.0.1:") for _, listener in config.listeners.labelled())


def test_it_is_locked_up() -> None:
    gateway = COMPOSE["services"]["penstock"]
    assert gateway["read_only"] is True
    assert gateway["tmpfs"] == ["/tmp"]
    assert gateway["cap_drop"] == ["ALL"]
    (volume,) = gateway["volumes"]
    assert volume.split(":") == [next(iter(COMPOSE["volumes"])), json.loads(instructions("VOLUME")[0])[0]]
    drain = load_config(ROOT / "config" / "gateway.toml").drain
    assert int(gateway["stop_grace_period"].rstrip("s")) > drain.accept_seconds + drain.deadline_seconds


def test_the_application_works(tmp_path: Path) -> None:
    """Its script, beside a gateway that is run with the arguments of the service."""
    arguments = COMPOSE["services"]["penstock"]["command"]
    data = tmp_path / "data"
    with serving(arguments, ROOT / "config" / "gateway.toml", data) as gateway:
        program, flags, script = COMPOSE["services"]["application"]["command"]
        assert (program, flags) == ("python", "-uc")
        assert '"start":{"seq_num":0' in gateway.first_line(script)


def test_shell_words_are_not_needed() -> None:
    """Arguments are lists, so nothing is left to a shell that the image may not have."""
    for name in ("ENTRYPOINT", "CMD"):
        assert all(isinstance(json.loads(line), list) for line in instructions(name))
    assert shlex.join(command()).startswith("penstock serve ")
    assert os.path.isabs(command()[3])  # noqa: PTH117 - of the container


@pytest.fixture
def pyproject() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())
