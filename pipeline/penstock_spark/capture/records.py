"""The table `records`: records in messages, as Arrow batches.

Values that the records of one message share are kept once (`_Run`), and repeated for their rows by Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.capture.dialogue import APPENDED, Message, SeenRecord
from penstock.capture.dialogue.columns import LazyRecords, SeenColumns
from penstock.capture.dialogue.records import normal_form
from penstock.model.limits import MIB
from penstock.model.records import Headers
from penstock_spark.capture.facts import FACTS, Facts
from penstock_spark.capture.values import as_times, binaries, column_of, header_lists, in_us, ms_in_us

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "RecordRows"]

BATCH_ROWS: Final = 20_000
BATCH_BYTES: Final = 16 * MIB
"""A batch ends at BATCH_ROWS rows, or at this many bytes of bodies; a single record may be larger."""

_COMMON: Final = attrgetter("action", "stream", "acknowledged", "failure")
_OF_RUNS: Final[Mapping[str, Callable[[_Run], Any]]] = {
    **{name: attrgetter(f"facts.{name}") for name in FACTS},
    "protocol": lambda run: run.facts.protocol or run.message.layer,
    "route": lambda run: run.facts.notes.route_of(run.columns.stream),
    "layer": attrgetter("message.layer"),
    "exchange": attrgetter("message.exchange"),
    "action": attrgetter("columns.action"),
    "stream": lambda run: run.columns.stream or None,
    "acknowledged": attrgetter("columns.acknowledged"),
    "failure": lambda run: run.columns.failure or None,
    "settled": attrgetter("settled_us"),
}


class _Run(NamedTuple):
    """Values shared by consecutive rows of the table."""

    message: Message
    facts: Facts
    columns: SeenColumns

    @property
    def settled_us(self) -> int | None:
        """Time of the server's answer to an append: the server's message is then the one that has the records. None if
        there is none."""
        columns = self.columns
        settled = columns.action == APPENDED and (columns.acknowledged or columns.failure)
        return in_us(self.message.end_ns) if settled else None


class RecordRows:
    """Gathers rows of the table `records` into batches (see BATCH_BYTES)."""

    def __init__(self, schema: pa.Schema, constants: Mapping[str, str | None], *, envelopes: bool = False) -> None:
        """`schema`: the requested columns, any of the table's. `constants`: `file` and `damage`."""
        self._schema = schema
        self._constants = constants
        self._weighs = any(name in ("body", "headers") for name in schema.names)
        self._envelopes = envelopes
        self._begin()

    def _begin(self) -> None:
        self._runs: list[_Run] = []
        self._places: dict[str, dict[int, Any]] = {"record_id": {}, "offset": {}}  # by row: few protocols have them
        self._headers: dict[int, Headers] = {}
        self._rows = self._bytes = 0

    def add(self, message: Message, facts: Facts) -> Iterator[pa.RecordBatch]:
        """Add the records of a message; yield full batches."""
        records = message.records
        if isinstance(records, LazyRecords):
            columns = records.columns
            if len(records) <= BATCH_ROWS and not self._is_large(columns):
                self._append(_Run(message, facts, columns))
                yield from self._full()
                return
        for part in self._parts(records):
            self._append_objects(message, facts, part)
            yield from self._full()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an incomplete batch."""
        if self._rows:
            yield self._take()

    def _full(self) -> Iterator[pa.RecordBatch]:
        if self._rows >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
            yield self._take()

    def _is_large(self, columns: SeenColumns) -> bool:
        return self._weighs and sum(map(len, columns.bodies)) > BATCH_BYTES

    def _parts(self, records: Sequence[SeenRecord]) -> Iterator[Sequence[SeenRecord]]:
        """Split records into parts of at most a batch."""
        part: list[SeenRecord] = []
        size = 0
        for record in records:
            part.append(record)
            size += len(record.body)
            if len(part) >= BATCH_ROWS or (self._weighs and size >= BATCH_BYTES):
                yield part
                part, size = [], 0
        if part:
            yield part

    def _append_objects(self, message: Message, facts: Facts, records: Sequence[SeenRecord]) -> None:
        alike = [records] if len(records) == 1 else [list(same) for _, same in groupby(records, _COMMON)]
        for same in alike:
            for row, record in enumerate(same, self._rows):
                if record.record_id is not None:
                    self._places["record_id"][row] = record.record_id
                if record.offset is not None:
                    self._places["offset"][row] = record.offset
            self._append(_Run(message, facts, _columns(same)))

    def _append(self, run: _Run) -> None:
        columns = run.columns
        if self._envelopes and self._weighs:
            columns = _unwrapped(columns)
            run = run._replace(columns=columns)
        for index, pairs in columns.headers.items():
            self._headers[self._rows + index] = pairs
        if self._weighs:
            self._bytes += sum(map(len, columns.bodies))
        self._runs.append(run)
        self._rows += len(columns.bodies)

    # ---- batches -------------------------------------------------------------------------------------------------

    def _take(self) -> pa.RecordBatch:
        ends = pa.array(accumulate(len(run.columns.bodies) for run in self._runs), pa.int32())
        arrays = [self._column(field.name, field.type, ends) for field in self._schema]
        self._begin()
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, kind: pa.DataType, ends: pa.Array) -> pa.Array:
        if name in self._constants:
            return pa.repeat(pa.scalar(self._constants[name], kind), self._rows)
        if name in _OF_RUNS:
            values = [_OF_RUNS[name](run) for run in self._runs]
            array = as_times(values, kind) if name == "settled" else column_of(values, kind)
            return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, array))
        if name in self._places:
            places = self._places[name]
            return column_of([places.get(row) for row in range(self._rows)], kind) if places else self._nulls(kind)
        if name == "headers":
            return header_lists(self._headers, self._rows, kind)
        return _OF_RECORDS[name]([run.columns for run in self._runs], kind)

    def _nulls(self, kind: pa.DataType) -> pa.Array:
        return pa.nulls(self._rows, kind)


def _columns(records: Sequence[SeenRecord]) -> SeenColumns:
    """Return records, which share the values of `_COMMON`, as columns."""
    first = records[0]
    return SeenColumns(
        first.action,
        first.stream,
        [record.body for record in records],
        {index: record.headers for index, record in enumerate(records) if record.headers},
        [record.seq_num for record in records],
        [record.timestamp for record in records],
        [record.time_ns for record in records],
        first.acknowledged,
        first.failure,
    )


def _seq_nums(runs: Sequence[SeenColumns], kind: pa.DataType) -> pa.Array:
    return column_of([number for columns in runs for number in columns.seq_nums], kind)


def _timestamps(runs: Sequence[SeenColumns], kind: pa.DataType) -> pa.Array:
    return as_times([ms_in_us(stamp) for columns in runs for stamp in columns.timestamps], kind)


def _sent(runs: Sequence[SeenColumns], kind: pa.DataType) -> pa.Array:
    return as_times([in_us(time_ns) for columns in runs for time_ns in columns.times_ns], kind)


def _bodies(runs: Sequence[SeenColumns], kind: pa.DataType) -> pa.Array:
    del kind
    return binaries([body for columns in runs for body in columns.bodies])


_OF_RECORDS: Final[Mapping[str, Callable[[Sequence[SeenColumns], pa.DataType], pa.Array]]] = {
    "seq_num": _seq_nums,
    "timestamp": _timestamps,
    "sent": _sent,
    "body": _bodies,
}


def _unwrapped(columns: SeenColumns) -> SeenColumns:
    """Return the records inside envelopes."""
    headers = dict(columns.headers)
    bodies: list[bytes] = []
    for index, body in enumerate(columns.bodies):
        plain = normal_form(SeenRecord(columns.action, "", body, headers.get(index, ())))
        bodies.append(plain.body)
        if plain.headers:
            headers[index] = plain.headers
    return columns._replace(bodies=bodies, headers=headers)
