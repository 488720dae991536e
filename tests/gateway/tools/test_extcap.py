"""The sentences for Wireshark's extcap interface, and the program that it starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.tools.extcap import INTERFACE, Argument, config, dlts, interfaces, launcher

SENTENCE = re.compile(r"(\w+) ((?:\{\w+=[^{}]+\})+)")


def parsed(line: str) -> tuple[str, dict[str, str]]:
    """Return the word and the pairs of a sentence, as Wireshark splits it."""
    whole = SENTENCE.fullmatch(line)
    assert whole is not None, line
    return whole[1], dict(re.findall(r"\{(\w+)=([^{}]+)\}", whole[2]))


def test_interfaces() -> None:
    version, interface = map(parsed, interfaces("1.2.3"))
    assert version == ("extcap", {"version": "1.2.3", "display": "Penstock"})
    assert interface == ("interface", {"value": INTERFACE, "display": "Penstock gateway"})


def test_link_types() -> None:
    assert [parsed(line) for line in dlts()] == [("dlt", {"number": "101", "name": "RAW", "display": "Raw IP"})]


def test_arguments_are_numbered_and_leave_out_what_is_empty() -> None:
    lines = config([Argument("--one", "One", "The first", default="1"), Argument("--two", "Two", "", "password")])
    assert [parsed(line) for line in lines] == [
        (
            "arg",
            {
                "number": "0",
                "call": "--one",
                "display": "One",
                "tooltip": "The first",
                "type": "string",
                "default": "1",
            },
        ),
        ("arg", {"number": "1", "call": "--two", "display": "Two", "type": "password"}),
    ]


def test_the_program_runs_the_command(tmp_path: Path) -> None:
    """Also where a name has a space and a quote, and from any directory."""
    python = tmp_path / "it's here" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    path = launcher(tmp_path / "new folder", str(python))
    assert os.access(path, os.X_OK)
    assert launcher(tmp_path / "new folder", sys.executable) == path, "written again"
    done = subprocess.run([path, "--extcap-interfaces"], capture_output=True, text=True, timeout=60, cwd="/")
    assert done.returncode == 0 and f"{{value={INTERFACE}}}" in done.stdout


def test_another_program_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / INTERFACE).write_text("#!/bin/sh\n")
    with pytest.raises(FileExistsError, match="was not written by"):
        launcher(tmp_path, sys.executable)
    assert (tmp_path / INTERFACE).read_text() == "#!/bin/sh\n"
