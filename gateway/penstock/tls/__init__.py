"""TLS: contexts from files, server and client side, made anew when the files change, and servers' handshakes."""

from penstock.tls.certificates import CERTIFICATES, Certificates, Expiry, Outcome
from penstock.tls.client import ClientTls
from penstock.tls.server import Pair, ServerFiles, ServerTls, tls_context, tls_stream

__all__ = [
    "CERTIFICATES",
    "Certificates",
    "ClientTls",
    "Expiry",
    "Outcome",
    "Pair",
    "ServerFiles",
    "ServerTls",
    "tls_context",
    "tls_stream",
]
