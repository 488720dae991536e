"""Short words for tests of the store's files of payloads."""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.store import STREAM, Wall, bodies
from support.store.byte_reads import forget_recent

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.limits import MIB
from penstock.model.operations import CheckTail, CreateBasin, CreateStream, FromSeqNum
from penstock.model.records import StreamRef
from penstock.store.payload_files import PayloadFiles, Place, path_of

__all__ = [
    "LARGE",
    "blocks",
    "body",
    "can_punch",
    "check_files",
    "descriptors",
    "file_names",
    "forget",
    "from_disk",
    "opened",
    "places",
]

_OUR_NAME = re.compile(r"penstock-[0-9]+\.payloads")
LARGE = 40_000
"""Bytes of a body whose payload goes to a file; those of 100 bytes do not."""


def body(name: object, size: int = LARGE) -> bytes:
    """Return a body of which no two pieces are alike."""
    return random.Random(repr(name)).randbytes(size)


@asynccontextmanager
async def opened(settings: EmbeddedSettings, wall: Wall, *streams: StreamRef) -> AsyncIterator[EmbeddedBack]:
    """Open a store, and make streams."""
    async with open_embedded(settings, wall) as back:
        for name in {stream.basin for stream in streams}:
            await back.perform(CreateBasin(name))
        for stream in streams:
            await back.perform(CreateStream(stream))
        yield back


def forget(back: EmbeddedBack, *streams: StreamRef) -> None:
    """Forget what is in memory, so that reads go to the disk."""
    for stream in streams or (STREAM,):
        forget_recent(back, stream)


async def from_disk(back: EmbeddedBack, stream: StreamRef = STREAM) -> list[bytes]:
    """Return a stream's bodies, read from the disk."""
    await back.perform(CheckTail(stream))
    forget(back, stream)
    return await bodies(back, FromSeqNum(0), stream)


def file_names(directory: Path) -> list[str]:
    """Return the names of the files of payloads, sorted."""
    return sorted(path.name for path in directory.iterdir() if _OUR_NAME.fullmatch(path.name))


def places(back: EmbeddedBack) -> list[Place]:
    """Return the places of all payloads that rows point to, sorted."""
    rows = "SELECT file, file_offset, file_bytes FROM batches WHERE file IS NOT NULL ORDER BY file, file_offset"
    return [Place(*row) for row in back._store._look_ups.execute(rows)]


def check_files(back: EmbeddedBack) -> dict[int, int]:
    """Check that `payload_files` counts exactly the bytes that rows point to, and that these lie in files, apart from
    each other. Return the count of each file that has any.
    """
    store = back._store
    db = store._look_ups
    db.execute("BEGIN")  # a group may be committed meanwhile
    try:
        counted = dict(db.execute("SELECT number, live FROM payload_files").fetchall())
        found = places(back)
        half = "SELECT count(*) FROM batches WHERE file IS NOT NULL AND (payload <> x'' OR file_bytes < 1)"
        assert db.execute(half).fetchone() == (0,), "a payload in a file is in its row too, or is empty"
    finally:
        db.execute("ROLLBACK")
    used = {
        number: sum(place.size for place in some) for number, some in itertools.groupby(found, lambda one: one.file)
    }
    assert {number: live for number, live in counted.items() if live} == used
    for before, after in itertools.pairwise(found):
        assert before.file < after.file or before.offset + before.size <= after.offset, "payloads overlap"
    for last in {place.file: place for place in found}.values():
        assert path_of(store._directory, last.file).stat().st_size >= last.offset + last.size
    return used


def descriptors(directory: Path) -> int:
    """Return the number of descriptors of files of payloads in a directory that this process has open."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            path = str(link.readlink()).removesuffix(" (deleted)")
        except FileNotFoundError:  # that of the listing itself
            continue
        found += Path(path).parent == directory and bool(_OUR_NAME.fullmatch(Path(path).name))
    return found


def can_punch(directory: Path) -> bool:
    """Return whether the file system of a directory frees parts of a file."""
    path = path_of(directory, 99_999_999)
    with path.open("wb") as file:
        file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())
    PayloadFiles(directory, 1, 1).free([Place(99_999_999, 0, MIB)])
    freed = path.stat().st_blocks == 0
    path.unlink()
    return freed


def blocks(directory: Path) -> int:
    """Return the bytes that the files of payloads take on the disk."""
    return sum((directory / name).stat().st_blocks * 512 for name in file_names(directory))
