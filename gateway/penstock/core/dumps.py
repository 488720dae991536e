"""No dumps of the memory of a process that holds clients' encryption keys.

Python cannot wipe a key: its bytes stay in freed memory until that is used again. So the process leaves no core file,
and no other process of its user reads its memory or attaches a debugger; root still does. RLIMIT_CORE alone would not
do: Linux ignores it where core dumps are piped to a program.
"""

from __future__ import annotations

import ctypes
import os
import resource
from functools import cache
from typing import Final

import structlog

__all__ = ["forbid_dumps"]

log = structlog.get_logger()

_PR_SET_DUMPABLE: Final = 4


@cache
def forbid_dumps() -> None:
    """Forbid dumps from now on; the first call does it, and logs if the system refuses."""
    reasons = []
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError) as error:
        reasons.append(f"RLIMIT_CORE: {error}")
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is None:
        reasons.append("PR_SET_DUMPABLE: this system has no prctl")
    elif prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        reasons.append(f"PR_SET_DUMPABLE: {os.strerror(ctypes.get_errno())}")
    if reasons:
        log.warning("memory_dumps_possible", reason="; ".join(reasons))
