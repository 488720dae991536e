"""Metadata of the distribution: its name, its licence, and its dependencies."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any, Final

import pytest
from architecture.measure import syntax_trees
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from support.shipping import ROOT

from penstock import DISTRIBUTION

SOURCES: Final = (
    "proto/penstock_proto",
    "codecs/penstock_durable",
    "codecs/penstock_kafka",
    "codecs/penstock_pravega",
    "codecs/penstock_s2",
    "codecs/penstock_s3p",
    "gateway/penstock",
    "pipeline/penstock_spark",
)
OURS: Final = {source.partition("/")[2] for source in SOURCES}
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PRIVATE_PARTS: Final = ("h11", "h2", "hpack", "hyperframe", "trio")
BY_ANOTHER: Final = {"pandas": "pyspark", "py4j": "pyspark", "numpy": "pyarrow"}
"""Packages that come with a declared one."""
IMPORTERS: Final = {"pytest"}
"""Packages that are imported only by modules which they load themselves: plug-ins."""
OF_ANOTHER: Final = re.compile(r"pip3? install\b[^\n`]*?[\s'\"]penstock\b(?![-_/])|\bpenstock\[\w+\]")
"""Texts that would install the project that is called `penstock` on PyPI."""


def requirements() -> dict[str, Requirement]:
    texts = [*PROJECT["dependencies"], *(text for extra in PROJECT["optional-dependencies"].values() for text in extra)]
    return {canonicalize_name(one.name): one for one in map(Requirement, texts)}


def imported() -> set[str]:
    """The packages of others that our sources import."""
    found = set()
    for tree in syntax_trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module if node.module.startswith("google") else node.module.partition(".")[0])
    return found - OURS - IMPORTERS - sys.stdlib_module_names


def test_the_name_is_ours() -> None:
    assert PROJECT["name"] == DISTRIBUTION == "penstock-gateway"
    assert PROJECT["scripts"] == {"penstock": "penstock.cli:main"}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pip install penstock", True),
        ("pip install 'penstock[spark]'", True),
        ("install penstock with its extra, penstock[otel]", True),
        ("pip install --target site penstock pyarrow", True),
        ("pip install penstock-gateway", False),
        ("pip install dist/penstock_gateway-0.1.0-py3-none-any.whl", False),
        ("install -d -o penstock -g penstock", False),
    ],
)
def test_what_would_install_another_project(text: str, wrong: bool) -> None:
    assert bool(OF_ANOTHER.search(text)) is wrong


def test_no_text_installs_another_project() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git repository, or git is not installed")
    files = {ROOT / name for name in listed.stdout.splitlines()} - {Path(__file__)}
    texts = {file: file.read_text(errors="replace") for file in files if file.is_file() and file.suffix != ".pcapng"}
    found = [f"{file}: {one[0]}" for file, text in texts.items() for one in OF_ANOTHER.finditer(text)]
    assert not found, "\n".join(found)


def test_the_licence_is_there() -> None:
    assert (PROJECT["license"], PROJECT["license-files"]) == ("Apache-2.0", ["LICENSE"])
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text


def test_what_is_imported_is_declared() -> None:
    declared = requirements()
    distributions = packages_distributions()
    for package in imported():
        names = distributions.get(package) or distributions.get(package.partition(".")[0]) or [package]
        assert any(canonicalize_name(BY_ANOTHER.get(package, name)) in declared for name in names), package


@pytest.mark.parametrize("name", PRIVATE_PARTS)
def test_private_parts_are_those_of_the_version_that_is_tested(name: str) -> None:
    bounds = requirements()[name].specifier
    here = Version(version(name))
    assert here in bounds
    assert f"{here.major}.{here.minor + 1}" not in bounds and f"{here.major}.{here.minor}.99" in bounds


def test_every_dependency_has_a_bound() -> None:
    assert [name for name, one in requirements().items() if not one.specifier] == []


def test_the_lock_has_every_dependency_in_a_version_within_its_bounds() -> None:
    """If this fails, run `make lock`."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    locked = {canonicalize_name(one.name): one.specifier for one in map(Requirement, lines)}
    for name, one in requirements().items():
        (pin,) = locked[name]
        assert one.specifier.contains(pin.version, prereleases=True), name
