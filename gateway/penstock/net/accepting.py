"""Listening sockets, and the boundary at which a connection's failures end."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol

import msgspec
import structlog
import trio
from msgspec.structs import replace

from penstock.core.address import Address
from penstock.core.back import SwappableBack
from penstock.core.certificate_names import names_in
from penstock.core.errors import CannotStart
from penstock.core.identity import CLIENT, NO_IDENTITIES, Client, Identities
from penstock.net.cutting import CUT_CONNECTION
from penstock.net.limits import CONNECTION_QUOTA, Limiter
from penstock.net.limits.arrivals import AT_ONCE, REST_SECONDS, Arrivals
from penstock.net.limits.limiter import ConnectionQuota
from penstock.net.limits.refusals import Refusals, Refuse, close_at_once
from penstock.net.proxies import FORWARDED, NO_PROXIES, ForwardedClients, TrustedProxies, read_proxy_header
from penstock.net.tls import ServerTls, tls_stream
from penstock.observe import bind_connection, next_connection_number
from penstock.observe.metrics.families import CONNECTIONS_REFUSED
from penstock.observe.taps.connections import Connections
from penstock.observe.taps.tap import CONNECTION, note_identity
from penstock.observe.taps.tapped import encrypted
from penstock.wire.proxy_header import MalformedProxyHeader

__all__ = [
    "Accepting",
    "Listener",
    "accept_connections",
    "check_private",
    "open_sockets",
]

log = structlog.get_logger()

_BACKLOG: Final = 1024
"""Connections that the system holds for us until they are accepted."""
RETRY_SECONDS: Final = 0.1
"""Seconds to wait when the process or the system has no file descriptor left; connections may end in the meantime."""
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_GONE: Final = frozenset(
    getattr(errno, name)
    for name in (
        "EAGAIN",
        *("ECONNABORTED", "EPERM", "EPROTO", "ENOPROTOOPT", "EOPNOTSUPP", "ETIMEDOUT"),
        *("ENETDOWN", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH", "ENONET"),
    )
    if hasattr(errno, name)
)
"""Errors of accept(2) that concern one connection, which ended before it was accepted or was taken by another process;
the next one may be fine."""
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""TCP keepalive, in seconds and probes: a peer that vanished (no power, no route) is detected after two minutes.
Sessions may be silent for any length of time, so nothing else would ever end them."""


