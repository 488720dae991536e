"""TLS to a server: contexts from files, and handshakes whose failures say what is wrong."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

import trio

from penstock.errors import CannotStart

__all__ = ["client_tls", "handshake", "tls_reason"]

_NAME_MISMATCH = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH

_REASONS = (
    ("NO_APPLICATION_PROTOCOL", "the server speaks none of the protocols that were offered"),
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS"),
    ("HTTP_REQUEST", "the server does not speak TLS"),
    ("RECORD_LAYER_FAILURE", "the server does not speak TLS"),
    ("PACKET_LENGTH_TOO_LONG", "the server does not speak TLS"),
    ("CERTIFICATE_REQUIRED", "the server wants a client certificate"),
    ("BAD_CERTIFICATE", "the server refuses our client certificate"),
    ("UNKNOWN_CA", "the server does not trust our client certificate"),
    ("HANDSHAKE_FAILURE", "the server refuses the handshake (no common cipher, or it wants a client certificate)"),
    ("PROTOCOL_VERSION", "no common version of TLS"),
    ("UNSUPPORTED_PROTOCOL", "no common version of TLS"),
)


def client_tls(ca_file: str | None = None, certificate: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """A client's context: who it trusts (None: the system's authorities) and the certificate that it shows, if any.

    `key` may be in the certificate's file. Raises CannotStart naming the file that cannot be used.
    """
    if key is not None and certificate is None:
        raise CannotStart("tls: a key without a certificate")
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise CannotStart(f"tls: cannot use the authorities in {ca_file}: {_text(error)}") from error
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ssl.SSLError) as error:
            files = certificate if key is None else f"{certificate} with key {key}"
            raise CannotStart(f"tls: cannot use the certificate {files}: {_text(error)}") from error
    return context


def _no_password() -> str:
    """Instead of OpenSSL's question on the terminal, at which a service would hang."""
    return ""


def _text(error: OSError) -> str:
    return (error.strerror or str(error)) if not isinstance(error, ssl.SSLError) else error.reason or str(error)


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
