"""Parse the headers of a call."""

from __future__ import annotations

import re
from typing import Final

from penstock.wire.grpc.status import Code, GrpcError

__all__ = ["accepts_content_type", "timeout_seconds"]

_TIMEOUT: Final = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def accepts_content_type(value: str | None) -> bool:
    """Return whether a content-type means gRPC with protobuf messages; its parameters are ignored."""
    media_type = (value or "").partition(";")[0].strip().lower()
    return media_type in ("application/grpc", "application/grpc+proto")


def timeout_seconds(value: str) -> float:
    """Return the value of grpc-timeout, in seconds. Raises GrpcError."""
    match = _TIMEOUT.fullmatch(value)
    if match is None:
        raise GrpcError(Code.INTERNAL, f"grpc-timeout {value[:50]!r} is not up to 8 digits and one of H, M, S, m, u, n")
    return int(match[1]) * _UNITS[match[2]]