class Listener(msgspec.Struct, frozen=True):
    """The configuration of a listener: where clients connect, and how their connections are served.

    `serve(stream)` runs one connection to its end; with `tls` it also performs the handshake
    (`penstock.net.tls.handshakes`). `begin_drain()` tells the front that the gateway is about to stop.
    `bound(addresses)` receives the addresses that the listener is bound to, before any listener accepts. `duties`, if
    any, runs beside the connections, from the first to the last. `identities` maps a client's address to its identity.
    `refuse(stream, limit)` tells a client that a limit was reached.

    `private`: the listener must not be bound where other machines reach it (`check_private`).

    `proxies`: those whose word for a client's address is taken.

    `path`: see `penstock.capture.pcapng.Conversation`.

    `settings` and `backs` are used by the front for each request: a reload replaces their contents by another
    listener's.
    """

    name: str
    protocol: str
    address: Address
    max_connections: int
    serve: Callable[[trio.abc.Stream], Awaitable[None]]
    begin_drain: Callable[[], None]
    bound: Callable[[Sequence[Address]], None] = lambda _addresses: None
    duties: Callable[[], Awaitable[None]] | None = None
    identities: Identities = NO_IDENTITIES
    tls: ServerTls | None = None
    refuse: Refuse = close_at_once
    private: bool = False
    settings: tuple[msgspec.Struct, ...] = ()
    backs: tuple[SwappableBack, ...] = ()
    path: str = ""
    proxies: TrustedProxies = NO_PROXIES

    def carried(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """Return the stream that `serve` is given for an accepted stream, without the tap."""
        return stream if self.tls is None else tls_stream(stream, self.tls.context)


async def open_sockets(listener: Listener) -> list[trio.SocketListener]:
    """Bind and listen: one socket for each address that the host name resolves to.

    Raises CannotStart, whose text says what to do.
    """
    host, port = listener.address
    try:
        return await trio.open_tcp_listeners(port, host=host, backlog=_BACKLOG)
    except OSError as error:
        raise CannotStart(
            f"{listener.name}: cannot listen on {listener.address}: {_listening_reason(listener.name, error)}"
        ) from error


def check_private(listener: Listener, bound: Sequence[Address]) -> None:
    """Raise CannotStart if a private listener is bound where other machines reach it. The bound addresses count, not
    the configured one: a name may resolve to any address, and sockets may be inherited."""
    for address in bound:
        if listener.private and not address.is_loopback:
            raise CannotStart(
                f"{listener.name}: its address {listener.address} is {address}, which other machines can reach, and "
                "its clients need not authenticate (docs/access.md). To open it to all clients: anonymous = true"
            )


def _listening_reason(name: str, error: OSError) -> str:
    """Return why an address cannot be bound, and what to do about it."""
    causes = [error, error.__cause__, error.__context__]
    numbers = {cause.errno for cause in causes if isinstance(cause, OSError)}
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved ({error.strerror})"
    if errno.EADDRINUSE in numbers:
        off = ", or none (--management off)" if name == "management" else ""
        key = f"{name}.bind; port 0 takes any free one"
        return f"the port is in use; stop what listens there, or choose another port ({key}){off}"
    if errno.EACCES in numbers:
        return "permission denied; ports below 1024 need privileges, so choose a higher one"
    if errno.EADDRNOTAVAIL in numbers:
        return "this machine has no such address"
    return error.strerror or str(error)


class Connected(msgspec.Struct, eq=False):
    """An open connection. `host`: the client's address. `scope`: cancelled to end the connection."""

    host: str
    stream: trio.abc.Stream
    scope: trio.CancelScope
    task: trio.lowlevel.Task

    def identify(self, before: Identities, identities: Identities) -> None:
        """Assign the client the identity that `identities` gives for its certificate, else its address, from its next
        request on. Keep an identity that was proved by other means than these two."""
        context = self.task.context
        client, identity = context[CLIENT], self._identity(identities)
        if identity not in (None, client.identity) and self._identity(before) == client.identity:
            context.run(CLIENT.set, replace(client, identity=identity))
            context.run(note_identity, identity)

    def _identity(self, identities: Identities) -> str | None:
        """Return the identity of the client, or None before the handshake is done, when its certificate is not known
        yet."""
        shown = None
        if (tls := encrypted(self.stream)) is not None:
            try:
                shown = identities.of_certificate(names_in(tls.getpeercert()))
            except (trio.NeedHandshakeError, ValueError):
                return None
        return identities.of_address(self.host) if shown is None else shown


class Accepting(Protocol):
    """The server that connections are accepted for: `penstock.net.listeners.ListenerServer`."""

    listener: Listener
    """The listener that serves new connections; a reload may replace it."""
    limiter: Limiter
    open: dict[int, Connected]
    """The open connections by number."""


async def accept_connections(
    place: Accepting, sockets: trio.SocketListener, connections: trio.Nursery, taps: Connections
) -> None:
    """Accept until the socket is closed, starting each connection in `connections` with a tap and a quota from the
    limiter of `place`.

    A client for which the limits leave no room is refused in its protocol's own words.
    """
    refusals = Refusals(connections)

    async def begin(accepted: socket.socket, peer: Address | None) -> None:
        listener, host = place.listener, "" if peer is None else peer.host
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(accepted))
        quota = place.limiter.enter(listener.name, listener.max_connections, host, listener.identities.of_address(host))
        if isinstance(quota, ConnectionQuota):
            # trio would make a name of 100 bytes for each task.
            connections.start_soon(_run_connection, place, stream, peer, quota, taps, name="connection")
        else:
            CONNECTIONS_REFUSED.child(listener.name, listener.protocol, "limit").inc()
            await refusals.begin(listener.refuse, listener.carried(stream), quota)

    reading = 0

    async def begin_behind_proxy(accepted: socket.socket, proxy: Address) -> None:
        """Begin a connection once its proxy has named the client."""
        nonlocal reading
        reading += 1
        try:
            peer = await read_proxy_header(accepted) or proxy
        except BaseException as error:
            accepted.close()
            if not isinstance(error, MalformedProxyHeader):
                raise
            _refuse_proxy(place.listener, proxy, str(error))
        else:
            identity = place.listener.identities.of_address(peer.host)
            await arrivals.come(accepted, peer, place.limiter.account(peer.host, identity))
        finally:
            reading -= 1

    async with trio.open_nursery() as waiting:
        arrivals = Arrivals(place.limiter, place.listener.name, waiting, begin)
        while (accepted := await _accept(place, sockets)) is not None:
            arrivals.next_pass()
            stayed = 0
            for accepted_socket, peer in accepted:
                if (listener := place.listener).proxies.proxy_protocol:
                    if peer is None or not listener.proxies.has(peer.host):
                        accepted_socket.close()
                        _refuse_proxy(listener, peer, "it is none of the proxies")
                    elif reading >= listener.max_connections:
                        accepted_socket.close()
                        place.limiter.limited(listener.name, "listener.max_connections")
                    else:
                        waiting.start_soon(begin_behind_proxy, accepted_socket, peer)
                        stayed += 1
                    continue
                host = "" if peer is None else peer.host
                identity = place.listener.identities.of_address(host)
                stayed += await arrivals.come(accepted_socket, peer, place.limiter.account(host, identity))
            if stayed < len(accepted):
                await trio.sleep(REST_SECONDS)
        waiting.cancel_scope.cancel()


