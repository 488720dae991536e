"""What Pravega calls a legal name, and the streams that it keeps for itself (segment fact sheet, 1.1 and 3.2)."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MARK_PREFIX", "READER_GROUP_PREFIX", "is_scope", "is_stream"]

MARK_PREFIX: Final = "_MARK"
"""`_MARK<stream>` has the watermarks of a stream; readers of the Java client ask for it."""
READER_GROUP_PREFIX: Final = "_RG"
"""`_RG<group>` has the state that the readers of a Java client's group share."""

_MAX_SCOPE: Final = 255
_MAX_STREAM: Final = 250
_NAME: Final = re.compile(r"[A-Za-z0-9.-]+")
_DOTS: Final = frozenset({".", ".."})


def is_scope(name: str) -> bool:
    """Whether clients can have a scope of this name."""
    return _is_name(name) and len(name) <= _MAX_SCOPE


def is_stream(name: str) -> bool:
    """Whether clients can have a stream, a reader group or a key-value table of this name."""
    return _is_name(name) and len(name) <= _MAX_STREAM


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name not in _DOTS
