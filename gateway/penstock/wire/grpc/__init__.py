"""Unary gRPC calls inside an HTTP/2 exchange (the protocol document "gRPC over HTTP2"), sans-IO."""

from penstock.wire.grpc.client import basic, call_headers, error_in, failure_code
from penstock.wire.grpc.framing import ENCODINGS, MAX_MESSAGE, MessageReader, frame
from penstock.wire.grpc.headers import accepts_content_type, timeout_seconds
from penstock.wire.grpc.status import Code, GrpcError, error_of, status_fields

__all__ = [
    "ENCODINGS",
    "MAX_MESSAGE",
    "Code",
    "GrpcError",
    "MessageReader",
    "accepts_content_type",
    "basic",
    "call_headers",
    "error_in",
    "error_of",
    "failure_code",
    "frame",
    "status_fields",
    "timeout_seconds",
]
