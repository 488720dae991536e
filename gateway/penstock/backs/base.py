"""What a front may ask of any back.

A back is embedded (the store in this process) or a client of some other server; a front cannot tell. All methods
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
    """A read has delivered all that there was and now waits at this tail."""

    tail: StreamPosition


class AppendSession(Protocol):
    """Pipelined appends to one stream, acknowledged in order (S2 fact sheet 2.3).

    One task sends, another receives. After the first failure nothing that was sent later is applied: `receive`
    gives the acknowledgements of everything before it, then raises, and `send` does nothing from then on.
    """

    async def send(self, append: Append | AppendBytes) -> None:
        """Hand over the next batch. Waits while too many bytes are in flight; returns before it is durable.

        Raises OperationFailed(INVALID), which changes nothing, for bytes with `match_offset`.

        The batch takes its place before the first checkpoint: appends to a stream, in sessions or alone, are
        applied in the order in which they were handed over, also where they had to wait. A cancelled `send` whose
        batch was still waiting never happened.
        """

    def close(self) -> None:
        """Nothing more will be sent; may be called more than once."""

    async def receive(self) -> list[Appended]:
        """All acknowledgements that are ready, in the order of sending, waiting for at least one.

        An empty list means the end: `close` was called and everything sent has been acknowledged. Raises
        OperationFailed where an append failed, once everything before it has been given. May be cancelled and called
        again: nothing is lost.
        """


class ReadSession(Protocol):
    """A read under way."""

    async def next(self) -> RecordBatch | Following | None:
        """The next batch; `Following` once each time the read has caught up; None at the end.

        Batches that come while it follows are not announced by another `Following`; it comes again only to a
        reader that fell so far behind that it had to catch up once more. May be cancelled (a heartbeat timer does)
        and called again: nothing is lost, and the wait's deadline goes on from where it was.
        """

    def behind(self) -> bool:
        """Whether there are records that `next` would give at once, as far as this read knows; never waits."""

    def tail(self) -> StreamPosition:
        """The stream's tail as far as this read knows, for heartbeats; never waits."""


class Back(Protocol):
    """Where operations are carried out."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this back can do; the rest fails with NOT_IMPLEMENTED."""

    async def perform(self, operation: Operation[R]) -> R:
        """Carry out one operation.

        An `Append` takes its place among all appends to its stream before the first checkpoint, as with
        `AppendSession.send`; cancelling it after that does not undo it.
        """

    def append_session(
        self, stream: StreamRef, create_config: StreamConfig | None = None, *, create_if_missing: bool = True
    ) -> AbstractAsyncContextManager[AppendSession]:
        """Begin pipelined appends. Entering fails where the stream cannot be appended to (or created).

        `create_if_missing` False forbids creating it, whatever the basin allows (as `Append` has it).
        """

    def read_session(self, read: Read) -> AbstractAsyncContextManager[ReadSession]:
        """Begin a read. Entering fails where the start is not satisfiable."""
