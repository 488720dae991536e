"""The identity of a writer: a sink, its batch, and a partition of that."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Final

from pyspark import TaskContext

from penstock_spark.sink.failures import SinkFailed

__all__ = ["SINK_NAME", "Identity", "PlannedSink", "identity_of", "one_off", "task_identity"]

SINK_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""Valid names of a sink: its ledger's name must be valid in every protocol (docs/names.md), and has limited length."""

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a micro-batch."""


@dataclass(frozen=True, slots=True)
class PlannedSink:
    """The identity of a sink when its job is planned. `name`: None to use the streaming query's id; `batch`: None for
    streaming. `one_off`: the job cannot be repeated."""

    name: str | None
    batch: int | None
    one_off: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """One partition of one batch of a sink. `query`: the id of the streaming query, "" for a batch job."""

    sink: str
    batch: int
    partition: int
    query: str = ""
    one_off: bool = False

    @property
    def owner(self) -> bytes:
        """The identity as written in markers."""
        return f"{self.sink} {self.batch} {self.partition}".encode()

    def __str__(self) -> str:
        return f"sink {self.sink}, batch {self.batch}, partition {self.partition}"


def one_off() -> PlannedSink:
    """Return the sink of a batch job without a name."""
    return PlannedSink(f"job-{uuid.uuid4().hex}", 0, one_off=True)


def identity_of(sink: PlannedSink, partition: int, query: str | None, batch: str | None) -> Identity:
    """Return the identity of a partition; `query` and `batch`: Spark's properties of a micro-batch. Raises SinkFailed
    if they are needed and missing."""
    if sink.batch is not None and sink.name is not None:
        return Identity(sink.name, sink.batch, partition, one_off=sink.one_off)
    if not query or not batch:
        raise SinkFailed(
            f"Spark gave this task no query and batch ({_QUERY}, {_BATCH}): it does not belong to a micro-batch"
        )
    return Identity(sink.name or query, int(batch), partition, query)


def task_identity(sink: PlannedSink) -> Identity:
    """Return the identity of the task that runs here."""
    context = TaskContext.get()
    if context is None:
        raise SinkFailed("rows can be written only by tasks of Spark")
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    return identity_of(sink, context.partitionId(), query, batch)
