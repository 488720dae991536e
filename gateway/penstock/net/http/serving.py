"""The HTTP server: HTTP/1.1 and HTTP/2 on one port, in plaintext or over TLS, for one handler."""

from __future__ import annotations

import trio

from penstock.net.draining import Draining
from penstock.net.http.exchange import Handler
from penstock.net.http.server.connection import HttpServerConnection
from penstock.net.http.server.settings import HttpSettings
from penstock.net.limits import current_quota
from penstock.net.transport import Transport
from penstock.observe.taps.tapped import encrypted
from penstock.wire.codec import Role
from penstock.wire.http import HttpCodec, connection, sniff

__all__ = ["HttpSettings", "serve_http"]


async def serve_http(
    stream: trio.abc.Stream, handler: Handler, settings: HttpSettings | None = None, drain: Draining | None = None
) -> None:
    """Serve one connection until it ends, and close it. Never raises for errors of a client or a handler.

    Over TLS (`penstock.net.tls.tls_stream`) ALPN selects the version. Without ALPN, and in plaintext, the first bytes
    do: HTTP/2 by prior knowledge, else HTTP/1.1.
    """
    settings = settings or HttpSettings()
    drain = drain or Draining()
    transport = Transport(stream, settings.read_size, settings.slow_reader)
    try:
        codec = await _codec_of(stream, transport, settings, drain)
        if codec is not None:
            await HttpServerConnection(transport, codec, handler, settings).run(drain)
    except trio.BrokenResourceError:
        return  # lost before its protocol was known
    finally:
        await transport.close()


async def _codec_of(
    stream: trio.abc.Stream, transport: Transport, settings: HttpSettings, drain: Draining
) -> HttpCodec | None:
    """Return the codec of a connection, which has received the first bytes, or None if it has ended or is too slow."""
    quota, waits_by = current_quota(), "head_timeout_seconds"
    try:
        alpn = None
        scheme = "http"
        if (tls := encrypted(stream)) is not None:
            scheme = "https"
            with trio.fail_after(settings.head_timeout) as patience, drain.watched_by(patience.cancel):
                await tls.do_handshake()
            alpn = tls.selected_alpn_protocol()
        start = b""
        waits_by = "first_byte_seconds"
        seconds = min(settings.keep_alive, quota.limits.first_byte_seconds)
        with trio.fail_after(seconds) as patience, drain.watched_by(patience.cancel):
            while alpn is None:
                data = await transport.receive()
                if not data:
                    return None
                start += data
                alpn = sniff(start)
    except trio.TooSlowError:
        if not drain.begun:
            quota.limited(waits_by)
        return None
    codec = connection(alpn, Role.SERVER, settings.limits, scheme)
    transport.speaks(codec)
    if start:  # b"" would mean the end of the stream; after ALPN nothing has been read yet
        codec.receive(start)
    return codec
