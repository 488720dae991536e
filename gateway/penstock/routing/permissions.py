"""What a route may let its clients do: read, append, manage. Every operation on a stream needs one of these."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from penstock_codecs.byte_operations import GetAttribute, GetSegmentInfo, Merge, ReadBytes, UpdateAttribute
from penstock_codecs.operations import Append, CheckTail, GetStreamConfig, Locate
from penstock_codecs.table_operations import (
    GetTableInfo,
    ListTable,
    ReadTable,
    ReadTableDelta,
    RemoveTableKeys,
    UpdateTable,
)

__all__ = ["ANY", "NEEDS", "Permission", "needs_of", "trims"]


class Permission(Enum):
    """The value is the word of the configuration."""

    READ = "read"
    APPEND = "append"
    MANAGE = "manage"


ANY: Final = frozenset(Permission)
"""Any of them will do; also: all of them."""
_READ: Final = frozenset({Permission.READ})
_APPEND: Final = frozenset({Permission.APPEND})
_MANAGE: Final = frozenset({Permission.MANAGE})

NEEDS: Final[Mapping[type, frozenset[Permission]]] = {
    CheckTail: ANY,
    GetSegmentInfo: ANY,
    GetStreamConfig: ANY,
    Locate: _READ,
    ReadBytes: _READ,
    Append: _APPEND,
    GetAttribute: _APPEND,  # a writer begins by asking for its position
    UpdateAttribute: _APPEND,
    Merge: _APPEND,  # a transaction is committed
    GetTableInfo: ANY,  # tables hold what readers and writers agree on
    ListTable: ANY,
    ReadTable: ANY,
    ReadTableDelta: ANY,
    UpdateTable: ANY,
    RemoveTableKeys: ANY,
}
"""For operations, what they need one of; the rest needs to manage: create, configure, trim, seal, delete."""


def needs_of(operation: Any) -> frozenset[Permission]:
    """What an operation needs one of."""
    return NEEDS.get(type(operation), _MANAGE)


def trims(append: Any) -> bool:
    """Whether a batch has a record that trims the stream, which is to manage it (S2 fact sheet, 5.3)."""
    headers = getattr(append, "headers", None)
    if not headers:
        return False
    return any(len(one) == 1 and not one[0].name and one[0].value == b"trim" for one in headers.values())
