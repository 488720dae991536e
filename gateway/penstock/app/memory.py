"""The memory of a process that serves, set once at its start.

The gateway allocates buffers of up to a few MiB for reads, batches and rows, and frees them soon after. glibc by
default may return each to the system and take the next from there, filled with zeros, a page fault for every 4 KiB:
whether it does depends on the order of the first allocations. Catch-up reads of 1 MiB by a segment client then took
4.9 us of processor time per record of 1 KiB instead of 1.9, S2S reads 2.3 instead of 1.3.

Python's garbage collector looks for reference cycles whenever 700 more objects were made than freed. A group of 512
appends in flight is some 20,000 objects, so each group passed as old on its way, and a quarter more of old objects
makes the collector visit all of them: with sessions on 10,000 streams that stopped all tasks for 1.4 s, for more than
half of the processor time.

While a gateway starts, nearly all new objects are modules, functions and classes, which stay: looking for cycles among
them took a tenth of the time to start.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

from penstock.model.limits import MIB

__all__ = ["collect_new_cycles", "keep_freed_memory"]

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MAPPED_FROM: Final = 4 * MIB
"""Larger allocations are rare, and are returned to the system at once."""
_KEPT: Final = 16 * MIB
"""Bytes that may stay free at the end of each of glibc's heaps; there are about as many heaps as active threads."""
_COLLECT_AFTER: Final = (50_000, 5, 2)
"""Thresholds of `gc.set_threshold`: more than all appends in flight make, so that these are freed before they are
visited. Processor time per record of S2S appends over HTTP/2, with Python's own thresholds and with these: 110 and 93
us over 100 streams, 151 and 117 over 1,000, 280 and 132 over 10,000. What waits for a collection is small: a connection
leaves some 60 objects in cycles, an S2S session 16, and requests on a connection that stays open leave none."""


def keep_freed_memory() -> None:
    """Keep freed memory in the process, where the C library is glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)
        mallopt(_M_TRIM_THRESHOLD, _KEPT)


def collect_new_cycles() -> None:
    """Exempt all present objects from garbage collection, since modules stay, and collect the cycles of others, less
    often than Python would. `penstock serve` switches the collector off until it calls this."""
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    gc.enable()
