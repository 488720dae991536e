"""The records of both sources, on disk while they are compared: one row each, without the whole body.

So a comparison of two captures of any size takes as much memory as one of two small ones, and about 200 bytes of disk
for each record. The temporary file is deleted when the table is closed.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from enum import IntEnum
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from penstock.capture.dialogue import APPENDED, SeenRecord
from penstock.tools.comparing.fields import Fields, unwrapped_record

__all__ = ["PREVIEW_BYTES", "ComparedStream", "Input", "RecordRow", "RecordTable"]

PREVIEW_BYTES: Final = 64
"""Bytes of a body that are kept, for display."""
_TOGETHER: Final = 1000
"""Rows given to SQLite at once: takes half the time of one by one."""
_COMMIT_EVERY: Final = 50_000
_CACHE_KIB: Final = 16 * 1024
_SCHEMA: Final = """
CREATE TABLE stream (number INTEGER PRIMARY KEY, source INT, name TEXT, layer TEXT, UNIQUE (source, name));
CREATE TABLE seen (
  arrival INTEGER PRIMARY KEY, stream INT, appended INT, kind TEXT, position BLOB, place TEXT, again INT,
  digest BLOB, body BLOB, headers BLOB, size INT, preview BLOB, conversation INT, time_ns INT
);
CREATE UNIQUE INDEX delivered ON seen (stream, kind, position, again, digest) WHERE appended = 0 AND kind <> '';
"""
_INDEXES: Final = """
CREATE INDEX IF NOT EXISTS in_order ON seen (stream, appended, position, again, arrival);
CREATE INDEX IF NOT EXISTS by_content ON seen (stream, appended, digest);
"""


class Input(IntEnum):
    """One of the two sides of a comparison."""

    A = 0
    B = 1


class ComparedStream(NamedTuple):
    """A stream of one source. `kinds`: of its records' positions; "" for records without one. `layer`: the protocol
    that first named it, as in `Message.layer`. `numbers`: of its rows, several if protocols have several names for it;
    `others`: the names beside `name`. `first`: the number of the first record that a live server keeps: it had as many
    before it."""

    numbers: tuple[int, ...]
    source: Input
    name: str
    appended: bool
    records: int
    kinds: frozenset[str]
    layer: str = ""
    others: tuple[str, ...] = ()
    first: int = 0


class RecordRow(NamedTuple):
    """One record. `digest`: of all that is compared. `place`: its position as its protocol spells it, "" if it has
    none; `ordinal`: its place in the compared stream, from 0."""

    arrival: int
    digest: bytes
    body: bytes
    headers: bytes
    position: bytes
    again: int
    place: str
    size: int
    preview: bytes
    conversation: int
    time_ns: int
    ordinal: int


class RecordTable:
    """The records of both sources. A context manager; not thread-safe."""

    def __init__(self, fields: Fields, directory: Path | None = None) -> None:
        """Create the temporary file in `directory` (None: the system's). Raises OSError."""
        self._fields = fields
        self._home = tempfile.TemporaryDirectory(prefix="penstock-diff-", dir=directory)
        self._base = sqlite3.connect(Path(self._home.name) / "records.sqlite", isolation_level=None)
        # The file need not survive a crash.
        self._base.execute("PRAGMA journal_mode = OFF")
        self._base.execute("PRAGMA synchronous = OFF")
        self._base.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._base.executescript(_SCHEMA)
        self._base.execute("BEGIN")
        self._streams: dict[tuple[Input, str], int] = {}
        self._arrivals = count()
        self._rows: list[tuple[object, ...]] = []
        self._repeats: dict[int, _Repeats] = {}
        self._first: dict[tuple[Input, str], int] = {}

    def __enter__(self) -> RecordTable:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._base.close()
        self._home.cleanup()

    # ---- putting -------------------------------------------------------------------------------------------------

    def put(self, source: Input, record: SeenRecord, layer: str = "", exchange: int | None = None) -> None:
        """Add a record. One that was delivered several times, in different exchanges, is kept once.

        `layer` and `exchange`: of the message that carried it. Records that were not acknowledged are skipped; of an
        envelope the contained record is kept.
        """
        if not record.acknowledged:
            return
        record = unwrapped_record(record)
        stream = self._stream(source, record.stream, layer)
        kind, position, place = _position(record)
        conversation = 0 if record.conversation is None else record.conversation.number
        appended = record.action == APPENDED
        again = 0 if appended or not kind else self._again(stream, (conversation, exchange), position)
        body, headers, rest = self._fields.digests(record)
        arrival = next(self._arrivals)
        preview = bytes(record.body[:PREVIEW_BYTES])
        self._rows.append(
            (
                *(arrival, stream, appended, kind, position, place, again),
                *(body + headers + rest, body, headers, len(record.body), preview, conversation, record.time_ns),
            )
        )
        if len(self._rows) >= _TOGETHER:
            self._flush()
        if arrival % _COMMIT_EVERY == _COMMIT_EVERY - 1:
            self._base.execute("COMMIT")
            self._base.execute("BEGIN")

    def begin(self, source: Input, name: str, first: int) -> None:
        """Note the number of the first record that a live server keeps of a stream, or would give to the next one."""
        self._first[source, name] = first

    def first(self, source: Input, name: str) -> int:
        """Return the number that `begin` noted, or 0."""
        return self._first.get((source, name), 0)

    def _flush(self) -> None:
        self._base.executemany(
            "INSERT OR IGNORE INTO seen VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self._rows
        )
        self._rows.clear()

    def _stream(self, source: Input, name: str, layer: str) -> int:
        number = self._streams.get((source, name))
        if number is None:
            number = self._streams[source, name] = len(self._streams)
            self._base.execute("INSERT INTO stream VALUES (?, ?, ?, ?)", (number, source, name, layer))
        return number

    def _again(self, stream: int, exchange: tuple[int, int | None], position: bytes) -> int:
        """Return how often this exchange has repeated this position, in a row, so far."""
        last = self._repeats.setdefault(stream, _Repeats())
        return last.again(exchange, position)

    # ---- looking -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Finish adding records: from now on they are queried."""
        self._flush()
        self._base.execute("COMMIT")
        self._base.executescript(_INDEXES)
        self._repeats.clear()

    def streams(self, source: Input, action: str | None = None) -> list[ComparedStream]:
        """Return the streams of a source by name, with the records appended to them or, if there are none, those
        delivered. `action` selects one of the two for all. May be called at any time."""
        self._flush()
        by_number: dict[int, ComparedStream] = {}
        rows = self._base.execute(
            "SELECT number, name, layer, appended, COUNT(*), GROUP_CONCAT(DISTINCT kind) FROM stream JOIN seen "
            "ON seen.stream = stream.number WHERE source = ? GROUP BY number, appended ORDER BY name, appended",
            (source,),
        )
        for number, name, layer, appended, records, kinds in rows:
            if action is None or bool(appended) == (action == APPENDED):
                known = frozenset((kinds or "").split(","))
                by_number[number] = ComparedStream(
                    (number,), source, name, bool(appended), records, known, layer, first=self.first(source, name)
                )
        return list(by_number.values())

    def rows(self, stream: ComparedStream) -> Iterator[RecordRow]:
        """Yield the records in the order of their positions if all have one of the same kind, else in the order of
        arrival."""
        ordered = len(stream.kinds) == 1 and "" not in stream.kinds
        order = "position, again, arrival" if ordered else "arrival"
        cursor = self._base.execute(
            "SELECT arrival, digest, body, headers, position, again, place, size, preview, conversation, time_ns "
            f"FROM seen WHERE stream IN ({_marks(stream)}) AND appended = ? ORDER BY {order}",
            (*stream.numbers, stream.appended),
        )
        for ordinal, row in enumerate(cursor):
            yield RecordRow._make((*row, ordinal))

    def how_often(self, stream: ComparedStream, digest: bytes) -> int:
        """Return the number of records of a stream with this content."""
        (count,) = self._base.execute(
            f"SELECT COUNT(*) FROM seen WHERE stream IN ({_marks(stream)}) AND appended = ? AND digest = ?",
            (*stream.numbers, stream.appended, digest),
        ).fetchone()
        return int(count)


def _marks(stream: ComparedStream) -> str:
    return ", ".join("?" for _ in stream.numbers)


class _Repeats:
    """The last position of each exchange; only of the newest exchanges, since exchanges do not recur."""

    _MOST: Final = 10_000

    def __init__(self) -> None:
        self._last: dict[tuple[int, int | None], tuple[bytes, int]] = {}

    def again(self, exchange: tuple[int, int | None], position: bytes) -> int:
        before, times = self._last.pop(exchange, (b"", 0))
        times = times + 1 if before == position else 0
        self._last[exchange] = (position, times)
        if len(self._last) > self._MOST:
            del self._last[next(iter(self._last))]
        return times


def _position(record: SeenRecord) -> tuple[str, bytes, str]:
    """Return the kind of a record's position, the position as bytes in sort order, and its text."""
    if record.seq_num is not None:
        return "seq_num", record.seq_num.to_bytes(16, "big"), f"seq_num {record.seq_num}"
    if record.record_id is not None:
        ms, _, seq = record.record_id.partition("-")
        return "id", int(ms).to_bytes(8, "big") + int(seq).to_bytes(8, "big"), f"id {record.record_id}"
    if record.offset is not None:
        return "offset", record.offset.to_bytes(16, "big"), f"offset {record.offset}"
    return "", b"", ""
