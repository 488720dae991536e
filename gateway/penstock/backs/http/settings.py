"""What an operator may set of the HTTP client."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock_codecs.http import HttpLimits
from penstock_codecs.limits import KIB, MIB

__all__ = ["HttpClientSettings", "HttpVersion"]


class HttpVersion(Enum):
    """Which version is spoken; the value is the TOML word."""

    AUTO = "auto"
    """Over TLS what ALPN finds, HTTP/2 preferred; in plaintext HTTP/1.1."""
    H1 = "h1"
    """HTTP/1.1."""
    H2 = "h2"
    """HTTP/2; in plaintext by prior knowledge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpClientSettings:
    """Settings of a client; sizes in bytes, times in seconds. Those of one server are in `UpstreamSettings`."""

    version: HttpVersion = HttpVersion.AUTO
    streams_per_connection: int = 100
    """HTTP/2: most requests at once on a connection, unless the server takes fewer."""
    max_head: int = 64 * KIB
    """Largest head of an answer."""
    stream_window: int = 1 * MIB
    """HTTP/2: most unread body of one answer. The connection has room for all: who does not read harms nobody else."""
    max_frame: int = 64 * KIB
    """HTTP/2: largest frame that is accepted."""
    receive_buffer: int = 1 * MIB
    """HTTP/1.1: with this much unread body the socket is not read any further."""
    read_size: int = 512 * KIB
    """Most that is read at a time."""
    send_buffer: int = 1 * MIB
    """`send` waits while more than this of its request is on its way."""
    write_seconds: float = 30.0
    """A connection whose server takes nothing for so long, while there is something to write, is given up."""

    @property
    def limits(self) -> HttpLimits:
        """The codec's limits."""
        return HttpLimits(
            max_head=self.max_head,
            stream_window=self.stream_window,
            connection_window=min(2**31 - 1, max(65536, self.stream_window * self.streams_per_connection)),
            max_frame=self.max_frame,
        )
