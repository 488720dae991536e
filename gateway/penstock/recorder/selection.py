"""Selection of the connections that a recording wants."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from functools import lru_cache

import msgspec

from penstock.capture.pcapng import Conversation, Side, SocketAddress
from penstock.core.identity import Network
from penstock.core.matching import Match, NamePattern, StreamPattern
from penstock.model.records import StreamRef
from penstock.observe.taps.tap import Use

__all__ = ["Selection", "Verdict", "network"]


class Verdict(Enum):
    """The decision on a connection."""

    YES = "yes"
    NO = "no"
    """Never: a decision not to record a connection is final."""
    LATER = "later"
    """Depends on the requests to come."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Criteria for connections. All that are given must hold; of several values of one criterion, one must.

    `listeners`: of clients, as `s2` for all of the kind, or `s2.NAME`; `backs`: of servers, by their names. If both are
    given, either must match. `protocols`: as in `Conversation`. `peers`: networks of the remote address. `connections`:
    by their numbers. `identities`, `routes`, `streams` (as BASIN/STREAM; without a slash: STREAM of any basin) are
    globs: one request on the connection must match all of them. `routes` also select the connections with their backs;
    identities and streams select connections of clients only.
    """

    listeners: tuple[str, ...] = ()
    backs: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    peers: tuple[Network, ...] = ()
    connections: tuple[int, ...] = ()
    identities: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()

    @property
    def late(self) -> bool:
        """True if it has criteria that only requests can meet."""
        return bool(self.identities or self.routes or self.streams)

    def judge(self, conversation: Conversation, backs_of_routes: Mapping[str, Collection[str]]) -> Verdict:
        """Return the decision on a connection that opens. Connections to the management listener are never recorded:
        they may carry the recording itself."""
        if conversation.protocol == "management" or not self._is_there(conversation):
            return Verdict.NO
        if conversation.side is Side.FRONT:
            return Verdict.LATER if self.late else Verdict.YES
        if self.identities or self.streams:
            return Verdict.NO
        name = conversation.name.removeprefix("backs.")
        led = [backs for route, backs in backs_of_routes.items() if _any_name(self.routes, route)]
        return Verdict.YES if not self.routes or any(name in backs for backs in led) else Verdict.NO

    def _is_there(self, conversation: Conversation) -> bool:
        front = conversation.side is Side.FRONT
        peer = conversation.client if front else conversation.server
        label = conversation.name.partition(".")[2]
        named = {label, label.partition(".")[0]} & set(self.listeners) if front else label in self.backs
        return (
            (bool(named) or not (self.listeners or self.backs))
            and (not self.protocols or conversation.protocol in self.protocols)
            and (not self.peers or _within(peer, self.peers))
            and (not self.connections or conversation.number in self.connections)
        )

    def wants(self, use: Use) -> bool:
        """Return whether a request meets all criteria about requests."""
        return (
            (not self.identities or _any_name(self.identities, use.identity))
            and (not self.routes or _any_name(self.routes, use.route))
            and (not self.streams or self._has(use.stream))
        )

    def _has(self, stream: StreamRef | None) -> bool:
        return stream is not None and any(_pattern(pattern).match(stream) is not None for pattern in self.streams)


def network(text: str) -> Network:
    """Parse a network, as `10.1.0.0/16`, or a single address. Raises ValueError."""
    return ipaddress.ip_network(text)


def _within(peer: SocketAddress, networks: Iterable[Network]) -> bool:
    address = ipaddress.ip_address(peer.host)
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in networks)


def _any_name(globs: Iterable[str], name: str) -> bool:
    return name != "" and any(_name(glob).match(name) is not None for glob in globs)


@lru_cache(maxsize=1000)
def _name(glob: str) -> NamePattern:
    return NamePattern.compile(Match.GLOB, glob)


@lru_cache(maxsize=1000)
def _pattern(glob: str) -> StreamPattern:
    basin, slash, stream = glob.partition("/")
    return StreamPattern.compile(Match.GLOB, basin, stream) if slash else StreamPattern.compile(Match.GLOB, None, glob)
