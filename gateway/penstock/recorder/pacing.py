"""Pacing of recordings: they use the processor time that traffic leaves, and a small share if it leaves none.

A recording must not slow what it records. While the machine has idle processors, and the rest of the gateway does not
use all of one, the recording's thread runs freely but for short pauses. Otherwise it takes a share of the processor
time of the rest of the gateway; if that is not enough its queue fills up, and whole conversations are dropped, those
with the most queued bytes first: bulk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

__all__ = ["REST_SECONDS", "Pacing", "Spare"]

T = TypeVar("T")

_SLICE_SECONDS: Final = 0.002
_PAUSE: Final = 2.0
"""Processor time of a slice of work, in seconds, and the ratio of the pause after it to the slice, unless the batch
ends first: a thread that computes without a pause keeps the trio thread waiting for Python's lock, up to 5 ms after
each of its system calls. Measured with a task that echoes bytes beside 60 MB/s of S3P whose every record is searched
for a pattern (5 to 6 ms per MB): 13,600 to 16,900 echoes a second without recording, 4,200 to 5,200 with it and without
pauses, 8,000 to 10,800 with them; 99.9 % took up to 12, 36 and 16 ms. By default a batch takes 0.3 to 0.6 ms, writing
included, without a pause."""
_SHARE: Final = 0.06
"""Share of the processor time of the rest of the gateway. The costs of a recording beside its thread (memory that is
used later, files that are flushed) are as much again. Durable appends take 5 ms per MB, and 0.4 to record; catching
up over S2S takes 0.7 ms, and as much to record. With 0.12 catching up was 0.75 to 0.85 of as fast as without a
recording."""
_LEAST: Final = 0.05
"""Minimal share of one processor, so that an idle gateway on a busy machine gets its recording written."""
_SPARE: Final = 0.1
"""Idle share of its processors at which the machine has processors to spare."""
_BUSY: Final = 0.8
"""Share of one processor, taken by the rest of the gateway, at which the thread that speaks the protocols has no time
left to wait for Python's lock, however many processors there are."""
_LOOK_SECONDS: Final = 0.2
"""Seconds between measurements: the system counts in ticks of 10 ms."""
_MOST_CREDIT: Final = 0.02
REST_SECONDS: Final = 0.005
"""Seconds to rest before `Pacing.rest` is called again."""


class Spare:
    """Reports whether the machine has processors to spare; true on systems that do not tell."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        """`stat`: Linux's statistics of processors (proc(5))."""
        self._stat = stat
        self._spare = True
        self._looked = -_LOOK_SECONDS
        self._last = (0, 0)

    def __call__(self) -> bool:
        """Return whether there were processors to spare in roughly the last `_LOOK_SECONDS`."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._look()
        return self._spare

    def _look(self) -> None:
        try:
            with self._stat.open("rb", buffering=0) as stat:
                ticks = [int(word) for word in stat.readline().split()[1:9]]
            idle, total = ticks[3] + ticks[4], sum(ticks)
        except (OSError, ValueError, IndexError):
            self._spare = True
            return
        before_idle, before = self._last
        self._last = idle, total
        if before and total > before:
            self._spare = (idle - before_idle) / (total - before) >= _SPARE


class Pacing:
    """Decides when one thread rests; to be used by that thread only."""

    def __init__(self, *, limited: bool = True, spare: Spare | None = None) -> None:
        """`limited` False: the recording takes what it needs, even at the cost of traffic."""
        self._limited = limited
        self._spare = spare or Spare()
        self._credit = _MOST_CREDIT
        self._own = self._all = self._now = 0.0
        self._busy = False
        self._looked = self._looked_others = 0.0

    def rest(self) -> bool:
        """Return whether to rest now, for REST_SECONDS."""
        if not self._limited:
            return False
        own, everything, now = time.thread_time(), time.process_time(), time.monotonic()
        worked, others, passed = own - self._own, everything - self._all - (own - self._own), now - self._now
        self._own, self._all, self._now = own, everything, now
        if now - self._looked >= _LOOK_SECONDS:
            self._busy = (everything - own - self._looked_others) / (now - self._looked) >= _BUSY
            self._looked, self._looked_others = now, everything - own
        if self._spare() and not self._busy:
            self._credit = _MOST_CREDIT
        else:
            self._credit = min(_MOST_CREDIT, self._credit + max(_SHARE * others, _LEAST * passed) - worked)
        return self._credit < 0

    def paced(self, batch: Sequence[T]) -> Iterator[T]:
        """Yield the items of a batch; if limited, with pauses after slices of work."""
        if not self._limited:
            yield from batch
            return
        began = time.thread_time()
        for event in batch:
            yield event
            worked = time.thread_time() - began
            if worked >= _SLICE_SECONDS:
                time.sleep(_PAUSE * worked)
                began = time.thread_time()
