"""The interface between a front and any back.

A back is embedded (the store in this process) or a client of some other server; a front cannot tell which. All methods
raise `OperationFailed` with a `Failure`; they are cancel-safe unless they say otherwise.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from penstock_codecs.byte_operations import AppendBytes
from penstock_codecs.model import RecordBatch, StreamPosition, StreamRef
from penstock_codecs.operations import Append, Appended, Capability, Operation, Read
from penstock_codecs.streams import StreamConfig

__all__ = ["AppendSession", "Back", "Following", "ReadSession"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Following:
    """The result of a read that has delivered all records and now waits at this tail."""

    tail: StreamPosition


class AppendSession(Protocol):
    """Pipelined appends to one stream, acknowledged in order (S2 fact sheet 2.3).

    One task sends, another receives. After the first failure nothing that was sent later is applied: `receive` returns
    the acknowledgements of everything before it, then raises, and `send` does nothing from then on.
    """

    async def send(self, append: Append | AppendBytes) -> None:
        """Send the next batch: wait while too many bytes are in flight, and return before the batch is durable.

        Raises OperationFailed(INVALID) for bytes with `match_offset`; the session goes on.

        The batch takes its place before the first checkpoint: appends to a stream, in sessions or single, are applied
        in the order in which they were sent, also those that had to wait. A `send` that is cancelled while its batch
        waits has no effect.
        """

    def close(self) -> None:
        """Announce the end of sending; may be called more than once."""

    async def receive(self) -> list[Appended]:
        """Return all acknowledgements that are ready, in the order of sending; wait for at least one.

        An empty list means the end: `close` was called and everything sent has been acknowledged. Raises
        OperationFailed if an append failed, after everything before it has been returned. May be cancelled and called
        again: nothing is lost.
        """


class ReadSession(Protocol):
    """A read in progress."""

    async def next(self) -> RecordBatch | Following | None:
        """Return the next batch, `Following` once each time the read has caught up, or None at the end.

        Batches that arrive while it follows are not announced by another `Following`; that comes again only to a reader
        that fell so far behind that it had to catch up once more. May be cancelled (a heartbeat timer does) and called
        again: nothing is lost, and the wait's deadline stays as it was.
        """

    def behind(self) -> bool:
        """Return whether `next` would return records at once, as far as this read knows; never waits."""

    def tail(self) -> StreamPosition:
        """Return the stream's tail as far as this read knows, for heartbeats; never waits."""


class Back(Protocol):
    """The interface that carries out operations."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities of this back; operations that need others fail with NOT_IMPLEMENTED."""

    async def perform(self, operation: Operation[R]) -> R:
        """Carry out one operation.

        An `Append` takes its place among all appends to its stream before the first checkpoint, as with
        `AppendSession.send`; cancelling it after that does not undo it.
        """

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """Begin pipelined appends. Entering fails if the stream cannot be appended to (or created).

        `create_if_missing` False forbids creating the stream, whatever the basin allows (as in `Append`).
        """

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        """Begin a read. Entering fails if the start is not satisfiable."""
