"""Tests by name, and the directories of their recordings.

A test is named by any text, such as pytest's `tests/test_orders.py::test_first[s2]`, or the value of
`PYTEST_CURRENT_TEST`, which adds the phase. Its answers are below the recording's directory in
`tests/test_orders.py/test_first[s2]`; captures in the directory itself answer every test.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

__all__ = ["EVERY_TEST", "MOCK_URL", "directory_of", "normalized_test", "recordings_by_test"]

MOCK_URL: Final = "PENSTOCK_MOCK_URL"
"""The environment variable with the URL at which a command names its tests."""
EVERY_TEST: Final = "any test"
"""The directory of answers that were recorded while no test had a name."""
_PHASE: Final = re.compile(r" \((setup|call|teardown)\)$")
_SAFE: Final = " []()=,+@{}'"
"""Characters that stay in the names of directories, beside letters, digits and `_.-~`."""
_MOST_BYTES: Final = 200
"""Longest part of a name: file systems allow 255 bytes."""


def normalized_test(name: str) -> str:
    """Return the relative path of a test's recordings, which identifies it; "" for no test."""
    parts = re.split(r"/|::", _PHASE.sub("", name.strip()))
    return "/".join(_component(part) for part in parts if part)


def _component(part: str) -> str:
    if not part.strip("."):
        return part.replace(".", "%2E")
    safe = quote(part, safe=_SAFE)
    if len(safe) <= _MOST_BYTES:
        return safe
    return f"{safe[:_MOST_BYTES]}-{hashlib.sha256(part.encode()).hexdigest()[:16]}"


def directory_of(recording: Path, test: str) -> Path:
    """Return the directory for new recordings of a normalized test."""
    return recording / (test or EVERY_TEST)


def recordings_by_test(recording: Path) -> Iterator[tuple[str, Path]]:
    """Yield each normalized test ("" for every test) with its captures: a file, or a directory that has some."""
    if not recording.is_dir():
        if recording.exists():
            yield "", recording
        return
    for directory in (recording, *sorted(path for path in recording.rglob("*") if path.is_dir())):
        if any(file.suffix in (".pcapng", ".pcap") for file in map(_plain, directory.iterdir())):
            test = directory.relative_to(recording).as_posix()
            yield "" if test in (".", EVERY_TEST) else test, directory


def _plain(file: Path) -> Path:
    return file.with_suffix("") if file.suffix == ".zst" else file
