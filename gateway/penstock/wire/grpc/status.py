"""Status codes, the trailers that carry them, and the status of each failure."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from penstock.model.failures import Failure, FailureCode

__all__ = ["Code", "GrpcError", "error_of", "status_fields"]

_LONGEST_MESSAGE: Final = 500
"""Most characters of a status message. Each may take 12 bytes, and clients may refuse more than 8 KiB of trailers."""


class Code(IntEnum):
    """The status codes of gRPC that Penstock uses; the value is the number on the wire."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcError(Exception):
    """A call ends with this status; clients are sent the first 500 characters of `message`."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message


# Pravega's clients give up at once only on INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, OUT_OF_RANGE
# and UNIMPLEMENTED; anything else they retry for minutes (segment fact sheet 3.1). So failures that a retry cannot mend
# become one of these, even if gRPC has a nearer code: UNAUTHENTICATED, FAILED_PRECONDITION.
_CODES: Final[dict[FailureCode, Code]] = {
    FailureCode.BAD_FRAME: Code.INVALID_ARGUMENT,
    FailureCode.BAD_HEADER: Code.INVALID_ARGUMENT,
    FailureCode.ENCRYPTION_KEY: Code.INVALID_ARGUMENT,
    FailureCode.DECRYPTION_FAILED: Code.INVALID_ARGUMENT,
    FailureCode.BAD_JSON: Code.INVALID_ARGUMENT,
    FailureCode.BAD_PATH: Code.INVALID_ARGUMENT,
    FailureCode.BAD_PROTO: Code.INVALID_ARGUMENT,
    FailureCode.BAD_QUERY: Code.INVALID_ARGUMENT,
    FailureCode.BAD_FORMAT: Code.INVALID_ARGUMENT,
    FailureCode.LIMIT_EXCEEDED: Code.INVALID_ARGUMENT,
    FailureCode.AUTHN: Code.PERMISSION_DENIED,
    FailureCode.PERMISSION_DENIED: Code.PERMISSION_DENIED,
    FailureCode.QUOTA_EXHAUSTED: Code.RESOURCE_EXHAUSTED,
    FailureCode.ACCESS_TOKEN_NOT_FOUND: Code.NOT_FOUND,
    FailureCode.BASIN_NOT_FOUND: Code.NOT_FOUND,
    FailureCode.STREAM_NOT_FOUND: Code.NOT_FOUND,
    FailureCode.REQUEST_TIMEOUT: Code.DEADLINE_EXCEEDED,
    FailureCode.TRANSACTION_CONFLICT: Code.ABORTED,
    FailureCode.BASIN_DELETION_PENDING: Code.ALREADY_EXISTS,
    FailureCode.STREAM_DELETION_PENDING: Code.ALREADY_EXISTS,
    FailureCode.RESOURCE_ALREADY_EXISTS: Code.ALREADY_EXISTS,
    FailureCode.SEQ_NUM_MISMATCH: Code.INVALID_ARGUMENT,
    FailureCode.FENCING_TOKEN_MISMATCH: Code.INVALID_ARGUMENT,
    FailureCode.NON_MONOTONIC_TIMESTAMP: Code.INVALID_ARGUMENT,
    FailureCode.RANGE_NOT_SATISFIABLE: Code.OUT_OF_RANGE,
    FailureCode.INVALID: Code.INVALID_ARGUMENT,
    FailureCode.STREAM_SEALED: Code.INVALID_ARGUMENT,
    FailureCode.OFFSET_MISMATCH: Code.INVALID_ARGUMENT,
    FailureCode.OFFSET_TRUNCATED: Code.OUT_OF_RANGE,
    FailureCode.STALE_WRITER_POSITION: Code.INVALID_ARGUMENT,
    FailureCode.TABLE_KEY_VERSION: Code.INVALID_ARGUMENT,
    FailureCode.TABLE_KEY_NOT_FOUND: Code.NOT_FOUND,
    FailureCode.TABLE_NOT_EMPTY: Code.INVALID_ARGUMENT,
    FailureCode.NOT_REPRESENTABLE: Code.INVALID_ARGUMENT,
    FailureCode.RATE_LIMITED: Code.RESOURCE_EXHAUSTED,
    FailureCode.CLIENT_HANGUP: Code.CANCELLED,
    FailureCode.OTHER: Code.INTERNAL,
    FailureCode.STORAGE: Code.INTERNAL,
    FailureCode.DAMAGED: Code.DATA_LOSS,
    FailureCode.NOT_IMPLEMENTED: Code.UNIMPLEMENTED,
    FailureCode.HOT_SERVER: Code.UNAVAILABLE,
    FailureCode.SERVER_DRAINING: Code.UNAVAILABLE,
    FailureCode.UNAVAILABLE: Code.UNAVAILABLE,
    FailureCode.UPSTREAM_TIMEOUT: Code.DEADLINE_EXCEEDED,
    FailureCode.UPSTREAM_FAULT: Code.INTERNAL,
}


def error_of(failure: Failure) -> GrpcError:
    """Return the status for `failure`."""
    return GrpcError(_CODES[failure.code], failure.message)


def status_fields(code: Code, message: str = "") -> list[tuple[str, str]]:
    """Return the trailers that end a call."""
    fields = [("grpc-status", str(int(code)))]
    if message:
        fields.append(("grpc-message", _percent_encoded(message.strip()[:_LONGEST_MESSAGE])))
    return fields


def _percent_encoded(text: str) -> str:
    """Percent-encode text as UTF-8; printable ASCII other than % stays as it is."""
    return "".join(
        chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}"
        for byte in text.encode("utf-8", "replace")
    )
