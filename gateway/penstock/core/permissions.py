"""The permissions that a route gives its clients: read, append, manage. Every operation on a stream needs one of a
set."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from penstock.model.byte_operations import AppendAs, GetAttribute, GetByteStreamInfo, Merge, ReadBytes, UpdateAttribute
from penstock.model.operations import Append, CheckTail, GetStreamConfig, Locate
from penstock.model.table_operations import (
    CreateTable,
    DeleteTable,
    GetTableInfo,
    ListTable,
    ReadTable,
    ReadTableDelta,
    RemoveTableKeys,
    UpdateTable,
)

__all__ = [
    "ANY_PERMISSION",
    "APPEND",
    "MANAGE",
    "NEEDS",
    "READ",
    "Permission",
    "has_trim",
    "needs_of",
]


class Permission(Enum):
    """A permission; the value is the word in the configuration."""

    READ = "read"
    APPEND = "append"
    MANAGE = "manage"


ANY_PERMISSION: Final = frozenset(Permission)
"""All permissions; as a need: any one of them."""
READ: Final = frozenset({Permission.READ})
APPEND: Final = frozenset({Permission.APPEND})
MANAGE: Final = frozenset({Permission.MANAGE})

NEEDS: Final[Mapping[type, frozenset[Permission]]] = {
    CheckTail: ANY_PERMISSION,
    GetByteStreamInfo: ANY_PERMISSION,
    GetStreamConfig: ANY_PERMISSION,
    Locate: READ,
    ReadBytes: READ,
    Append: APPEND,
    AppendAs: APPEND,
    GetAttribute: APPEND,  # a writer begins by asking for its position
    UpdateAttribute: APPEND,
    Merge: APPEND,  # commits a transaction
    GetTableInfo: ANY_PERMISSION,
    ListTable: READ,
    ReadTable: READ,
    ReadTableDelta: READ,
    UpdateTable: APPEND,
    RemoveTableKeys: APPEND,
    CreateTable: APPEND | MANAGE,  # readers create the table that holds their shared positions
    DeleteTable: APPEND | MANAGE,
}
"""The permissions of which each operation needs one. All others need MANAGE: create, configure, trim, seal, delete."""


def needs_of(operation: Any) -> frozenset[Permission]:
    """Return the permissions of which the operation needs one."""
    return NEEDS.get(type(operation), MANAGE)


def has_trim(append: Any) -> bool:
    """Return whether a batch contains a trim command record, which needs MANAGE (S2 fact sheet, 5.3)."""
    headers = getattr(append, "headers", None)
    if not headers:
        return False
    return any(len(pairs) == 1 and not pairs[0].name and pairs[0].value == b"trim" for pairs in headers.values())
