"""The sink's interface to Spark: `DataFrame.write` and `DataFrame.writeStream` with format `penstock`.

`commit_batch` runs on the driver when all tasks of a batch are over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.model.failures import OperationFailed
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.patience import Patience
from penstock_spark.sink.columns import column_layout_of
from penstock_spark.sink.entries import LedgerOpened, RowTally, committed
from penstock_spark.sink.failures import RowsDiffer, SinkFailed
from penstock_spark.sink.identity import Identity, task_identity
from penstock_spark.sink.ledger import Ledger, ledger_name
from penstock_spark.sink.options import SinkOptions, read_settings
from penstock_spark.sink.task import Task, TaskResources
from penstock_spark.sink.unwritable import Unwritable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["PenstockStreamWriter", "PenstockWriter", "Written", "commit_batch", "open_one_off"]

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """A task's message to the driver. `tally`: of its partition. `ledger`: the stream."""

    identity: Identity
    tally: RowTally
    ledger: str


def open_one_off(client: StreamClient, ledger: str, patience: Callable[[], Patience]) -> None:
    """Create the ledger of a one-off job, before its tasks run."""
    made = Ledger(client, ledger, "", patience)
    made.open()
    made.enter([LedgerOpened(query="")])


def commit_batch(client: StreamClient, messages: Sequence[Written], patience: Callable[[], Patience]) -> None:
    """Enter into the ledger that a batch is committed, and trim earlier entries. Idempotent.

    Raises RowsDiffer if an earlier attempt at this batch had other partitions: it is then unknown whether both stored
    the same. Raises SinkFailed if a later batch was committed.
    """
    tallies = {message.identity.partition: message.tally for message in messages if message.tally.rows}
    if not tallies:
        return
    identity, name = messages[0].identity, messages[0].ledger
    ledger = Ledger(client, name, identity.query, patience)
    ledger.open()
    ledger.check(identity.batch)
    if ledger.committed == identity.batch:
        if dict(ledger.tallies) != tallies:
            raise RowsDiffer(f"{name}: batch {identity.batch} was committed with other rows or partitions")
        return
    others = sorted(part for batch, part in ledger.touched if batch == identity.batch and part not in tallies)
    if others:
        raise RowsDiffer(
            f"{name}: batch {identity.batch} has {len(tallies)} partitions with rows; an earlier attempt at it also "
            f"had {', '.join(map(str, others[:10]))}, so rows may be duplicated"
        )
    ledger.trim(ledger.enter(committed(identity.query, identity.batch, tallies)))


class _Writing:
    """The common base of batch and streaming writers. Pickled: tasks get it from the driver."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool) -> None:
        if overwrite:
            raise SinkFailed(
                "sink penstock: streams can only be appended to, not overwritten; "
                + ("outputMode must be append" if streaming else 'the mode must be "append"')
            )
        self._settings = read_settings(options, streaming=streaming)
        settings = self._settings
        self._layout = column_layout_of(schema, settings.stream, settings.ignore)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of this task's partition."""
        settings = self._settings
        identity = task_identity(settings.sink)
        ledger = ledger_name(settings.ledger, identity.sink)
        with closing(StreamClient(settings.endpoint)) as client:
            aside = Unwritable(identity, settings.unwritable, settings.unwritable_path)
            tools = TaskResources(client, _patience(settings), ledger, settings.create)
            return Written(identity, Task(identity, tools, self._layout, aside).write(iterator), ledger)

    def _commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with closing(StreamClient(self._settings.endpoint)) as client:
            written = [message for message in messages if isinstance(message, Written)]
            commit_batch(client, written, _patience(self._settings))


class PenstockWriter(_Writing, DataSourceArrowWriter):
    """The writer of a batch job."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite, streaming=False)
        if self._own_ledger:
            with closing(StreamClient(self._settings.endpoint)) as client:
                open_one_off(client, self._own_ledger, _patience(self._settings))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the batch: all rows are stored."""
        if self._own_ledger:
            self._forget()
        else:
            self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - they say nothing new
        """Abort the batch: some rows are not stored, and those that are stay. A named batch may be repeated, and
        continues."""
        if self._own_ledger:
            self._forget()

    @property
    def _own_ledger(self) -> str:
        sink = self._settings.sink
        return ledger_name(self._settings.ledger, sink.name) if sink.one_off and sink.name else ""

    def _forget(self) -> None:
        """Delete the ledger. A failure is only logged: the job is over, and not to be repeated for that."""
        try:
            self._delete()
        except OperationFailed as error:
            _LOG.warning("cannot delete the ledger %s of a finished job: %s", self._own_ledger, error)

    def _delete(self) -> None:
        with closing(StreamClient(self._settings.endpoint)) as client:
            Ledger(client, self._own_ledger, "", _patience(self._settings)).delete()


class PenstockStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The writer of a streaming query: one for each micro-batch, and another one to commit it."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite, streaming=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - as Spark
        """Commit the micro-batch: all its rows are stored."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: the repeated batch continues after the rows that are stored."""


def _patience(settings: SinkOptions) -> Callable[[], Patience]:
    return partial(Patience, settings.endpoint, reached=True)
