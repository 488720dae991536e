"""Servers by URL, as `penstock replay` and `penstock diff` are given them: SCHEME[+OPTION]://HOST:PORT[/SPACE].

SPACE is the basin or scope that holds all streams on the server; without it each stream keeps the recorded one. The
option `tls` may follow every scheme that is not an alias. The servers of a cluster are HOST:PORT,HOST:PORT.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from penstock.core.address import Address
from penstock.core.config_fields import check_basin

if TYPE_CHECKING:
    from penstock.protocols.back_kind import BackKind
    from penstock.protocols.conformance import Suite

__all__ = ["Server", "ServerKind"]


class Server(msgspec.Struct, frozen=True):
    """A server. `options`: those of its URL, without `tls`. `space`: the basin or scope of all streams there; None: the
    recorded ones. `others`: more addresses of the same cluster, in case the first one does not answer."""

    kind: ServerKind
    address: Address
    tls: bool = False
    options: frozenset[str] = frozenset()
    space: str | None = None
    others: tuple[Address, ...] = ()

    @property
    def place(self) -> str:
        """The server's URL without its space."""
        return f"{self.scheme}://{','.join(map(str, (self.address, *self.others)))}"

    @property
    def scheme(self) -> str:
        """The scheme of the server's URL, with its options."""
        return "+".join((self.kind.scheme, *sorted(self.options), *(["tls"] if self.tls else [])))

    def __str__(self) -> str:
        """Return the server's URL."""
        return self.place if self.space is None else f"{self.place}/{self.space}"


class ServerKind:
    """One kind of server; each protocol has one instance."""

    scheme: ClassVar[str]
    protocol: ClassVar[str]
    """The `Conversation.protocol` that may be played to it as recorded."""
    back: BackKind[Any]
    """The back that reaches it."""
    example: ClassVar[str]
    """A URL, for help and errors."""
    aliases: ClassVar[Mapping[str, tuple[str, int]]] = {}
    """Other schemes, each with what it stands for and its default port."""
    local: ClassVar[str] = ""
    """The URL of a gateway on this machine at its usual port, for names without a server; one kind has it."""
    options: ClassVar[frozenset[str]] = frozenset()
    """Options of its URL beside `tls`."""
    is_cluster: ClassVar[bool] = False
    """True if its URL may have several addresses."""
    takes_token: ClassVar[bool] = False
    """True if it takes a bearer token."""
    default_basin: ClassVar[str | None] = None
    """Basin of streams whose recorded names have none there; None: names have one."""

    def check_space(self, space: str) -> None:
        """Raise ValueError or OperationFailed if the name cannot be that of a basin or scope."""
        check_basin("basin", space)

    def settings(self, server: Server) -> dict[str, Any]:
        """Return the keys of the back's table that the URL determines, beside those for TLS."""
        return {"address": str(server.address)}

    def named(self, server: Server, stream: str) -> tuple[str | None, str]:
        """Return `to_basin` and `to_stream` of a route to the server, for a template `stream`."""
        return server.space or self.default_basin, stream

    def suite(self, _server: Server) -> Suite | None:
        """Return the conformance cases for a server, or None if its protocol has none."""
        return None

    def takes_recorded(self, server: Server, _first: bytes) -> bool:
        """Return whether messages of its protocol are sent as recorded, since no names change on the way. `_first`: the
        recorded client's first bytes, at most 8."""
        return server.space is None
