"""Who may do what, as a configuration has it: the file of access tokens, and listeners that are closed by default."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.access.authority import Authority
from penstock.access.delegation import Delegation, load_key
from penstock.access.passwords import Passwords
from penstock.access.token_file import TokenFileError
from penstock.config import Config, IdentityTable, SegmentListener
from penstock.config.exposure import open_by_mistake
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
    """Raises CannotStart for a listener that is open to others than this machine by mistake."""
    for problem in open_by_mistake(config):
        raise CannotStart(problem)
