"""Short words for tests of the embedded store."""

import errno
import itertools
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence

import trio

from penstock.backends.embedded import EmbeddedBack
from penstock.core.back import AppendSession, Back, Following
from penstock.model.byte_events import join_events
from penstock.model.byte_layout import Layout, bodies_of, to_bytes
from penstock.model.byte_operations import AppendBytes, WriterPosition
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Append, Appended, Read, Start
from penstock.model.record_encoding import decode_records
from penstock.model.records import Header, Headers, Record, RecordBatch, StreamRef, metered_size
from penstock.store.payload_files import Place

_ROWS = """
SELECT first_seq, last_seq, first_offset, end_offset, layout, payload, file, file_offset, file_bytes, checksum
FROM batches WHERE stream = ? ORDER BY last_seq
"""
BASIN = "basin-one"
STREAM = StreamRef(BASIN, "stream")
NOW = 1_700_000_000_000


class Wall:
    """A clock that stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def appending(
    *bodies: bytes,
    stream: StreamRef = STREAM,
    headers: dict[int, Headers] | None = None,
    timestamps: Sequence[int | None] | None = None,
    exact: int | None = None,
    match: int | None = None,
    token: str | None = None,
    writer_seq: int | None = None,
) -> Append:
    """Return an append of these bodies."""
    given = headers or {}
    return Append(
        stream,
        list(bodies),
        metered_size(bodies, given),
        headers=given,
        timestamps=timestamps,
        exact_timestamp=exact,
        match_seq_num=match,
        fencing_token=token,
        writer_seq=writer_seq,
    )


def command(name: bytes, payload: bytes, **options: object) -> Append:
    """Return an append of one command record."""
    return appending(payload, headers={0: (Header(b"", name),)}, **options)  # type: ignore[arg-type]


def fence(new: bytes, **options: object) -> Append:
    """Return an append of a fence command."""
    return command(b"fence", new, **options)


def trim_record(seq_num: int, **options: object) -> Append:
    """Return an append of a trim command."""
    return command(b"trim", seq_num.to_bytes(8, "big"), **options)


async def batches(back: Back, start: Start, stream: StreamRef = STREAM, **options: object) -> list[RecordBatch]:
    """Return the batches of a read that ends by itself; `wait` is 0 unless the options bound the read."""
    if not options.keys() & {"count", "max_bytes", "until", "wait"}:
        options["wait"] = 0
    found = []
    async with back.read_session(Read(stream, start, **options)) as session:  # type: ignore[arg-type]
        while (batch := await session.next()) is not None:
            if not isinstance(batch, Following):
                found.append(batch)
    return found


async def records(back: Back, start: Start, stream: StreamRef = STREAM, **options: object) -> list[Record]:
    """Return the records of a read that ends by itself."""
    return [record for batch in await batches(back, start, stream, **options) for record in batch.records()]


async def bodies(back: Back, start: Start, stream: StreamRef = STREAM, **options: object) -> list[bytes]:
    """Their bodies."""
    return [record.body for record in await records(back, start, stream, **options)]


class Fails:
    """Check that a block fails: `with Fails(FailureCode.INVALID, "word"):`; `failure` is its failure."""

    def __init__(self, code: FailureCode, text: str = "") -> None:
        self.code = code
        self.text = text

    def __enter__(self) -> "Fails":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        assert error is not None, f"nothing failed; expected {self.code}"
        if not isinstance(error, OperationFailed):
            return False
        self.failure = error.failure
        assert self.failure.code is self.code, self.failure
        assert self.text in self.failure.message, self.failure
        return True


async def acknowledged(session: AppendSession, count: int) -> list[Appended]:
    """Return the next `count` acknowledgements of a session."""
    found: list[Appended] = []
    while len(found) < count:
        found += await session.receive()
    assert len(found) == count, found
    return found


async def eventually(true: Callable[[], bool]) -> None:
    """Wait until something that happens in the background has happened; at most 10 s."""
    with trio.fail_after(10):
        while not true():  # noqa: ASYNC110  (it is seen in the file, where no event is)
            await trio.sleep(0.01)


class FullDisk:
    """While it is entered, the database cannot grow, and no payload can be written to a file."""

    def __init__(self, back: EmbeddedBack) -> None:
        self._db = back._store._writer
        self._files = back._store.files

    def __enter__(self) -> None:
        pages = self._db.execute("PRAGMA page_count").fetchone()[0]
        self._db.execute(f"PRAGMA max_page_count = {pages}")
        self._files._append = _refuse  # type: ignore[method-assign]

    def __exit__(self, *_exception: object) -> None:
        self._db.execute("PRAGMA max_page_count = 1000000000")
        del self._files._append


def _refuse(_payloads: object) -> list[Place]:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Unwritable:
    """While it is entered, no transaction succeeds, however small."""

    def __init__(self, back: EmbeddedBack) -> None:
        self._db = back._store._writer

    def __enter__(self) -> None:
        self._db.set_progress_handler(lambda: 1, 1)

    def __exit__(self, *_exception: object) -> None:
        self._db.set_progress_handler(None, 0)


class NoCommit:
    """While it is entered, transactions fail at their end, after all that they wrote."""

    def __init__(self, back: EmbeddedBack) -> None:
        self._db = back._store._writer

    def __enter__(self) -> None:
        def decide(action: int, what: str | None, *_more: object) -> int:
            is_end = action == sqlite3.SQLITE_TRANSACTION and what == "COMMIT"
            return sqlite3.SQLITE_DENY if is_end else sqlite3.SQLITE_OK

        self._db.set_authorizer(decide)

    def __exit__(self, *_exception: object) -> None:
        self._db.set_authorizer(None)


class Blocked:
    """While it is open no transaction begins, so that decisions pile up into one group."""

    def __init__(self, back: EmbeddedBack) -> None:
        self._committer = back._store.committer
        self._began, self._ended = threading.Event(), threading.Event()

    async def __aenter__(self) -> None:
        await self._committer.between_commits(lambda _: None)  # which starts the thread
        self._committer._thread._jobs.put(self)  # type: ignore[arg-type]
        while not self._began.is_set():
            await trio.lowlevel.checkpoint()

    async def __aexit__(self, *_exception: object) -> None:
        self._ended.set()

    def work(self) -> None:
        """Occupy the thread."""
        self._began.set()
        self._ended.wait()


def stored_bytes(back: EmbeddedBack, stream: StreamRef = STREAM) -> bytes:
    """A stream's bytes from the file, from its first row on; numbers and offsets of the rows are dense."""
    found = back._store.registry.stream(stream)
    assert found is not None
    db = back._store._look_ups
    rows = db.execute(_ROWS, (found.id,)).fetchall()
    for (_, last, _, end, *_), (first, _, begin, *_) in itertools.pairwise(rows):
        assert (int(first), begin) == (last + 1, end)
    pieces = []
    for first, last, begin, end, layout, *stored in rows:
        payload = db.payload(*stored)
        if Layout(layout).is_exact:
            pieces.append(payload)
            assert len(bodies_of((payload,), Layout(layout))) == last - first + 1
        else:
            columns = decode_records(payload)
            pieces.append(to_bytes(columns, Layout(layout)))
            assert columns.seq_nums[0] == first and len(columns.bodies) == last - first + 1
        assert len(pieces[-1]) == end - begin
    if rows:
        assert (found.durable.next_seq, found.durable.next_offset) == (rows[-1][1] + 1, rows[-1][3])
    return b"".join(pieces)


def sending(
    *bodies: bytes,
    stream: StreamRef = STREAM,
    writer: bytes = bytes(16),
    position: int | None = None,
    offset: int | None = None,
) -> AppendBytes:
    """Return an append of these events by a segment client."""
    named = None if position is None else WriterPosition(writer, position)
    return AppendBytes(stream, join_events(bodies), named, offset)
