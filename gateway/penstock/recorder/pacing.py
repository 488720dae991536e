"""How much of the machine a recording takes: what traffic leaves, and a small share where it leaves nothing.

A recording must not slow what it records. While the machine has processors to spare, and the gateway does not do all
that one thread can, the recording's thread works as it likes, but for short pauses. Else it takes a share of what the
rest of the gateway takes; if that does not suffice its queue fills up, and whole conversations are left out, those
first that have most waiting: bulk.
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
"""So long it works, and so many times as long it pauses then, unless a batch is done before: a thread that computes
without a pause keeps the trio thread waiting for Python's lock, up to 5 ms after each of its system calls. Measured
with a task that echoes bytes beside 60 MB/s of S3P whose every record is searched for a pattern (5 to 6 ms per MB):
13,600 to 16,900 echoes a second without recording, 4,200 to 5,200 with it and without pauses, 8,000 to 10,800 with
them; 99.9 % took up to 12, 36 and 16 ms. By default a batch takes 0.3 to 0.6 ms, writing included, without a pause."""
_SHARE: Final = 0.06
"""Of the processor time of the rest of the gateway. What a recording costs beside its thread (memory that is used
later, files that are flushed) is as much again. Durable appends take 5 ms per MB, and 0.4 to record; catching up over
S2S takes 0.7 ms, and as much to record. With 0.12 catching up was 0.75 to 0.85 of as fast as without a recording."""
_LEAST: Final = 0.05
"""Of one processor: a gateway that is idle on a busy machine still gets its recording written."""
_SPARE: Final = 0.1
"""The machine has some to spare while so much of its processors is idle."""
_BUSY: Final = 0.8
"""Of one processor: where the rest of the gateway takes so much, the thread that speaks the protocols has no time left
to wait for Python's lock, however many processors there are."""
_LOOK_SECONDS: Final = 0.2
"""So often that is looked up: the system counts in ticks of 10 ms."""
_MOST_CREDIT: Final = 0.02
REST_SECONDS: Final = 0.005
"""How long to rest before asking again."""


class Spare:
    """Whether the machine has processors to spare. Where the system does not say, it has."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        """`stat`: what Linux says of its processors (proc(5))."""
        self._stat = stat
        self._spare = True
        self._looked = -_LOOK_SECONDS
        self._last = (0, 0)

    def __call__(self) -> bool:
        """Of the last `_LOOK_SECONDS`, roughly."""
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
    """For one thread, which is the only one to use it."""

    def __init__(self, *, limited: bool = True, spare: Spare | None = None) -> None:
        """`limited` False: the recording takes what it needs, whatever becomes of traffic."""
        self._limited = limited
        self._spare = spare or Spare()
        self._credit = _MOST_CREDIT
        self._own = self._all = self._now = 0.0
        self._busy = False
        self._looked = self._looked_others = 0.0

    def rest(self) -> bool:
        """Whether to rest now, for REST_SECONDS."""
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
        """One after the other, with pauses where much is to be done."""
        began = time.thread_time()
        for event in batch:
            yield event
            worked = time.thread_time() - began
            if worked >= _SLICE_SECONDS:
                time.sleep(_PAUSE * worked)
                began = time.thread_time()
