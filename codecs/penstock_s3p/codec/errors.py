"""S3P's error codes for failures, and text that is safe inside an error line (S3P 0.2.0, section 9)."""

from __future__ import annotations

import re
from typing import Final

from penstock.model.failures import Failure, FailureCode
from penstock_s3p.codec.events import ErrorReply

__all__ = ["S3PFault", "error_reply", "failure_of", "one_line"]


_CODES: Final[dict[FailureCode, str]] = {
    FailureCode.BAD_FORMAT: "ERR_BAD_FORMAT",
    FailureCode.LIMIT_EXCEEDED: "ERR_LIMITS",
    FailureCode.RESOURCE_ALREADY_EXISTS: "ERR_STREAM_EXISTS",
    FailureCode.STREAM_NOT_FOUND: "ERR_UNKNOWN_STREAM",
    FailureCode.NON_MONOTONIC_TIMESTAMP: "ERR_NON_MONOTONIC_ID",
    # The codes below are not in the specification, which leaves codes open. All of them are recoverable.
    FailureCode.BASIN_NOT_FOUND: "ERR_UNKNOWN_STREAM",
    FailureCode.CLIENT_HANGUP: "ERR_UNAVAILABLE",
    FailureCode.HOT_SERVER: "ERR_UNAVAILABLE",
    FailureCode.SERVER_DRAINING: "ERR_UNAVAILABLE",
    FailureCode.OTHER: "ERR_INTERNAL",
}
_SHARED: Final = frozenset(
    {FailureCode.BASIN_NOT_FOUND, FailureCode.CLIENT_HANGUP, FailureCode.HOT_SERVER, FailureCode.SERVER_DRAINING}
)
"""Codes that share the spelling of another one. After ERR_UNAVAILABLE the effect of the command is unknown."""
_FAILURES: Final[dict[str, FailureCode]] = {"ERR_" + code.name: code for code in FailureCode} | {
    spelled: code for code, spelled in reversed(_CODES.items()) if code not in _SHARED
}
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e]")


class S3PFault(Exception):
    """The peer's bytes break the protocol: the reason, and the offset in what it sent."""

    def __init__(self, code: FailureCode, message: str, at: int) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.at = at


def one_line(text: str) -> str:
    """Return `text` with everything but printable ASCII escaped, so that it cannot end an error line early."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def error_reply(failure: Failure) -> ErrorReply:
    """Return the error reply for a failure; codes that the specification lacks are spelled `ERR_` and their name."""
    return ErrorReply(_CODES.get(failure.code, f"ERR_{failure.code.name}"), one_line(failure.message))


def failure_of(reply: ErrorReply) -> Failure:
    """Return the failure that a server's error reply reports; an unknown code becomes OTHER and stays in the
    message."""
    code = _FAILURES.get(reply.code)
    if code is None:
        return Failure(FailureCode.OTHER, f"{reply.code} {reply.message}")
    return Failure(code, reply.message)
