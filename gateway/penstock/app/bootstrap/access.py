"""Access control from a configuration: the file of access tokens, passwords, and listeners closed by default."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.app.config import Config, IdentityTable, tokens_in_state
from penstock.app.config.exposure import open_by_mistake
from penstock.backends.logged_tables import LoggedTables
from penstock.core.back import Back
from penstock.core.errors import CannotStart
from penstock.routing.access.authority import Authority, FileOfTokens
from penstock.routing.access.token_file import TokenFileError
from penstock.routing.access.token_table import TableOfTokens

__all__ = ["check_closed", "open_authority", "users"]


def open_authority(config: Config, state: Back) -> Authority | None:
    """Open the access tokens, in `state` if a server keeps that and there is no file of them; None if none are
    configured. Raises CannotStart."""
    if config.access is None:
        return None
    if tokens_in_state(config) is not None:
        assert isinstance(state, LoggedTables), f"{state} is no state at a server"
        return Authority(TableOfTokens(state))
    try:
        return Authority(FileOfTokens(Path(config.access.path(config.store.directory))))
    except TokenFileError as error:
        raise CannotStart(f"access.file: {error}") from error


def users(tables: Iterable[IdentityTable]) -> dict[str, tuple[str, str]]:
    """Return each identity's name and password hash by user name."""
    return {
        table.username: (table.name, table.password_hash)
        for table in tables
        if table.username is not None and table.password_hash is not None
    }


def check_closed(config: Config) -> None:
    """Raise CannotStart for a listener that is open to other machines by mistake."""
    for problem in open_by_mistake(config):
        raise CannotStart(problem)
