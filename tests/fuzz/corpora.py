"""The targets, and the inputs that are kept for each: `corpus/NAME.zip`, whose entries are named by their content.

A target is a module of `targets`. Its function `check(data)` raises for bytes that break a property; `seeds()` yields
inputs to begin with; `WORDS` (optional) are pieces of which inputs are made.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final

import fuzz.targets

__all__ = ["FOLDER", "content_name", "read_corpus", "target_named", "targets", "write_corpus"]

FOLDER: Final = Path(__file__).with_name("corpus")


def targets() -> list[str]:
    """Return the names of all targets, in alphabetical order."""
    return sorted(module.name for module in iter_modules(fuzz.targets.__path__))


def target_named(name: str) -> Any:
    """Return a target's module."""
    return import_module(f"fuzz.targets.{name}")


def content_name(data: bytes) -> str:
    """Return the name of an input."""
    return hashlib.sha256(data).hexdigest()[:12]


def read_corpus(name: str) -> list[bytes]:
    """Return the inputs that are kept for a target, without its seeds; none if it has no archive."""
    path = FOLDER / f"{name}.zip"
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as archive:
        return [archive.read(entry) for entry in archive.namelist()]


def write_corpus(name: str, inputs: Iterable[bytes]) -> int:
    """Keep these inputs for a target, and no others; the same ones give the same file. Return the file's size."""
    path = FOLDER / f"{name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for key, data in sorted((content_name(data), data) for data in inputs):
            archive.writestr(zipfile.ZipInfo(key), data, zipfile.ZIP_LZMA)
    return path.stat().st_size
