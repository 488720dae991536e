"""One process per store: an advisory lock on a file beside the database."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.core.errors import CannotStart

__all__ = ["LOCK_FILE", "is_locked", "locked"]

LOCK_FILE: Final = "penstock.lock"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock the directory, which is created if missing, until the block ends; the kernel unlocks it if the process dies.

    Raises CannotStart if another process holds the lock, or the directory cannot be created or written.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CannotStart(f"cannot use the data directory {directory}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotStart(f"the data directory {directory} is in use by another gateway") from None
        except OSError as error:  # a network file system, perhaps
            raise CannotStart(f"cannot lock the data directory {directory}: {error.strerror}") from error
        yield
    finally:
        os.close(held)


def is_locked(directory: Path) -> bool:
    """Return whether a gateway uses the directory."""
    try:
        file = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
