"""Names of streams and tables that clients do not list: those that some clients keep beside their own streams, such as
transactions, and the gateway's own tables."""

from __future__ import annotations

from typing import Final, Protocol

from penstock.model.records import StreamRef

__all__ = ["GATEWAY_TABLES", "INTERNAL_BASIN", "InternalNames"]

INTERNAL_BASIN: Final = "_pravega"
"""Basin of internal streams, as stored since they were Pravega's alone. Clients cannot name it, and it is not
listed."""

GATEWAY_TABLES: Final = "#"
"""Beginning of the names of the gateway's own tables; no client's table has such a name."""


class InternalNames(Protocol):
    """The names of a protocol's internal streams and tables. Each of them belongs to a stream, its owner."""

    def owner_of(self, name: str) -> StreamRef | None:
        """Return the stream that an internal stream or table belongs to, None if none can have this name. One that is
        no part of another stream is its own owner, as if it were public."""

    def name_beside(self, owner: StreamRef, name: str) -> str | None:
        """Return the name that an internal stream or table called `name` has on a server where its owner is called
        `owner`, None if it can have none there."""
