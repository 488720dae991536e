"""The distributions of protocols outside of Penstock, for all processes that tests start.

Their metadata is written from their own pyproject.toml, which is what an installation does;
`shipping/test_wheel.py` installs one.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
OUTSIDE = (TESTS / "outside", TESTS / "outside_stomp")


@pytest.fixture(scope="module", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let all processes find the distributions."""
    site = tmp_path_factory.mktemp("site")
    for folder in OUTSIDE:
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        information = site / f"{project['name'].replace('-', '_')}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
        text = "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in project["entry-points"].items()
        )
        (information / "entry_points.txt").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(site), *map(str, OUTSIDE), *filter(None, sys.path)]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        for folder in OUTSIDE:
            patch.syspath_prepend(str(folder))
        yield
