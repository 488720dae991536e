"""One append on its way through a lane, and what the appends of one session have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import trio

from penstock.backs.bytes_on_records.intents import Found, Intent
from penstock.backs.bytes_on_records.labels import Batch
from penstock.identity import CLIENT, Client
from penstock_codecs.byte_operations import AppendBytes
from penstock_codecs.failures import Failure, OperationFailed
from penstock_codecs.model import StreamPosition
from penstock_codecs.operations import Appended

__all__ = ["Chain", "Request", "appended"]


class Chain:
    """Appends that were sent one after the other: after the first failure none is applied."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure: Failure | None = None


@dataclass(slots=True, eq=False)
class Request:
    """One append of bytes, until it is settled.

    `pieces`: the bytes, in parts each of which becomes records by itself. `batches`: the records, without those that
    the back has already: their bytes are `skipped`. `match_seq_num`: where the first one must be. `found`: of the
    batches, those that it has now. `client`: whose it is; `token`: what the back is shown for that client.
    """

    append: AppendBytes
    chain: Chain = field(default_factory=Chain)
    on_settled: Callable[[], object] | None = None
    pieces: Sequence[bytes] = ()
    batches: list[Batch] = field(default_factory=list)
    skipped: int = 0
    match_seq_num: int | None = None
    found: list[Found] = field(default_factory=list)
    decided: bool = False
    result: Appended | None = None
    failure: Failure | None = None
    client: Client = field(default_factory=CLIENT.get)
    token: str | None = field(default=None, repr=False)
    _settled: trio.Event = field(default_factory=trio.Event)

    @property
    def size(self) -> int:
        """In bytes, about."""
        return len(self.append.data)

    @property
    def is_settled(self) -> bool:
        """Whether it has a result or a failure."""
        return self._settled.is_set()

    @property
    def intent(self) -> Intent | None:
        """What is to be remembered of it; None where it has no writer."""
        if self.append.writer is None:
            return None
        writer = self.append.writer
        rest = self.batches[len(self.found) :]
        return Intent(writer.writer, writer.position, tuple(batch.print for batch in rest))

    def succeed(self, result: Appended) -> None:
        """It is durable."""
        self.result = result
        self._end()

    def fail(self, failure: Failure) -> None:
        """It was not applied, or nobody knows. Nothing that was sent behind it is."""
        self.failure = failure
        if self.chain.failure is None:
            self.chain.failure = failure
        self._end()

    async def wait(self) -> Appended:
        """Its result. Raises OperationFailed."""
        await self._settled.wait()
        if self.result is None:
            assert self.failure is not None
            raise OperationFailed(self.failure)
        return self.result

    async def wait_settled(self) -> None:
        """Wait for its end."""
        await self._settled.wait()

    def _end(self) -> None:
        self.batches, self.pieces = [], ()
        self._settled.set()
        if self.on_settled is not None:
            self.on_settled()


def appended(found: Sequence[Found], tail: StreamPosition) -> Appended:
    """The acknowledgement of what the back has."""
    end = found[-1]
    return Appended(found[0].start, end.end, max(tail, end.end), None, end.end_offset)
