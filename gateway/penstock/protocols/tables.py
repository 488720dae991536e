"""Base classes of the configuration tables of listeners and backs, with the keys that all protocols share.

Each protocol's own tables are in its folder, in `config.py`.
"""

import ipaddress
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from penstock.core.config_fields import Table, check_tls, key
from penstock.model.byte_layout import Layout
from penstock.routing.loss.loss import Loss, LossPolicy

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
        "Serve every client that reaches the listener, without authentication. If false, a listener that other "
        "machines can reach starts only if its clients must authenticate."
    ),
]
"""The key `anonymous` of every listener."""
ListenerName = Annotated[
    Annotated[str, Meta(pattern="^[a-z0-9-]+$")] | None,
    key("Name of the listener among several of its kind, which are written as [[listeners.KIND]].", example="public"),
]
MAX_CONNECTIONS: Final = key(
    "Most open connections. A further connection closes the one that has been idle for longest; if none is "
    "idle, it is refused.",
    least=1,
)
STREAMS_BEFORE_AUTH: Final = key(
    "HTTP/2: most concurrent requests on one connection until a request passes authentication.", least=1
)


_HostName = Annotated[str, Meta(pattern=r"^([*][.])?[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*\Z")]
LossWord = Literal["refuse", "envelope", "drop"]
CommandLossWord = Literal["refuse", "envelope"]
_LAYOUTS: Final = {
    "headers": Layout.ENVELOPE_HEADERS,
    "empty_body": Layout.ENVELOPE_EMPTY,
    "command_records": Layout.ENVELOPE_COMMANDS,
}
Recover = Annotated[
    float, key("Time that operations in flight wait for a lost server to return before they fail.", least=0)
]
LOST_ACK: Final = "Treatment of an append whose acknowledgement was lost (docs/guarantees.md)."


class NamedCertificate(Table, frozen=True, kw_only=True):
    """A further certificate of a listener, for clients that ask for one of its host names (SNI). All other clients get
    the listener's own tls_certificate."""

    certificate: Annotated[str, key("PEM file with the certificate chain.", example="other.pem", path=True)]
    key: Annotated[str, key("PEM file with the private key of the certificate.", example="other-key.pem", path=True)]
    names: Annotated[
        tuple[_HostName, ...],
        key(
            "Host names that select the certificate, such as store.example.org or *.example.org; empty: the names "
            "in the certificate."
        ),
    ] = ()


class TlsListener(Table, frozen=True, kw_only=True):
    """Base of all listeners: TLS 1.2 or newer if there is a certificate. Files are read again when they change."""

    tls_certificate: Annotated[
        str | None, key("PEM file with the certificate chain; absent: no TLS.", example="certificate.pem", path=True)
    ] = None
    tls_key: Annotated[
        str | None, key("PEM file with the private key of tls_certificate.", example="key.pem", path=True)
    ] = None
    tls_client_ca: Annotated[
        str | None,
        key(
            "PEM file with the authorities that sign clients' certificates; absent: clients are not asked for "
            "certificates.",
            example="clients.pem",
            path=True,
        ),
    ] = None
    tls_client_auth: Annotated[
        Literal["required", "optional"],
        key(
            'With tls_client_ca: treatment of clients without a certificate. "required": they are refused; '
            '"optional": they are served.'
        ),
    ] = "required"
    tls_client_crl: Annotated[
        str | None,
        key(
            "PEM file with the revocation lists of the authorities in tls_client_ca. Revoked certificates are "
            "refused, and so are all certificates of an authority whose list is missing or out of date.",
            example="revoked.pem",
            path=True,
        ),
    ] = None
    tls_handshake_seconds: Annotated[float, key("Time within which a TLS handshake must be complete.", least=0.1)] = (
        10.0
    )
    tls_certificates: tuple[NamedCertificate, ...] = ()

    def check_tls(self) -> None:
        """Raise ValueError for keys that need others."""
        check_tls(self.tls_certificate, self.tls_key)
        for name in ("tls_client_ca", "tls_client_crl", "tls_certificates"):
            if getattr(self, name) and self.tls_certificate is None:
                raise ValueError(f"{name} is for TLS: give tls_certificate and tls_key too")
        for is_set, name in (
            (self.tls_client_crl is not None, "tls_client_crl"),
            (self.tls_client_auth == "optional", 'tls_client_auth = "optional"'),
        ):
            if is_set and self.tls_client_ca is None:
                raise ValueError(f"{name} is about clients' certificates: give tls_client_ca too")

    @property
    def proves_clients(self) -> bool:
        """True if every client must present a certificate of one of the authorities."""
        return self.tls_client_ca is not None and self.tls_client_auth == "required"

    def clients(self, otherwise: str) -> str:
        """Return which clients are served, in words; `otherwise` describes the requirements besides certificates."""
        if not self.proves_clients:
            return otherwise
        known = f"clients with a certificate of {self.tls_client_ca}"
        return known if otherwise.startswith("any client") else f"{known}, and {otherwise}"


class ListenerLimits(Table, frozen=True, kw_only=True):
    """Base of the limits of a listener."""

    max_connections: Annotated[int, MAX_CONNECTIONS] = 10_000


