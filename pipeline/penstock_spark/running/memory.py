"""How much memory the driver's JVM may take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["driver_memory", "machine_memory"]

_MIB: Final = 1 << 20
_LEAST, _MOST = 1024, 8192
_SHARE: Final = 4
"""Of the machine's memory: workers in Python, which decode, need as much as the JVM, and others are there too."""
_GROUP: Final = Path("/sys/fs/cgroup/memory.max")


def driver_memory() -> str:
    """A quarter of the machine's memory, from 1 to 8 GiB, as Spark writes it."""
    return f"{min(_MOST, max(_LEAST, machine_memory() // _SHARE // _MIB))}m"


def machine_memory(group: Path = _GROUP) -> int:
    """Bytes of memory that this machine, or the container on it, has; 0 where that cannot be told."""
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # no such name here, as on Windows
        return 0
    try:
        limit = group.read_text().strip()
    except OSError:
        return there
    return min(there, int(limit)) if limit.isdigit() else there
