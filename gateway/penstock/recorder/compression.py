"""Compress closed capture files. At every moment a whole file exists, plain or compressed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import zstandard

from penstock.model.limits import MIB
from penstock.recorder.naming import PARTIAL, SQUEEZED, make_private

__all__ = ["Interrupted", "squeeze"]

_STEP_BYTES: Final = 1 * MIB
"""Bytes per step, which takes 2 to 5 ms; Python's lock is held for about 20 us of it."""
_LEVEL: Final = 3


class Interrupted(Exception):
    """Compression was stopped; the plain file is unchanged."""


def squeeze(path: Path, held: int, *, sync: bool, stop: Callable[[], bool]) -> None:
    """Replace a closed `.pcapng` file with its `.pcapng.zst`. `held`: its descriptor, at its beginning.

    `sync`: flush the compressed file to the disk before the plain one is deleted. `stop` is called every few ms. Raises
    Interrupted if it returns true, and OSError, for a full disk for example; then only the plain file remains.
    """
    squeezed = path.with_suffix(SQUEEZED)
    partial = path.with_name(f".{squeezed.name}{PARTIAL}")
    partial.unlink(missing_ok=True)
    target = make_private(partial)
    try:
        try:
            _copy(held, target, stop)
            if sync:
                os.fsync(target)
        finally:
            os.close(target)
        partial.replace(squeezed)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if sync:
        _sync_directory(path.parent)
    path.unlink(missing_ok=True)


def _copy(source: int, target: int, stop: Callable[[], bool]) -> None:
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj()
    while data := os.read(source, _STEP_BYTES):
        if stop():
            raise Interrupted
        _write(target, compressor.compress(data))
    _write(target, compressor.flush())


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def _sync_directory(directory: Path) -> None:
    held = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(held)
    finally:
        os.close(held)