class ListenerTable(TlsListener, frozen=True, kw_only=True):
    """Base of the tables `[listeners.KIND]`."""

    name: ListenerName = None
    bind: Annotated[str, key("HOST:PORT; port 0 lets the system choose.")]
    anonymous: Anonymous = False
    proxies: Annotated[
        tuple[str, ...],
        key(
            "Networks of the proxies whose word for a client's address is taken. Limits, recordings and identities by "
            "network then see the client.",
            example=["10.0.0.0/28"],
        ),
    ] = ()
    proxy_protocol: Annotated[
        bool,
        key(
            "Every connection must be from one of the proxies and begin with a header of the PROXY protocol, version 1 "
            "or 2, before TLS. Others are closed."
        ),
    ] = False
    forwarded_for: Annotated[
        bool,
        key(
            "HTTP: a request from one of the proxies must name its client in X-Forwarded-For: the last address that is "
            "none of the proxies. Requests without are refused with 400."
        ),
    ] = False
    limits: ListenerLimits = ListenerLimits()

    def check_proxies(self, *, over_http: bool) -> None:
        """Raise ValueError for networks that are none, and keys that need others."""
        for network in self.proxies:
            ipaddress.ip_network(network)
        for is_set, name in ((self.proxy_protocol, "proxy_protocol"), (self.forwarded_for, "forwarded_for")):
            if is_set and not self.proxies:
                raise ValueError(f"{name} needs proxies, the networks of those whose word is taken")
        if self.proxies and not (self.proxy_protocol or self.forwarded_for):
            raise ValueError("proxies needs proxy_protocol or forwarded_for, the way in which they name their clients")
        if self.forwarded_for and not over_http:
            raise ValueError("forwarded_for is for listeners that speak HTTP; proxy_protocol serves all")


class ConfigView(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the configuration that a listener may depend on, beside its own table.

    `listeners`: all listeners with their labels in routes (`s2`, `s2.public`). `basins`: those of `[[store.basins]]`,
    each with whether an append creates a missing stream. `store_directory`: that of the embedded store, "" if there is
    none. `access_tokens`: where access tokens are and what issues them,
    None if there are none. `usernames`: those of identities. `identified`: labels of the listeners whose routes all
    require an identity.
    """

    listeners: tuple[tuple[str, ListenerTable], ...] = ()
    basins: Mapping[str, bool] = msgspec.field(default_factory=dict)
    store_directory: str = ""
    access_tokens: str | None = None
    usernames: tuple[str, ...] = ()
    identified: frozenset[str] = frozenset()

    def of(self, table: type[L]) -> list[L]:
        """Return the tables of all listeners of one kind."""
        return [listener for _, listener in self.listeners if isinstance(listener, table)]


# ---- losses ----------------------------------------------------------------------------------------------------------


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
        layouts = [layout for key, layout in _LAYOUTS.items() if getattr(self, key) == "envelope"]
        return reduce(or_, layouts, Layout.PLAIN)


# ---- backs -----------------------------------------------------------------------------------------------------------


class BackTable(Table, frozen=True, kw_only=True):
    """Base of the tables of all kinds of backs: connections to a server."""

    tls: Annotated[bool, key("Connect to the server over TLS.")] = False
    tls_ca: Annotated[
        str | None,
        key(
            "PEM file with the authorities that may sign the server's certificate; absent: those of the system.",
            example="ca.pem",
            path=True,
        ),
    ] = None
    tls_server_name: Annotated[
        str | None,
        key(
            "Name that the server's certificate must have; absent: the host of the server's address.",
            example="store.example",
        ),
    ] = None
    tls_certificate: Annotated[
        str | None,
        key("PEM file with the certificate that the gateway presents to the server.", example="client.pem", path=True),
    ] = None
    tls_key: Annotated[
        str | None,
        key("PEM file with the private key of tls_certificate.", example="client-key.pem", path=True),
    ] = None
    connect_seconds: Annotated[float, key("Time to connect, including the TLS handshake.", least=0.01)] = 3.0
    request_seconds: Annotated[
        float,
        key(
            "Time to wait for an answer or an acknowledgement; reads that follow a stream may wait longer.", least=0.01
        ),
    ] = 5.0
    idle_seconds: Annotated[float, key("Time after which an unused connection is closed.", least=1)] = 60.0
    max_connections: Annotated[
        int,
        key(
            "Most open connections; requests that need another one wait. Over HTTP/1.1 and S3P, and for appends to "
            "segments, each session has a connection of its own.",
            least=1,
        ),
    ] = 1000
    recover_seconds: Recover = 10.0
    breaker_failures: Annotated[
        int,
        key(
            "Number of consecutive failures that open the circuit breaker, so that requests fail at once. Failures "
            "to connect and requests without an answer in time count.",
            least=1,
        ),
    ] = 5
    breaker_open_seconds: Annotated[
        float, key("Time that the circuit breaker stays open before one request is let through.", least=0.01)
    ] = 1.0
    required: Annotated[
        bool | None,
        key(
            "Answer /ready with 503 while the circuit breaker is open. Absent: only if no route sends clients to "
            "another back.",
            example=True,
        ),
    ] = None

    def check(self) -> None:
        """Raise ValueError for keys that do not go together."""
        check_tls(self.tls_certificate, self.tls_key)
        tls_keys = [
            name for name in ("tls_ca", "tls_server_name", "tls_certificate") if getattr(self, name) is not None
        ]
        if tls_keys and not self.tls:
            raise ValueError(f"{tls_keys[0]} is for TLS: set tls = true, or remove it")


class NumberedBackTable(BackTable, frozen=True, kw_only=True):
    """Base of the tables of servers without sequence numbers: the gateway counts their records."""

    exclusive: Annotated[
        bool,
        key(
            "Promise that no other client appends to the server's streams or trims them. The gateway then "
            "acknowledges an append without looking for records of other clients first."
        ),
    ] = False
    create_streams: Annotated[
        bool, key("Create a missing stream when a client appends to it, if the client's request allows that.")
    ] = False
