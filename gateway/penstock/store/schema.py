"""The database file: its tables, its version, and how connections to it are set up.

Any SQLite shell opens it, also while the gateway runs. Columns without a declared type hold unsigned 64-bit
numbers (`u64`); times are ms since the Unix epoch; configurations are JSON.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final

from penstock.errors import CannotStart

__all__ = ["APPLICATION_ID", "FILE_NAME", "connect_reader", "connect_writer", "prepare"]

FILE_NAME: Final = "penstock.sqlite3"
APPLICATION_ID: Final = 0x50656E73
""""Pens" in ASCII: tells `file` and us whose database this is."""

PAGE_BYTES: Final = 8192
"""Measured (ext4, 100 KiB rows): commits of one small row take 0.27-0.41 ms with pages of 4 to 32 KiB and 0.6-2 ms with
64 KiB; reading back from the page cache gives 2.6 GB/s at 4 KiB, 3.6 at 8, 4.8 at 16. mmap reads twice as fast, but
turns an I/O error into a signal that ends the process, and 3.6 GB/s is far from being the limit."""

_TABLES: Final = """
CREATE TABLE basins (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  config TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  request_token TEXT,             -- of the request that created it, with the configuration that it gave
  requested_config TEXT NOT NULL,
  deleted_at INTEGER              -- its name is free; its streams and this row are being purged
);
CREATE UNIQUE INDEX basins_by_name ON basins (name) WHERE deleted_at IS NULL;
CREATE INDEX basins_deleted ON basins (id) WHERE deleted_at IS NOT NULL;

CREATE TABLE streams (
  id INTEGER PRIMARY KEY,
  basin INTEGER NOT NULL,
  name TEXT NOT NULL,
  config TEXT NOT NULL,           -- this stream's own layer
  created_at INTEGER NOT NULL,
  request_token TEXT,
  requested_config TEXT NOT NULL,
  fencing_token TEXT NOT NULL DEFAULT '',
  trim_point NOT NULL DEFAULT 0,  -- first sequence number to keep; rows below are being purged
  truncated_at INTEGER NOT NULL DEFAULT 0,  -- first byte to keep, as segment clients truncated it; may lie in a record
  sealed INTEGER NOT NULL DEFAULT 0,        -- 1: nothing is ever appended again
  last_seq,                       -- the last record's number, timestamp and place within its ms, as far as
  last_ts,                        -- its row has gone; newer rows know better
  last_id_seq,
  last_offset INTEGER NOT NULL DEFAULT 0,   -- and the stream's length in bytes then
  modified_at INTEGER NOT NULL,   -- last creation, seal or truncation, or append whose row has gone
  emptied_at INTEGER NOT NULL,    -- when it was last found or made empty; means nothing while it has records
  deleted_at INTEGER
);
CREATE UNIQUE INDEX streams_by_name ON streams (basin, name) WHERE deleted_at IS NULL;
CREATE INDEX streams_deleted ON streams (id) WHERE deleted_at IS NOT NULL;

CREATE TABLE batches (            -- one row per append, several for large ones of bytes
  id INTEGER PRIMARY KEY,
  stream INTEGER NOT NULL,
  first_seq NOT NULL,
  last_seq NOT NULL,
  first_ts NOT NULL,
  first_id_seq NOT NULL,          -- S3P identifier of the first record: first_ts-first_id_seq
  last_ts NOT NULL,
  last_id_seq NOT NULL,
  count INTEGER NOT NULL,
  metered INTEGER NOT NULL,
  first_offset INTEGER NOT NULL,  -- the bytes that its records are to segment clients: offsets in the stream,
  end_offset INTEGER NOT NULL,    -- the same where there are none
  layout INTEGER NOT NULL DEFAULT 0,        -- how the records stand in these bytes (penstock_codecs.byte_layout)
  arrived_at INTEGER NOT NULL,
  payload BLOB NOT NULL           -- these bytes where the layout is 1 or 2: a segment client wrote them;
                                  -- else field `records` of protobuf s2.v1.ReadBatch
);
-- The first covers everything that a read needs to choose its rows; the second finds timestamps and identifiers; the
-- third finds bytes: those of one row begin where those of the row before end.
CREATE INDEX batches_by_seq ON batches (stream, last_seq, count, metered);
CREATE INDEX batches_by_id ON batches (stream, last_ts, last_id_seq);
CREATE INDEX batches_by_offset ON batches (stream, end_offset, last_seq);

