"""The listener of a mock."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence

import msgspec
import structlog
import trio

from penstock.core.address import Address
from penstock.core.errors import CannotStart
from penstock.net.tls import tls_context, tls_stream
from penstock.tools.mock.report import MockReport
from penstock.tools.mock.script import Script
from penstock.tools.mock.serving import MockConnection

__all__ = ["MockSettings", "mock_tls", "serve_mock"]

log = structlog.get_logger()

HANDSHAKE_SECONDS = 30.0
"""Time limit of a TLS handshake, in seconds."""


class MockSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a mock. `protocol`: of the clients, "" to detect it from their first bytes. `once`: end when every
    recorded conversation was played and its client has left. Others: see `MockConnection`."""

    protocol: str = ""
    strict: bool = False
    speed: float | None = None
    repeat: bool = False
    once: bool = False


def mock_tls(certificate: str, key: str | None, script: Script) -> ssl.SSLContext:
    """Return a TLS context that offers the recorded versions of HTTP. Raises CannotStart for files that cannot be
    used."""
    try:
        return tls_context(certificate, key, ("h2", "http/1.1") if script.speaks("h2") else ("http/1.1",))
    except OSError as error:  # ssl.SSLError is one
        raise CannotStart(f"cannot use {certificate} and {key or certificate} for TLS: {error}") from error


async def serve_mock(
    address: Address,
    script: Script,
    settings: MockSettings,
    report: MockReport,
    listening: Callable[[Sequence[Address]], None],
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve until cancelled, or until the end that `settings.once` specifies. `listening` is called with the bound
    addresses. Raises CannotStart."""
    try:
        sockets = await trio.open_tcp_listeners(address.port, host=address.host)
    except OSError as error:
        raise CannotStart(f"cannot listen on {address}: {error.strerror or error}") from error
    async with trio.open_nursery() as nursery:
        open_connections = 0

        async def serve(stream: trio.SocketStream) -> None:
            nonlocal open_connections
            open_connections += 1
            report.connections += 1
            try:
                await _serve(stream, script, settings, report, tls)
            except Exception:
                log.exception("connection_failed", connection=report.connections)
            finally:
                open_connections -= 1
                report.left = script.left
            if settings.once and not open_connections and not report.left:
                nursery.cancel_scope.cancel()

        listening([Address(*socket.socket.getsockname()[:2]) for socket in sockets])
        report.left = script.left
        await trio.serve_listeners(serve, sockets)


async def _serve(
    stream: trio.SocketStream, script: Script, settings: MockSettings, report: MockReport, tls: ssl.SSLContext | None
) -> None:
    secured = stream if tls is None else tls_stream(stream, tls)
    if isinstance(secured, trio.SSLStream):
        with trio.move_on_after(HANDSHAKE_SECONDS) as patience:
            try:
                await secured.do_handshake()
            except (trio.BrokenResourceError, ssl.SSLError) as error:
                log.warning("handshake_failed", reason=str(error.__cause__ or error))
                await trio.aclose_forcefully(stream)
                return
        if patience.cancelled_caught:
            await trio.aclose_forcefully(stream)
            return
    connection = MockConnection(
        secured,
        script,
        report,
        protocol=settings.protocol,
        strict=settings.strict,
        speed=settings.speed,
        repeat=settings.repeat,
    )
    await connection.run()
