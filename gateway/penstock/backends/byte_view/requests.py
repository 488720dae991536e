"""Append requests in a stream's lane, and the chains that join the requests of one session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from penstock.backends.byte_view.intents import FoundBatch, Intent
from penstock.backends.byte_view.labels import LabelledBatch
from penstock.core.identity import CLIENT, Client
from penstock.model.byte_operations import AppendBytes
from penstock.model.failures import Failure, OperationFailed
from penstock.model.operations import Appended
from penstock.model.records import StreamPosition

__all__ = ["ByteAppend", "ByteAppendChain", "ack_of_batches"]


class ByteAppendChain:
    """Appends of one session, sent one after the other: after the first failure none is applied."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure: Failure | None = None


@dataclass(slots=True, eq=False)
class ByteAppend:
    """One append of bytes, until it is settled.

    `pieces`: the bytes in parts; each part becomes records of its own. `batches`: the records to be sent. `skipped`:
    number of leading bytes that the back has already, which `batches` leaves out. `match_seq_num`: the number that the
    first record must get. `found`: the batches that the back is known to have now. `client`: the client that appends.
    `token`: the token that the back is shown for that client.
    """

    append: AppendBytes
    chain: ByteAppendChain = field(default_factory=ByteAppendChain)
    on_settled: Callable[[], object] | None = None
    pieces: Sequence[bytes] = ()
    batches: list[LabelledBatch] = field(default_factory=list)
    skipped: int = 0
    match_seq_num: int | None = None
    found: list[FoundBatch] = field(default_factory=list)
    decided: bool = False
    result: Appended | None = None
    failure: Failure | None = None
    client: Client = field(default_factory=CLIENT.get)
    token: str | None = field(default=None, repr=False)
    _settled: trio.Event = field(default_factory=trio.Event)

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return len(self.append.data)

    @property
    def is_settled(self) -> bool:
        """True if it has a result or a failure."""
        return self._settled.is_set()

    @property
    def intent(self) -> Intent | None:
        """The intent to make durable before the append is sent; None if it has no writer."""
        if self.append.writer is None:
            return None
        writer = self.append.writer
        rest = self.batches[len(self.found) :]
        return Intent(writer.writer, writer.position, tuple(batch.print for batch in rest))

    def succeed(self, result: Appended) -> None:
        """Settle the append with its result: it is durable."""
        self.result = result
        self._end()

    def fail(self, failure: Failure) -> None:
        """Settle the append with a failure: it was not applied, or that is unknown. Fails the chain that it is in."""
        self.failure = failure
        if self.chain.failure is None:
            self.chain.failure = failure
        self._end()

    async def wait(self) -> Appended:
        """Wait until it is settled and return its result. Raises OperationFailed."""
        await self._settled.wait()
        if self.result is None:
            assert self.failure is not None
            raise OperationFailed(self.failure)
        return self.result

    async def wait_settled(self) -> None:
        """Wait until it has a result or a failure."""
        await self._settled.wait()

    def _end(self) -> None:
        self.batches, self.pieces = [], ()
        self._settled.set()
        if self.on_settled is not None:
            self.on_settled()


def ack_of_batches(batches: Sequence[FoundBatch], tail: StreamPosition) -> Appended:
    """Return the acknowledgement of consecutive batches that the back has."""
    end = batches[-1]
    return Appended(batches[0].start, end.end, max(tail, end.end), None, end.end_offset)
