"""What a worker and its parent say to each other.

Calls have numbers of their own in each direction, given by whoever asks; an answer is `Done` or `Failed` with that
number. Lanes are append sessions, numbered by the worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.config import Config
from penstock.store.batches import Row, Span
from penstock.store.heads import StreamHead
from penstock_codecs.byte_operations import AppendBytes
from penstock_codecs.failures import Failure
from penstock_codecs.model import StreamRef
from penstock_codecs.operations import Append, Operation
from penstock_codecs.streams import StreamConfig

__all__ = [
    "Acknowledged",
    "Acknowledgements",
    "Ask",
    "Cancel",
    "Close",
    "Done",
    "Drain",
    "Failed",
    "Find",
    "Found",
    "HandOver",
    "Leave",
    "Open",
    "Opened",
    "Perform",
    "Ready",
    "Reconfigured",
    "Refused",
    "State",
    "Welcome",
]

# ---- both ways -----------------------------------------------------------------------------------------------------


class Ask(NamedTuple):
    """Do what is called `what`, see `penstock.workers.process`."""

    call: int
    what: str
    argument: Any


class Done(NamedTuple):
    """A call was carried out."""

    call: int
    result: Any


class Failed(NamedTuple):
    """A call failed."""

    call: int
    failure: Failure


class Cancel(NamedTuple):
    """Nobody waits for this call any more."""

    call: int


# ---- from the worker -----------------------------------------------------------------------------------------------


class Perform(NamedTuple):
    """Carry out an operation; `Done` has its result."""

    call: int
    operation: Operation[Any]


class Open(NamedTuple):
    """Begin an append session; `Done` has an `Opened`."""

    call: int
    lane: int
    stream: StreamRef
    create_config: StreamConfig | None
    create_if_missing: bool


class HandOver(NamedTuple):
    """An append, in a session or, with lane 0, alone. It is acknowledged, or `Failed`, by its number.

    One that was foreseen is the most frequent message, and so a bare tuple: number, lane, and the fields of `Foreseen`.
    """

    call: int
    lane: int
    append: Append | AppendBytes


class Close(NamedTuple):
    """An append session is over."""

    lane: int


class Find(NamedTuple):
    """Find a stream to read, or create it; `Done` has a `Found`. From then on the worker is told what becomes of it,
    until it says `Leave`. A `State` as it is now comes before the answer, also where the worker knows the stream."""

    call: int
    stream: StreamRef
    create_config: StreamConfig | None
    create_if_missing: bool


class Leave(NamedTuple):
    """Nobody in this worker reads the stream of this number any more."""

    stream: int


class Ready(NamedTuple):
    """The worker accepts connections."""


class Refused(NamedTuple):
    """The worker cannot start."""

    reason: str


# ---- from the parent -----------------------------------------------------------------------------------------------


class Welcome(NamedTuple):
    """What the worker is to run. `sockets`: for each listener the descriptors that listen for it."""

    number: int
    config: Config
    sockets: dict[str, list[int]]


class Drain(NamedTuple):
    """As SIGTERM for a gateway of one process."""


class Opened(NamedTuple):
    """The stream of a session: its number, its head as far as decisions go, its resolved configuration."""

    stream: int
    head: StreamHead
    config: StreamConfig


Acknowledged = tuple[int, int, int, int, int, int, int, int, int]
"""The number of an append, and what its `Appended` has: number and timestamp of the first record, number behind the
last one, timestamp and place within its ms of that, length in bytes; number and timestamp of the tail."""


class Acknowledgements(NamedTuple):
    """Of appends, in the order in which they became durable."""

    some: Sequence[Acknowledged]


class Reconfigured(NamedTuple):
    """The resolved configuration of the stream of a lane is another now."""

    lane: int
    config: StreamConfig


class Found(NamedTuple):
    """The number of a stream that was found."""

    stream: int


class State(NamedTuple):
    """What is durable of a stream, and its newest batches: those since the last `State`, or, with `anew`, without
    any connection to what the worker knew of the stream. `begins`: it is the first since `Find`."""

    stream: int
    ref: StreamRef
    head: StreamHead
    alive: bool
    begins: bool
    anew: bool
    batches: Sequence[tuple[Row, Span]]
