"""The way to another server: dialling it with deadlines, TLS, credentials, and a circuit breaker.

What goes wrong is said in one vocabulary by all backs. A server that cannot be reached, or whose circuit is open, has
done nothing: HOT_SERVER. One that was lost after something was sent may have: UNAVAILABLE, or UPSTREAM_TIMEOUT.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from penstock.backs.breaker import Breaker, BreakerState
from penstock.backs.credentials import Credentials, CredentialsMode
from penstock.backs.upstream_settings import UpstreamSettings, lost, too_late, unreachable
from penstock.backs.upstream_tls import handshake, tls_reason

__all__ = [
    "Breaker",
    "BreakerState",
    "Credentials",
    "CredentialsMode",
    "Dial",
    "Upstream",
    "UpstreamSettings",
    "Watch",
    "lost",
    "reason_of",
    "too_late",
    "unreachable",
    "unwatched",
]

Dial = Callable[[str, int], Awaitable[trio.abc.Stream]]
Watch = Callable[[trio.abc.Stream, UpstreamSettings], trio.abc.Stream]
"""Gives the stream, above TLS, that is used instead of a new connection's own: one that tells what goes by."""

_KEEPALIVE: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A server that vanished without a word (no power, no route) is found out after 30 s, in seconds and probes: a read
that follows may be silent for as long as it likes, so nothing else would ever end it."""


async def _dial_tcp(host: str, port: int) -> trio.abc.Stream:
    stream = await trio.open_tcp_stream(host, port)  # with TCP_NODELAY; of several addresses the first that answers
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):  # not every system lets it be set
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return stream


def unwatched(stream: trio.abc.Stream, _settings: UpstreamSettings) -> trio.abc.Stream:
    """A `Watch` that nobody keeps: the stream as it is."""
    return stream


class Upstream:
    """One server. `dial` makes the connection below TLS (None: over TCP); `watch` is given each that was made.
    `breaker`: shared with others who connect there; None: its own."""

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
        """A new connection, with TLS where that is configured, offering the protocols `alpn`, the preferred one first.

        What was agreed upon is `selected_alpn_protocol()` of the SSLStream (`penstock.recorder.tapped.encrypted`), None
        for a server that does not know ALPN.
        Raises OperationFailed(HOT_SERVER), saying why, where it is not there in `connect_seconds` or the circuit is
        open. The breaker learns how it ended; tell it `succeeded` at answers, and `lost` where none ever came.
        """
        self.breaker.check()
        try:
            with trio.move_on_after(self.settings.connect_seconds):
                stream = await self._connect(alpn)
                self.breaker.connected()
                return self._watch(stream, self.settings)
        except (OSError, trio.BrokenResourceError, ValueError) as error:  # the last for what can be no host's name
            raise self._unreachable(reason_of(error)) from error
        except BaseException:
            self.breaker.given_up()
            raise
        raise self._unreachable(f"no connection in {self.settings.connect_seconds:g} s")

    def _unreachable(self, why: str) -> Exception:
        reason = f"cannot connect: {why}"
        self.breaker.failed(reason)
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
    """Why a connection failed or broke, in a few words: what TLS says, else the system's."""
    if (reason := tls_reason(error)) is not None:
        return reason
    told = [_of_system(one) for one in _causes(error) if isinstance(one, OSError) and one.errno]
    if told:
        return told[-1]
    return "connection lost" if isinstance(error, trio.BrokenResourceError) else str(error) or type(error).__name__


def _of_system(error: OSError) -> str:
    if isinstance(error, socket.gaierror):  # its numbers are others
        return f"the host name cannot be resolved ({error.strerror})"
    return os.strerror(error.errno or 0).lower()


def _causes(error: BaseException | None) -> list[BaseException]:
    """The error and what led to it; of several at once (one for each address of a name) the first."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__
    return found
