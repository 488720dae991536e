"""A unary call as its client says it, and how it hears its end."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Final

from penstock_codecs.failures import FailureCode
from penstock_codecs.grpc.status import Code, GrpcError

__all__ = ["basic", "call_headers", "error_in", "failure_code"]

_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_MOST_MILLISECONDS: Final = 99_999_999
"""A timeout has up to eight digits."""

_FAILURES: Final[Mapping[Code, FailureCode]] = {
    Code.INVALID_ARGUMENT: FailureCode.INVALID,
    Code.DEADLINE_EXCEEDED: FailureCode.UPSTREAM_TIMEOUT,
    Code.NOT_FOUND: FailureCode.STREAM_NOT_FOUND,
    Code.ALREADY_EXISTS: FailureCode.RESOURCE_ALREADY_EXISTS,
    Code.PERMISSION_DENIED: FailureCode.PERMISSION_DENIED,
    Code.RESOURCE_EXHAUSTED: FailureCode.RATE_LIMITED,
    Code.FAILED_PRECONDITION: FailureCode.INVALID,
    Code.ABORTED: FailureCode.TRANSACTION_CONFLICT,
    Code.OUT_OF_RANGE: FailureCode.INVALID,
    Code.UNIMPLEMENTED: FailureCode.NOT_IMPLEMENTED,
    Code.UNAVAILABLE: FailureCode.UNAVAILABLE,
    Code.UNAUTHENTICATED: FailureCode.AUTHN,
}


def call_headers(seconds: float, authorization: str | None = None) -> list[tuple[str, str]]:
    """The headers of a call whose messages are protobuf and not compressed, and which may take so many seconds."""
    milliseconds = max(1, min(round(seconds * 1000), _MOST_MILLISECONDS))
    fields = [
        ("te", "trailers"),
        ("content-type", "application/grpc+proto"),
        ("grpc-timeout", f"{milliseconds}m"),
        ("grpc-accept-encoding", "identity,gzip"),
    ]
    return fields if authorization is None else [*fields, ("authorization", authorization)]


def basic(username: str, password: str) -> str:
    """An authorization of user and password (RFC 7617)."""
    return f"Basic {b64encode(f'{username}:{password}'.encode()).decode('ascii')}"


def error_in(fields: Iterable[tuple[str, str]]) -> GrpcError | None:
    """How a call ended, by its trailers, or by its headers where it has no others; None: well.

    A status that is missing or no number is an error too, UNKNOWN.
    """
    found = dict(fields)
    status = found.get("grpc-status", "")
    message = _decoded(found.get("grpc-message", ""))
    if not status.isascii() or not status.isdigit():
        return GrpcError(Code.UNKNOWN, message or "the call ended without a status")
    try:
        code = Code(int(status))
    except ValueError:
        code = Code.UNKNOWN
    return None if code is Code.OK else GrpcError(code, message)


def failure_code(code: Code) -> FailureCode:
    """What a status means in the one vocabulary; OTHER for what says nothing."""
    return _FAILURES.get(code, FailureCode.OTHER)


def _decoded(text: str) -> str:
    """Undoes the percent encoding of a message; what is none stays as it is."""
    data = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), text.encode("latin-1", "replace"))
    return data.decode("utf-8", "replace")
