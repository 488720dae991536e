"""Names of basins and streams (S2 fact sheet, 1.4).

A bad name is a different error depending on its place, so every validation takes `where`, the code of the failure that
it raises as OperationFailed.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.model.failures import FailureCode, fail
from penstock.model.limits import MAX_BASIN_NAME_BYTES, MAX_STREAM_NAME_BYTES, MIN_BASIN_NAME_BYTES

__all__ = ["utf8_length", "validate_basin_name", "validate_stream_name"]

_BASIN: Final = re.compile(r"[a-z0-9][a-z0-9-]*[a-z0-9]")
_RESERVED_STREAM_NAMES: Final = {".", ".."}


def validate_basin_name(name: str, where: FailureCode) -> str:
    """Return `name` if it is a valid basin name: 8 to 48 characters of `a-z 0-9 -`, first and last not a hyphen."""
    if not MIN_BASIN_NAME_BYTES <= len(name) <= MAX_BASIN_NAME_BYTES:
        reason = f"basin name must be {MIN_BASIN_NAME_BYTES} to {MAX_BASIN_NAME_BYTES} characters, not {len(name)}"
    elif not _BASIN.fullmatch(name):
        reason = "basin name must comprise lowercase letters, numbers and hyphens, and not begin or end with a hyphen"
    else:
        return name
    raise fail(where, reason)


def validate_stream_name(name: str, where: FailureCode) -> str:
    """Return `name` if it is a valid stream name: 1 to 512 bytes of UTF-8, no NUL, not `.` or `..`."""
    size = utf8_length(name)
    if size is None:
        reason = "stream name must be valid Unicode"
    elif not 1 <= size <= MAX_STREAM_NAME_BYTES:
        reason = f"stream name must be 1 to {MAX_STREAM_NAME_BYTES} bytes, not {size}"
    elif "\0" in name:
        reason = "stream name must not contain NUL"
    elif name in _RESERVED_STREAM_NAMES:
        reason = f"stream name must not be `{name}`"
    else:
        return name
    raise fail(where, reason)


def utf8_length(text: str) -> int | None:
    """Return the bytes of a text in UTF-8; None if it has lone surrogates."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None
