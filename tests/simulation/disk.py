"""A disk that loses power: it keeps apart the writes that were not synced, and may fail any call.

The files lie in a real directory, where SQLite and the store see all that was written, as they see the system's cache.
Beside it the disk keeps, for each file, the bytes that a sync has made durable and the writes and truncations since
then; and for the directory, the entries that are durable and the creations and deletions since then. When power is
lost, any sector of 512 bytes may be as it was after any number of the writes to it since the last sync, whatever became
of other sectors; so may a file's length, and each entry of the directory. Nothing orders writes but a sync. A
truncation is whole, as a file system's journal makes it and SQLite expects it: it comes with the file's length. Where
it is lost, so are later writes behind the place where it cut: they went to new blocks.

A sync that fails leaves each sector as if power had been lost, and lets the cache appear as written: later syncs do
not write it again (as Linux does).
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from simulation import sqlite_io

__all__ = ["SECTOR", "Disk", "Fates"]

SECTOR: Final = 512


@dataclass(frozen=True)
class Fates:
    """The probability of each trouble at a call. `full`: that the disk is full from that write on, for a while.
    `fails`: the name of the only file whose syncs fail; "" if those of all do."""

    write_fails: float = 0.0
    sync_fails: float = 0.0
    read_fails: float = 0.0
    full: float = 0.0
    fails: str = ""


@dataclass
class _Change:
    """A write, or (without data) a truncation; `size`: the file's length afterwards."""

    offset: int
    data: bytes
    size: int

    @property
    def is_truncation(self) -> bool:
        return not self.data


