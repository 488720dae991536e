"""Disks that are full soon."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["small_file_system"]


@contextmanager
def small_file_system(place: Path, mib: int) -> Iterator[Path]:
    """Create `place` and mount an in-memory file system of `mib` MiB there. Skips the test if that is not allowed."""
    mount = shutil.which("mount")
    place.mkdir()
    command = [mount or "mount", "-t", "tmpfs", "-o", f"size={mib}m", "penstock-test", str(place)]
    if mount is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here: not root, or not allowed to")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
