"""Test programs of Go packages, built on first use."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["folder_of", "go_tests"]

BUILD_SECONDS = 300


def _program() -> str | None:
    return shutil.which("go") or next((str(p) for p in [Path("/usr/local/go/bin/go")] if p.exists()), None)


def folder_of(module: Path, package: str) -> Path:
    """Return the folder with the sources of a package; tests may read files there. Call `go_tests` first."""
    command = [str(_program()), "list", "-f", "{{.Dir}}", package]
    found = subprocess.run(command, cwd=module, capture_output=True, text=True, timeout=BUILD_SECONDS, check=True)
    return Path(found.stdout.strip())


@functools.cache
def _built(module: Path, package: str, directory: Path) -> Path | str:
    """Return the test program of a package, or why it could not be built."""
    go = _program()
    if go is None:
        return "go is not installed: install Go 1.26 or newer"
    target = directory / ((module.name + "_" + package).replace("/", "_").strip("._") + ".test")
    command = [go, "test", "-c", "-o", str(target), package]
    result = subprocess.run(command, cwd=module, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    if result.returncode == 0:
        return target
    if re.search(r"dial tcp|no such host|403 Forbidden|proxyconnect|i/o timeout|TLS handshake", result.stderr):
        return f"Go modules cannot be fetched: run `go mod download` in {module} with network access"
    raise AssertionError(result.stdout + result.stderr)


def go_tests(module: Path, package: str, directory: Path) -> Path:
    """Return the test program of a package that the module in the folder `module` requires, kept in `directory`.

    Skips the test if Go is missing, or the package cannot be fetched.
    """
    found = _built(module, package, directory)
    if isinstance(found, str):
        pytest.skip(found)
    return found
