"""What one client uses of what clients may use."""

from __future__ import annotations

import ipaddress
from typing import Final

import trio

from penstock.limits.bucket import Bucket
from penstock.limits.crowd import Crowd

__all__ = ["Account", "client_key"]

_SHARED_BITS: Final = 64
"""A household or a machine has this many bits of IPv6 addresses for itself, and could take another for each
connection."""

_CALM_SECONDS: Final = 10.0
"""How long a client that has abused others is slowed, at least."""
_FORGIVEN_SECONDS: Final = 60.0
"""Who abuses others again within so many seconds of that is slowed more."""
_FIRST_DELAY: Final = 0.5
_MOST_DELAY: Final = 8.0
"""Seconds between its connections, the first time; doubled each time, up to this. What one of them costs before it is
cut off, 30 ms at most, is then nothing to others."""
_MOST_STRIKES: Final = 8


class Account:
    """One client: the identity that it proved, or its address."""

    __slots__ = (
        "arrivals",
        "arriving",
        "begins_at",
        "calm_until",
        "crowd",
        "fruitless",
        "held",
        "key",
        "leader",
        "octets",
        "requests",
        "strikes",
        "turns",
        "waiting",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.calm_until = 0.0
        """Until when its new connections are slowed, because it has abused others."""
        self.begins_at = 0.0
        """When the next one may begin, while it is."""
        self.strikes = 0
        """How often it has abused others since it was last forgiven."""
        self.crowd = Crowd()
        self.held = 0
        """Bytes in flight."""
        self.leader: object = None
        """The seat that may hold more than there is room for, so that of several large messages one is completed."""
        self.waiting = trio.lowlevel.ParkingLot()
        self.arrivals = Bucket()
        self.arriving = 0
        """Connections that wait to begin."""
        self.fruitless = Bucket()
        """Connections that were broken off, or on which nothing was said to the client."""
        self.turns = trio.Lock()
        """Held by the one of its connections that goes on with what took too long: all of them have one turn."""
        self.requests = Bucket()
        self.octets = Bucket()

    @property
    def used(self) -> bool:
        """Whether it has connections, or holds anything."""
        return bool(len(self.crowd) or self.held or self.arriving)

    def forgiven(self, now: float) -> bool:
        """Whether its abuses, if any, were long ago."""
        return not self.strikes or now >= self.calm_until + _FORGIVEN_SECONDS

    @property
    def delay(self) -> float:
        """Seconds between its new connections while it is slowed."""
        return min(_FIRST_DELAY * (1 << max(0, self.strikes - 1)), _MOST_DELAY)

    def abused(self, now: float) -> None:
        """It has done what only hostile clients do. What several of its connections do at a time counts once."""
        if now >= self.begins_at:
            self.strikes = 1 if self.forgiven(now) else min(self.strikes + 1, _MOST_STRIKES)
        self.begins_at = now + self.delay
        self.calm_until = max(self.calm_until, now + max(_CALM_SECONDS, 2 * self.delay))


def client_key(host: str, identity: str = "") -> str:
    """What an account is kept under: an identity, else an address."""
    if identity:
        return f"identity {identity}"
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> _SHARED_BITS << _SHARED_BITS, 128 - _SHARED_BITS)))
