"""Measure the time that the disk under a directory takes to make a small write durable."""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from time import perf_counter

__all__ = ["fdatasync_milliseconds"]


def fdatasync_milliseconds(directory: Path, seconds: float, size: int = 4096) -> tuple[float, float, int]:
    """Median and 99th percentile of one appending write of `size` bytes and its fdatasync, in ms, and how many."""
    path = directory / "fdatasync.probe"
    block = b"x" * size
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    samples = []
    deadline = perf_counter() + seconds
    try:
        while (begin := perf_counter()) < deadline:
            os.write(descriptor, block)
            os.fdatasync(descriptor)
            samples.append((perf_counter() - begin) * 1e3)
    finally:
        os.close(descriptor)
        path.unlink()
    samples.sort()
    return statistics.median(samples), samples[int(0.99 * len(samples))], len(samples)
