"""Settings of the HTTP client."""

from __future__ import annotations

from enum import Enum

import msgspec

from penstock.model.limits import KIB, MIB
from penstock.wire.http import HttpLimits

__all__ = ["HttpClientSettings", "HttpVersion"]


class HttpVersion(Enum):
    """The HTTP version to use; the value is the TOML word."""

    AUTO = "auto"
    """Over TLS the version negotiated by ALPN, HTTP/2 preferred; in plaintext HTTP/1.1."""
    H1 = "h1"
    """HTTP/1.1."""
    H2 = "h2"
    """HTTP/2; in plaintext by prior knowledge."""


class HttpClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a client; sizes in bytes, times in seconds. Those of one server are in `UpstreamSettings`."""

    version: HttpVersion = HttpVersion.AUTO
    streams_per_connection: int = 100
    """HTTP/2: requests at once on a connection, unless the server allows fewer."""
    max_head: int = 64 * KIB
    """Largest head of a response."""
    stream_window: int = 1 * MIB
    """HTTP/2: unread body of one response at most. The connection's window has room for all streams, so a slow reader
    does not block the others."""
    max_frame: int = 64 * KIB
    """HTTP/2: largest frame that is accepted."""
    receive_buffer: int = 1 * MIB
    """HTTP/1.1: unread body from which the socket is not read."""
    read_size: int = 1 * MIB
    """Bytes read at a time, at most."""
    send_buffer: int = 1 * MIB
    """Bytes of a request on their way above which `send` waits."""
    write_seconds: float = 30.0
    """Time after which a connection is given up whose server accepts no output."""

    @property
    def limits(self) -> HttpLimits:
        """The codec's limits."""
        return HttpLimits(
            max_head=self.max_head,
            stream_window=self.stream_window,
            connection_window=min(2**31 - 1, max(65536, self.stream_window * self.streams_per_connection)),
            max_frame=self.max_frame,
        )
