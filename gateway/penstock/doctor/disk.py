"""The data directory: whether it can be written to, on what it is, how long a write takes to be safe, who has it."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.config import Config
from penstock.doctor.findings import Finding, fine, notable, wrong
from penstock.errors import CannotStart
from penstock.store.lock import LOCK_FILE, locked
from penstock_codecs.limits import MIB

__all__ = ["about_data"]

SLOW_SECONDS: Final = 0.02
"""An append waits for one of these; disks with a battery or flash take a tenth of it."""
TRIES: Final = 15
LITTLE_BYTES: Final = 1024 * MIB
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})
_FORGETFUL: Final = frozenset({"tmpfs", "ramfs"})


def about_data(config: Config | None, mounts: Path = Path("/proc/self/mountinfo")) -> Iterator[Finding]:
    """Everything about the data directory; nothing is left there."""
    if config is None:
        return
    directory = Path(config.store.directory).absolute()
    place = next(one for one in (directory, *directory.parents) if one.exists())
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        what = "cannot be written to" if place == directory else f"cannot be made in {place}"
        yield wrong("data", f"{directory} {what}", "Choose another store.directory, or change its owner.")
        return
    yield _held(directory)
    yield _kind(place, mounts)
    yield _room(place)
    yield _speed(place)


def _held(directory: Path) -> Finding:
    if not (directory / LOCK_FILE).exists():
        return fine("data", f"{directory} can be written to" if directory.exists() else f"{directory} would be made")
    try:
        with locked(directory):
            return fine("data", f"{directory} can be written to, and nobody has it")
    except CannotStart as error:
        return wrong("data", str(error), "Stop that gateway, or give this one a directory of its own.")


def _kind(place: Path, mounts: Path) -> Finding:
    """The file system. SQLite needs locks that work and writes that stay."""
    kind = _file_system(place, mounts)
    if kind in _REMOTE:
        advice = "Use a local disk: acknowledged records may be lost, or the store be damaged, where locks do not hold."
        return wrong("file system", f"{place} is on {kind}, over the network", advice)
    if kind in _FORGETFUL:
        return notable("file system", f"{place} is on {kind}", "Use a disk, if records are to outlive the machine.")
    return fine("file system", f"{kind or 'unknown'}")


def _file_system(place: Path, mounts: Path) -> str:
    """Of the longest mount point above a place; "" where nobody tells."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    found: dict[str, str] = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        found[before.split()[4]] = after.split()[0]
    resolved = place.resolve()
    return next((found[str(one)] for one in (resolved, *resolved.parents) if str(one) in found), "")


def _room(place: Path) -> Finding:
    free = shutil.disk_usage(place).free
    said = f"{free // MIB} MiB are free"
    return fine("space", said) if free >= LITTLE_BYTES else notable("space", said, "Make room, or shorten retention.")


def _speed(place: Path) -> Finding:
    """How long it takes until a small write is on disk."""
    taken = []
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            for _ in range(TRIES):
                begin = time.perf_counter()
                file.write(b"\0" * 4096)
                file.flush()
                os.fsync(file.fileno())
                taken.append(time.perf_counter() - begin)
    except OSError as error:
        return wrong("fsync", f"a write to {place} failed: {error.strerror}", "Look at the disk.")
    middle = statistics.median(taken)
    said = f"{middle * 1000:.1f} ms, of {TRIES} the slowest {max(taken) * 1000:.1f} ms"
    if middle > SLOW_SECONDS:
        return notable("fsync", said, "Use a faster disk: a lone client's append waits so long, many share one wait.")
    return fine("fsync", said)
