"""Parses the URLs of servers that commands are given."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from penstock.core.address import Address
from penstock.core.config_fields import check_server
from penstock.model.failures import OperationFailed
from penstock.protocols.plugin import server_kinds, servers_from
from penstock.protocols.servers import Server, ServerKind

__all__ = ["BadTarget", "examples", "parse_target", "schemes"]


class BadTarget(ValueError):
    """Raised for a URL that names no server; the message says why in one line."""


def examples() -> str:
    """Return a URL of each kind of server, for help and errors."""
    *most, last = [kind.example for kind in server_kinds().values()]
    return f"{', '.join(most)} or {last}"


def schemes() -> str:
    """Return the schemes of URLs, with their options, and what the aliases stand for, for help."""
    names: list[str] = []
    for kind in server_kinds().values():
        names += [kind.scheme, *(f"{kind.scheme}+{option}" for option in sorted(kind.options))]
        names += [f"{alias} (as {scheme})" for alias, (scheme, _) in kind.aliases.items()]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def parse_target(url: str) -> Server:
    """Parse a URL. Raises BadTarget."""
    try:
        parts = urlsplit(url)
        first, *more = parts.netloc.split(",")
        parts = parts._replace(netloc=first)
        port = parts.port
        others = [urlsplit(f"//{place}") for place in more]
        addresses = [Address(other.hostname or "", other.port or 0) for other in others]
    except ValueError as error:
        raise BadTarget(f"{url!r}: {error}") from None
    name, *options = parts.scheme.split("+")
    default_port = None
    for kind in servers_from(name):
        if parts.scheme in kind.aliases:
            scheme, default_port = kind.aliases[parts.scheme]
            name, *options = scheme.split("+")
        if name == kind.scheme and set(options) <= {"tls", *kind.options}:
            break
    else:
        raise BadTarget(f"{url!r} is no server: give a URL such as {examples()}")
    if parts.query or parts.fragment or parts.username is not None:
        raise BadTarget(f"{url!r}: nothing but HOST:PORT and the name of a basin or scope can be said")
    port = default_port if port is None else port
    if not parts.hostname or port is None:
        raise BadTarget(f"{url!r}: HOST:PORT is missing, as in {examples()}")
    if others and not kind.is_cluster:
        raise BadTarget(f"{url!r} has several addresses: a server of this kind has one")
    address, space = Address(parts.hostname, port), _space(url, parts.path)
    _check(url, kind, (address, *addresses), space)
    return Server(kind, address, "tls" in options, frozenset(options) - {"tls"}, space, tuple(addresses))


def _check(url: str, kind: ServerKind, addresses: Iterable[Address], space: str | None) -> None:
    try:
        for address in addresses:
            check_server("address", str(address))
        if space is not None:
            kind.check_space(space)
    except ValueError as error:
        raise BadTarget(f"{url!r}: {error}") from None
    except OperationFailed as error:
        raise BadTarget(f"{url!r}: {error.failure.message}") from None


def _space(url: str, path: str) -> str | None:
    space, slash, rest = path.removeprefix("/").partition("/")
    if rest or (slash and not space):
        raise BadTarget(f"{url!r}: behind HOST:PORT stands the name of a basin or scope, and no more")
    return unquote(space) or None
