"""Words for what goes wrong between us and a server, in the codes that `clients.base` promises."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Final

from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_spark.clients.endpoint import Endpoint

__all__ = ["late", "lost", "reason_of", "tls_reason", "unreachable"]

_REASONS: Final = (
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS"),
    ("HTTP_REQUEST", "the server does not speak TLS"),
    ("RECORD_LAYER_FAILURE", "the server does not speak TLS"),
    ("PACKET_LENGTH_TOO_LONG", "the server does not speak TLS"),
    ("NO_APPLICATION_PROTOCOL", "the server does not speak HTTP/1.1"),
    ("CERTIFICATE_REQUIRED", "the server wants a client certificate"),
    ("BAD_CERTIFICATE", "the server refuses our client certificate"),
    ("UNKNOWN_CA", "the server does not trust our client certificate"),
)
"""By what OpenSSL's reason contains. None of these gets better by trying again."""


def lost(endpoint: Endpoint, why: str) -> OperationFailed:
    """The server went away, or broke the protocol: UNAVAILABLE; what was asked of it may be done or not."""
    return fail(FailureCode.UNAVAILABLE, f"{endpoint}: {why}")


def late(endpoint: Endpoint, seconds: float) -> OperationFailed:
    """The server says nothing: UNAVAILABLE."""
    return lost(endpoint, f"nothing came in {seconds:g} s")


def unreachable(endpoint: Endpoint, error: OSError) -> OperationFailed:
    """No connection came to be. UNAVAILABLE; AUTHN where one of the two does not trust the other; INVALID where the
    server does not speak TLS: trying again changes neither."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"TLS: the server's certificate is not trusted: {error.verify_message.rstrip('.')}"
        return fail(FailureCode.AUTHN, f"{endpoint}: {why}")
    if isinstance(error, ssl.SSLError) and (said := tls_reason(error)) is not None:
        code = FailureCode.INVALID if "speak" in said else FailureCode.AUTHN
        return fail(code, f"{endpoint}: TLS: {said}")
    return lost(endpoint, f"cannot connect: {reason_of(error)}")


def tls_reason(error: ssl.SSLError) -> str | None:
    """What is wrong for good; None where it may be an accident."""
    return next((text for key, text in _REASONS if key in (error.reason or "")), None)


def reason_of(error: OSError) -> str:
    """Why, in a few words."""
    if isinstance(error, ssl.SSLEOFError):
        return "TLS: the server broke the connection"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
    if isinstance(error, socket.gaierror):  # its numbers are others
        return f"the host name cannot be resolved ({error.strerror})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return os.strerror(error.errno).lower() if error.errno else str(error)
