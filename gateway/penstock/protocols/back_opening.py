"""The parts that a protocol's plug-in builds backs from."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from penstock.core.back import Back
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.byte_layout import Layout
from penstock.net.upstream import Watch, unwatched

if TYPE_CHECKING:
    from penstock.backends.sequence_numbering import IndexedBack, IndexedSettings
    from penstock.core.native import Native
    from penstock.model.records import StreamRef
    from penstock.protocols.tables import NumberedBackTable

__all__ = ["BackContext", "numbering_settings"]


class BackContext(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the gateway that backs are built from.

    `embedded`: the store that keeps what a server cannot, or the tables of the gateway's state at a server. `internal`:
    the back that has the internal streams of servers without any, None if that is `embedded`. `records_only`: no client
    has operations on bytes. `envelopes`: what is enveloped for clients that read records as bytes. `watch` is called
    with each connection to a server.
    """

    embedded: Back
    internal: Back | None = None
    records_only: bool = False
    envelopes: Layout = Layout.PLAIN
    watch: Watch = unwatched

    def numbered(self, native: Native, name: str, table: NumberedBackTable) -> AbstractAsyncContextManager[IndexedBack]:
        """Return a back that numbers the records of a server, and keeps the numbers in the embedded store."""
        from penstock.backends.sequence_numbering import open_indexed

        return open_indexed(native, name, self.embedded, numbering_settings(table))

    def with_bytes(self, records: Back, name: str) -> AbstractAsyncContextManager[Back]:
        """Return a back that adds operations on bytes, kept in the embedded store, to a back of records. `name`: that
        of the back. Sources of merges that are internal streams are on the back `internal`. If there are only records
        it is `records` itself."""
        if self.records_only:
            return nullcontext(records)
        from penstock.backends.byte_view import BytesSettings, open_bytes_on_records

        settings = BytesSettings(envelopes=self.envelopes)
        return open_bytes_on_records(records, name, self.embedded, settings, _Sources(self.internal or self.embedded))


def numbering_settings(table: NumberedBackTable) -> IndexedSettings:
    """Return the settings for numbering a server's records."""
    from penstock.backends.sequence_numbering import IndexedSettings

    return IndexedSettings(
        create_streams=table.create_streams, exclusive=table.exclusive, recover_seconds=table.recover_seconds
    )


class _Sources:
    """Transactions of Pravega's clients, for servers that have none."""

    def __init__(self, internal: Back) -> None:
        self._internal = internal

    def back_of(self, stream: StreamRef) -> Back | None:
        return self._internal if stream.basin == INTERNAL_BASIN else None
