"""Failures between client and server, as failure codes with their messages."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Final

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock_spark.clients.endpoint import Endpoint

__all__ = ["late", "lost", "reason_of", "tls_reason", "unreachable"]

_REASONS: Final = (
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS"),
    ("HTTP_REQUEST", "the server does not speak TLS"),
    ("RECORD_LAYER_FAILURE", "the server does not speak TLS"),
    ("PACKET_LENGTH_TOO_LONG", "the server does not speak TLS"),
    ("NO_APPLICATION_PROTOCOL", "the server does not speak HTTP/1.1"),
    ("CERTIFICATE_REQUIRED", "the server requires a client certificate"),
    ("BAD_CERTIFICATE", "the server refuses our client certificate"),
    ("UNKNOWN_CA", "the server does not trust our client certificate"),
)
"""Messages by a part of OpenSSL's reason. Retrying helps with none of them."""


def lost(endpoint: Endpoint, reason: str) -> OperationFailed:
    """Return UNAVAILABLE: the server went away or broke the protocol; a request in flight may or may not be carried
    out."""
    return fail(FailureCode.UNAVAILABLE, f"{endpoint}: {reason}")


def late(endpoint: Endpoint, seconds: float) -> OperationFailed:
    """Return UNAVAILABLE: the server sent nothing for `seconds`."""
    return lost(endpoint, f"nothing came in {seconds:g} s")


def unreachable(endpoint: Endpoint, error: OSError) -> OperationFailed:
    """Return the failure of a connection attempt: UNAVAILABLE, or, where a retry cannot help, AUTHN if either side does
    not trust the other and INVALID if the server does not speak TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"TLS: the server's certificate is not trusted: {error.verify_message.rstrip('.')}"
        return fail(FailureCode.AUTHN, f"{endpoint}: {reason}")
    if isinstance(error, ssl.SSLError) and (tls_failure := tls_reason(error)) is not None:
        code = FailureCode.INVALID if "speak" in tls_failure else FailureCode.AUTHN
        return fail(code, f"{endpoint}: TLS: {tls_failure}")
    return lost(endpoint, f"cannot connect: {reason_of(error)}")


def tls_reason(error: ssl.SSLError) -> str | None:
    """Return the message for a permanent TLS error, or None if a retry may help."""
    return next((text for key, text in _REASONS if key in (error.reason or "")), None)


def reason_of(error: OSError) -> str:
    """Return the reason for an error in a few words."""
    if isinstance(error, ssl.SSLEOFError):
        return "TLS: the server broke the connection"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
    if isinstance(error, socket.gaierror):  # its error numbers are not those of errno
        return f"the host name cannot be resolved ({error.strerror})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return os.strerror(error.errno).lower() if error.errno else str(error)
