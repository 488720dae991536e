"""What an operator may choose about the store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.clock import Clock, wall_clock
from penstock_codecs.byte_layout import Layout
from penstock_codecs.limits import MIB

__all__ = ["Clock", "StoreSettings", "wall_clock"]

READER_THREADS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Settings of a store; sizes in bytes, times in seconds."""

    directory: Path
    """Holds `penstock.sqlite3`, its write-ahead log and a lock file; made where it is missing, for its owner alone."""
    append_inflight_bytes: int = 128 * MIB
    """Appends that are not yet durable, over all streams; more wait their turn (S2 fact sheet, 2.3)."""
    tail_cache_bytes: int = 32 * MIB
    """The newest batches, kept in memory for those who follow; their encodings may take as much again, or twice."""
    cached_streams: int = 10_000
    """How many idle streams' heads stay in memory, about 1 KiB each; streams in use always do."""
    envelopes: Layout = Layout.PLAIN
    """What segment clients see in an envelope, where clients of other protocols append it: bits ENVELOPE_*."""
    reader_threads: int = READER_THREADS
    """How many catch-up reads may use the disk at once."""
    read_ahead_batches: int = 64
    """How many batches (up to 1 MiB each) may be read ahead of slow readers, over all reads."""
    group_bytes: int = 16 * MIB
    """About how much one transaction may write; bounds how long an append waits for its group."""
    checkpoint_bytes: int = 16 * MIB
    """How much is written to the log before it is moved into the file, in the background."""
    log_reset_bytes: int = 64 * MIB
    """The log's size at which a checkpoint is finished between two commits, so that the log begins anew."""
    sweep_interval_seconds: float = 30.0
    """How often retention and empty streams are looked after."""
