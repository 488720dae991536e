"""Base classes of the configuration tables of listeners and backs, with the keys that all protocols share.

Each protocol's own tables are in its folder, in `config.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Annotated, Final, Literal, TypeVar

from msgspec import Meta

from penstock.core.config_fields import Table, check_tls, key
from penstock.routing.loss.loss import Loss, LossPolicy
from penstock_codecs.byte_layout import Layout

__all__ = [
    "LOST_ACK",
    "MAX_CONNECTIONS",
    "STREAMS_BEFORE_AUTH",
    "Anonymous",
    "BackTable",
    "CommandLossWord",
    "ConfigView",
    "ListenerLimits",
    "ListenerName",
    "ListenerTable",
    "LossTable",
    "LossWord",
    "NamedCertificate",
    "NumberedBackTable",
    "Recover",
    "TlsListener",
]

L = TypeVar("L", bound="ListenerTable")

# ---- listeners -------------------------------------------------------------------------------------------------------

Anonymous = Annotated[
    bool,
    key(
        "Serve every client that reaches the listener, without authentication. Otherwise a listener that other "
        "machines can reach starts only if its clients must authenticate."
    ),
]
"""The key `anonymous` of every listener."""
ListenerName = Annotated[
    Annotated[str, Meta(pattern="^[a-z0-9-]+$")] | None,
    key("What tells it from others of its kind, which [[listeners.KIND]] makes room for.", example="public"),
]
MAX_CONNECTIONS: Final = key(
    "Connections at once. One more closes the one that has been at rest longest; where none is at rest it is refused.",
    least=1,
)
STREAMS_BEFORE_AUTH: Final = key(
    "HTTP/2: the same until the first that is not refused for want of authentication.", least=1
)


_HostName = Annotated[str, Meta(pattern=r"^([*][.])?[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*\Z")]


class NamedCertificate(Table, frozen=True, kw_only=True):
    """A further certificate of a listener, for clients that ask for one of its names (SNI). All others get the
    listener's own tls_certificate."""

    certificate: Annotated[str, key("PEM file with the certificate chain.", example="other.pem", path=True)]
    key: Annotated[str, key("PEM file with its private key.", example="other-key.pem", path=True)]
    names: Annotated[
        tuple[_HostName, ...],
        key("Host names that it is for, also *.example.org; none: those that stand in the certificate."),
    ] = ()


class TlsListener(Table, frozen=True, kw_only=True):
    """Base of all listeners: TLS 1.2 or newer if there is a certificate. Files are read again when they change."""

    tls_certificate: Annotated[
        str | None, key("PEM file with the certificate chain; absent: no TLS.", example="certificate.pem", path=True)
    ] = None
    tls_key: Annotated[
        str | None, key("PEM file with the private key; goes with tls_certificate.", example="key.pem", path=True)
    ] = None
    tls_client_ca: Annotated[
        str | None,
        key(
            "PEM file with the authorities of clients' certificates; absent: clients are not asked for one.",
            example="clients.pem",
            path=True,
        ),
    ] = None
    tls_client_auth: Annotated[
        Literal["required", "optional"],
        key('With tls_client_ca. "required": who shows no certificate is refused; "optional": is served without one.'),
    ] = "required"
    tls_client_crl: Annotated[
        str | None,
        key(
            "PEM file with the revocation lists of those authorities; who stands in one is refused, and so is "
            "everybody of an authority whose list is missing or out of date.",
            example="revoked.pem",
            path=True,
        ),
    ] = None
    tls_handshake_seconds: Annotated[float, key("A TLS handshake must be complete within this.", least=0.1)] = 10.0
    tls_certificates: tuple[NamedCertificate, ...] = ()

    def check_tls(self) -> None:
        """Raise ValueError for keys that need others."""
        check_tls(self.tls_certificate, self.tls_key)
        for name in ("tls_client_ca", "tls_client_crl", "tls_certificates"):
            if getattr(self, name) and self.tls_certificate is None:
                raise ValueError(f"{name} is for TLS: give tls_certificate and tls_key too")
        for given, name in (
            (self.tls_client_crl is not None, "tls_client_crl"),
            (self.tls_client_auth == "optional", 'tls_client_auth = "optional"'),
        ):
            if given and self.tls_client_ca is None:
                raise ValueError(f"{name} is about clients' certificates: give tls_client_ca too")

    @property
    def proves_clients(self) -> bool:
        """True if every client must present a certificate of one of the authorities."""
        return self.tls_client_ca is not None and self.tls_client_auth == "required"

    def clients(self, otherwise: str) -> str:
        """Return which clients are served, in words; `otherwise` describes the requirements besides certificates."""
        if not self.proves_clients:
            return otherwise
        known = f"those who show a certificate of {self.tls_client_ca}"
        return known if otherwise.startswith("anybody") else f"{known}, and {otherwise}"


class ListenerLimits(Table, frozen=True, kw_only=True):
    """Base of the limits of a listener."""

    max_connections: Annotated[int, MAX_CONNECTIONS] = 10_000


