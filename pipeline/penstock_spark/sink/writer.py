"""The sink as Spark sees it: `DataFrame.write` and `DataFrame.writeStream` with format `penstock`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock_codecs.failures import OperationFailed
from penstock_spark.clients.opening import open_client
from penstock_spark.clients.patience import Patience
from penstock_spark.sink.columns import layout_of
from penstock_spark.sink.commit import Written, commit_batch, open_one_off
from penstock_spark.sink.failures import SinkFailed
from penstock_spark.sink.identity import task_identity
from penstock_spark.sink.ledger import Ledger, ledger_name
from penstock_spark.sink.options import Settings, read_settings
from penstock_spark.sink.task import Task, Tools

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["PenstockStreamWriter", "PenstockWriter"]


_LOG: Final = logging.getLogger(__name__)


class _Writing:
    """What batch and streaming have in common. Pickled: tasks get it from the driver."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool) -> None:
        if overwrite:
            raise SinkFailed(
                "sink penstock: a stream cannot be overwritten, only appended to; "
                + ("outputMode must be append" if streaming else 'the mode must be "append"')
            )
        self._settings = read_settings(options, streaming=streaming)
        settings = self._settings
        only_bodies = settings.endpoint.protocol == "segment"
        self._layout = layout_of(schema, settings.stream, settings.ignore, only_bodies=only_bodies)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of this task's partition."""
        settings = self._settings
        identity = task_identity(settings.sink)
        ledger = _ledger(settings, identity.sink)
        with closing(open_client(settings.endpoint)) as client:
            tools = Tools(client, _patience(settings), ledger, settings.create)
            return Written(identity, Task(identity, tools, self._layout).write(iterator), ledger)

    def _commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with closing(open_client(self._settings.endpoint)) as client:
            written = [message for message in messages if isinstance(message, Written)]
            commit_batch(client, written, _patience(self._settings))


class PenstockWriter(_Writing, DataSourceArrowWriter):
    """A batch job."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite, streaming=False)
        if self._own_ledger:
            with closing(open_client(self._settings.endpoint)) as client:
                open_one_off(client, self._own_ledger, _patience(self._settings))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All rows are stored."""
        if self._own_ledger:
            self._forget()
        else:
            self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - they say nothing new
        """Some rows are not stored, and those that are stay. A named batch may be done again, and goes on there."""
        if self._own_ledger:
            self._forget()

    @property
    def _own_ledger(self) -> str:
        sink = self._settings.sink
        return _ledger(self._settings, sink.name or "") if sink.one_off else ""

    def _forget(self) -> None:
        """The job is over as it is: a ledger that cannot be deleted is no reason to do it again."""
        try:
            self._delete()
        except OperationFailed as error:
            _LOG.warning("the ledger %s of a job that is over stays: %s", self._own_ledger, error)

    def _delete(self) -> None:
        with closing(open_client(self._settings.endpoint)) as client:
            Ledger(client, self._own_ledger, "", _patience(self._settings)).delete()


class PenstockStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """A streaming query: one is made for each micro-batch, and another one to commit it."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite, streaming=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - as Spark
        """All rows of the micro-batch are stored."""
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Some rows are not stored. The batch will be done again, and goes on there: nothing is forgotten."""


def _patience(settings: Settings) -> Callable[[], Patience]:
    return partial(Patience, settings.endpoint, reached=True)


def _ledger(settings: Settings, sink: str) -> str:
    return ledger_name(settings.ledger, sink) if settings.ledger else ""
