"""Listeners that speak HTTP."""

from __future__ import annotations

import ssl
from typing import Protocol

import trio

from penstock.fronts.exchange import Exchange
from penstock.fronts.http_server import Drain, HttpSettings, serve_http, tls_stream

__all__ = ["HttpFront", "HttpServer"]


class HttpFront(Protocol):
    """What answers exchanges."""

    async def handle(self, exchange: Exchange) -> None:
        """Answer one."""

    def drain(self) -> None:
        """The gateway is about to stop."""


class HttpServer:
    """The connections of a front that answers HTTP; `tls` None: in plaintext."""

    def __init__(self, tls: ssl.SSLContext | None, settings: HttpSettings, front: HttpFront) -> None:
        self._tls = tls
        self._settings = settings
        self._front = front
        self._drain = Drain()

    async def serve(self, stream: trio.abc.Stream) -> None:
        """One connection from its first byte to its last."""
        secured = stream if self._tls is None else tls_stream(stream, self._tls)
        await serve_http(secured, self._front.handle, self._settings, self._drain)

    def begin_drain(self) -> None:
        """The gateway is about to stop."""
        self._front.drain()
        self._drain.begin()
