"""Who may do what, as a configuration has it: the file of access tokens, and listeners that are closed by default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from penstock.access.authority import Authority
from penstock.access.delegation import Delegation, load_key
from penstock.access.passwords import Passwords
from penstock.access.token_file import TokenFileError
from penstock.config import (
    Address,
    Config,
    ControllerListener,
    IdentityTable,
    Management,
    S2Listener,
    S3PListener,
    SegmentListener,
)
from penstock.config.listeners import AnyListener
from penstock.errors import CannotStart

__all__ = ["check_closed", "open_authority", "open_delegation", "passwords"]

KEY_NAME: Final = "delegation.key"


def open_authority(config: Config) -> Authority | None:
    """The access tokens; None where there are to be none. Raises CannotStart."""
    if config.access is None:
        return None
    try:
        return Authority(Path(config.access.path(config.store.directory)))
    except TokenFileError as error:
        raise CannotStart(f"access.file: {error}") from error


def open_delegation(config: Config, segment: SegmentListener) -> Delegation | None:
    """What issues and checks the delegation tokens of a segment listener; None where it wants none. Raises
    CannotStart."""
    if not segment.delegation_tokens:
        return None
    path = Path(segment.delegation_key_file or Path(config.store.directory, KEY_NAME))
    try:
        key = load_key(path)
    except (OSError, ValueError) as error:
        reason = f"{path} cannot be used: {error.strerror}" if isinstance(error, OSError) else error
        raise CannotStart(f"delegation_key_file: {reason}") from error
    return Delegation(key, segment.delegation_token_seconds)


def passwords(tables: Iterable[IdentityTable]) -> Passwords:
    """Whose user name and password are whose."""
    return Passwords(
        {
            table.username: (table.name, table.password_hash)
            for table in tables
            if table.username is not None and table.password_hash is not None
        }
    )


def check_closed(config: Config) -> None:
    """Raises CannotStart for a listener that others than this machine reach, that serves whoever reaches it, and that
    does not say that this is meant."""
    for label, listener in config.listeners.labelled():
        if not (listener.anonymous or _is_local(listener.bind) or any(_proofs(config, label, listener))):
            raise CannotStart(
                f"listeners.{label}: other machines reach {listener.bind}, and its clients need not prove who they "
                f"are. Give {_ways(listener)}; or say that everybody may use it: anonymous = true (--anonymous)"
            )
    management = config.management
    if not management.enabled or management.anonymous or _is_local(management.bind):
        return
    if not (management.auth_tokens or management.proves_clients):
        raise CannotStart(
            f"management: other machines reach {management.bind}, and its clients need not prove who they are. Give "
            f"{_ways(management)}; or say that everybody may use it: anonymous = true"
        )


def _is_local(bind: str) -> bool:
    return Address.parse(bind).is_loopback


def _proofs(config: Config, label: str, listener: AnyListener) -> Iterator[bool]:
    """Ways in which all clients prove who they are, and whether this listener has them."""
    yield listener.proves_clients
    if isinstance(listener, S2Listener):
        yield bool(listener.auth_tokens) or config.access is not None
    if isinstance(listener, SegmentListener):
        yield listener.delegation_tokens
    if isinstance(listener, ControllerListener):
        yield config.listeners.segment_of(listener).delegation_tokens
    if isinstance(listener, S2Listener | S3PListener):
        kind = label.partition(".")[0]
        routes = [route for route in config.routes if not route.listeners or {label, kind} & set(route.listeners)]
        yield bool(routes) and all(route.identity for route in routes)


def _ways(listener: AnyListener | Management) -> str:
    """The keys by which it would have them."""
    if isinstance(listener, S2Listener):
        return "[access] or auth_tokens, or tls_client_ca"
    if isinstance(listener, S3PListener):
        return "tls_client_ca, or routes that are all for identities"
    if isinstance(listener, Management):
        return "auth_tokens or tls_client_ca"
    return "delegation_tokens of [listeners.segment], or tls_client_ca"
