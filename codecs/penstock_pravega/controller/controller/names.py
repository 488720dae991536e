"""Pravega's rules for legal names, and its internal streams (segment fact sheet, 1.1 and 3.2)."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["KEY_VALUE_TABLE_SUFFIX", "READER_GROUP_PREFIX", "is_internal", "is_scope", "is_stream"]

READER_GROUP_PREFIX: Final = "_RG"
"""`_RG<group>` holds the state that the readers of a Java client's group share."""

KEY_VALUE_TABLE_SUFFIX: Final = "_kvtable"
"""`<table>_kvtable` stands for the stream in the names of the segments of a key-value table."""

_MAX_SCOPE: Final = 255
_MAX_STREAM: Final = 250
_NAME: Final = re.compile(r"[A-Za-z0-9.-]+")
_DOTS: Final = frozenset({".", ".."})


def is_internal(name: str) -> bool:
    """Return whether a stream of this name is internal to clients, and hidden from other protocols."""
    return name.startswith("_")


def is_scope(name: str) -> bool:
    """Return whether clients can give a scope this name."""
    return _is_name(name) and len(name) <= _MAX_SCOPE


def is_stream(name: str) -> bool:
    """Return whether clients can give a stream, a reader group or a key-value table this name."""
    return _is_name(name) and len(name) <= _MAX_STREAM


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name not in _DOTS
