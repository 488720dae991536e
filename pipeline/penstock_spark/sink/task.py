"""Write the rows of a partition, each to its stream."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import pyarrow as pa

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.limits import MIB
from penstock_spark.clients.client import StreamClient
from penstock_spark.clients.patience import Patience
from penstock_spark.sink.appending import StreamWriter
from penstock_spark.sink.columns import ColumnLayout, pieces
from penstock_spark.sink.cutting import AppendLimits, AppendRows, Cutter
from penstock_spark.sink.digest import RowPiece
from penstock_spark.sink.entries import RowTally
from penstock_spark.sink.failures import RowsDiffer, SinkFailed
from penstock_spark.sink.identity import Identity
from penstock_spark.sink.ledger import Ledger
from penstock_spark.sink.marker import marker_room
from penstock_spark.sink.unwritable import Unwritable

__all__ = ["Task", "TaskResources", "WriterFactory"]

_MOST_WAITING: Final = 32 * MIB
"""Maximum number of metered bytes of rows that are held to fill appends; beyond it, all are sent as they are."""
_MOST_OPEN: Final = 16
"""Connections that a task appends on at a time; each may have some MiB in flight."""


class TaskResources(NamedTuple):
    """The resources of a task. `ledger`: the stream. `limits`: of an append, with its marker. `create`: see the
    option."""

    client: StreamClient
    patience: Callable[[], Patience]
    ledger: str
    create: bool = False
    limits: AppendLimits = AppendLimits()
    most_waiting: int = _MOST_WAITING
    most_open: int = _MOST_OPEN


class WriterFactory:
    """Creates the writers of a task's streams, with their start positions, which are in the ledger."""

    def __init__(self, identity: Identity, tools: TaskResources) -> None:
        self._identity = identity
        self._tools = tools
        self._ledger: Ledger | None = None
        self.tally: RowTally | None = None
        """The tally of this partition in the committed batch; None if the batch is not committed."""

    def begin(self) -> None:
        """Read the ledger; to be called once there are rows. Raises SinkFailed if this task is too late."""
        if self._ledger is not None:
            return
        identity = self._identity
        tools = self._tools
        ledger = Ledger(tools.client, tools.ledger, identity.query, tools.patience, partition=identity.partition)
        if identity.one_off:
            self._find(ledger)
        else:
            ledger.open()
        ledger.check(identity.batch)
        self._ledger = ledger
        if ledger.committed == identity.batch:
            self.tally = ledger.tallies.get(identity.partition, RowTally(0, _digest({})))

    def writers(self, streams: Iterable[str]) -> dict[str, StreamWriter]:
        """Return writers for streams that are new to the task, which has begun."""
        assert self._ledger is not None
        identity, tools = self._identity, self._tools
        wanted = list(streams)
        before = set(self._ledger.touched.get((identity.batch, identity.partition), ()))
        starts = self._ledger.touch(identity.batch, identity.partition, wanted)
        made: dict[str, StreamWriter] = {}
        for name in wanted:
            writer = self._writer(name, starts[name])
            if name in before:
                tools.patience().over(writer.look_back)
            made[name] = writer
        return made

    def check_others(self, mine: Iterable[str]) -> None:
        """Raise RowsDiffer if an earlier attempt stored rows in other streams than these."""
        if self._ledger is None or self.tally is not None:
            return
        touched = self._ledger.touched.get((self._identity.batch, self._identity.partition), {})
        for name in sorted(touched.keys() - set(mine)):
            rows = self._writer(name, touched[name]).look_back()
            if rows:
                raise RowsDiffer(f"{name}: {self._identity} stored {rows} rows, and has none now")

    def _writer(self, stream: str, start: int) -> StreamWriter:
        tools = self._tools
        return StreamWriter(tools.client, stream, self._identity.owner, start, tools.patience(), create=tools.create)

    def _find(self, ledger: Ledger) -> None:
        try:
            ledger.look()
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
        if not ledger.opened:
            raise SinkFailed(f"{self._tools.ledger}: the ledger of this job is gone, because the job has ended")


@dataclass(slots=True)
class _Stream:
    cutter: Cutter
    writer: StreamWriter | None


class Task:
    """Writes the rows of one partition."""

    def __init__(
        self, identity: Identity, tools: TaskResources, layout: ColumnLayout, unwritable: Unwritable | None = None
    ) -> None:
        self._unwritable = unwritable or Unwritable(identity)
        most_bytes = tools.limits.most_bytes - marker_room(identity.owner)
        self._limits = tools.limits._replace(most_bytes=most_bytes)
        self._identity = identity
        self._tools = tools
        self._layout = layout
        self._places = WriterFactory(identity, tools)
        self._streams: dict[str, _Stream] = {}
        self._open: OrderedDict[str, StreamWriter] = OrderedDict()
        self._waiting = 0
        self._rows = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> RowTally:
        """Take all rows; returns when each is stored once. Raises SinkFailed, and OperationFailed if the server fails
        or is gone for too long."""
        try:
            for batch in batches:
                if batch.num_rows:
                    rows = self._unwritable.sift(batch, self._layout, self._rows, self._limits.most_bytes)
                    if rows.num_rows:
                        self._take(list(pieces(rows, self._layout, self._rows)))
                    self._rows += batch.num_rows
            tally = self._finish()
            self._unwritable.finish()
            return tally
        finally:
            for writer in self._open.values():
                writer.close()

    def _take(self, pieces: list[tuple[str, RowPiece]]) -> None:
        self._places.begin()
        self._meet([name for name, _ in pieces if name not in self._streams])
        for name, piece in pieces:
            stream = self._streams[name]
            self._waiting -= stream.cutter.waiting
            cuts = stream.cutter.add(piece)
            self._waiting += stream.cutter.waiting
            self._put(name, stream, cuts)
        if self._waiting > self._tools.most_waiting:
            self._put_all()

    def _meet(self, names: list[str]) -> None:
        if not names:
            return
        writers = {} if self._places.tally is not None else self._places.writers(names)
        for name in names:
            self._streams[name] = _Stream(Cutter(name, self._limits), writers.get(name))

    def _put(self, name: str, stream: _Stream, cuts: Iterable[AppendRows]) -> None:
        writer = stream.writer
        if writer is None:  # the batch was committed; only the digest is needed
            return
        for cut in cuts:
            if name not in self._open:
                if len(self._open) >= self._tools.most_open:
                    _, oldest = self._open.popitem(last=False)
                    oldest.rest()
                self._open[name] = writer
            self._open.move_to_end(name)
            writer.put(cut)

    def _put_all(self) -> None:
        for name, stream in self._streams.items():
            self._put(name, stream, stream.cutter.rest())
        self._waiting = 0

    def _finish(self) -> RowTally:
        self._put_all()
        for writer in self._writers():
            writer.finish()
        self._places.check_others(self._streams)
        tally = RowTally(self._rows, _digest({name: stream.cutter for name, stream in self._streams.items()}))
        before = self._places.tally
        if before is not None and before != tally:
            raise RowsDiffer(
                f"{self._tools.ledger}: {self._identity} was committed with {before.rows} rows; now it has "
                f"{tally.rows}, or other ones"
            )
        return tally

    def _writers(self) -> Iterator[StreamWriter]:
        return (stream.writer for stream in self._streams.values() if stream.writer is not None)


def _digest(cutters: dict[str, Cutter]) -> str:
    whole = blake2b(digest_size=12)
    for name in sorted(cutters):
        digest = cutters[name].digest
        whole.update(f"{name}\n{digest.rows} {digest.text()}\n".encode())
    return whole.hexdigest()
