"""Access control from a configuration: the file of access tokens, passwords, and listeners closed by default."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.app.config import Config, IdentityTable, SegmentListener
from penstock.app.config.exposure import open_by_mistake
from penstock.core.errors import CannotStart
from penstock.routing.access.authority import Authority
from penstock.routing.access.delegation import Delegation, load_key
from penstock.routing.access.passwords import Passwords
from penstock.routing.access.token_file import TokenFileError

__all__ = ["check_closed", "open_authority", "open_delegation", "passwords"]

KEY_NAME: Final = "delegation.key"


def open_authority(config: Config) -> Authority | None:
    """Open the access tokens; None if none are configured. Raises CannotStart."""
    if config.access is None:
        return None
    try:
        return Authority(Path(config.access.path(config.store.directory)))
    except TokenFileError as error:
        raise CannotStart(f"access.file: {error}") from error


def open_delegation(config: Config, segment: SegmentListener) -> Delegation | None:
    """Open the issuer and verifier of a segment listener's delegation tokens; None if it uses none. Raises
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
    """Map each user name to its identity's name and password hash."""
    return Passwords(
        {
            table.username: (table.name, table.password_hash)
            for table in tables
            if table.username is not None and table.password_hash is not None
        }
    )


def check_closed(config: Config) -> None:
    """Raise CannotStart for a listener that is open to other machines by mistake."""
    for problem in open_by_mistake(config):
        raise CannotStart(problem)
