"""Failures as answers of Durable Streams: the status that the protocol gives each (section 5), and a body in JSON.

The protocol leaves the bodies of errors open; ours name a code and the reason.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.model.failures import Failure, FailureCode

__all__ = ["failure_to_status", "spell_failure"]

_STATUS: Final[dict[FailureCode, int]] = {
    FailureCode.BAD_HEADER: 400,
    FailureCode.BAD_JSON: 400,
    FailureCode.BAD_PATH: 400,
    FailureCode.BAD_QUERY: 400,
    FailureCode.INVALID: 400,
    FailureCode.RANGE_NOT_SATISFIABLE: 400,
    FailureCode.AUTHN: 401,
    FailureCode.PERMISSION_DENIED: 403,
    FailureCode.QUOTA_EXHAUSTED: 403,
    FailureCode.BASIN_NOT_FOUND: 404,
    FailureCode.STREAM_NOT_FOUND: 404,
    FailureCode.REQUEST_TIMEOUT: 408,
    FailureCode.STREAM_SEALED: 409,
    FailureCode.STALE_WRITER_POSITION: 409,
    FailureCode.RESOURCE_ALREADY_EXISTS: 409,
    FailureCode.TRANSACTION_CONFLICT: 409,
    FailureCode.BASIN_DELETION_PENDING: 409,
    FailureCode.FENCING_TOKEN_MISMATCH: 409,
    FailureCode.STREAM_DELETION_PENDING: 410,
    FailureCode.OFFSET_TRUNCATED: 410,
    FailureCode.LIMIT_EXCEEDED: 413,
    FailureCode.NOT_REPRESENTABLE: 422,
    FailureCode.ENCRYPTION_KEY: 422,
    FailureCode.DECRYPTION_FAILED: 422,
    FailureCode.RATE_LIMITED: 429,
    FailureCode.NOT_IMPLEMENTED: 501,
    FailureCode.UPSTREAM_FAULT: 502,
    FailureCode.HOT_SERVER: 503,
    FailureCode.SERVER_DRAINING: 503,
    FailureCode.UNAVAILABLE: 503,
    FailureCode.UPSTREAM_TIMEOUT: 504,
}
"""Statuses by code; 500 for the others."""


def failure_to_status(failure: Failure) -> int:
    """Return the HTTP status of a failure."""
    return _STATUS.get(failure.code, 500)


def spell_failure(failure: Failure) -> bytes:
    """Return the body of the answer."""
    return msgspec.json.encode({"error": {"code": failure.code.value, "message": failure.message}})
