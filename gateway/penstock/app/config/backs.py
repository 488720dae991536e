"""Configuration of the servers behind the gateway; see `penstock.app.config.schema` and docs/routes.md."""

from typing import TYPE_CHECKING, Final, Union

from penstock.protocols.plugin import back_kinds
from penstock.protocols.tables import BackTable

__all__ = ["EMBEDDED", "AnyBack", "BackTable", "kind_of_back"]

EMBEDDED: Final = "embedded"
"""Name of the back that always exists: the store in this process."""

if TYPE_CHECKING:
    AnyBack = BackTable
else:
    AnyBack = Union[tuple(kind.table for kind in back_kinds().values())]  # noqa: UP007 - the members are not known here
"""`[backs.NAME]`; `kind` selects the table."""


def kind_of_back(table: BackTable) -> str:
    """Return the kind of a back."""
    return str(table.__struct_config__.tag)
