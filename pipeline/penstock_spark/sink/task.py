"""What a task does: the rows of a partition, each to its stream."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import pyarrow as pa

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.limits import MIB
from penstock_spark.clients.base import StreamClient
from penstock_spark.clients.patience import Patience
from penstock_spark.sink.appending import StreamWriter
from penstock_spark.sink.columns import Layout, pieces
from penstock_spark.sink.conditional import ConditionalWriter
from penstock_spark.sink.cutting import SEGMENT_LIMITS, Cut, Cutter, Limits, s2_limits
from penstock_spark.sink.digest import Piece
from penstock_spark.sink.entries import Tally
from penstock_spark.sink.failures import RowsDiffer, SinkFailed
from penstock_spark.sink.identity import Identity
from penstock_spark.sink.ledger import Ledger
from penstock_spark.sink.marker import marker_room
from penstock_spark.sink.numbered import NumberedWriter

__all__ = ["Places", "Task", "Tools"]

_MOST_WAITING: Final = 32 * MIB
"""Metered bytes of rows that wait for more of their stream; beyond, all are sent as they are."""
_MOST_OPEN: Final = 16
"""Connections that a task appends on at a time; each may have some MiB under way."""


class Tools(NamedTuple):
    """What a task works with. `ledger`: the stream; "" for segments. `create`: see the option. `limits`: of an append,
    the protocol's where None."""

    client: StreamClient
    patience: Callable[[], Patience]
    ledger: str
    create: bool = False
    most_waiting: int = _MOST_WAITING
    most_open: int = _MOST_OPEN
    limits: Limits | None = None


class Places:
    """Makes the writers of a task's streams, and knows what there is to know before: for S2 the ledger."""

    def __init__(self, identity: Identity, tools: Tools) -> None:
        self._identity = identity
        self._tools = tools
        self._ledger: Ledger | None = None
        self.tally: Tally | None = None
        """What this partition had when its batch was committed; None: it was not committed."""

    def begin(self) -> None:
        """Look at the ledger; do so once there are rows. Raises SinkFailed where this task comes too late."""
        if not self._tools.ledger or self._ledger is not None:
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
            self.tally = ledger.tallies.get(identity.partition, Tally(0, _digest({})))

    def writers(self, streams: Iterable[str]) -> dict[str, StreamWriter]:
        """Writers for streams that the task did not have before."""
        identity, tools = self._identity, self._tools
        if self._ledger is None:
            return {name: self._numbered(name) for name in streams}
        wanted = list(streams)
        before = set(self._ledger.touched.get((identity.batch, identity.partition), ()))
        starts = self._ledger.touch(identity.batch, identity.partition, wanted)
        made: dict[str, StreamWriter] = {}
        for name in wanted:
            writer = self._conditional(name, starts[name])
            if name in before:
                tools.patience().over(writer.look_back)
            made[name] = writer
        return made

    def check_others(self, mine: Iterable[str]) -> None:
        """Raises RowsDiffer where an earlier attempt stored rows in other streams than these."""
        if self._ledger is None or self.tally is not None:
            return
        touched = self._ledger.touched.get((self._identity.batch, self._identity.partition), {})
        for name in sorted(touched.keys() - set(mine)):
            rows = self._conditional(name, touched[name]).look_back()
            if rows:
                raise RowsDiffer(f"{name}: {rows} rows were stored by {self._identity}, and there are none now")

    def _conditional(self, stream: str, start: int) -> ConditionalWriter:
        tools = self._tools
        return ConditionalWriter(
            tools.client, stream, self._identity.owner, start, tools.patience(), create=tools.create
        )

    def _numbered(self, stream: str) -> NumberedWriter:
        tools = self._tools
        return NumberedWriter(tools.client, stream, self._identity, tools.patience(), create=tools.create)

    def _find(self, ledger: Ledger) -> None:
        try:
            ledger.look()
        except OperationFailed as error:
            if error.failure.code is not FailureCode.STREAM_NOT_FOUND:
                raise
        if not ledger.opened:
            raise SinkFailed(f"{self._tools.ledger}: the ledger of this job is gone: the job is over")


@dataclass(slots=True)
class _Stream:
    cutter: Cutter
    writer: StreamWriter | None


class Task:
    """Writes the rows of one partition."""

    def __init__(self, identity: Identity, tools: Tools, layout: Layout) -> None:
        self._identity = identity
        self._tools = tools
        self._layout = layout
        self._places = Places(identity, tools)
        self._streams: dict[str, _Stream] = {}
        self._open: OrderedDict[str, StreamWriter] = OrderedDict()
        self._waiting = 0
        self._rows = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> Tally:
        """Take all rows; returns when each is stored once. Raises SinkFailed, and OperationFailed where the server
        fails or is gone for too long."""
        try:
            for batch in batches:
                if batch.num_rows:
                    self._take(list(pieces(batch, self._layout, self._rows)))
                    self._rows += batch.num_rows
            return self._finish()
        finally:
            for writer in self._open.values():
                writer.close()

    def _take(self, found: list[tuple[str, Piece]]) -> None:
        self._places.begin()
        self._meet([name for name, _ in found if name not in self._streams])
        for name, piece in found:
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
        usual = s2_limits(marker_room(self._identity.owner)) if self._tools.ledger else SEGMENT_LIMITS
        limits = self._tools.limits or usual
        writers = {} if self._places.tally is not None else self._places.writers(names)
        for name in names:
            self._streams[name] = _Stream(Cutter(name, limits), writers.get(name))

    def _put(self, name: str, stream: _Stream, cuts: Iterable[Cut]) -> None:
        writer = stream.writer
        if writer is None:  # the batch was committed; only the digest counts
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

    def _finish(self) -> Tally:
        self._put_all()
        for writer in self._writers():
            writer.finish()
        self._places.check_others(self._streams)
        tally = Tally(self._rows, _digest({name: one.cutter for name, one in self._streams.items()}))
        before = self._places.tally
        if before is not None and before != tally:
            raise RowsDiffer(
                f"{self._tools.ledger}: {self._identity} was committed with {before.rows} rows, of which there are "
                f"{tally.rows} now, or they differ"
            )
        return tally

    def _writers(self) -> Iterator[StreamWriter]:
        return (one.writer for one in self._streams.values() if one.writer is not None)


def _digest(cutters: dict[str, Cutter]) -> str:
    whole = blake2b(digest_size=12)
    for name in sorted(cutters):
        digest = cutters[name].digest
        whole.update(f"{name}\n{digest.rows} {digest.text()}\n".encode())
    return whole.hexdigest()
