"""TLS to a server: handshakes whose failures say what is wrong."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

import trio

__all__ = ["handshake", "tls_reason"]

_NAME_MISMATCH = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH

_REASONS = (
    ("NO_APPLICATION_PROTOCOL", "the server speaks none of the protocols that were offered"),
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS"),
    ("HTTP_REQUEST", "the server does not speak TLS"),
    ("RECORD_LAYER_FAILURE", "the server does not speak TLS"),
    ("PACKET_LENGTH_TOO_LONG", "the server does not speak TLS"),
    ("CERTIFICATE_REQUIRED", "the server wants a client certificate"),
    ("CERTIFICATE_REVOKED", "the server says that our certificate is revoked"),
    ("CERTIFICATE_EXPIRED", "the server says that our certificate has expired"),
    ("BAD_CERTIFICATE", "the server refuses our client certificate"),
    ("UNKNOWN_CA", "the server does not trust our client certificate"),
    ("HANDSHAKE_FAILURE", "the server refuses the handshake (no common cipher, or it wants a client certificate)"),
    ("PROTOCOL_VERSION", "no common version of TLS"),
    ("UNSUPPORTED_PROTOCOL", "no common version of TLS"),
)


async def handshake(
    stream: trio.abc.Stream, context: ssl.SSLContext, server_name: str, alpn: Sequence[str]
) -> trio.SSLStream[trio.abc.Stream]:
    """Speak TLS over `stream` as a client. Raises trio.BrokenResourceError; `tls_reason` says why."""
    context.set_alpn_protocols(list(alpn))  # what the connection offers is copied when it is made, which is at once
    tls = trio.SSLStream(stream, context, server_hostname=server_name, https_compatible=True)
    await tls.do_handshake()
    return tls


def tls_reason(error: BaseException) -> str | None:
    """What is wrong with TLS, where that is what broke a connection; None where it is something else."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        kind = "is for another name" if cause.verify_code in _NAME_MISMATCH else "is not trusted"
        return f"TLS: the server's certificate {kind}: {cause.verify_message.rstrip('.')}"
    if isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "TLS: the server closed the connection during the handshake"
    reason = cause.reason or str(cause)
    return "TLS: " + next((text for key, text in _REASONS if key in reason), reason.lower().replace("_", " "))
