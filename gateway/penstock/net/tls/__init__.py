"""TLS: server and client contexts from files, which are reloaded when the files change, and handshakes of servers."""

from penstock.net.tls.certificates import CERTIFICATES, Certificates, Expiry, Outcome
from penstock.net.tls.client import ClientTls
from penstock.net.tls.server import Pair, ServerFiles, ServerTls, tls_context, tls_stream

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
