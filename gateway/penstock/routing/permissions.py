"""What a route may let its clients do: read, append, manage. Every operation on a stream needs one of these."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Protocol, runtime_checkable

from penstock_codecs.byte_operations import GetAttribute, GetSegmentInfo, Merge, ReadBytes, UpdateAttribute
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Append, CheckTail, GetStreamConfig, Locate
from penstock_codecs.table_operations import (
    GetTableInfo,
    ListTable,
    ReadTable,
    ReadTableDelta,
    RemoveTableKeys,
    UpdateTable,
)

__all__ = [
    "ANY",
    "APPEND",
    "MANAGE",
    "NEEDS",
    "READ",
    "Permission",
    "Restricts",
    "needs_of",
    "require",
    "require_all",
    "trims",
]


class Permission(Enum):
    """The value is the word of the configuration."""

    READ = "read"
    APPEND = "append"
    MANAGE = "manage"


ANY: Final = frozenset(Permission)
"""Any of them will do; also: all of them."""
READ: Final = frozenset({Permission.READ})
APPEND: Final = frozenset({Permission.APPEND})
MANAGE: Final = frozenset({Permission.MANAGE})

NEEDS: Final[Mapping[type, frozenset[Permission]]] = {
    CheckTail: ANY,
    GetSegmentInfo: ANY,
    GetStreamConfig: ANY,
    Locate: READ,
    ReadBytes: READ,
    Append: APPEND,
    GetAttribute: APPEND,  # a writer begins by asking for its position
    UpdateAttribute: APPEND,
    Merge: APPEND,  # a transaction is committed
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
    return NEEDS.get(type(operation), MANAGE)


def trims(append: Any) -> bool:
    """Whether a batch has a record that trims the stream, which is to manage it (S2 fact sheet, 5.3)."""
    headers = getattr(append, "headers", None)
    if not headers:
        return False
    return any(len(one) == 1 and not one[0].name and one[0].value == b"trim" for one in headers.values())


@runtime_checkable
class Restricts(Protocol):
    """A back that may refuse what the current client asks for."""

    def require(self, stream: StreamRef, needs: frozenset[Permission]) -> None:
        """Raises PERMISSION_DENIED where the client may do nothing of these with the stream."""

    def require_all(self, basin: str, prefix: str) -> None:
        """Raises PERMISSION_DENIED where there may be streams that begin so, and that the client may not manage."""


def require(back: object, stream: StreamRef, needs: frozenset[Permission]) -> None:
    """See `Restricts.require`: for who does something in several steps, the first of which no back hears of."""
    if isinstance(back, Restricts):
        back.require(stream, needs)


def require_all(back: object, basin: str, prefix: str) -> None:
    """See `Restricts.require_all`."""
    if isinstance(back, Restricts):
        back.require_all(basin, prefix)
