"""Configuration of routes and identities; see `penstock.app.config.schema` and docs/routes.md."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from penstock.app.config.backs import EMBEDDED
from penstock.app.config.listeners import kind_of
from penstock.core.certificate_names import CertificatePattern
from penstock.core.config_fields import Table, Token, key
from penstock.core.matching import Match, StreamPattern
from penstock.routing.access.passwords import check_hash
from penstock.routing.rewriting import Rewriting

__all__ = ["IdentityTable", "RouteTable"]


class RouteTable(Table, frozen=True, kw_only=True):
    """A route from clients to a back. The first route that matches a stream takes it; without any route the embedded
    store has all streams. All conditions of a route must hold."""

    name: Annotated[str, key("By which logs, `penstock check` and the management listener call it.", example="orders")]
    listeners: Annotated[
        tuple[str, ...],
        key('Those who came by these: "s2", "s3p", "segment" for all of a kind, "s2.NAME" for one; none: by any.'),
    ] = ()
    identity: Annotated[tuple[str, ...], key("Those who are one of these identities; none: anybody.")] = ()
    match: Annotated[
        Literal["exact", "prefix", "glob", "regex"],
        key(
            'How `stream` is meant. "glob": `*` for anything without a slash, `**` for anything, `?` for one '
            'character; "regex": a regular expression of Python for the whole name, without backreferences and '
            "lookaround."
        ),
    ] = "exact"
    basin: Annotated[
        str | None, key("Streams of this basin, a glob whatever `match` says; absent: of any.", example="telemetry")
    ] = None
    stream: Annotated[str | None, key("Streams with such a name; absent: all.", example="orders")] = None
    back: Annotated[str, key("Which back has them: the NAME of a [backs.NAME], or the embedded store.")] = EMBEDDED
    to_basin: Annotated[
        str | None,
        key(
            "The basin on the back, with captures in braces: {basin}, {stream}, {1} for the first wildcard or group, "
            "{name} for a group with a name, {rest} behind a prefix; absent: the same.",
            example="prod-{basin}",
        ),
    ] = None
    to_stream: Annotated[
        str | None,
        key("The stream on the back, with captures as in to_basin; absent: the same.", example="eu/{stream}"),
    ] = None
    mirror: Annotated[
        str | None,
        key(
            "A second back: streams are copied there and compared record by record, and may be cut over to it "
            "(docs/management.md).",
            example="embedded",
        ),
    ] = None
    mirror_on_refused: Annotated[
        Literal["stop", "skip"],
        key(
            'What becomes of the copy of a stream at a record that the mirror cannot carry. "stop": it ends there; '
            '"skip": it goes on behind it, with smaller sequence numbers.'
        ),
    ] = "stop"
    allow: Annotated[
        tuple[Literal["read", "append", "manage"], ...],
        key(
            'What clients may do. "manage": create, configure, trim, seal and delete; an append may create its stream '
            "without it (create_streams). The rest is refused."
        ),
    ] = ("read", "append", "manage")
    read_only: Annotated[bool, key('Whether clients may only read; the same as allow = ["read"].')] = False
    create_streams: Annotated[bool, key("Whether clients may create streams on the back.")] = True

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name: a route needs a name")
        if not self.allow:
            raise ValueError("allow: a route allows something: read, append, manage")
        self.rewriting()
        if self.mirror == self.back:
            raise ValueError(f"mirror: {self.mirror} is the route's own back")

    def rewriting(self) -> Rewriting:
        """Compile the patterns and templates. Raises ValueError."""
        pattern = StreamPattern.compile(Match(self.match), self.basin, self.stream)
        return Rewriting.compile(pattern, self.to_basin, self.to_stream)

    def serves(self, label: str) -> bool:
        """Return whether clients of the listener with this label may use the route."""
        return not self.listeners or bool({label, kind_of(label)} & set(self.listeners))

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
        by = f", that come by {', '.join(self.listeners)}" if self.listeners else ""
        who = f", of identity {', '.join(self.identity)}" if self.identity else ""
        return f"{stream} {basin}{by}{who}"


class IdentityTable(Table, frozen=True, kw_only=True):
    """The identity of a client, from what it presents: a bearer token (S2), a certificate (docs/tls.md), or the address
    that it connects from. Tokens come before certificates and these before addresses; among the same kind, the first in
    the file wins."""

    name: Annotated[str, key("By which routes and backs call it.", example="analytics")]
    tokens: Annotated[tuple[Token, ...], key("Bearer tokens; a listener with auth_tokens takes them too.")] = ()
    username: Annotated[
        str | None,
        key("User name of Pravega's clients, with password_hash; for delegation_tokens.", example="analytics"),
    ] = None
    password_hash: Annotated[
        str | None,
        key("What `penstock token password` makes of the password.", example="scrypt:16384:8:1:c2FsdA==:aGFzaA=="),
    ] = None
    certificates: Annotated[
        tuple[str, ...],
        key(
            "Names in its clients' certificates, as globs behind their kind: `dns:*.apps.example`, "
            "`email:*@example.org`, `cn:collector`, `uri:urn:app:*`; `spiffe://example.org/ns/*/sa/web` needs none."
        ),
    ] = ()
    addresses: Annotated[
        tuple[str, ...], key("Networks that its clients connect from, as 10.1.0.0/16 or 127.0.0.1.")
    ] = ()

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name: an identity needs a name")
        if (self.username is None) != (self.password_hash is None):
            raise ValueError("username and password_hash go together: give both or neither")
        if self.username is not None and (not self.username or ":" in self.username):
            raise ValueError("username: it is not empty, and has no colon")
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
