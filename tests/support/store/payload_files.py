"""Short words for tests of the store's files of payloads."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from penstock.backends.embedded import EmbeddedBack
from penstock.store.payload_files import Place, path_of

__all__ = ["check_files", "descriptors", "file_names", "places"]

_OUR_NAME = re.compile(r"penstock-[0-9]+\.payloads")


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
            path = os.readlink(link).removesuffix(" (deleted)")
        except FileNotFoundError:  # that of the listing itself
            continue
        found += Path(path).parent == directory and bool(_OUR_NAME.fullmatch(Path(path).name))
    return found
