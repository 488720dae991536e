"""`penstock doctor`, and `penstock completion` with the shells that are here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli import main

GOOD = '[listeners.s2]\nbind = "127.0.0.1:0"\n[management]\nenabled = false\n[store]\ndirectory = "{}"\n'


def doctor(config: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--config", str(config), *more])


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(GOOD.format(tmp_path / "data"))
    return path


def test_a_machine_on_which_all_is_well(good: Path) -> None:
    result = doctor(good)
    assert result.exit_code == 0, result.output
    for words in ("ok     configuration: ", "python: 3.", "fsync: ", "listeners.s2: 127.0.0.1:0 is free", "extra otel"):
        assert words in result.output
    assert not (good.parent / "data").exists()


def test_a_configuration_that_cannot_be_used(good: Path) -> None:
    good.write_text("[listeners.s2]\nbid = 1\n")
    result = doctor(good, "--json")
    assert result.exit_code == 1
    found = {one["about"]: one for one in map(json.loads, result.output.splitlines())}
    assert found["configuration"]["state"] == "wrong"
    assert "did you mean bind" in found["configuration"]["text"]
    assert found["configuration"]["advice"]
    assert found["python"]["state"] == "ok"
    assert "data" not in found


def test_json_says_the_same(good: Path) -> None:
    told = {json.loads(line)["about"] for line in doctor(good, "--json").output.splitlines()}
    lines = doctor(good).output
    assert all(f"{about}: " in lines for about in told)


# ---- completion ------------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def shell(program: str, script: str) -> str:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    command = [program, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=True, timeout=60).stdout


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("penstock ser", {"serve"}),
        ("penstock record st", {"start", "stop"}),
        ("penstock serve --s3", {"--s3p"}),
        ("penstock completion ", {"bash", "zsh", "fish"}),
    ],
)
@pytest.mark.peer
def test_bash_completes(words: str, wanted: set[str]) -> None:
    place = len(words.split()) - (not words.endswith(" "))
    last = ' ""' if words.endswith(" ") else ""
    script = (
        "source <(penstock completion bash)\n"
        f"COMP_WORDS=({words}{last}) COMP_CWORD={place}\n"
        '_penstock_completion penstock\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert wanted <= set(shell("bash", script).split())


@pytest.mark.peer
def test_zsh_takes_the_script() -> None:
    assert shell(
        "zsh", "autoload -U compinit; compinit -u; source <(penstock completion zsh); whence _penstock_completion"
    )


@pytest.mark.peer
def test_fish_completes() -> None:
    assert "serve" in shell("fish", 'penstock completion fish | source; complete -C "penstock ser"')


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_script(name: str) -> None:
    result = CliRunner().invoke(main, ["completion", name])
    assert result.exit_code == 0
    assert f"_PENSTOCK_COMPLETE={name}_complete" in result.output
