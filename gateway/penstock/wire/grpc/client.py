"""A unary call from the client's side: its headers, and the status that ends it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.model.failures import FailureCode
from penstock.wire.grpc.status import Code, GrpcError

__all__ = ["basic", "call_headers", "error_in", "failure_code"]

_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_MOST_MILLISECONDS: Final = 99_999_999
"""Largest timeout in ms: it has up to eight digits."""

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
    """Return the headers of a call with uncompressed protobuf messages and a timeout in seconds."""
    milliseconds = max(1, min(round(seconds * 1000), _MOST_MILLISECONDS))
    fields = [
        ("te", "trailers"),
        ("content-type", "application/grpc+proto"),
        ("grpc-timeout", f"{milliseconds}m"),
        ("grpc-accept-encoding", "identity,gzip"),
    ]
    return fields if authorization is None else [*fields, ("authorization", authorization)]


def basic(username: str, password: str) -> str:
    """Return an authorization of user and password (RFC 7617)."""
    return f"Basic {b64encode(f'{username}:{password}'.encode()).decode('ascii')}"


def error_in(fields: Iterable[tuple[str, str]]) -> GrpcError | None:
    """Return the error that ended a call, from its trailers, or from its headers if it has no others; None for success.

    A status that is missing or not a number is an error too, UNKNOWN.
    """
    values = dict(fields)
    status = values.get("grpc-status", "")
    message = _decoded(values.get("grpc-message", ""))
    if not status.isascii() or not status.isdigit():
        return GrpcError(Code.UNKNOWN, message or "the call ended without a status")
    try:
        code = Code(int(status))
    except ValueError:
        code = Code.UNKNOWN
    return None if code is Code.OK else GrpcError(code, message)


def failure_code(code: Code) -> FailureCode:
    """Return the failure code for a status; OTHER if there is none."""
    return _FAILURES.get(code, FailureCode.OTHER)


def _decoded(text: str) -> str:
    """Undo the percent encoding of a message; leave invalid escapes as they are."""
    data = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text.encode("latin-1", "replace"))
    return data.decode("utf-8", "replace")
