"""Failures over HTTP: a status and a JSON body, as in the S2 API (S2 fact sheet, section 6).

The same body serves unary answers, S2S terminal frames and SSE `error` events. Most failures are `{"code", "message"}`;
the two failed conditions (412) and an unsatisfiable range (416) have shapes of their own.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.model.failures import Failure, FailureCode
from penstock.model.records import StreamPosition

__all__ = ["SPELLING", "STATUS", "failure_to_body", "failure_to_http"]

_C = FailureCode

STATUS: Final[dict[FailureCode, int]] = {
    _C.BAD_FRAME: 400,
    _C.BAD_HEADER: 400,
    _C.BAD_JSON: 400,
    _C.BAD_PATH: 400,
    _C.BAD_PROTO: 400,
    _C.BAD_QUERY: 400,
    _C.DECRYPTION_FAILED: 400,
    _C.ENCRYPTION_KEY: 400,
    _C.AUTHN: 401,
    _C.PERMISSION_DENIED: 403,
    _C.QUOTA_EXHAUSTED: 403,
    _C.ACCESS_TOKEN_NOT_FOUND: 404,
    _C.BASIN_NOT_FOUND: 404,
    _C.STREAM_NOT_FOUND: 404,
    _C.REQUEST_TIMEOUT: 408,
    _C.TRANSACTION_CONFLICT: 409,
    _C.BASIN_DELETION_PENDING: 409,
    _C.STREAM_DELETION_PENDING: 409,
    _C.RESOURCE_ALREADY_EXISTS: 409,
    _C.SEQ_NUM_MISMATCH: 412,
    _C.FENCING_TOKEN_MISMATCH: 412,
    _C.RANGE_NOT_SATISFIABLE: 416,
    _C.INVALID: 422,
    _C.RATE_LIMITED: 429,
    _C.CLIENT_HANGUP: 499,
    _C.OTHER: 500,
    _C.DAMAGED: 500,
    _C.STORAGE: 500,
    _C.NOT_IMPLEMENTED: 501,
    _C.HOT_SERVER: 502,
    _C.SERVER_DRAINING: 503,
    _C.UNAVAILABLE: 503,
    _C.UPSTREAM_TIMEOUT: 504,
    _C.UPSTREAM_FAULT: 502,
    # Failures of other protocols for which S2 has no code: well formed, understood, and impossible.
    _C.BAD_FORMAT: 422,
    _C.LIMIT_EXCEEDED: 422,
    _C.NON_MONOTONIC_TIMESTAMP: 422,
    _C.NOT_REPRESENTABLE: 422,
    _C.STREAM_SEALED: 422,
    _C.OFFSET_MISMATCH: 422,
    _C.OFFSET_TRUNCATED: 422,
    _C.STALE_WRITER_POSITION: 422,
    _C.TABLE_KEY_VERSION: 422,
    _C.TABLE_KEY_NOT_FOUND: 422,
    _C.TABLE_NOT_EMPTY: 422,
}
"""HTTP status by code."""

SPELLING: Final[dict[FailureCode, str]] = {
    code: "invalid" if status == 422 else code.value for code, status in STATUS.items()
} | {_C.ENCRYPTION_KEY: _C.BAD_HEADER.value}  # S2 presents keys in a header
"""The code in the body by code."""

_encode: Final = msgspec.json.Encoder().encode
_OWN_SHAPE: Final[dict[FailureCode, str]] = {
    _C.SEQ_NUM_MISMATCH: "seq_num_mismatch",
    _C.FENCING_TOKEN_MISMATCH: "fencing_token_mismatch",
    _C.RANGE_NOT_SATISFIABLE: "tail",
}


def failure_to_http(failure: Failure) -> tuple[int, bytes]:
    """Return the HTTP status and the JSON body for `failure`.

    412 and 416 take their bodies from `failure.details` (`seq_num_mismatch`, `fencing_token_mismatch`, `tail` as a
    StreamPosition or a mapping); without details they fall back to `{"code", "message"}`.
    """
    return STATUS[failure.code], failure_to_body(failure)


def failure_to_body(failure: Failure) -> bytes:
    """Return the JSON body alone, as SSE `error` events carry it (S2 fact sheet, section 3)."""
    detail = _OWN_SHAPE.get(failure.code)
    if detail is not None and detail in failure.details:
        value = failure.details[detail]
        return _encode({detail: value._asdict() if isinstance(value, StreamPosition) else value})
    # A lone surrogate (from a name that was never UTF-8) must not turn an error into a crash.
    message = failure.message.encode("utf-8", "replace").decode()
    return _encode({"code": SPELLING[failure.code], "message": message})
