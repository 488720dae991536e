"""One append, from being handed over until it is settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import trio

from penstock.model.failures import Failure
from penstock.model.operations import Append, Appended

__all__ = ["PendingAppend", "S2AppendChain"]

_RECORD_BYTES: Final = 64
"""Approximate memory that a record takes beside its metered bytes; it counts towards what is in flight."""


class S2AppendChain:
    """Appends of one session: after the first failure none is applied."""

    __slots__ = ("broken_at", "length")

    def __init__(self) -> None:
        self.length = 0
        self.broken_at: int | None = None

    def link(self) -> int:
        """Return the place of the next append, counted from 1."""
        self.length += 1
        return self.length

    def break_at(self, place: int) -> None:
        """Note that the append at this place has failed or is about to."""
        if self.broken_at is None or place < self.broken_at:
            self.broken_at = place


class _Admits(Protocol):
    def admit(self, pending: PendingAppend) -> None:
        """Pass one more of the admissions that the append must pass."""


class PendingAppend:
    """One append on its way to a server.

    `number`: the sequence number that the append is conditional on, the client's or the gateway's, once it was sent;
    None for an unconditional one. `doubtful`: it was sent on a connection that was lost and may have been applied.
    `unsure`: the same for an unconditional one, which cannot be looked up. `refused`: the server's error when it was
    sent again after that.
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

    def __init__(self, append: Append, chain: S2AppendChain, admits: _Admits, on_settled: Callable[[], object]) -> None:
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
        """Number of records."""
        return len(self.append.bodies)

    @property
    def wants_id(self) -> bool:
        """True if its client gets an identifier: only clients of S3P do, whose appends never create streams."""
        return not self.append.create_if_missing or self.append.exact_timestamp is not None

    @property
    def dropped(self) -> bool:
        """True if an earlier append of its session has failed, so that it must not be applied."""
        return self.chain.broken_at is not None and self.place > self.chain.broken_at

    @property
    def settled(self) -> bool:
        """True once it succeeded or failed."""
        return self.result is not None or self.failure is not None

    def start(self) -> bool:
        """See `penstock.store.admission.Applicant`."""
        self._admits.admit(self)
        return True

    def begin(self) -> None:
        """Wake the task in `wait_started`: there is room."""
        self.started = True
        if self._started is not None:
            self._started.set()

    async def wait_started(self) -> None:
        """Wait for room."""
        self._started = trio.Event()
        await self._started.wait()

    def succeed(self, result: Appended) -> None:
        """Settle it as applied: the server acknowledged it, or it was read back."""
        self.result = result
        self.on_settled()

    def fail(self, failure: Failure) -> None:
        """Settle it as failed: it was not applied, or that is unknown."""
        self.failure = failure
        self.chain.break_at(self.place)
        self.on_settled()
