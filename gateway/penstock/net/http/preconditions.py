"""Preconditions of HTTP requests (RFC 9110, 13.1): a front refuses those that it does not evaluate.

A client that sends one relies on it: a request that ignored it would change what the client did not mean to change.
`if-modified-since` and `if-range`, and `if-none-match` on GET and HEAD, only save a transfer: without a validator the
whole response is right (13.1.2, 13.1.3, 13.1.5).
"""

from __future__ import annotations

from typing import Final

from penstock.model.failures import FailureCode, fail
from penstock.net.http.exchange import Request

__all__ = ["check_preconditions"]

_SAFE: Final = ("GET", "HEAD")


def check_preconditions(request: Request, *evaluated: str) -> None:
    """Raise BAD_HEADER for a precondition that is not among `evaluated`, the names of headers."""
    for name in ("if-match", "if-none-match", "if-unmodified-since"):
        saves_transfer = name == "if-none-match" and request.method in _SAFE
        if request.header(name) is not None and name not in evaluated and not saves_transfer:
            reason = f"{name}: {request.method[:20]} has no such condition here, so nothing was done; leave it out"
            raise fail(FailureCode.BAD_HEADER, reason)
