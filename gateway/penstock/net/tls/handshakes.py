"""TLS handshakes of a listener: their time limit, their failures in the log, and clients' identities by certificate."""

from __future__ import annotations

import math
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog
import trio
from msgspec.structs import replace

from penstock.core.certificate_names import names_in
from penstock.core.identity import CLIENT, NO_IDENTITIES, Identities
from penstock.net.draining import Draining
from penstock.net.limits import current_quota
from penstock.observe.metrics.families import CONNECTIONS_REFUSED, LIMITED
from penstock.observe.taps.tap import note_identity
from penstock.observe.taps.tapped import encrypted

__all__ = ["HandshakeSettings", "Handshakes"]

log = structlog.get_logger()

_LINGER_SECONDS: Final = 1.0
"""Seconds that a refused client has to read the alert: closing at once may reset the connection before it is read."""
_LINGER_BYTES: Final = 64 * 1024
_LINES_PER_SECOND: Final = 10
"""Refusals of one listener that are logged one by one in a second."""

_REASONS: Final = (
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "the client presented no certificate"),
    ("HTTP_REQUEST", "the client does not speak TLS"),
    ("WRONG_VERSION_NUMBER", "the client does not speak TLS"),
    ("PACKET_LENGTH_TOO_LONG", "the client does not speak TLS"),
    ("RECORD_LAYER_FAILURE", "the client does not speak TLS"),
    ("UNSUPPORTED_PROTOCOL", "no common version of TLS"),
    ("NO_SHARED_CIPHER", "no common cipher"),
    ("ALERT_UNKNOWN_CA", "the client does not trust our certificate"),
    ("ALERT_BAD_CERTIFICATE", "the client does not trust our certificate"),
    ("ALERT_CERTIFICATE_UNKNOWN", "the client does not trust our certificate"),
    ("ALERT_CERTIFICATE_EXPIRED", "the client says that our certificate has expired"),
)

Serve = Callable[[trio.abc.Stream], Awaitable[None]]


class HandshakeSettings(msgspec.Struct):
    """Settings of handshakes, which may change and apply from the next one on. `seconds`: time limit of a handshake.
    `identities`: maps certificates to clients' identities."""

    seconds: float = 10.0
    identities: Identities = NO_IDENTITIES


class Handshakes:
    """Performs the TLS handshake before a front serves a connection, and sets the identity of the certificate in
    `CLIENT`.

    A refused client does not reach the front. A stream without TLS goes to the front as it is.
    """

    def __init__(
        self, listener: str, settings: HandshakeSettings, serve: Serve, begin_drain: Callable[[], None]
    ) -> None:
        """Take `serve` and `begin_drain` of the front (`penstock.net.accepting.Listener`)."""
        self._listener = listener
        self.settings = settings
        self._serve = serve
        self._begin_drain = begin_drain
        self._draining = Draining()
        self._since = -math.inf
        self._told = 0

    def begin_drain(self) -> None:
        """Begin to drain: connections that have not finished their handshake are cut off."""
        self._draining.begin()
        self._begin_drain()

    def serve(self, stream: trio.abc.Stream) -> Awaitable[None]:
        """Serve one connection until it ends, and close it."""
        tls = encrypted(stream)
        return self._serve(stream) if tls is None else self._serve_admitted(stream, tls)

    async def _serve_admitted(self, stream: trio.abc.Stream, tls: trio.SSLStream[trio.abc.Stream]) -> None:
        if await self._admitted(tls):
            await self._serve(stream)
        else:
            await trio.aclose_forcefully(stream)

    async def _admitted(self, tls: trio.SSLStream[trio.abc.Stream]) -> bool:
        failure: trio.BrokenResourceError | None = None
        with self._draining.interrupts(self.settings.seconds) as patience:
            try:
                await tls.do_handshake()
            except trio.BrokenResourceError as error:
                failure = error
        if failure is not None:
            await self._refuse(tls, failure.__cause__)
            return False
        if patience.cancelled_caught:
            if not self._draining.begun:
                LIMITED.labels(self._listener, "tls_handshake_seconds").inc()
                self._count()
                self._log_failure(f"no handshake in {self.settings.seconds:g} s")
            return False
        self._recognise(tls)
        return True

    def _recognise(self, tls: trio.SSLStream[trio.abc.Stream]) -> None:
        """Set the client's identity from its certificate."""
        certificate = tls.getpeercert()
        identity = self.settings.identities.of_certificate(names_in(certificate))
        if certificate:
            current_quota().admit(identity or "")  # the stricter limits before authentication end
        if identity is not None:
            CLIENT.set(replace(CLIENT.get(), identity=identity))
            note_identity(identity)
        log.debug("tls", version=tls.version(), alpn=tls.selected_alpn_protocol(), identity=identity)

    async def _refuse(self, tls: trio.SSLStream[trio.abc.Stream], cause: BaseException | None) -> None:
        if not isinstance(cause, ssl.SSLError) or isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            log.debug("tls_refused", reason="the client disconnected during the handshake")
            return
        self._count()
        self._log_failure(_reason(cause))
        await _say_why(tls)

    def _log_failure(self, reason: str) -> None:
        """Log a refusal, up to _LINES_PER_SECOND: anyone who can connect can cause them."""
        now = trio.current_time()
        if now - self._since >= 1:
            if self._told > _LINES_PER_SECOND:
                more = self._told - _LINES_PER_SECOND
                log.warning("tls_refused", reason=f"{more} more, which are not logged one by one")
            self._since, self._told = now, 0
        self._told += 1
        if self._told <= _LINES_PER_SECOND:
            log.warning("tls_refused", reason=reason)

    def _count(self) -> None:
        protocol = self._listener.removeprefix("listeners.").partition(".")[0]
        CONNECTIONS_REFUSED.child(self._listener, protocol, "handshake").inc()


async def _say_why(tls: trio.SSLStream[trio.abc.Stream]) -> None:
    """Send the alert that OpenSSL has produced. trio does not send it, and the client would see only a closed
    connection."""
    alert = tls._outgoing.read()
    below = tls.transport_stream
    with trio.move_on_after(_LINGER_SECONDS):
        try:
            if alert:
                await below.send_all(alert)
            if isinstance(below, trio.abc.HalfCloseableStream):
                await below.send_eof()
            got = 0
            while got < _LINGER_BYTES and (data := await below.receive_some(_LINGER_BYTES)):
                got += len(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message.rstrip('.')}"
    reason = error.reason or str(error)
    return next((text for key, text in _REASONS if key in reason), reason.lower().replace("_", " "))
