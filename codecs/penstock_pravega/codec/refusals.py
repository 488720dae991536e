"""Refusing replies, and the failures that they report (segment fact sheet, 1.3; section 2, reading 13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.model.failures import Failure, FailureCode
from penstock_pravega.codec import draft, released

__all__ = ["REFUSALS", "refusal"]

_ILLEGAL_ARGUMENT: Final = 0

_CODES: Final[Mapping[type, FailureCode]] = {
    released.WrongHost: FailureCode.HOT_SERVER,
    draft.WrongHost: FailureCode.HOT_SERVER,
    released.SegmentIsSealed: FailureCode.STREAM_SEALED,
    draft.SegmentIsSealed: FailureCode.STREAM_SEALED,
    released.SegmentAlreadyExists: FailureCode.RESOURCE_ALREADY_EXISTS,
    released.NoSuchSegment: FailureCode.STREAM_NOT_FOUND,
    draft.NoSuchSegment: FailureCode.STREAM_NOT_FOUND,
    released.SegmentIsTruncated: FailureCode.OFFSET_TRUNCATED,
    released.OperationUnsupported: FailureCode.NOT_IMPLEMENTED,
    released.AuthTokenCheckFailed: FailureCode.PERMISSION_DENIED,
    released.TableSegmentNotEmpty: FailureCode.TABLE_NOT_EMPTY,
    released.TableKeyDoesNotExist: FailureCode.TABLE_KEY_NOT_FOUND,
    released.TableKeyBadVersion: FailureCode.TABLE_KEY_VERSION,
}
REFUSALS: Final = (released.ErrorMessage, *_CODES)
"""All refusing replies."""
_TEXTS: Final[Mapping[FailureCode, str]] = {
    FailureCode.STREAM_SEALED: "is sealed",
    FailureCode.RESOURCE_ALREADY_EXISTS: "already exists",
    FailureCode.STREAM_NOT_FOUND: "does not exist",
    FailureCode.PERMISSION_DENIED: "is not accessible with this delegation token",
    FailureCode.TABLE_NOT_EMPTY: "is a table that is not empty",
    FailureCode.TABLE_KEY_NOT_FOUND: "is a table that lacks a key whose version was expected",
    FailureCode.TABLE_KEY_VERSION: "is a table that has another version of a key than expected",
}


def refusal(reply: Any, server: str, segment: str) -> Failure | None:
    """Return the failure that a reply reports, or None. Messages name the server and the segment."""
    where = f"{server}: segment {segment}"
    if isinstance(reply, released.ErrorMessage):
        code = FailureCode.INVALID if reply.error_code == _ILLEGAL_ARGUMENT else FailureCode.OTHER
        return Failure(code, f"{where}: {reply.message:.200}")
    code_of = _CODES.get(type(reply))
    if code_of is None:
        return None
    if isinstance(reply, released.SegmentIsTruncated):
        message = f"{where} begins at offset {reply.start_offset}"
        return Failure(code_of, message, {"offset": reply.start_offset})
    if isinstance(reply, released.WrongHost | draft.WrongHost):
        return Failure(code_of, f"{where} is served by {reply.correct_host or 'another store'}")
    if isinstance(reply, released.OperationUnsupported):
        return Failure(code_of, f"{where}: the store does not support {reply.operation}")
    return Failure(code_of, f"{where} {_TEXTS[code_of]}")