@dataclass
class _File:
    name: str
    durable: bytearray = field(default_factory=bytearray)
    size: int = 0
    changes: list[_Change] = field(default_factory=list)

    def change(self, offset: int, data: bytes) -> None:
        self.size = max(self.size, offset + len(data)) if data else offset
        self.changes.append(_Change(offset, data, self.size))

    def apply(self, until: Callable[[int], int], sizes: int) -> None:
        """Make durable what is written to each sector by the changes before `until(sector)`, and the length and the
        truncations of the first `sizes` changes; forget all others."""
        length = self.changes[sizes - 1].size if sizes else len(self.durable)
        content = self.durable
        limit = sys.maxsize
        for number, change in enumerate(self.changes):
            if change.is_truncation and number < sizes:
                del content[change.offset :]
            elif change.is_truncation:
                limit = min(limit, change.offset)
            data = change.data[: max(limit - change.offset, 0)]
            end = change.offset + len(data)
            content.extend(bytes(max(end - len(content), 0)))
            at = change.offset
            while at < end:
                following = min((at // SECTOR + 1) * SECTOR, end)
                if number < until(at // SECTOR):
                    content[at:following] = data[at - change.offset : following - change.offset]
                at = following
        del content[length:]
        content.extend(bytes(length - len(content)))
        self.changes.clear()


@dataclass
class _Handle:
    file: _File
    begins_journal: bool


class Disk:
    """A disk with one directory. `crash_at`: the number of the call at which power is lost; 0: not yet."""

    def __init__(self, place: Path, dice: random.Random) -> None:
        """Use directories in `place`, one after each restart."""
        self._place = place
        self._dice = dice
        self._starts = 0
        self._entries: dict[str, _File] = {}
        self._durable: dict[str, _File] = {}
        self._by_inode: dict[int, _File] = {}
        self._full_until = 0
        self.fates = Fates()
        self.calls = 0
        self.crash_at = 0
        self.crashed = False
        self.failed = 0
        """Calls that failed."""
        self.on_crash: Callable[[], object] = lambda: None
        self.trace: Callable[[str], object] = lambda _line: None
        self.directory = self._new_directory()

    # ---- restarts ----------------------------------------------------------------------------------------------

    def lose_power(self) -> None:
        """Start again with a state that the disk may have when power is back."""
        keep = self._dice.choice(("all", "none", "prefix", "sectors", "sectors"))
        survivors: dict[str, _File] = {}
        for name in sorted(self._entries.keys() | self._durable.keys()):
            is_lost = keep == "none" or (keep != "all" and self._dice.random() < 0.5)
            file = self._durable.get(name) if is_lost else self._entries.get(name)
            if file is not None:
                survivors[name] = file
        for file in {id(one): one for one in (*self._durable.values(), *self._entries.values())}.values():
            self._survive(file, keep)
        self._durable = dict(survivors)
        self._entries = survivors
        self._restart({name: bytes(file.durable) for name, file in survivors.items()})
        for file in survivors.values():
            file.size = len(file.durable)
        self.trace(f"power lost, {keep} kept: { {name: len(file.durable) for name, file in survivors.items()} }")

    def kill(self) -> None:
        """Start again as after the end of the process alone: the system's cache is as it was."""
        self._restart({name: (self.directory / name).read_bytes() for name in self._entries})
        self.trace("killed")

    def _restart(self, contents: dict[str, bytes]) -> None:
        shutil.rmtree(self.directory)
        self.directory = self._new_directory()
        for name, content in contents.items():
            (self.directory / name).write_bytes(content)
        self._by_inode = {(self.directory / name).stat().st_ino: file for name, file in self._entries.items()}
        self.crashed = False
        self.crash_at = 0

    def _new_directory(self) -> Path:
        self._starts += 1
        made = self._place / str(self._starts)
        made.mkdir()
        return made

    def _survive(self, file: _File, keep: str) -> None:
        dice, count = self._dice, len(file.changes)
        if keep == "all":
            file.apply(lambda _sector: count, count)
        elif keep == "none":
            file.apply(lambda _sector: 0, 0)
        elif keep == "prefix":  # the last write is torn
            kept = dice.randint(0, count)
            torn: dict[int, int] = {}
            file.apply(lambda sector: torn.setdefault(sector, max(kept - dice.randint(0, 1), 0)), kept)
        else:
            versions: dict[int, int] = {}
            file.apply(lambda sector: versions.setdefault(sector, dice.randint(0, count)), dice.randint(0, count))

    # ---- what is asked by SQLite -------------------------------------------------------------------------------

    def owns(self, path: str) -> bool:
        return path.startswith(f"{self.directory}/")

    def opened(self, path: str, *, begins_journal: bool) -> _Handle:
        return _Handle(self._entry(Path(path)), begins_journal)

    def read(self, handle: _Handle, go_on: Callable[[], int]) -> int:
        if self._dice.random() < self.fates.read_fails:
            return self._fails(f"read {handle.file.name}", sqlite_io.IOERR_READ)
        return go_on()

    def write(self, handle: _Handle, offset: int, data: bytes, write: Callable[[int], int]) -> int:
        file = handle.file
        if not self._call(f"write {file.name} {offset} {len(data)}"):
            return sqlite_io.IOERR_WRITE
        code = self._write_fault()
        written = len(data) if code is None else self._dice.randrange(len(data) // SECTOR + 1) * SECTOR
        if written:
            file.change(offset, data[:written])
            went_wrong = write(written)
            if went_wrong:
                return went_wrong
        if code is not None:
            return self._fails(
                f"write after {written}", sqlite_io.FULL if code == errno.ENOSPC else sqlite_io.IOERR_WRITE
            )
        return sqlite_io.OK

    def truncate(self, handle: _Handle, size: int, go_on: Callable[[], int]) -> int:
        if not self._call(f"truncate {handle.file.name} {size}"):
            return sqlite_io.IOERR_TRUNCATE
        if self._dice.random() < self.fates.write_fails:
            return self._fails("truncate", sqlite_io.IOERR_TRUNCATE)
        handle.file.change(size, b"")
        return go_on()

    def sync(self, handle: _Handle) -> int:
        if not self._sync(handle.file):
            return sqlite_io.IOERR_FSYNC
        if handle.begins_journal:
            handle.begins_journal = False
            self._sync_directory()
        return sqlite_io.OK

    def delete(self, path: str, go_on: Callable[[], int]) -> int:
        name = Path(path).name
        if not self._call(f"delete {name}"):
            return sqlite_io.IOERR_DELETE
        if name in self._entries and self._dice.random() < self.fates.write_fails:
            return self._fails("delete", sqlite_io.IOERR_DELETE)
        self._entries.pop(name, None)
        return go_on()

    # ---- what is asked by the store itself ---------------------------------------------------------------------

    @contextmanager
    def mounted(self, *, reads: bool = False) -> Iterator[None]:
        """Stand between SQLite and the store on one side and the system on the other until the block ends."""
        calls = {
            "open": self._os_open,
            "pwrite": self._os_pwrite,
            "pwritev": self._os_pwritev,
            "pread": self._os_pread,
            "ftruncate": self._os_ftruncate,
            "unlink": self._os_unlink,
            "fsync": self._os_sync,
            "fdatasync": self._os_sync,
            "posix_fallocate": self._os_fallocate,
        }
        self._os: dict[str, Any] = {name: getattr(os, name) for name in calls}
        with sqlite_io.watched(self, self._dice, reads=reads):
            for name, call in calls.items():
                setattr(os, name, call)
            try:
                yield
            finally:
                for name, call in self._os.items():
                    setattr(os, name, call)

    def _os_open(self, path: Any, flags: int, *more: Any, **named: Any) -> int:
        file: int = self._os["open"](path, flags, *more, **named)
        if flags & os.O_CREAT and self.owns(str(path)):
            self._entry(Path(path))
        return file

    def _os_pwrite(self, number: int, data: bytes, offset: int) -> int:
        file = self._by_inode.get(os.fstat(number).st_ino)
        if file is not None:
            if not self._call(f"pwrite {file.name} {offset} {len(data)}"):
                raise OSError(errno.EIO, "Input/output error")
            code = self._write_fault()
            if code is not None:
                part = data[: self._dice.randrange(len(data) // SECTOR + 1) * SECTOR]
                if part:
                    file.change(offset, part)
                    self._os["pwrite"](number, part, offset)
                self._fails(f"pwrite after {len(part)}", code)
                raise OSError(code, os.strerror(code))
            file.change(offset, data)
        written: int = self._os["pwrite"](number, data, offset)
        return written

    def _os_pwritev(self, number: int, pieces: Any, offset: int) -> int:
        return self._os_pwrite(number, b"".join(pieces), offset)

    def _os_pread(self, number: int, size: int, offset: int) -> bytes:
        is_ours = self.fates.read_fails and os.fstat(number).st_ino in self._by_inode
        if is_ours and self._dice.random() < self.fates.read_fails:
            self._fails("pread", errno.EIO)
            raise OSError(errno.EIO, "Input/output error")
        data: bytes = self._os["pread"](number, size, offset)
        return data

    def _os_ftruncate(self, number: int, size: int) -> None:
        file = self._by_inode.get(os.fstat(number).st_ino)
        if file is not None:
            if not self._call(f"ftruncate {file.name} {size}"):
                raise OSError(errno.EIO, "Input/output error")
            file.change(size, b"")
        self._os["ftruncate"](number, size)

    def _os_unlink(self, path: Any, **named: Any) -> None:
        if not named and self.owns(str(path)):
            if not self._call(f"unlink {Path(path).name}"):
                raise OSError(errno.EIO, "Input/output error")
            self._entries.pop(Path(path).name, None)
        self._os["unlink"](path, **named)

    def _os_sync(self, number: int) -> None:
        status = os.fstat(number)
        file = self._by_inode.get(status.st_ino)
        if file is not None:
            synced = self._sync(file)
        elif status.st_ino == self.directory.stat().st_ino:
            synced = self._sync_directory()
        else:
            synced = True  # a directory above, which was there before
        if not synced:
            raise OSError(errno.EIO, "Input/output error")

    def _os_fallocate(self, number: int, offset: int, size: int) -> None:
        if self.calls < self._full_until:
            self.calls += 1  # or it would be full for ever
            raise OSError(errno.ENOSPC, "No space left on device")
        self._os["posix_fallocate"](number, offset, min(size, SECTOR))

    # ---- inside ------------------------------------------------------------------------------------------------

    def _entry(self, path: Path) -> _File:
        if path.name not in self._entries:
            self._entries[path.name] = _File(path.name)
            self.trace(f"create {path.name}")
        file = self._entries[path.name]
        self._by_inode[path.stat().st_ino] = file
        return file

    def _call(self, line: str) -> bool:
        """Count a call; return False if power is lost, now or before."""
        if not self.crashed:
            self.calls += 1
            self.trace(f"{self.calls} {line}")
            if self.calls == self.crash_at:
                self.crash()
        return not self.crashed

    def crash(self) -> None:
        """Fail all calls from now on, until `lose_power` or `kill`."""
        self.crashed = True
        self.on_crash()

    def _fails(self, line: str, code: int) -> int:
        self.failed += 1
        self.trace(f"{line} fails with {code}")
        return code

    def _write_fault(self) -> int | None:
        if self._dice.random() < self.fates.full:
            self._full_until = self.calls + self._dice.randint(1, 30)
        if self.calls < self._full_until:
            return errno.ENOSPC
        return errno.EIO if self._dice.random() < self.fates.write_fails else None

    def _sync(self, file: _File) -> bool:
        if not self._call(f"sync {file.name} {len(file.changes)}"):
            return False
        count = len(file.changes)
        if self.fates.fails in ("", file.name) and self._dice.random() < self.fates.sync_fails:
            self._fails(f"sync {file.name}", errno.EIO)
            self._survive(file, self._dice.choice(("none", "sectors")))
            return False
        file.apply(lambda _sector: count, count)
        return True

    def _sync_directory(self) -> bool:
        if not self._call("sync directory"):
            return False
        if self._dice.random() < self.fates.sync_fails:
            self._fails("sync directory", errno.EIO)
            return False
        self._durable = dict(self._entries)
        return True
