"""The database file: its tables, its version, and how connections to it are set up.

Any SQLite shell opens it, also while the gateway runs. Columns without a declared type hold unsigned 64-bit
numbers (`u64`); times are ms since the Unix epoch; configurations are JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import CannotStart
from penstock.store.payload_files import OpenPayloads, Place, check_payloads, refuse_without_database
from penstock.store.wal import rewrite_log, sync_directory

__all__ = [
    "APPLICATION_ID",
    "FILE_NAME",
    "TOUCH",
    "ReaderConnection",
    "connect_reader",
    "connect_writer",
    "prepare_file",
    "require_current",
]

FILE_NAME: Final = "penstock.sqlite3"
APPLICATION_ID: Final = 0x50656E73
""""Pens" in ASCII: identifies the database to `file` and to the gateway."""

PAGE_BYTES: Final = 8192
"""Page size of a new file; an older file keeps its own. A commit of one small record writes two pages to the log: 16.4
KiB, and 8.5 with pages of 4096 bytes. Those cost more CPU time for much data: reading rows of 100 KiB from the page
cache takes 0.25 ns per byte in SQLite instead of 0.19, appending batches of 100 KiB to a gateway 10 % more CPU time.
mmap would read faster, but turns an I/O error into a signal that ends the process."""

READER_CACHE_KIB: Final = 256
"""SQLite's cache for a reader. Rows are read once: a cache that fits into the processor's saves 5 to 10 % compared with
SQLite's default of 2 MiB."""

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
  config TEXT NOT NULL,           -- this stream's own layer; since version 2 all of it
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
  layout INTEGER NOT NULL DEFAULT 0,        -- how the records stand in these bytes (penstock.model.byte_layout)
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

_RESOLVED_CONFIGS: Final = """
-- streams.config was what the stream itself said, with the rest looked up in its basin at each use. Now it says
-- everything, so that a new default of the basin leaves the streams that exist alone. Each keeps doing what it did.
UPDATE streams SET config = resolved_config(config, (SELECT b.config FROM basins b WHERE b.id = basin))
WHERE basin IN (SELECT id FROM basins);
"""
_DEFAULTS_BEFORE_2: Final = {
    "storage_class": "express",
    "retention": {"age_seconds": 604_800},
    "timestamping_mode": "client-prefer",
    "timestamping_uncapped": False,
    "delete_on_empty_seconds": 0,
}
_ONE_INDEX: Final = """
DROP INDEX batches_by_id;         -- identifiers and offsets rise as numbers do, so the index of these finds them,
DROP INDEX batches_by_offset;     -- and an append writes two pages instead of four
"""
_CIPHERS: Final = """
ALTER TABLE streams ADD COLUMN cipher TEXT;  -- of the records' bodies and headers (penstock.store.encryption)
"""
_USAGE: Final = """
CREATE TABLE usage (              -- what was done (penstock.store.usage)
  minute INTEGER NOT NULL,        -- since the epoch; of older rows, the first of an hour
  basin TEXT NOT NULL,            -- '' for operations that concern no stream
  series TEXT NOT NULL,
  value INTEGER NOT NULL,
  PRIMARY KEY (minute, basin, series)
) WITHOUT ROWID;
"""
_ENCODINGS: Final = """
-- the encoding of a payload that is neither bytes nor `records` of protobuf s2.v1.ReadBatch: a codec's own, in which
-- the records came
ALTER TABLE batches ADD COLUMN encoding TEXT;
"""
_PAYLOAD_FILES: Final = """
-- the place of a large payload, which is empty here (penstock.store.payload_files); NULL for all others
ALTER TABLE batches ADD COLUMN file INTEGER;
ALTER TABLE batches ADD COLUMN file_offset INTEGER;
ALTER TABLE batches ADD COLUMN file_bytes INTEGER;
CREATE TABLE payload_files (
  number INTEGER PRIMARY KEY,
  live INTEGER NOT NULL           -- bytes of its payloads whose rows are there
);
"""
_CHECKSUMS: Final = """
-- of the payload, wherever it is (penstock.store.payload_files.checksum_of); NULL for rows of before
ALTER TABLE batches ADD COLUMN checksum INTEGER;
"""
_KEY_CHECKS: Final = """
-- of an encrypted stream, the check value of the key that its records have (penstock.store.key_checks); NULL before the
-- first append that a gateway of this version took
ALTER TABLE streams ADD COLUMN key_check BLOB;
"""
_MIGRATIONS: Final = (
    _TABLES,
    _RESOLVED_CONFIGS,
    _ONE_INDEX,
    _CIPHERS,
    _USAGE,
    _ENCODINGS,
    _PAYLOAD_FILES,
    _CHECKSUMS,
    _KEY_CHECKS,
)
"""Entry n migrates a file from version n to n + 1. Released entries never change; new ones are added."""
_OPTIONS: Final[Any] = {"isolation_level": None, "check_same_thread": False, "timeout": 10.0}
TOUCH: Final = f"PRAGMA user_version={len(_MIGRATIONS)}"
"""A statement that writes a page and changes nothing."""


