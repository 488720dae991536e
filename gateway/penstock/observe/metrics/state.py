"""The state of all families at one moment, and the samples of the process itself: its time, memory and descriptors, and
its versions."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

from penstock import DISTRIBUTION
from penstock.observe.metrics.families import (
    BUILD_INFO,
    CPU_SECONDS,
    FAMILIES,
    MAX_FDS,
    OPEN_FDS,
    RESIDENT_BYTES,
    START_SECONDS,
    VIRTUAL_BYTES,
)
from penstock.observe.metrics.running_timers import running_samples
from penstock.observe.metrics.series import Histogram, Sample, looked_up, sampling

__all__ = ["State", "Value", "current", "process_samples"]

Value = float | list[float]
"""A number; for a histogram the count of values in each bucket, and at the end their sum."""
State = dict[str, dict[tuple[str, ...], Value]]
"""For each family its series, by the values of their labels."""


@cache
def _build() -> tuple[str, str]:
    return version(DISTRIBUTION), platform.python_version()


def process_samples() -> Iterator[Sample]:
    """Yield samples of this process; a `Source`. Descriptors are counted by listing them: 3 ms for 10,000. Without
    /proc only the versions are known."""
    yield Sample(BUILD_INFO, _build(), 1)
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()  # proc(5): the first one is field 3
        open_files = len(list(Path("/proc/self/fd").iterdir()))
    except OSError:
        return
    ticks = os.sysconf("SC_CLK_TCK")
    yield Sample(CPU_SECONDS, (), (int(fields[11]) + int(fields[12])) / ticks)
    yield Sample(START_SECONDS, (), _booted() + int(fields[19]) / ticks)
    yield Sample(VIRTUAL_BYTES, (), int(fields[20]))
    yield Sample(RESIDENT_BYTES, (), int(fields[21]) * resource.getpagesize())
    yield Sample(OPEN_FDS, (), open_files)
    yield Sample(MAX_FDS, (), resource.getrlimit(resource.RLIMIT_NOFILE)[0])


@cache
def _booted() -> int:
    """Return when the system was started, in seconds since the Unix epoch."""
    lines = Path("/proc/stat").read_bytes().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(b"btime "))


def current() -> State:
    """Return the current state of this process, including its sources."""
    with sampling(process_samples), sampling(running_samples):
        values = looked_up()
    state: State = {}
    for family in FAMILIES:
        series: dict[tuple[str, ...], Value] = {}
        for labels, child in family.children().items():
            series[labels] = [*child.counts, child.total] if isinstance(child, Histogram) else child.value
        for labels, value in values.get(family.name, {}).items():
            kept = series.get(labels, 0)
            assert not isinstance(kept, list), f"{family.name} is a histogram; sources give counters and gauges only"
            series[labels] = kept + value
        state[family.name] = series
    return state