def _refuse_proxy(listener: Listener, peer: Address | None, reason: str) -> None:
    CONNECTIONS_REFUSED.child(listener.name, listener.protocol, "proxy").inc()
    log.info("proxy_refused", listener=listener.name, peer=str(peer or ""), reason=reason)


async def _accept(place: Accepting, sockets: trio.SocketListener) -> list[tuple[socket.socket, Address | None]] | None:
    """Wait for connections and accept as many as are queued, AT_ONCE at most; return None when the socket is closed.

    They become trio streams only when they begin: in a flood most never do.
    """
    accepted: list[tuple[socket.socket, Address | None]] = []
    try:
        await trio.lowlevel.wait_readable(_descriptor(sockets))
        with _same_socket(sockets) as listening:
            while len(accepted) < AT_ONCE:
                accepted_socket, name = listening.accept()
                accepted.append((accepted_socket, Address(*name[:2]) if isinstance(name, tuple) else None))
    except trio.ClosedResourceError:
        return None
    except OSError as error:
        if accepted or error.errno in _GONE:
            return accepted  # any error other than an empty queue comes again in the next pass
        if error.errno not in _NO_ROOM:
            raise
        closed = place.limiter.shed(place.listener.name)
        log.error("cannot_accept", listener=place.listener.name, reason=error.strerror, closed_another=closed)
        await trio.sleep(RETRY_SECONDS)
    return accepted


@contextlib.contextmanager
def _same_socket(sockets: trio.SocketListener) -> Iterator[socket.socket]:
    """Return the system's own socket, whose calls do not wait. Raises trio.ClosedResourceError."""
    own = socket.socket(fileno=_descriptor(sockets))
    try:
        yield own
    finally:
        own.detach()


def _descriptor(sockets: trio.SocketListener) -> int:
    """Return the descriptor. Raises trio.ClosedResourceError, also for a socket closed after it became readable."""
    if (descriptor := sockets.socket.fileno()) < 0:
        raise trio.ClosedResourceError
    return descriptor


async def _run_connection(
    place: Accepting, stream: trio.SocketStream, peer: Address | None, quota: ConnectionQuota, taps: Connections
) -> None:
    """Serve one connection from its first byte to its last; failures end here, in one log line."""
    listener = place.listener
    CONNECTION_QUOTA.set(quota)
    CUT_CONNECTION.set(quota.scope.cancel)
    number = next_connection_number()
    address = str(peer or "")
    bind_connection(number, listener.name, address or "gone")
    host = "" if peer is None else peer.host
    identity = listener.identities.of_address(host)
    CLIENT.set(Client(identity, address=address, listener=listener.name))
    if host and listener.proxies.has(host):
        FORWARDED.set(ForwardedClients(host, lambda: place.listener.proxies, lambda: place.listener.identities))
    tapped = taps.accepted(listener.carried(stream), number, listener.name, listener.protocol, listener.path)
    CONNECTION.set(tapped.tap)
    note_identity(identity)
    log.debug("connection_opened")
    place.open[number] = Connected(host, tapped, quota.scope, trio.lowlevel.current_task())
    try:
        _keep_alive(stream)
        with quota.scope:
            await listener.serve(tapped)
        if quota.scope.cancelled_caught:
            log.debug("connection_shed")
    except* (trio.BrokenResourceError, trio.ClosedResourceError, ConnectionError, trio.TooSlowError) as lost:
        log.debug("connection_lost", reason=_first_line(lost))
    except* Exception as group:
        log.error("connection_failed", exc_info=group)
    finally:
        del place.open[number]
        if (tapped.tap.lost or not tapped.tap.sent_bytes) and not quota.scope.cancel_called:
            place.limiter.connection_failed(quota.account)
        place.limiter.leave(quota)
        await trio.aclose_forcefully(tapped)
    log.debug("connection_closed")


def _keep_alive(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):  # not every system lets it be set
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _first_line(group: BaseExceptionGroup[BaseException]) -> str:
    leaf: BaseException = group
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    return f"{type(leaf).__name__}: {leaf}".rstrip(": ")
