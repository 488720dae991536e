"""The part of a protocol's plug-in that describes and opens a back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from msgspec.structs import replace

from penstock.protocols.tables import BackTable
from penstock.routing.loss.plan import BackSide

if TYPE_CHECKING:
    from penstock.backends.logged_tables import LoggedTables
    from penstock.net.upstream import Watch
    from penstock.protocols.back_opening import BackContext
    from penstock.routing.target import Target

__all__ = ["BackKind"]

B = TypeVar("B", bound=BackTable)


class BackKind(Generic[B]):
    """One kind of back: `[backs.NAME]` with `kind = "KIND"`."""

    title: ClassVar[str]
    """Its name in reports."""
    table: type[B]
    """Its configuration table, tagged with the kind."""
    keeps_partitions_apart: ClassVar[bool] = False
    """True if its server never has stream NAME beside streams NAME/0, NAME/1 and so on; otherwise the gateway looks for
    the other shape before it creates one (`penstock.backends.partition_checks`)."""

    @property
    def kind(self) -> str:
        """The kind: the table's tag."""
        return str(self.table.__struct_config__.tag)

    def open(self, context: BackContext, name: str, table: B) -> AbstractAsyncContextManager[Target]:
        """Open a back until the block ends. Connections are opened on first use.

        Raises CannotStart for files that cannot be used.
        """
        raise NotImplementedError

    @asynccontextmanager
    async def open_checked(self, context: BackContext, name: str, table: B) -> AsyncIterator[Target]:
        """Open a back as `open` does, with the gateway's checks of partitions unless its server makes them."""
        from penstock.backends.partition_checks import PartitionChecks

        async with self.open(context, name, table) as target:
            yield target if self.keeps_partitions_apart else replace(target, back=PartitionChecks(target.back))

    def keeps_state(self, table: B) -> bool:
        """Return whether the server keeps the gateway's state, in place of the embedded store."""
        return False

    def open_state(self, name: str, table: B, watch: Watch) -> AbstractAsyncContextManager[LoggedTables]:
        """Open the gateway's state at a server that keeps it, until the block ends.

        `watch` is called with each connection to the server. Raises CannotStart for files that cannot be used.
        """
        raise NotImplementedError

    def check(self, name: str, table: B) -> None:
        """Check the files that a table names, beside those for TLS. Raises CannotStart."""

    def addresses(self, table: B) -> Mapping[str, str]:
        """Return HOST:PORT of each server by what it is; the name of the main one is ""."""
        return {"": str(getattr(table, "address", ""))}

    def address(self, table: B) -> str:
        """Return HOST:PORT of the server that is connected to first."""
        return next(iter(self.addresses(table).values()))

    def side(self, table: B) -> BackSide:
        """Return how the server keeps records; its capabilities must be those of the open back."""
        return BackSide(kind=self.kind, delivery=str(getattr(table, "delivery", "exactly-once")))

    def describe(self, table: B) -> str:
        """Return remarks for reports, beside its addresses; "" if there are none."""
        return ""

    def sends_secrets(self, table: B) -> bool:
        """Return whether the server is sent a token or password."""
        return False

    def needs_client(self, table: B) -> bool:
        """Return whether operations that no client asks for, as those of a mirror, lack credentials."""
        return False
