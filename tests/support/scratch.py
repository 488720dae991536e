"""Print the folder in which `make test` keeps the files of its tests.

It is in memory if there is room, for thousands of tests open a store, which takes 15 ms there, and 45 ms on a disk.
`make test-all` uses the disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

__all__ = ["scratch"]

MEMORY = Path("/dev/shm")
NEEDED = 3 << 30
"""Bytes that must be free. The tests hold up to 0.3 GiB at a time; the rest is for the programs that they run."""


def scratch() -> str:
    """Return the folder in memory, or the usual one if there is little room or programs may not be run there."""
    try:
        runs = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
        available = Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]
        free = min(shutil.disk_usage(MEMORY).free, int(available) << 10)
    except (OSError, AttributeError, IndexError):  # another system than Linux
        return tempfile.gettempdir()
    return str(MEMORY) if runs and free >= NEEDED and os.access(MEMORY, os.W_OK) else tempfile.gettempdir()


if __name__ == "__main__":
    print(scratch())
