"""`make sbom`: the packages that a gateway needs, in the versions of the lock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.peers import need
from support.shipping import ROOT


@pytest.mark.slow
def test_the_bill_of_materials(tmp_path: Path) -> None:
    """By the Makefile's own commands, in the environment of the tests; what they write goes to another directory."""
    need("make")
    pytest.importorskip("cyclonedx_py", reason="`pip install --group shipping`")
    environment = Path(sys.prefix)
    if not (environment / ".run").exists():
        pytest.skip("the environment was not set up by make")
    for name in ("pyproject.toml", "requirements.lock", "README.md", "LICENSE", "Makefile"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("proto", "codecs", "gateway", "pipeline", "config"):
        (tmp_path / name).symlink_to(ROOT / name, target_is_directory=True)
    command = [
        "make",
        "sbom",
        f"VENV={environment}",
        f"--old-file={environment / '.run'}",
    ]  # set up by its own checkout
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    bill = json.loads((tmp_path / "dist" / "penstock.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "penstock-gateway"
    found = {canonicalize_name(one["name"]): one["version"] for one in bill["components"]}
    locked = {canonicalize_name(name): version for name, _, version in pins()}
    assert found.items() <= locked.items()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    assert needed <= found.keys() and "pytest" not in found


def pins() -> list[tuple[str, str, str]]:
    """Return the lock's lines, in parts."""
    return [line.partition("==") for line in (ROOT / "requirements.lock").read_text().splitlines()]
