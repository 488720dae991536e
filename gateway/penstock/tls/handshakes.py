"""The handshakes of a listener: within their time, each failure in one line of the log, and who the client is."""

from __future__ import annotations

import math
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import structlog
import trio

from penstock.fronts.draining import Draining
from penstock.identity import CLIENT, NOBODY, Identities
from penstock.limits import current_seat
from penstock.metrics.families import CONNECTIONS_REFUSED, LIMITED
from penstock.recorder.tap import note_identity
from penstock.recorder.tapped import encrypted
from penstock.routing.certificates import names_in

__all__ = ["HandshakeSettings", "Handshakes"]

log = structlog.get_logger()

_LINGER_SECONDS: Final = 1.0
"""So long a refused client has to take the alert: closing at once may reset the connection before it is read."""
_LINGER_BYTES: Final = 64 * 1024
_LINES_PER_SECOND: Final = 10
"""So many refusals of one listener are told one by one."""

_REASONS: Final = (
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "the client shows no certificate"),
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


@dataclass(slots=True)
class HandshakeSettings:
    """`seconds`: a handshake must be complete within this. `identities`: who clients are by their certificates. Both
    may change; they hold from the next handshake on."""

    seconds: float = 10.0
    identities: Identities = NOBODY


class Handshakes:
    """Makes the handshake before a front serves a connection, and tells `CLIENT` whom the certificate belongs to.

    Who is refused reaches no front. A stream without TLS goes to the front as it is.
    """

    def __init__(
        self, listener: str, settings: HandshakeSettings, serve: Serve, begin_drain: Callable[[], None]
    ) -> None:
        """`serve` and `begin_drain`: the front's own (`penstock.accepting.Listener`)."""
        self._listener = listener
        self.settings = settings
        self._serve = serve
        self._begin_drain = begin_drain
        self._draining = Draining()
        self._since = -math.inf
        self._told = 0

    def begin_drain(self) -> None:
        """The gateway is about to stop: who has not finished its handshake is cut off."""
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
                self._tell(f"no handshake in {self.settings.seconds:g} s")
            return False
        self._recognise(tls)
        return True

    def _recognise(self, tls: trio.SSLStream[trio.abc.Stream]) -> None:
        """Note whose certificate the client has shown."""
        certificate = tls.getpeercert()
        identity = self.settings.identities.of_certificate(names_in(certificate))
        if certificate:
            current_seat().admit(identity or "")  # limits of strangers are no longer its own
        if identity is not None:
            CLIENT.set(replace(CLIENT.get(), identity=identity))
            note_identity(identity)
        log.debug("tls", version=tls.version(), alpn=tls.selected_alpn_protocol(), identity=identity)

    async def _refuse(self, tls: trio.SSLStream[trio.abc.Stream], cause: BaseException | None) -> None:
        if not isinstance(cause, ssl.SSLError) or isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            log.debug("tls_refused", reason="the client went away during the handshake")
            return
        self._count()
        self._tell(_reason(cause))
        await _say_why(tls)

    def _tell(self, reason: str) -> None:
        """A line of the log, unless there were many in this second: anybody can cause them."""
        now = trio.current_time()
        if now - self._since >= 1:
            if self._told > _LINES_PER_SECOND:
                more = self._told - _LINES_PER_SECOND
                log.warning("tls_refused", reason=f"{more} more, which are not told of one by one")
            self._since, self._told = now, 0
        self._told += 1
        if self._told <= _LINES_PER_SECOND:
            log.warning("tls_refused", reason=reason)

    def _count(self) -> None:
        protocol = self._listener.removeprefix("listeners.").partition(".")[0]
        CONNECTIONS_REFUSED.child(self._listener, protocol, "handshake").inc()


async def _say_why(tls: trio.SSLStream[trio.abc.Stream]) -> None:
    """Send the alert that OpenSSL has written. trio keeps it for itself: a client would see nothing but the end."""
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
        return f"the client's certificate is not taken: {error.verify_message.rstrip('.')}"
    reason = error.reason or str(error)
    return next((text for key, text in _REASONS if key in reason), reason.lower().replace("_", " "))
