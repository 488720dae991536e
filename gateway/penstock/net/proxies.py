"""Clients behind proxies that a listener trusts: PROXY protocol and X-Forwarded-For.

A header of the PROXY protocol is read before anything else is done for a connection, TLS included, so that limits,
recordings and identities by network know the client from the beginning. X-Forwarded-For names the client of a single
request. Both count only from the configured addresses; from these, one that is missing or malformed is refused, since
its request would otherwise be taken for the proxy's own.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Final

import msgspec
import trio
from msgspec.structs import replace

from penstock.core.address import Address
from penstock.core.identity import CLIENT, Identities
from penstock.net.limits import ConnectionQuota
from penstock.observe.taps.tap import note_identity
from penstock.wire.proxy_header import MalformedProxyHeader, ProxyHeader

__all__ = ["FORWARDED", "NO_PROXIES", "BadForwarding", "ForwardedClients", "TrustedProxies", "read_proxy_header"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
HEADER_SECONDS: Final = 5.0
"""Seconds within which a proxy must have sent its header: it does so as soon as it is connected."""
_MOST_HOPS: Final = 32
"""Addresses in X-Forwarded-For, at most."""
FORWARDED: ContextVar[ForwardedClients | None] = ContextVar("penstock.forwarded", default=None)
"""The clients behind the proxy that the current connection comes from; None for other connections."""


class BadForwarding(Exception):
    """A trusted proxy does not name its client, or not in a way that can be read."""


class TrustedProxies(msgspec.Struct, frozen=True):
    """A listener's proxies. `networks`: their addresses. `proxy_protocol`: their connections begin with a header of
    the PROXY protocol, and others are refused. `forwarded_for`: their requests have X-Forwarded-For."""

    networks: tuple[Network, ...] = ()
    proxy_protocol: bool = False
    forwarded_for: bool = False

    def has(self, host: str) -> bool:
        """Return whether an address is one of theirs."""
        try:
            number = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        number = getattr(number, "ipv4_mapped", None) or number
        return any(number in network for network in self.networks)

    def client_of(self, lines: Sequence[str]) -> str:
        """Return the client that X-Forwarded-For names: the last address that is none of the proxies.

        `lines`: the values of all its lines, in order. Raises BadForwarding.
        """
        hops = [hop.strip() for line in lines for hop in line.split(",")]
        if not hops or len(hops) > _MOST_HOPS:
            raise BadForwarding(f"x-forwarded-for has {len(hops)} addresses, 1 to {_MOST_HOPS} are expected")
        host = ""
        for hop in reversed(hops):
            host = _host(hop)
            if not self.has(host):
                break
        return host


NO_PROXIES: Final = TrustedProxies()


def _host(hop: str) -> str:
    """Return the address of an element, which may have a port: `192.0.2.1:80`, `[2001:db8::1]:80`. Raises
    BadForwarding."""
    text, bracket, _ = hop.partition("]")
    if bracket:
        text = text.removeprefix("[")
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise BadForwarding(f"x-forwarded-for has {hop!r:.60}, which is no address") from None


async def read_proxy_header(accepted: socket.socket) -> Address | None:
    """Read the header at the beginning of a connection, and not a byte more. Return the client's address; None if the
    proxy speaks for itself.

    Raises MalformedProxyHeader, also for a connection that ends, or sends no whole header in time.
    """
    header = ProxyHeader()
    with trio.move_on_after(HEADER_SECONDS):
        while not header.complete:
            await trio.lowlevel.wait_readable(accepted)
            most, stop = header.wanted
            try:
                data = accepted.recv(most, socket.MSG_PEEK)
                if stop and stop in data:
                    data = data[: data.index(stop) + 1]
                header.feed(accepted.recv(len(data)) if data else b"")
            except BlockingIOError:
                continue
            except OSError as error:
                raise MalformedProxyHeader(f"the connection was lost: {error.strerror}") from None
            if not data:
                raise MalformedProxyHeader("the connection ended before its header")
        return None if header.client is None else Address(*header.client)
    raise MalformedProxyHeader(f"no header came within {HEADER_SECONDS:g} s")


class ForwardedClients(msgspec.Struct, frozen=True):
    """The clients whose requests come over one connection of a proxy. `host`: the proxy's address. `proxies`,
    `identities`: return those of the listener now."""

    host: str
    proxies: Callable[[], TrustedProxies]
    identities: Callable[[], Identities]

    def enter(self, lines: Sequence[str], quota: ConnectionQuota) -> None:
        """Let the current context, and from now on the connection's quota, be those of the client that a request is
        from. Raises BadForwarding."""
        proxies = self.proxies()
        if not (proxies.forwarded_for and proxies.has(self.host)):
            return
        host, identities, client = proxies.client_of(lines), self.identities(), CLIENT.get()
        identity = client.identity
        if identity == identities.of_address(self.host):  # and not proved by the proxy's certificate
            identity = identities.of_address(host)
            note_identity(identity)
        CLIENT.set(replace(client, identity=identity, address=host))
        quota.come_from(host, identity)
