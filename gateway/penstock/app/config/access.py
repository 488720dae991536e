"""Configuration of access tokens; see `penstock.app.config.schema` and docs/access.md."""

from typing import Annotated, Final

from penstock.core.config_fields import Table, key

__all__ = ["Access"]

FILE_NAME: Final = "access.sqlite3"


class Access(Table, frozen=True, kw_only=True):
    """Access tokens with scopes; `penstock token` issues and revokes those in a file. Without this table there are
    none."""

    file: Annotated[
        str | None,
        key(
            "File that stores the tokens, as hashes; absent: access.sqlite3 in store.directory, or the gateway's state"
            " if a back keeps that.",
            example="access.sqlite3",
            path=True,
        ),
    ] = None

    def path(self, store_directory: str) -> str:
        """Return the path of the token file."""
        return f"{store_directory}/{FILE_NAME}" if self.file is None else self.file
