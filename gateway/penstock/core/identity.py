"""The identity of the client: a front sets it for the task that serves a client; routes, and backs that pass
credentials on, read it.

The bearer token decides who a client is; without one its certificate, without that its address. Otherwise it has no
identity.

It is a context variable, because the code between a front and a back need not know of it; trio gives every child task
the context of its parent.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from penstock.core.certificate_names import CertificateName, CertificatePattern
from penstock.core.encryption import EncryptionKey

if TYPE_CHECKING:
    from penstock.core.grants import Grant
    from penstock.model.records import StreamRef

__all__ = ["ANONYMOUS", "CLIENT", "NO_IDENTITIES", "Client", "Identities"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Client(msgspec.Struct, frozen=True):
    """One client. `identity`: the configured name that its credentials or its address belong to, "" for none.

    `token`: the bearer token that it sent, for backs whose credentials are passed through. `listener`: the name of the
    listener that it connected to, such as `listeners.s2`. `grant`: the permissions of its access token; None if it sent
    none, and then only routes limit it. `encryption_key`: the key that it presented for the stream of its request, if
    any. `gateway`: the client is the gateway itself, finishing what clients have begun; routes for identities admit it.
    """

    identity: str = ""
    token: str | None = None
    address: str = ""
    listener: str = ""
    grant: Grant | None = None
    encryption_key: EncryptionKey | None = None
    gateway: bool = False

    TOKEN: ClassVar[str] = "token:"
    """The beginning of the principal of an access token without an identity."""

    @property
    def principal(self) -> str:
        """Its identity, else `token:` and the id of its access token; "" for neither."""
        return self.identity or (f"{self.TOKEN}{self.grant.info.id}" if self.grant else "")

    def place(self, stream: StreamRef) -> StreamRef:
        """Return the stream that it means by this name; see `Grant.place`."""
        return stream if self.grant is None else self.grant.place(stream)


ANONYMOUS: Final = Client()
CLIENT: ContextVar[Client] = ContextVar("penstock.client", default=ANONYMOUS)
"""The client that the current task works for; `ANONYMOUS` outside the tasks of clients."""


class Identities:
    """The configured identities, found by token, certificate or network."""

    def __init__(
        self,
        tokens: Mapping[str, str],
        networks: Sequence[tuple[Network, str]],
        certificates: Sequence[tuple[CertificatePattern, str]] = (),
    ) -> None:
        """Take the identity of each token, of each network and of each certificate pattern.

        The first network that contains an address counts, and the first pattern that matches a name of a certificate.
        """
        self._digests = {_digest(token): name for token, name in tokens.items()}
        self._tokens = dict(tokens)
        self._networks = tuple(networks)
        self._certificates = tuple(certificates)

    @classmethod
    def of(cls, tables: Iterable[tuple[str, Iterable[str], Iterable[str], Iterable[str]]]) -> Identities:
        """Build from tables of an identity, its tokens, the names in its certificates (such as `dns:*.example`) and its
        networks (such as `10.1.0.0/16`). Raises ValueError for a bad name or network."""
        tokens: dict[str, str] = {}
        patterns: list[tuple[CertificatePattern, str]] = []
        networks: list[tuple[Network, str]] = []
        for name, shown, certificates, addresses in tables:
            tokens = {**dict.fromkeys(shown, name), **tokens}
            patterns += [(CertificatePattern.parse(text), name) for text in certificates]
            networks += [(ipaddress.ip_network(address), name) for address in addresses]
        return cls(tokens, networks, patterns)

    def of_token(self, token: str) -> str | None:
        """Return the identity that the token belongs to, or None. The time taken reveals nothing about the tokens,
        since digests are compared."""
        return self._digests.get(_digest(token))

    def tokens_of(self, identity: str) -> list[str]:
        """Return the tokens of an identity."""
        return [token for token, name in self._tokens.items() if name == identity]

    def of_certificate(self, names: Sequence[CertificateName]) -> str | None:
        """Return the identity that a certificate with these names belongs to, or None."""
        return next((name for pattern, name in self._certificates if any(map(pattern.match, names))), None)

    def of_address(self, address: str) -> str:
        """Return the identity that an address (numeric, without a port) belongs to, or ""."""
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


NO_IDENTITIES: Final = Identities({}, ())
"""The identities if none are configured."""
