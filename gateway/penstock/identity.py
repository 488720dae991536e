"""Who asks: set by a front for the task that serves a client, read by routes and by backs that pass credentials on.

A client is who its bearer token says, else who its certificate says, else who its address says, else nobody.

A context variable, because what lies between a front and a back need not know of it; trio gives every child task the
context of its parent.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.routing.certificates import CertificateName, CertificatePattern

if TYPE_CHECKING:
    from penstock.access.grants import Grant

__all__ = ["ANYBODY", "CLIENT", "NOBODY", "Client", "Identities"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Client:
    """One client. `identity`: the configured name that it proved or that its address has, "" for nobody's.

    `token`: the bearer token that it sent, for backs whose credentials are passed through. `listener`: the name of the
    listener that it came by, as `listeners.s2`. `grant`: what its access token allows; None where it showed none, and
    only routes say what it may do. `gateway`: it is the gateway itself, which finishes what clients have begun: routes
    for identities admit it.
    """

    identity: str = ""
    token: str | None = None
    address: str = ""
    listener: str = ""
    grant: Grant | None = None
    gateway: bool = False


ANYBODY: Final = Client()
CLIENT: ContextVar[Client] = ContextVar("penstock.client", default=ANYBODY)
"""The client that the current task works for; `ANYBODY` where the gateway works for itself."""


class Identities:
    """The configured identities: who shows which token or certificate, and who connects from where."""

    def __init__(
        self,
        tokens: Mapping[str, str],
        networks: Sequence[tuple[Network, str]],
        certificates: Sequence[tuple[CertificatePattern, str]] = (),
    ) -> None:
        """`tokens`: for each the identity; `networks` and `certificates`: each with its identity, the first that has
        an address, or a name of a certificate, counts."""
        self._digests = {_digest(token): name for token, name in tokens.items()}
        self._networks = tuple(networks)
        self._certificates = tuple(certificates)

    @classmethod
    def of(cls, tables: Iterable[tuple[str, Iterable[str], Iterable[str], Iterable[str]]]) -> Identities:
        """From identities with their tokens, the names in their certificates (as `dns:*.example`), and their networks
        (as `10.1.0.0/16`). Raises ValueError for what is no such name or network."""
        tokens: dict[str, str] = {}
        patterns: list[tuple[CertificatePattern, str]] = []
        networks: list[tuple[Network, str]] = []
        for name, shown, certificates, addresses in tables:
            tokens = {**dict.fromkeys(shown, name), **tokens}
            patterns += [(CertificatePattern.parse(text), name) for text in certificates]
            networks += [(ipaddress.ip_network(address), name) for address in addresses]
        return cls(tokens, networks, patterns)

    def of_token(self, token: str) -> str | None:
        """Whose token it is; None: nobody's. How long it takes says nothing about the tokens: digests are compared."""
        return self._digests.get(_digest(token))

    def of_certificate(self, names: Sequence[CertificateName]) -> str | None:
        """Whose certificate has these names; None: nobody's."""
        return next((name for pattern, name in self._certificates if any(map(pattern.match, names))), None)

    def of_address(self, address: str) -> str:
        """Whose address it is, a number without a port; "" for nobody's."""
        if not self._networks:
            return ""
        try:
            number = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return ""
        number = getattr(number, "ipv4_mapped", None) or number
        return next((name for network, name in self._networks if number in network), "")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


NOBODY: Final = Identities({}, ())
"""No identities."""
