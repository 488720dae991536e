"""The state of a transactional producer, as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from penstock.model.records import StreamRef
from penstock_kafka.groups.offsets import CommittedOffset, GroupPartition

__all__ = ["TRANSACTION_TRANSITIONS", "PendingOffset", "TransactionRecord", "TxnPartition", "TxnState"]


class TxnState(Enum):
    """A state of a transactional producer."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    PREPARE_COMMIT = "prepare-commit"
    PREPARE_ABORT = "prepare-abort"
    COMPLETE_COMMIT = "complete-commit"
    COMPLETE_ABORT = "complete-abort"

    @property
    def prepared(self) -> bool:
        """True if the end of the transaction is decided, and not executed yet."""
        return self in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)


_S = TxnState

TRANSACTION_TRANSITIONS: Final[Mapping[TxnState, TxnState]] = {
    _S.PREPARE_COMMIT: _S.COMPLETE_COMMIT,
    _S.PREPARE_ABORT: _S.COMPLETE_ABORT,
}
"""The state that follows when a decision has been executed. A commit whose records cannot be appended becomes
COMPLETE_ABORT."""


class TxnPartition(NamedTuple):
    """A partition that a transaction appends to, and its stream."""

    topic: str
    partition: int
    basin: str
    stream: str

    @property
    def ref(self) -> StreamRef:
        """The stream."""
        return StreamRef(self.basin, self.stream)


class PendingOffset(NamedTuple):
    """An offset that a group commits with the transaction."""

    group: str
    topic: str
    partition: int
    offset: CommittedOffset

    @property
    def of(self) -> GroupPartition:
        """The partition."""
        return GroupPartition(self.topic, self.partition)


class TransactionRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A transactional producer. `serial`: number of its present or last transaction. `begun_at`: of it, `changed_at`:
    of this change, in Unix ms. `identity`: of the client that ends the transaction. `previous_epoch`: an epoch that is
    over, with which the producer may still ask for the next one (KIP-360), -1 for none. `lost`: the transaction was to
    be committed, but a stream did not take its records any more. `owner`: the principal of the client that began this
    epoch."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TxnState = TxnState.EMPTY
    serial: int = 0
    begun_at: int = 0
    changed_at: int = 0
    identity: str = ""
    previous_epoch: int = -1
    partitions: tuple[TxnPartition, ...] = ()
    groups: tuple[str, ...] = ()
    offsets: tuple[PendingOffset, ...] = ()
    lost: bool = False
    owner: str = ""
