"""One interface to HTTP/1.1 and HTTP/2, as server and as client, sans-IO."""

from penstock.wire.codec import Role
from penstock.wire.http.events import (
    CANCEL,
    ENHANCE_YOUR_CALM,
    INTERNAL_ERROR,
    NO_ERROR,
    REFUSED_STREAM,
    Body,
    Buffer,
    Continue,
    Credit,
    Data,
    End,
    Ended,
    FramePieces,
    GoAway,
    HttpCodec,
    HttpHeaders,
    HttpLimits,
    Noise,
    Outgoing,
    Preludes,
    Received,
    RequestHead,
    Reset,
    ResponseHead,
    body_forbidden,
)
from penstock.wire.http.sniff import PREFACE, sniff

__all__ = [
    "CANCEL",
    "ENHANCE_YOUR_CALM",
    "INTERNAL_ERROR",
    "NO_ERROR",
    "PREFACE",
    "REFUSED_STREAM",
    "Body",
    "Buffer",
    "Continue",
    "Credit",
    "Data",
    "End",
    "Ended",
    "FramePieces",
    "GoAway",
    "HttpCodec",
    "HttpHeaders",
    "HttpLimits",
    "Noise",
    "Outgoing",
    "Preludes",
    "Received",
    "RequestHead",
    "Reset",
    "ResponseHead",
    "body_forbidden",
    "connection",
    "sniff",
]


def connection(alpn: str, role: Role, limits: HttpLimits | None = None, scheme: str = "http") -> HttpCodec:
    """Return the codec for the protocol that ALPN or `sniff` named: "h2", otherwise HTTP/1.1. The first one imports the
    parser."""
    if alpn == "h2":
        from penstock.wire.http.h2 import Http2Connection

        return Http2Connection(role, limits, scheme)
    from penstock.wire.http.h1 import Http1Connection

    return Http1Connection(role, limits, scheme)
