"""Tokens of the S2 API, and the path segments that carry names (S2 fact sheet, 1.1 and 1.4).

A bad token is a different error depending on its place, so every validation takes `where`: BAD_HEADER, BAD_QUERY or
BAD_JSON (INVALID for protobuf). All raise OperationFailed with that code.
"""

from __future__ import annotations

from urllib.parse import quote, unquote_to_bytes

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.model.limits import MAX_FENCING_TOKEN_BYTES
from penstock.model.names import utf8_length
from penstock_s2.codec.limits import S2_MAX_REQUEST_TOKEN

__all__ = [
    "decode_path_segment",
    "encode_path_segment",
    "invalid_header",
    "validate_fencing_token",
    "validate_request_token",
]


def invalid_header(name: str, reason: str) -> OperationFailed:
    """Return BAD_HEADER in the S2 API's words (fact sheet, section 6)."""
    return fail(FailureCode.BAD_HEADER, f"Invalid header `{name}`: {reason}")


def validate_fencing_token(token: str, where: FailureCode) -> str:
    """Return `token` if it is a valid fencing token: up to 36 bytes of UTF-8; the empty one is a real value."""
    return _validate_token(token, "fencing token", MAX_FENCING_TOKEN_BYTES, where, "s2-fencing-token")


def validate_request_token(token: str, where: FailureCode = FailureCode.BAD_HEADER) -> str:
    """Return `token` if it is a valid request token: up to 36 bytes of UTF-8."""
    return _validate_token(token, "request token", S2_MAX_REQUEST_TOKEN, where, "s2-request-token")


def _validate_token(token: str, what: str, limit: int, where: FailureCode, header: str) -> str:
    size = utf8_length(token)
    if size is None:
        raise _refusal(where, header, f"{what} must be valid Unicode")
    if size > limit:
        raise _refusal(where, header, f"{what} must not exceed {limit} bytes, not {size}")
    return token


def _refusal(where: FailureCode, header: str, reason: str) -> OperationFailed:
    return invalid_header(header, reason) if where is FailureCode.BAD_HEADER else fail(where, reason)


# ---- path segments -------------------------------------------------------------------------------------------


def decode_path_segment(segment: str) -> str:
    """Return one percent-decoded path segment.

    Raw bytes above 127 (possible in HTTP/2, as latin-1 text) count as UTF-8. A `%` that is not followed by two
    hexadecimal digits stands for itself, as in S2. Raises BAD_PATH for invalid UTF-8.
    """
    if segment.isascii() and "%" not in segment:
        return segment
    try:
        return unquote_to_bytes(segment.encode("latin-1")).decode()
    except UnicodeError:
        raise fail(FailureCode.BAD_PATH, "path segment is not valid UTF-8 after percent-decoding") from None


def encode_path_segment(name: str) -> str:
    """Return `name` as one path segment: everything but unreserved characters (RFC 3986, 2.3) is percent-encoded."""
    return quote(name, safe="")
