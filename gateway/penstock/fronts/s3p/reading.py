"""READ: from a back's batches to one reply (S3P 0.2.0, section 8.3)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final

import trio

from penstock.backs.base import Back, Following, ReadSession
from penstock.policy.loss import LossPolicy, Refusal, carry
from penstock_codecs.failures import FailureCode, OperationFailed, fail
from penstock_codecs.features import Feature
from penstock_codecs.model import U64_MAX, RecordBatch, RecordId
from penstock_codecs.operations import FromRecordId, Read
from penstock_codecs.s3p import Records

__all__ = ["WaitForNext", "read_records"]

WaitForNext = Callable[[ReadSession, float], Awaitable[RecordBatch | Following | None]]
"""`session.next()` until a trio time; None also where nobody waits for the answer any more."""

MOST_AT_ONCE: Final = 1000

_NOTHING_THERE = frozenset({FailureCode.RANGE_NOT_SATISFIABLE})
_GONE = frozenset({FailureCode.STREAM_NOT_FOUND, FailureCode.BASIN_NOT_FOUND, FailureCode.STREAM_DELETION_PENDING})


@dataclass(slots=True)
class _Found:
    """What one READ has come to so far; `seen` counts the records read, delivered or not."""

    timestamps: list[int] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    seen: int = 0
    last: RecordId | None = None
    refusal: Refusal | None = None
    dropped: Counter[Feature] = field(default_factory=Counter)

    def add(self, batch: RecordBatch, policy: LossPolicy) -> None:
        """Take what can be delivered of a batch."""
        carried = carry(batch, policy)
        self.timestamps += carried.timestamps
        self.seqs += carried.seqs
        self.bodies += carried.bodies
        self.dropped += carried.dropped
        self.refusal = carried.refusal
        self.seen += batch.count
        self.last = carried.last

    @property
    def settled(self) -> bool:
        """Whether the client can be answered without waiting for more."""
        return bool(self.bodies) or self.refusal is not None


async def read_records(
    back: Back, read: Read, policy: LossPolicy, wait_for_next: WaitForNext
) -> tuple[Records, Counter[Feature]]:
    """Up to `read.count` records, and what was dropped on the way to them.

    Existing records are given at once; where there are none, `read.wait` seconds are waited for the first. Records
    that the policy drops neither end a wait nor count as an answer: reading goes on behind them. Raises
    NOT_REPRESENTABLE where the first record that could be delivered is one that the policy refuses, and whatever the
    back raises, except for a stream that is deleted during the wait: then there is nothing to give.
    """
    deadline = trio.current_time() + read.wait if read.wait else -math.inf
    most = read.count or MOST_AT_ONCE
    found = _Found()
    while True:
        seen = found.seen
        await _read_on(back, read, policy, wait_for_next, deadline, found, most)
        if found.settled or found.seen == seen or found.last is None:
            break
        # Everything up to the count or bytes was dropped. There may be more behind it, and it is sought in large steps.
        wait = max(0.0, deadline - trio.current_time()) if read.wait else 0.0
        read = replace(read, start=FromRecordId(_after(found.last)), count=max(most, MOST_AT_ONCE), wait=wait)
    if found.refusal is not None and not found.bodies:
        record_id, feature = found.refusal
        raise fail(
            FailureCode.NOT_REPRESENTABLE,
            f"record {record_id} of stream {read.stream} {feature.value}, which S3P cannot carry; "
            f"read from MIN_ID {_after(record_id)} to go past it",
        )
    return Records(found.timestamps[:most], found.seqs[:most], found.bodies[:most]), found.dropped


async def _read_on(
    back: Back, read: Read, policy: LossPolicy, wait_for_next: WaitForNext, deadline: float, found: _Found, most: int
) -> None:
    """One read session, until it ends, the answer is complete, or time is up."""
    waiting = False
    try:
        async with back.read_session(read) as session:
            while found.refusal is None and len(found.bodies) < most:
                got = await (wait_for_next(session, deadline) if waiting else session.next())
                if got is None or (isinstance(got, Following) and found.settled):
                    return
                if isinstance(got, Following):
                    waiting = True
                    continue
                found.add(got, policy)
                if waiting and found.settled:
                    return
    except OperationFailed as error:
        code = error.failure.code
        if not (code in _NOTHING_THERE or (waiting and code in _GONE)):
            raise


def _after(record_id: RecordId) -> RecordId:
    """The smallest identifier that is larger."""
    if record_id.seq < U64_MAX:
        return RecordId(record_id.ms, record_id.seq + 1)
    return RecordId(record_id.ms + 1, 0)
