"""Configuration of routes and identities; see `penstock.app.config.schema` and docs/routes.md."""

import ipaddress
from typing import Annotated, Literal

from penstock.app.config.backs import EMBEDDED
from penstock.app.config.listeners import listener_kind_of
from penstock.core.certificate_names import CertificatePattern
from penstock.core.config_fields import Table, Token, key
from penstock.core.matching import Match, StreamPattern
from penstock.routing.access.passwords import check_hash
from penstock.routing.rewriting import Rewriting

__all__ = ["IdentityTable", "RouteTable"]


class RouteTable(Table, frozen=True, kw_only=True):
    """A route from clients to a back. The first route whose conditions all match a client and a stream takes the
    stream. Without routes, all streams are in the embedded store."""

    name: Annotated[
        str, key("Name of the route in logs, `penstock check` and on the management listener.", example="orders")
    ]
    listeners: Annotated[
        tuple[str, ...],
        key('Listeners whose clients may use the route: "s2" for all of a kind, "s2.NAME" for one; empty: all.'),
    ] = ()
    identity: Annotated[
        tuple[str, ...], key("Identities of the clients that may use the route; empty: all clients.")
    ] = ()
    match: Annotated[
        Literal["exact", "prefix", "glob", "regex"],
        key(
            'Meaning of `stream`. "exact": the whole name; "prefix": the beginning of the name; "glob": a pattern '
            'with `*` for any text without a slash, `**` for any text and `?` for one character; "regex": a '
            "regular expression for the whole name, in Python's syntax without backreferences and lookaround."
        ),
    ] = "exact"
    basin: Annotated[str | None, key("Glob of the basins, whatever `match` is; absent: all.", example="telemetry")] = (
        None
    )
    stream: Annotated[str | None, key("Names of the streams (see `match`); absent: all.", example="orders")] = None
    back: Annotated[
        str, key('Back of the streams: the NAME of a [backs.NAME], or "embedded" for the embedded store.')
    ] = EMBEDDED
    to_basin: Annotated[
        str | None,
        key(
            "Basin on the back. Parts in braces are replaced: {basin}, {stream}, {1} by the first wildcard or "
            "group, {name} by a named group, {rest} by the text behind a prefix. Absent: the same basin.",
            example="prod-{basin}",
        ),
    ] = None
    to_stream: Annotated[
        str | None,
        key(
            "Name of the stream on the back, with replacements as in to_basin; absent: the same name.",
            example="eu/{stream}",
        ),
    ] = None
    mirror: Annotated[
        str | None,
        key(
            "Second back. The streams are copied there and compared record by record, and a cut-over can exchange "
            "the two backs (docs/management.md).",
            example="embedded",
        ),
    ] = None
    mirror_on_refused: Annotated[
        Literal["stop", "skip"],
        key(
            'Treatment of a record that the mirror cannot carry. "stop": the copy of the stream ends before the '
            'record; "skip": the copy omits the record, and later records have smaller sequence numbers there.'
        ),
    ] = "stop"
    allow: Annotated[
        tuple[Literal["read", "append", "manage"], ...],
        key(
            'Operations that clients may perform; all others are refused. "manage": create, configure, trim, seal '
            'and delete. An append that creates its stream does not need "manage" (see create_streams).'
        ),
    ] = ("read", "append", "manage")
    read_only: Annotated[bool, key('Allow only reads; the same as allow = ["read"].')] = False
    create_streams: Annotated[bool, key("Allow clients to create streams on the back.")] = True

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name: a route needs a name")
        if not self.allow:
            raise ValueError("allow: give at least one of read, append and manage")
        self.rewriting()
        if self.mirror == self.back:
            raise ValueError(f"mirror: {self.mirror} is the route's own back")

    def rewriting(self) -> Rewriting:
        """Compile the patterns and templates. Raises ValueError."""
        pattern = StreamPattern.compile(Match(self.match), self.basin, self.stream)
        return Rewriting.compile(pattern, self.to_basin, self.to_stream)

    def serves(self, label: str) -> bool:
        """Return whether clients of the listener with this label may use the route."""
        return not self.listeners or bool({label, listener_kind_of(label)} & set(self.listeners))

    def takes_basin(self, basin: str) -> bool:
        """Return whether the route may take streams of a basin."""
        return self.rewriting().pattern.may_begin(basin, "")

    @property
    def permissions(self) -> tuple[str, ...]:
        """The operations that clients may perform."""
        return ("read",) if self.read_only else self.allow

    @property
    def takes_all_names(self) -> bool:
        """True if the route takes streams of every name."""
        return self.rewriting().pattern.everything

    @property
    def in_words(self) -> str:
        """A plain description of the streams and clients that the route takes."""
        whole = {"exact": "{}", "prefix": "{}...", "glob": "{} (glob)", "regex": "{} (regular expression)"}[self.match]
        stream = "all streams" if self.stream is None else f"streams {whole.replace('{}', self.stream)}"
        basin = "of any basin" if self.basin is None else f"of basin {self.basin}"
        by = f", of clients on {', '.join(self.listeners)}" if self.listeners else ""
        who = f", with identity {', '.join(self.identity)}" if self.identity else ""
        return f"{stream} {basin}{by}{who}"


class IdentityTable(Table, frozen=True, kw_only=True):
    """An identity of clients, which they prove by a bearer token, a password, a certificate (docs/tls.md), or the
    address from which they connect. Tokens take precedence over certificates, and certificates over addresses; among
    several of the same kind, the first in the file decides."""

    name: Annotated[str, key("Name of the identity in routes and backs.", example="analytics")]
    tokens: Annotated[tuple[Token, ...], key("Bearer tokens; a listener with auth_tokens accepts them too.")] = ()
    username: Annotated[
        str | None,
        key("User name of clients that log in with a password, with password_hash.", example="analytics"),
    ] = None
    password_hash: Annotated[
        str | None,
        key(
            "Hash of the password, as `penstock token password` prints it.",
            example="scrypt:16384:8:1:c2FsdA==:aGFzaA==",
        ),
    ] = None
    certificates: Annotated[
        tuple[str, ...],
        key(
            "Globs of names in clients' certificates, each after its kind: `dns:*.apps.example`, "
            "`email:*@example.org`, `cn:collector`, `uri:urn:app:*`. SPIFFE names need no kind: "
            "`spiffe://example.org/ns/*/sa/web`."
        ),
    ] = ()
    addresses: Annotated[
        tuple[str, ...], key("Networks from which clients connect, such as 10.1.0.0/16 or 127.0.0.1.")
    ] = ()

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name: an identity needs a name")
        if (self.username is None) != (self.password_hash is None):
            raise ValueError("username and password_hash go together: give both or neither")
        if self.username is not None and (not self.username or ":" in self.username):
            raise ValueError("username: must not be empty, nor contain a colon")
        if self.password_hash is not None:
            try:
                check_hash(self.password_hash)
            except ValueError as error:
                raise ValueError(f"password_hash: {error}") from None
        for pattern in self.certificates:
            CertificatePattern.parse(pattern)
        for network in self.addresses:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise ValueError(f"addresses: {error}") from None