class ListenerTable(TlsListener, frozen=True, kw_only=True):
    """Base of the tables `[listeners.KIND]`."""

    name: ListenerName = None
    bind: Annotated[str, key("HOST:PORT; port 0 lets the system choose.")]
    anonymous: Anonymous = False
    limits: ListenerLimits = ListenerLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigView:
    """The parts of the configuration that a listener may depend on, beside its own table.

    `listeners`: all listeners with their labels in routes (`s2`, `s2.public`). `basins`: those of `[[store.basins]]`,
    each with whether an append creates a missing stream. `access_file`: the file of access tokens, None if there are
    none. `usernames`: those of identities. `identified`: labels of the listeners whose routes all require an identity.
    """

    listeners: tuple[tuple[str, ListenerTable], ...] = ()
    basins: Mapping[str, bool] = field(default_factory=dict)
    store_directory: str = ""
    access_file: str | None = None
    usernames: tuple[str, ...] = ()
    identified: frozenset[str] = frozenset()

    def of(self, table: type[L]) -> list[L]:
        """Return the tables of all listeners of one kind."""
        return [listener for _, listener in self.listeners if isinstance(listener, table)]


# ---- losses ----------------------------------------------------------------------------------------------------------

LossWord = Literal["refuse", "envelope", "drop"]
CommandLossWord = Literal["refuse", "envelope"]


_LAYOUTS: Final = {
    "headers": Layout.ENVELOPE_HEADERS,
    "empty_body": Layout.ENVELOPE_EMPTY,
    "command_records": Layout.ENVELOPE_COMMANDS,
}


class LossTable(Table, frozen=True, kw_only=True):
    """Base of the tables that say what becomes of records that a protocol cannot carry."""

    headers: LossWord = "refuse"
    empty_body: str = "refuse"
    command_records: LossWord = "refuse"

    @property
    def policy(self) -> LossPolicy:
        """The policy that the table describes."""
        return LossPolicy(Loss(self.headers), Loss(self.empty_body), Loss(self.command_records))

    @property
    def layout(self) -> Layout:
        """The store's layout for what the table envelopes."""
        found = [layout for key, layout in _LAYOUTS.items() if getattr(self, key) == "envelope"]
        return reduce(or_, found, Layout.PLAIN)


# ---- backs -----------------------------------------------------------------------------------------------------------

Recover = Annotated[
    float, key("How long what was under way when a server was lost waits for it before it fails.", least=0)
]
LOST_ACK: Final = "What is done with an append whose acknowledgement got lost (docs/guarantees.md)."


class BackTable(Table, frozen=True, kw_only=True):
    """Base of the tables of all kinds of backs: connections to a server."""

    tls: Annotated[bool, key("Whether the server is spoken to over TLS.")] = False
    tls_ca: Annotated[
        str | None,
        key(
            "PEM file with the authorities that may have signed its certificate; absent: the system's.",
            example="ca.pem",
            path=True,
        ),
    ] = None
    tls_server_name: Annotated[
        str | None,
        key("Name that its certificate must have; absent: the host of its address.", example="store.example"),
    ] = None
    tls_certificate: Annotated[
        str | None,
        key("PEM file with a certificate that the gateway shows to the server.", example="client.pem", path=True),
    ] = None
    tls_key: Annotated[
        str | None,
        key("PEM file with its private key; goes with tls_certificate.", example="client-key.pem", path=True),
    ] = None
    connect_seconds: Annotated[float, key("To connect, the TLS handshake included.", least=0.01)] = 3.0
    request_seconds: Annotated[
        float, key("For an answer, and for an acknowledgement; reads that follow a stream may wait longer.", least=0.01)
    ] = 5.0
    idle_seconds: Annotated[float, key("A connection that nobody used for so long is closed.", least=1)] = 60.0
    max_connections: Annotated[
        int,
        key(
            "Connections at once; who needs one more waits its turn. Over HTTP/1.1 and S3P, and for appends to "
            "segments, each session has one of its own.",
            least=1,
        ),
    ] = 1000
    recover_seconds: Recover = 10.0
    breaker_failures: Annotated[
        int,
        key(
            "So many failures in a row to connect, or requests in a row that are not answered in time, open the "
            "circuit: requests then fail at once.",
            least=1,
        ),
    ] = 5
    breaker_open_seconds: Annotated[
        float, key("How long the circuit stays open before one request is let through.", least=0.01)
    ] = 1.0

    def check(self) -> None:
        """Raise ValueError for keys that do not go together."""
        check_tls(self.tls_certificate, self.tls_key)
        given = [name for name in ("tls_ca", "tls_server_name", "tls_certificate") if getattr(self, name) is not None]
        if given and not self.tls:
            raise ValueError(f"{given[0]} is for TLS: say tls = true, or leave it out")


class NumberedBackTable(BackTable, frozen=True, kw_only=True):
    """Base of the tables of servers without sequence numbers: the gateway counts their records."""

    exclusive: Annotated[
        bool,
        key(
            "True if no other client appends to the server's streams or trims them. The gateway then does not look for "
            "records of others before it acknowledges an append."
        ),
    ] = False
    create_streams: Annotated[
        bool, key("Whether an append to a stream that is missing creates it, where its client allows that.")
    ] = False
