"""Which connections a recording wants."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.identity import Network
from penstock.recorder.tap import Tap

__all__ = ["EVERYTHING", "Selection", "Verdict"]


class Verdict(Enum):
    """Whether a connection is wanted."""

    YES = "yes"
    NO = "no"
    """Never: what is said of it does not change."""
    LATER = "later"
    """Not yet: it depends on what its requests will be about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """All that is given must hold; of several values of one kind, one.

    `listeners`: of clients, as `s2` for all of the kind, or `s2.NAME`; `backs`: of servers, by their names. Given both,
    a connection is one of either. `protocols`: as in `Conversation`. `peers`: networks that our peer is in.
    `connections`: by their numbers. `identities`, `routes`, `streams` (as BASIN/STREAM, or STREAM of any basin): globs,
    of which a client's connection must have had to do with one. `routes` are good for the connections with their backs
    too; identities and streams for those of clients only.
    """

    listeners: tuple[str, ...] = ()
    backs: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    peers: tuple[Network, ...] = ()
    connections: frozenset[int] = frozenset()
    identities: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()

    def judge(self, tap: Tap) -> Verdict:
        """Whether it is wanted, by what is known now."""
