"""The store as a whole: opening, connecting its parts, closing."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import trio

from penstock.core.errors import CannotStart, StoreFailed, out_of_groups
from penstock.observe.metrics.families import (
    STORE_FILE_BYTES,
    STORE_INFLIGHT_BYTES,
    STORE_LOG_BYTES,
    STORE_PAYLOAD_BYTES,
    STORE_PENDING,
    STORE_WAITING,
)
from penstock.observe.metrics.series import Sample, sampling
from penstock.store.appends import StoreAppends
from penstock.store.attributes import AttributeOperations, StoreAttributes
from penstock.store.byte_reads import ByteReads
from penstock.store.catalog import StoreCatalog
from penstock.store.checkpointer import Checkpointer
from penstock.store.committer import Committer
from penstock.store.key_checks import KeyChecks
from penstock.store.lock import locked
from penstock.store.merges import StoreMerges
from penstock.store.payload_files import PayloadFiles, clean_up
from penstock.store.reader import ReaderThreads
from penstock.store.reads import StoreReads
from penstock.store.registry import Registry
from penstock.store.schema import FILE_NAME, connect_reader, connect_writer, prepare_file
from penstock.store.settings import Clock, StoreSettings
from penstock.store.sweeper import Sweeper
from penstock.store.tables import StoreTables
from penstock.store.tail_cache import TailCaches
from penstock.store.trims import Trims
from penstock.store.usage import StoreUsage
from penstock.store.wal import WriteAheadLog, is_failed_sync

__all__ = ["Store", "open_store"]


class Store:
    """The parts of the store. Call `start` to run its tasks, and `close` when they have ended."""

    def __init__(self, settings: StoreSettings, clock: Clock) -> None:
        directory = self._directory = settings.directory
        self._writer = connect_writer(directory)
        self._checkpoints = connect_writer(directory)
        self._look_ups = connect_reader(directory)
        self.reader = ReaderThreads(directory, settings.reader_threads)
        self.registry = Registry(self._look_ups, settings.cached_streams)
        self.files = PayloadFiles(directory, clean_up(self._writer, directory), settings.payload_file_bytes)
        self.committer = Committer(self._writer, self.files, directory, settings.group_bytes)
        tail_caches = TailCaches(settings.tail_cache_bytes)
        self.catalog = StoreCatalog(self.registry, self.committer, clock, self._nudge)
        attributes = StoreAttributes(self._look_ups)
        self.usage = StoreUsage(self.committer, self.reader, clock)
        self.attributes = AttributeOperations(self.registry, self.committer, attributes)
        self.appends = StoreAppends(
            self.catalog,
            self.committer,
            tail_caches,
            attributes,
            KeyChecks(self._look_ups),
            clock,
            settings.append_inflight_bytes,
            settings.envelopes,
            self._nudge,
            self.usage,
        )
        self.merges = StoreMerges(
            self.catalog,
            self.committer,
            self.reader,
            tail_caches,
            attributes,
            self.appends.admission,
            clock,
            settings.envelopes,
            settings.append_inflight_bytes,
        )
        self.reads = StoreReads(self.catalog, self.committer, self.reader, settings.read_ahead_batches, self.usage)
        self.byte_reads = ByteReads(self.reads)
        self.trims = Trims(self.registry, self.committer, self.reader, clock, self._nudge)
        self.tables = StoreTables(self.committer, self.reader)
        self.sweeper = Sweeper(
            self.registry,
            self.catalog,
            self.trims,
            self.committer,
            self.reader,
            self.files,
            clock,
            settings.sweep_interval_seconds,
        )
        # Kept open until the connections are closed: closing any descriptor of a file drops this process's locks on it.
        self._file = os.open(directory / FILE_NAME, os.O_RDONLY | os.O_CLOEXEC)
        self._log = WriteAheadLog(self._look_ups, directory / FILE_NAME)
        # The log is longer only after a reader that stayed in it; then the file is truncated when the log restarts.
        self._writer.execute(f"PRAGMA journal_size_limit={settings.log_bytes}").fetchone()
        self._checkpointer = Checkpointer(
            self._checkpoints,
            self._file,
            self._log,
            self.committer,
            settings.checkpoint_bytes,
            settings.checkpoint_seconds,
            settings.log_bytes,
        )

    def start(self, nursery: trio.Nursery) -> None:
        """Run the tasks of the store, and the reads of its sessions, in `nursery`."""
        self.reads.nursery = nursery
        nursery.start_soon(self.committer.run)
        nursery.start_soon(self._checkpointer.run)
        nursery.start_soon(self.sweeper.run)
        nursery.start_soon(self.usage.run)

    def samples(self) -> Iterator[Sample]:
        """Yield gauges of waiting work and of file sizes; see `penstock.observe.metrics.series.Source`."""
        admission = self.appends.admission
        yield Sample(STORE_PENDING, (), self.committer.pending)
        yield Sample(STORE_INFLIGHT_BYTES, (), admission.in_flight)
        yield Sample(STORE_WAITING, (), admission.waiting)
        for family, suffix in ((STORE_FILE_BYTES, ""), (STORE_LOG_BYTES, "-wal")):
            with contextlib.suppress(OSError):  # there is no log before the first commit
                yield Sample(family, (), (self._directory / f"{FILE_NAME}{suffix}").stat().st_size)
        with contextlib.suppress(OSError):  # one was removed meanwhile
            yield Sample(STORE_PAYLOAD_BYTES, (), self.files.disk_bytes())

    def _nudge(self) -> None:
        self.sweeper.nudge()

    @property
    def trouble(self) -> str | None:
        """The reason why the last transaction failed; None if it did not."""
        return self.committer.trouble

    async def close(self) -> None:
        """Commit all decisions, move the log into the file, and close it.

        Raises StoreFailed if a sync fails or has failed: then the log stays as it is, for the next start.
        """
        await self.committer.close()
        self.committer.end_thread()
        await trio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        self.reader.close()
        self._checkpoints.close()
        error = self.committer.failed or self._move_log()
        # SQLite moves and removes the log when the last connection closes, unless that connection only reads.
        last = (self._look_ups, self._writer) if error is None else (self._writer, self._look_ups)
        for connection in last:
            connection.close()
        self._log.close()
        self.files.close()
        os.close(self._file)
        if isinstance(error, StoreFailed):
            raise error

    def _move_log(self) -> Exception | None:
        """Move the log into the file and empty it; return the error if that failed. On a full disk the log stays."""
        try:
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            return self.committer.fail(error) if is_failed_sync(error) else error
        return None


@asynccontextmanager
async def open_store(settings: StoreSettings, clock: Clock) -> AsyncIterator[Store]:
    """Open the store in `settings.directory`, which is created if missing, until the block ends.

    Raises CannotStart if the directory or the file cannot be used. Ends the block with StoreFailed if a sync fails.
    Decisions made in the block are committed before this returns.
    """
    with out_of_groups(), locked(settings.directory):
        await trio.to_thread.run_sync(prepare_file, settings.directory)
        try:
            store = Store(settings, clock)
        except (sqlite3.Error, OSError) as problem:
            raise CannotStart(f"cannot use the store in {settings.directory}: {problem}") from problem
        error: BaseException | None = None
        try:
            async with trio.open_nursery() as nursery:
                store.start(nursery)
                try:
                    with sampling(store.samples):
                        yield store
                except BaseException as raised:
                    error = raised  # raised below: in here it would be wrapped in an exception group
                store.usage.flush()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await store.close()
        if error is not None:
            raise error