CREATE TABLE attributes (         -- of streams; positions of writers among them
  stream INTEGER NOT NULL,
  attribute BLOB NOT NULL,        -- 16 bytes
  value INTEGER NOT NULL,
  PRIMARY KEY (stream, attribute)
) WITHOUT ROWID;

CREATE TABLE tables (             -- of keys and values: Pravega's table segments
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  key_length INTEGER NOT NULL,    -- of all keys, in bytes; 0: any
  length INTEGER NOT NULL DEFAULT 0         -- the version that the next change gives
);

CREATE TABLE table_items (
  id INTEGER PRIMARY KEY,
  table_id INTEGER NOT NULL,
  key BLOB NOT NULL,
  version INTEGER NOT NULL,
  value BLOB NOT NULL
);
CREATE UNIQUE INDEX table_items_by_key ON table_items (table_id, key);
CREATE INDEX table_items_by_version ON table_items (table_id, version);
"""

_MIGRATIONS: Final = (_TABLES,)
"""Entry n brings a file from version n to n + 1. Entries are never changed once released, only added."""


def prepare(directory: Path) -> None:
    """Make the file, or bring an older one up to date.

    Raises CannotStart for a file of another application, of a newer gateway, or one that SQLite cannot use.
    """
    path = directory / FILE_NAME
    try:
        _prepare(path)
    except sqlite3.Error as error:
        raise CannotStart(f"cannot use the store {path}: {error}") from error
    _sync_directory(directory)


def _prepare(path: Path) -> None:
    with contextlib.suppress(OSError):  # there already, or SQLite says what is wrong
        # Its owner's alone. SQLite gives the log and the shared memory the rights that the file has.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, isolation_level=None)
    try:
        if _pragma(db, "application_id") == _pragma(db, "user_version") == 0:
            if db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                raise CannotStart(f"{path} is a database of some other application")
            db.execute(f"PRAGMA page_size={PAGE_BYTES}")
            db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        elif _pragma(db, "application_id") != APPLICATION_ID:
            raise CannotStart(f"{path} is a database of some other application")
        version = _pragma(db, "user_version")
        if version > len(_MIGRATIONS):
            raise CannotStart(f"{path} was written by a newer gateway (version {version}, known {len(_MIGRATIONS)})")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        for number in range(version, len(_MIGRATIONS)):
            db.executescript(f"BEGIN IMMEDIATE; {_MIGRATIONS[number]} PRAGMA user_version={number + 1}; COMMIT;")
    finally:
        db.close()


def _pragma(db: sqlite3.Connection, name: str) -> int:
    value: int = db.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _sync_directory(directory: Path) -> None:
    """A file that was just made survives a power failure only if its directory entry does."""
    for some in (directory, directory.parent):
        with contextlib.suppress(PermissionError):  # the parent may be closed to us; then it is not ours to sync
            handle = os.open(some, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def connect_writer(directory: Path) -> sqlite3.Connection:
    """A connection that writes, or moves the log into the file; used by one thread at a time.

    `synchronous=FULL` makes a commit return when the log is on disk. Checkpoints are never run by a commit: they
    are the checkpointer's.
    """
    db = _connect(directory)
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA wal_autocheckpoint=0")
    db.execute("PRAGMA cache_size=-16384")
    return db


def connect_reader(directory: Path) -> sqlite3.Connection:
    """A connection that only reads; used by one thread at a time."""
    db = _connect(directory)
    db.execute("PRAGMA query_only=ON")
    return db


def _connect(directory: Path) -> sqlite3.Connection:
    db = sqlite3.connect(directory / FILE_NAME, isolation_level=None, check_same_thread=False, timeout=10.0)
    db.execute("PRAGMA wal_autocheckpoint=0")
    return db
