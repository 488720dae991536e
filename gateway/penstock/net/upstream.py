"""Connections to another server: dialling with deadlines, TLS, credentials, and a circuit breaker.

All backs report failures in one vocabulary. A server that cannot be reached, or whose circuit is open, has done
nothing: HOT_SERVER. A side effect is possible if the server was lost after something was sent (UNAVAILABLE), did not
answer in time (UPSTREAM_TIMEOUT), or broke its protocol (UPSTREAM_FAULT).

A failed TLS handshake is reported with its cause (`tls_reason`): an untrusted certificate, another name, no common
version.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from penstock.net.breaker import Breaker, BreakerState
from penstock.net.credentials import Credentials, CredentialsMode
from penstock.net.upstream_settings import UpstreamSettings, broke, doubtful, lost, refused, too_late, unreachable

__all__ = [
    "Breaker",
    "BreakerState",
    "Credentials",
    "CredentialsMode",
    "Dial",
    "Upstream",
    "UpstreamSettings",
    "Watch",
    "broke",
    "doubtful",
    "handshake",
    "lost",
    "reason_of",
    "tls_reason",
    "too_late",
    "unreachable",
    "unwatched",
]

_NAME_MISMATCH = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_REASONS = (
    ("NO_APPLICATION_PROTOCOL", "the server supports none of the offered protocols"),
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS"),
    ("HTTP_REQUEST", "the server does not speak TLS"),
    ("RECORD_LAYER_FAILURE", "the server does not speak TLS"),
    ("PACKET_LENGTH_TOO_LONG", "the server does not speak TLS"),
    ("CERTIFICATE_REQUIRED", "the server requires a client certificate"),
    ("CERTIFICATE_REVOKED", "the server says that our certificate is revoked"),
    ("CERTIFICATE_EXPIRED", "the server says that our certificate has expired"),
    ("BAD_CERTIFICATE", "the server refuses our client certificate"),
    ("UNKNOWN_CA", "the server does not trust our client certificate"),
    ("HANDSHAKE_FAILURE", "the server refuses the handshake (no common cipher, or it requires a client certificate)"),
    ("PROTOCOL_VERSION", "no common version of TLS"),
    ("UNSUPPORTED_PROTOCOL", "no common version of TLS"),
)
Dial = Callable[[str, int], Awaitable[trio.abc.Stream]]
Watch = Callable[[trio.abc.Stream, UpstreamSettings], trio.abc.Stream]
"""Wraps the stream of a new connection, above TLS, in one that reports its traffic."""
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""TCP keepalive, in seconds and probes: a server that vanished (no power, no route) is detected after 30 s. A following
read may be silent for any length of time, so nothing else would ever end it."""


async def handshake(
    stream: trio.abc.Stream, context: ssl.SSLContext, server_name: str, alpn: Sequence[str]
) -> trio.SSLStream[trio.abc.Stream]:
    """Perform a TLS handshake over `stream` as a client. Raises trio.BrokenResourceError; `tls_reason` tells why."""
    context.set_alpn_protocols(list(alpn))  # copied when the connection is made, in the next line
    tls = trio.SSLStream(stream, context, server_hostname=server_name, https_compatible=True)
    await tls.do_handshake()
    return tls


def tls_reason(error: BaseException) -> str | None:
    """Return the TLS error that broke a connection, in words; None if the cause is something else."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return None
    if isinstance(cause, ssl.SSLCertVerificationError):
        kind = "is for another name" if cause.verify_code in _NAME_MISMATCH else "is not trusted"
        return f"TLS: the server's certificate {kind}: {cause.verify_message.rstrip('.')}"
    if isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "TLS: the server closed the connection during the handshake"
    reason = cause.reason or str(cause)
    return "TLS: " + next((text for key, text in _REASONS if key in reason), reason.lower().replace("_", " "))


async def _dial_tcp(host: str, port: int) -> trio.abc.Stream:
    stream = await trio.open_tcp_stream(host, port)  # with TCP_NODELAY; of several addresses the first that answers
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):  # not every system lets it be set
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return stream


def unwatched(stream: trio.abc.Stream, _settings: UpstreamSettings) -> trio.abc.Stream:
    """Return the stream as it is: the `Watch` that reports nothing."""
    return stream


class Upstream:
    """One server. `dial` makes the connection below TLS (None: over TCP); `watch` wraps each new connection. `breaker`:
    shared with other users of the server; None: its own."""

    def __init__(
        self,
        settings: UpstreamSettings,
        credentials: Credentials | None = None,
        dial: Dial | None = None,
        watch: Watch = unwatched,
        breaker: Breaker | None = None,
    ):
        self.settings = settings
        self.credentials = credentials or Credentials(back=settings.name)
        self.breaker = breaker or Breaker(settings)
        self._dial = dial or _dial_tcp
        self._watch = watch

    async def connect(self, alpn: Sequence[str] = ()) -> trio.abc.Stream:
        """Return a new connection, with TLS if configured, offering the protocols `alpn`, the preferred one first.

        The negotiated protocol is `selected_alpn_protocol()` of the SSLStream
        (`penstock.observe.taps.tapped.encrypted`), None for a server that does not know ALPN. Raises
        OperationFailed(HOT_SERVER), with the cause, if there is no connection in `connect_seconds` or the circuit is
        open. The breaker learns the outcome; report `succeeded` to it when a request is answered, and `lost` when one
        never was.
        """
        self.breaker.check()
        try:
            with trio.move_on_after(self.settings.connect_seconds):
                stream = await self._connect(alpn)
                self.breaker.connected()
                return self._watch(stream, self.settings)
        except (OSError, trio.BrokenResourceError, ValueError) as error:  # ValueError: the host is not a valid name
            raise self._unreachable(reason_of(error)) from error
        except BaseException:
            self.breaker.given_up()
            raise
        raise self._unreachable(f"no connection in {self.settings.connect_seconds:g} s")

    def _unreachable(self, why: str) -> Exception:
        reason, breaker = f"cannot connect: {why}", self.breaker
        breaker.failed(reason)
        if breaker.state is BreakerState.OPEN:  # opened by this failure, so a retry would be futile
            return refused(self.settings, reason, breaker.state.value, self.settings.breaker_open_seconds)
        return unreachable(self.settings, reason)

    async def _connect(self, alpn: Sequence[str]) -> trio.abc.Stream:
        settings = self.settings
        stream = await self._dial(settings.host, settings.port)
        if settings.tls is None:
            return stream
        try:
            return await handshake(stream, settings.tls.context, settings.server_name or settings.host, alpn)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise


def reason_of(error: BaseException) -> str:
    """Return why a connection failed or broke, in a few words: the TLS error, else the system's."""
    if (reason := tls_reason(error)) is not None:
        return reason
    told = [_of_system(cause) for cause in _causes(error) if isinstance(cause, OSError) and cause.errno]
    if told:
        return told[-1]
    return "connection lost" if isinstance(error, trio.BrokenResourceError) else str(error) or type(error).__name__


def _of_system(error: OSError) -> str:
    if isinstance(error, socket.gaierror):  # its errno is not the system's
        return f"the host name cannot be resolved ({error.strerror})"
    return os.strerror(error.errno or 0).lower()


def _causes(error: BaseException | None) -> list[BaseException]:
    """Return the error and its causes; of an exception group (one error for each address of a name), the first."""
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
    return causes