def _resolved_config(own: str, basin: str) -> str:
    """Implement the SQL function `resolved_config` of `_RESOLVED_CONFIGS`; like that, it never changes."""
    layers = (json.loads(own), json.loads(basin)["default_stream_config"])
    values = {name: value for layer in reversed(layers) for name, value in layer.items() if value is not None}
    return json.dumps(_DEFAULTS_BEFORE_2 | values)


def prepare_file(directory: Path) -> None:
    """Create the file, or migrate an older one.

    Raises CannotStart for a file of another application or of a newer gateway, and if SQLite cannot use it.
    """
    path = directory / FILE_NAME
    try:
        _prepare(path)
        _sync_directories(directory)
    except (sqlite3.Error, OSError) as error:
        raise CannotStart(f"cannot use the store {path}: {error}") from error


def _prepare(path: Path) -> None:
    with contextlib.suppress(OSError):  # it exists already, or SQLite will report the error
        # Accessible to its owner only. SQLite gives the log and the shared memory the file's permissions.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, isolation_level=None)
    _pragma(db, "user_version")  # rolls back a change that a crash interrupted, which a reader cannot
    # The reader is closed last, so that the log stays: SQLite does not report a sync that fails while it closes a file.
    with contextlib.closing(connect_reader(path.parent)) as guard, contextlib.closing(db):
        if _pragma(db, "application_id") == _pragma(db, "user_version") == 0:
            if db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                raise CannotStart(f"{path} is the database of another application")
            refuse_without_database(path.parent)
            db.execute(f"PRAGMA page_size={PAGE_BYTES}")
            db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        elif _pragma(db, "application_id") != APPLICATION_ID:
            raise CannotStart(f"{path} is the database of another application")
        version = _version(db, path)
        (mode,) = db.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":  # SQLite goes on without a log if a sync failed or the file system does not support it
            raise CannotStart(f"cannot use the store {path}: SQLite cannot give it a write-ahead log")
        db.execute("PRAGMA synchronous=FULL")
        db.create_function("resolved_config", 2, _resolved_config, deterministic=True)
        _pragma(guard, "user_version")
        rewrite_log(db, path)
        for number in range(version, len(_MIGRATIONS)):
            db.executescript(f"BEGIN IMMEDIATE; {_MIGRATIONS[number]} PRAGMA user_version={number + 1}; COMMIT;")


def _version(db: sqlite3.Connection, path: Path) -> int:
    """Return the version of the schema. Raises CannotStart for one of a newer gateway."""
    version = _pragma(db, "user_version")
    if version > len(_MIGRATIONS):
        raise CannotStart(
            f"{path} was written by a newer gateway (schema version {version}, known: {len(_MIGRATIONS)})"
        )
    return version


def require_current(db: sqlite3.Connection, path: Path) -> None:
    """Raise CannotStart unless `db`, opened from this path, is a store of this gateway's version."""
    if _pragma(db, "application_id") != APPLICATION_ID:
        raise CannotStart(f"{path} is the database of another application")
    if (version := _version(db, path)) < len(_MIGRATIONS):
        raise CannotStart(
            f"{path} has schema version {version}: start a gateway once, which brings it to {len(_MIGRATIONS)}"
        )


def _pragma(db: sqlite3.Connection, name: str) -> int:
    value: int = db.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _sync_directories(directory: Path) -> None:
    """Sync the directory, and those above it on the same file system.

    New files survive a power failure only if their directory entries do. The log is among them: SQLite syncs its entry
    too, but does not report when that fails.
    """
    device = directory.stat().st_dev
    for some in (directory, *directory.absolute().parents):
        if some.stat().st_dev != device:
            return
        with contextlib.suppress(PermissionError):  # a parent may be unreadable; then the gateway did not create it
            sync_directory(some)


def connect_writer(directory: Path) -> sqlite3.Connection:
    """Open a connection that writes, or moves the log into the file; used by one thread at a time.

    `synchronous=FULL` makes a commit return when the log is on disk. Commits never run checkpoints: the checkpointer
    does.
    """
    db: sqlite3.Connection = sqlite3.connect(directory / FILE_NAME, **_OPTIONS)
    db.execute("PRAGMA wal_autocheckpoint=0")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA cache_size=-16384")
    return db


class ReaderConnection(sqlite3.Connection):
    """A connection that reads, with the files that its rows point to."""

    payloads: OpenPayloads

    def payload(self, stored: bytes, file: int | None, offset: int, size: int, checksum: int | None) -> bytes:
        """Return the payload of a row by its columns. Raises UnreadablePayload."""
        if file is not None:
            return self.payloads.read([Place(file, offset, size)], [checksum])[0]
        check_payloads([stored], [checksum])
        return stored

    def close(self) -> None:
        """Close it and the files."""
        self.payloads.close()
        super().close()


def connect_reader(directory: Path) -> ReaderConnection:
    """Open a read-only connection, used by one thread at a time. Closed last, it leaves the log as it is."""
    uri = f"{(directory / FILE_NAME).absolute().as_uri()}?mode=ro"
    db: ReaderConnection = sqlite3.connect(uri, uri=True, factory=ReaderConnection, **_OPTIONS)
    db.payloads = OpenPayloads(directory)
    db.execute(f"PRAGMA cache_size=-{READER_CACHE_KIB}")
    return db
