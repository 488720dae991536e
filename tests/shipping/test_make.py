"""`make` finds a Python, or says what is missing; `make peers` goes on with a build that ran out of time.

What is tested is the Makefile in a directory of its own, with programs in PATH that only pretend to be what they are
called: nothing is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import real_peers
from support.shipping import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
NEEDED = ("sh", "make", "cat", "sleep", "mkdir", "touch", "chmod")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for PATH that has a shell and make, and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None, name
        (folder / name).symlink_to(found)
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "requirements.lock"):
        (tmp_path / name).touch()
    return folder


def pretend(folder: Path, name: str, version: str, *, venv: bool = True) -> None:
    """A program that answers as this version of Python does when make asks for it."""
    new = tuple(map(int, version.split("."))) >= (3, 11)
    script = f'case "$2" in *platform*) echo {version} ;; *) exit {0 if new and venv else 1} ;; esac'
    write(folder / name, script)


def write(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def make(programs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", *arguments]
    environment = {"PATH": str(programs)}
    return subprocess.run(
        command, cwd=programs.parent, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ({"python3": "3.13.1"}, "python3"),
        ({"python3": "3.9.2", "python3.12": "3.12.4"}, "python3.12"),
        ({"python3": "3.14.0", "python3.14": "3.14.0"}, "python3.14"),
        ({"python3": "3.12.0", "python3.11": "3.11.2"}, "python3.11"),
    ],
)
def test_any_python_that_is_new_enough_will_do(there: dict[str, str], taken: str, programs: Path) -> None:
    for name, version in there.items():
        pretend(programs, name, version)
    done = make(programs, "--dry-run", "serve")
    assert f"\n{taken} -m venv .venv\n" in done.stdout, done


def test_one_that_cannot_make_environments_is_passed_over(programs: Path) -> None:
    pretend(programs, "python3.11", "3.11.2", venv=False)
    pretend(programs, "python3.12", "3.12.4")
    assert "\npython3.12 -m venv .venv\n" in make(programs, "--dry-run", "serve").stdout


@pytest.mark.parametrize("target", ["serve", "peers"])
def test_what_is_missing_is_said(target: str, programs: Path) -> None:
    done = make(programs, target)
    assert done.returncode == 2 and "needs Python 3.11 or newer" in done.stderr and "Found: none." in done.stderr
    pretend(programs, "python3", "3.9.2")
    pretend(programs, "python3.11", "3.11.2", venv=False)
    done = make(programs, target)
    assert done.returncode == 2 and "Found: python3.11=3.11.2 python3=3.9.2." in done.stderr
    assert "set PYTHON=/path/to/python" in done.stderr
    done = make(programs, target, "PYTHON=python3")
    assert done.returncode == 2 and "Found: python3=3.9.2." in done.stderr
    assert not (programs.parent / ".venv").exists()


CARGO = r"""
echo compiling
mkdir -p "$CARGO_TARGET_DIR"
[ -e "$CARGO_TARGET_DIR/crates" ] || { touch "$CARGO_TARGET_DIR/crates"; sleep 60; }
for root; do :; done
mkdir -p "$root/bin"
printf '#!/bin/sh\necho s2 VERSION\n' > "$root/bin/s2"
chmod +x "$root/bin/s2"
"""


def test_a_build_that_ran_out_of_time_goes_on(programs: Path, tmp_path: Path) -> None:
    """Without its time-out's children, and with what cargo had built."""
    write(programs / "cargo", CARGO.replace("VERSION", real_peers.S2_VERSION))
    environment = {**os.environ, "PATH": str(programs), "PENSTOCK_PEERS": str(tmp_path / "peers")}
    environment["PYTHONPATH"] = str(ROOT / "tests")
    script = ROOT / "tests" / "peers" / "real" / "install.py"

    def install(seconds: float) -> str:
        command = [sys.executable, script, "--only", "s2 lite", "--seconds", str(seconds)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout

    first = install(2)
    assert "cargo builds it" in first
    assert "MISSING: cargo was not done in 2 seconds; what it has is kept: `make peers` goes on from there" in first
    assert (tmp_path / "peers" / "s2.log").read_text() == "compiling\n"
    again = install(30)
    assert "cargo goes on with its build" in again and again.count("installed") == 1
    assert "there already" in install(30)
