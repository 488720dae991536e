"""One append on its way to a server, from being handed over until it is settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import trio

from penstock_codecs.failures import Failure
from penstock_codecs.operations import Append, Appended

__all__ = ["Chain", "Pending"]

_RECORD_BYTES: Final = 64
"""What a record takes in memory beside its metered bytes, about: it counts towards what is in flight."""


class Chain:
    """What the appends of one session have in common: after the first failure none is applied."""

    __slots__ = ("broken_at", "length")

    def __init__(self) -> None:
        self.length = 0
        self.broken_at: int | None = None

    def link(self) -> int:
        """The place of one more append."""
        self.length += 1
        return self.length

    def break_at(self, place: int) -> None:
        """The append at this place has failed or is about to."""
        if self.broken_at is None or place < self.broken_at:
            self.broken_at = place


class _Admits(Protocol):
    def admit(self, pending: Pending) -> None:
        """There is room for it at one more of the gates that it must pass."""


class Pending:
    """See the module.

    `number`: the sequence number that it is appended on condition of, the client's or the gateway's own, once it was
    sent; None where there is no condition. `doubtful`: it was sent on a connection that was lost, so that it may have
    been applied. `unsure`: the same of one without a number, so that nobody can look. `refused`: what the server said
    when it was sent once more after that.
    """

    __slots__ = (
        "_admits",
        "_started",
        "append",
        "chain",
        "doubtful",
        "failure",
        "gates",
        "number",
        "on_settled",
        "place",
        "refused",
        "result",
        "sent_at",
        "size",
        "started",
        "unsure",
    )

    def __init__(self, append: Append, chain: Chain, admits: _Admits, on_settled: Callable[[], object]) -> None:
        self.append = append
        self.chain = chain
        self.place = chain.link()
        self.size = append.metered + _RECORD_BYTES * len(append.bodies)
        self.number: int | None = None
        self.doubtful = False
        self.unsure = False
        self.refused: Failure | None = None
        self.sent_at = 0.0
        self.gates = 0
        self.started = False
        self.result: Appended | None = None
        self.failure: Failure | None = None
        self.on_settled = on_settled
        self._admits = admits
        self._started: trio.Event | None = None

    @property
    def count(self) -> int:
        """How many records it has."""
        return len(self.append.bodies)

    @property
    def wants_id(self) -> bool:
        """Whether its client is told an identifier. Only S3P's appends forbid that streams come into being."""
        return not self.append.create_if_missing or self.append.exact_timestamp is not None

    @property
    def dropped(self) -> bool:
        """Whether one before it in its session has failed, so that it is not to be applied."""
        return self.chain.broken_at is not None and self.place > self.chain.broken_at

    @property
    def settled(self) -> bool:
        """Whether it is known how it ended."""
        return self.result is not None or self.failure is not None

    def start(self) -> bool:
        """See `penstock.store.admission.Applicant`."""
        self._admits.admit(self)
        return True

    def begin(self) -> None:
        """It waits for room no longer."""
        self.started = True
        if self._started is not None:
            self._started.set()

    async def wait_started(self) -> None:
        """Wait for room."""
        self._started = trio.Event()
        await self._started.wait()

    def succeed(self, result: Appended) -> None:
        """The server acknowledged it, or it was read back."""
        self.result = result
        self.on_settled()

    def fail(self, failure: Failure) -> None:
        """It was not applied, or nobody can tell."""
        self.failure = failure
        self.chain.break_at(self.place)
        self.on_settled()
