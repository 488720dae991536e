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


class Account:
    """One client: the identity that it proved, or its address."""

    __slots__ = ("arrivals", "calm_until", "crowd", "held", "key", "leader", "octets", "requests", "turns", "waiting")

    def __init__(self, key: str) -> None:
        self.key = key
        self.calm_until = 0.0
        """Until when its new connections wait before they are served, because it has abused others."""
        self.crowd = Crowd()
        self.held = 0
        """Bytes in flight."""
        self.leader: object = None
        """The seat that may hold more than there is room for, so that of several large messages one is completed."""
        self.waiting = trio.lowlevel.ParkingLot()
        self.arrivals = Bucket()
        self.turns = trio.Lock()
        """Held by the one of its connections that goes on with what took too long: all of them have one turn."""
        self.requests = Bucket()
        self.octets = Bucket()


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
