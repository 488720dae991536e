"""SQLite's writes, truncations, syncs and deletions, handed to a disk of Python before the system sees them.

The library that Python's module `sqlite3` uses is asked for its default VFS. A copy of that, with other functions to
open and delete files, becomes the default; a file that it opens for the disk gets a copy of the system's methods, with
other functions to write, truncate, sync and (for faults) read. Locks, shared memory and reads stay SQLite's own. So the
gateway opens its store as always, by the module and the library with which it is served.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

__all__ = ["FULL", "IOERR_DELETE", "IOERR_FSYNC", "IOERR_READ", "IOERR_TRUNCATE", "IOERR_WRITE", "OK", "Io", "watched"]

OK: Final = 0
FULL: Final = 13
_IOERR: Final = 10
IOERR_READ: Final = _IOERR | 1 << 8
IOERR_WRITE: Final = _IOERR | 3 << 8
IOERR_FSYNC: Final = _IOERR | 4 << 8
IOERR_TRUNCATE: Final = _IOERR | 6 << 8
IOERR_DELETE: Final = _IOERR | 10 << 8
_CREATE, _MAIN_JOURNAL, _WAL = 0x4, 0x800, 0x80000


class Io(Protocol):
    """A disk that is asked before SQLite uses it.

    Each method but the first two calls `go_on`, or not, and returns SQLite's code. `begins_journal`: SQLite syncs the
    directory with the first sync of such a file, and ignores a failure.
    """

    def owns(self, path: str) -> bool: ...
    def opened(self, path: str, *, begins_journal: bool) -> Any:
        """Return the file, which is given to the methods below."""

    def read(self, file: Any, go_on: Callable[[], int]) -> int: ...
    def write(self, file: Any, offset: int, data: bytes, write: Callable[[int], int]) -> int:
        """`write(n)` writes the first n bytes."""

    def truncate(self, file: Any, size: int, go_on: Callable[[], int]) -> int: ...
    def sync(self, file: Any) -> int: ...
    def delete(self, path: str, go_on: Callable[[], int]) -> int: ...


_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_OPEN = ctypes.CFUNCTYPE(_I, _P, _P, _P, _I, _P)
_DELETE = ctypes.CFUNCTYPE(_I, _P, _P, _I)
_RANDOM = ctypes.CFUNCTYPE(_I, _P, _I, _P)
_SLEEP = ctypes.CFUNCTYPE(_I, _P, _I)
_READ = ctypes.CFUNCTYPE(_I, _P, _P, _I, _L)
_TRUNCATE = ctypes.CFUNCTYPE(_I, _P, _L)
_SYNC = ctypes.CFUNCTYPE(_I, _P, _I)


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`, version 3."""

    _fields_ = (
        ("version", _I),
        ("file_bytes", _I),
        ("path_bytes", _I),
        ("next", _P),
        ("name", ctypes.c_char_p),
        ("data", _P),
        *((name, _P) for name in ("open", "delete", "access", "full_path")),
        *((name, _P) for name in ("dl_open", "dl_error", "dl_sym", "dl_close")),
        *((name, _P) for name in ("randomness", "sleep", "time", "last_error", "time_ms")),
        *((name, _P) for name in ("set_call", "get_call", "next_call")),
    )


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`, version 3."""

    _fields_ = (
        ("version", _I),
        *((name, _P) for name in ("close", "read", "write", "truncate", "sync", "size")),
        *((name, _P) for name in ("lock", "unlock", "check_lock", "control", "sector_bytes", "traits")),
        *((name, _P) for name in ("shm_map", "shm_lock", "shm_barrier", "shm_unmap", "fetch", "unfetch")),
    )


def _address(function: Any) -> int | None:
    return ctypes.cast(function, _P).value


@contextmanager
def watched(disk: Io, dice: random.Random, *, reads: bool = False) -> Iterator[None]:
    """Ask `disk` about the files that it owns until the block ends. `dice`: SQLite's source of random numbers.

    `reads`: it is asked about reads too, which makes them slower. SQLite never sleeps in the block.
    """
    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    library.sqlite3_vfs_register.argtypes = (_P, _I)
    system = library.sqlite3_vfs_find(None)
    vfs = _Vfs.from_buffer_copy(system.contents)
    vfs.name = b"simulated"
    methods: dict[int, _Methods] = {}
    files: dict[int, Any] = {}
    kept: list[Any] = []
    system_open, system_delete = _OPEN(system.contents.open), _DELETE(system.contents.delete)

    def patched(table: int) -> _Methods:
        """Return a copy of a table of methods that asks the disk first."""
        ours = methods[table] = _Methods.from_address(table).__class__.from_buffer_copy(_Methods.from_address(table))
        system_read, system_write = _READ(ours.read), _READ(ours.write)
        system_truncate = _TRUNCATE(ours.truncate)

        def read(file: int, into: int, size: int, at: int) -> int:
            return disk.read(files[file], lambda: system_read(file, into, size, at))

        def write(file: int, data: int, size: int, at: int) -> int:
            return disk.write(files[file], at, ctypes.string_at(data, size), lambda n: system_write(file, data, n, at))

        def truncate(file: int, size: int) -> int:
            return disk.truncate(files[file], size, lambda: system_truncate(file, size))

        def sync(file: int, _flags: int) -> int:
            return disk.sync(files[file])

        functions = {"write": _READ(write), "truncate": _TRUNCATE(truncate), "sync": _SYNC(sync)}
        if reads:
            functions["read"] = _READ(read)
        for name, function in functions.items():
            setattr(ours, name, _address(function))
        kept.append(functions)
        return ours

    def open_file(_vfs: int, name: int | None, file: int, flags: int, out: int | None) -> int:
        code = system_open(ctypes.addressof(system.contents), name, file, flags, out)
        path = ctypes.string_at(name).decode() if name else ""
        if code == OK and disk.owns(path):
            begins = bool(flags & _CREATE and flags & (_MAIN_JOURNAL | _WAL))
            files[file] = disk.opened(path, begins_journal=begins)
            table = _P.from_address(file)
            assert table.value is not None
            table.value = ctypes.addressof(methods.get(table.value) or patched(table.value))
        return code

    def delete(_vfs: int, name: int, _sync_directory: int) -> int:
        path = ctypes.string_at(name).decode()

        def go_on() -> int:
            return system_delete(ctypes.addressof(system.contents), name, 0)

        return disk.delete(path, go_on) if disk.owns(path) else go_on()

    def randomness(_vfs: int, size: int, into: int) -> int:
        ctypes.memmove(into, dice.randbytes(size), size)
        return size

    def sleep(_vfs: int, microseconds: int) -> int:
        return microseconds

    callbacks = {"open": _OPEN(open_file), "delete": _DELETE(delete)}
    callbacks |= {"randomness": _RANDOM(randomness), "sleep": _SLEEP(sleep)}
    for name, function in callbacks.items():
        setattr(vfs, name, _address(function))
    library.sqlite3_vfs_register(ctypes.byref(vfs), 1)
    library.sqlite3_randomness(0, None)  # it asks the VFS for a new seed
    try:
        yield
    finally:
        library.sqlite3_vfs_unregister(ctypes.byref(vfs))
        library.sqlite3_vfs_register(system, 1)
        library.sqlite3_randomness(0, None)
