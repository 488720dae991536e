"""Settings of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from penstock.core.clock import Clock, wall_clock
from penstock.model.byte_layout import Layout
from penstock.model.limits import KIB, MIB

__all__ = ["Clock", "StoreSettings", "wall_clock"]

READER_THREADS: Final = 2


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a store; sizes in bytes, times in seconds."""

    directory: Path
    """Directory of `penstock.sqlite3`, its write-ahead log, files of payloads and a lock file; created if missing, with
    mode 0700."""
    append_inflight_bytes: int = 128 * MIB
    """Most bytes of appends that are not yet durable, over all streams; further appends wait (S2 fact sheet, 2.3)."""
    tail_cache_bytes: int = 32 * MIB
    """Memory for the newest batches, for readers that follow; their encodings may take once or twice as much again."""
    cached_streams: int = 10_000
    """Most idle streams whose heads stay in memory, about 1 KiB each; those of streams in use always do."""
    envelopes: Layout = Layout.PLAIN
    """Bits ENVELOPE_* for the records that are in an envelope as bytes."""
    reader_threads: int = READER_THREADS
    """Most catch-up reads that use the disk at once."""
    read_ahead_batches: int = 64
    """Most batches (up to 1 MiB each) that are read ahead of slow readers, over all reads."""
    group_bytes: int = 16 * MIB
    """Approximate bound on the bytes of one transaction, and so on the time that an append waits for its group."""
    payload_file_bytes: int = 32 * KIB
    """Bytes from which a payload is written to a file of payloads instead of the database: that costs a second sync for
    its transaction, and saves writing it twice."""
    checkpoint_bytes: int = 16 * MIB
    """Bytes written to the log after which it is moved into the file, in the background."""
    checkpoint_seconds: float = 5.0
    """Seconds after which less than that is moved too."""
    log_bytes: int = 64 * MIB
    """Approximate bound on the length of the log and its file. A reader that stays in the log lets it grow by all that
    is written meanwhile."""
    sweep_interval_seconds: float = 30.0
    """Seconds between sweeps for expired records and empty streams."""
