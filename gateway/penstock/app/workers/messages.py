"""The messages between a worker and its parent.

Each direction numbers its calls on its own; the caller chooses the number, and `CallResult` or `CallFailed` answers
with it. Append sessions are numbered by the worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.app.config import Config
from penstock.core.encryption import EncryptionKey
from penstock.store.append_sessions import KeyedAppend
from penstock.store.batches import BatchRow, ByteSpan
from penstock.store.heads import StreamHead
from penstock.store.usage import UsageRow
from penstock_codecs.byte_operations import AppendBytes
from penstock_codecs.failures import Failure
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Append, Operation
from penstock_codecs.streams import StreamConfig

__all__ = [
    "Acknowledged",
    "Acknowledgements",
    "Ask",
    "CallFailed",
    "CallResult",
    "Cancel",
    "Close",
    "DrainWorker",
    "Find",
    "HandOver",
    "Leave",
    "Open",
    "Perform",
    "Ready",
    "Reconfigured",
    "SessionOpened",
    "StartRefused",
    "StreamFound",
    "StreamUpdate",
    "Used",
    "Welcome",
]

# ---- in both directions ------------------------------------------------------------------------------------------


class Ask(NamedTuple):
    """Call the worker's function `what`; see `penstock.app.workers.process`."""

    call: int
    what: str
    argument: Any


class CallResult(NamedTuple):
    """The result of a call."""

    call: int
    result: Any


class CallFailed(NamedTuple):
    """The failure of a call."""

    call: int
    failure: Failure


class Cancel(NamedTuple):
    """Withdraw a call: its caller no longer waits."""

    call: int


# ---- from the worker -----------------------------------------------------------------------------------------------


class Perform(NamedTuple):
    """Perform an operation; `CallResult` carries its result."""

    call: int
    operation: Operation[Any]


class Open(NamedTuple):
    """Open an append session; `CallResult` carries an `SessionOpened`."""

    call: int
    session: int
    stream: StreamRef
    create_config: StreamConfig | None
    create_if_missing: bool
    key: EncryptionKey | None


class HandOver(NamedTuple):
    """An append, in a session or, with session 0, outside one. Answered by an acknowledgement or `CallFailed` with its
    number.

    A predicted append, the most frequent message, is a bare tuple instead: number, session, and the
    fields of `PreparedAppend`.
    """

    call: int
    session: int
    append: Append | AppendBytes | KeyedAppend


class Close(NamedTuple):
    """Close an append session."""

    session: int


class Find(NamedTuple):
    """Find a stream to read, or create it; `CallResult` carries a `StreamFound`. From then until `Leave` the parent
    sends the stream's changes. A current `StreamUpdate` precedes the answer, even if the worker already knows the
    stream."""

    call: int
    stream: StreamRef
    create_config: StreamConfig | None
    create_if_missing: bool


class Leave(NamedTuple):
    """Stop sending the changes of a stream: this worker has no readers of it any more."""

    stream: int


class Used(NamedTuple):
    """Reads of this worker since the last report, for the store's account of its use."""

    sums: Mapping[UsageRow, int]


class Ready(NamedTuple):
    """The worker accepts connections."""


class StartRefused(NamedTuple):
    """The worker cannot start, for this reason."""

    reason: str


# ---- from the parent -----------------------------------------------------------------------------------------------


class Welcome(NamedTuple):
    """The configuration for the worker to run. `sockets`: the listening descriptors of each listener."""

    number: int
    config: Config
    sockets: dict[str, list[int]]


class DrainWorker(NamedTuple):
    """Drain the worker, as SIGTERM drains a gateway of one process."""


class SessionOpened(NamedTuple):
    """The stream of a session: its number, the head on which appends are sequenced, and its resolved configuration."""

    stream: int
    head: StreamHead
    config: StreamConfig


Acknowledged = tuple[int, int, int, int, int, int, int, int, int]
"""The number of an append and the values of its `Appended`: the sequence number and timestamp of its first record, the
next sequence number, its last record's timestamp and sequence within that ms, the stream's length in bytes; the
sequence number and timestamp of the tail."""


class Acknowledgements(NamedTuple):
    """Acknowledged appends, in the order in which they became durable."""

    some: Sequence[Acknowledged]


class Reconfigured(NamedTuple):
    """The resolved configuration of a session's stream has changed."""

    session: int
    config: StreamConfig


class StreamFound(NamedTuple):
    """The number of the stream that was found."""

    stream: int


class StreamUpdate(NamedTuple):
    """The durable head of a stream and its newest batches: those since the last `StreamUpdate` or, with `fresh`, a
    start that replaces all the worker knew of the stream. `begins`: the first since `Find`."""

    stream: int
    ref: StreamRef
    head: StreamHead
    alive: bool
    begins: bool
    fresh: bool
    batches: Sequence[tuple[BatchRow, ByteSpan]]
