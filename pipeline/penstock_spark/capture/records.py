"""The table `records`: messages that make records known, as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock_codecs.dialogue import APPENDED, Message, SeenRecord
from penstock_codecs.dialogue.records import normal_form
from penstock_codecs.limits import MIB
from penstock_spark.capture.facts import FACTS, Facts
from penstock_spark.capture.values import MOST_US, as_times, column_of, in_us

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "RecordRows"]

BATCH_ROWS: Final = 20_000
BATCH_BYTES: Final = 16 * MIB
"""A batch is made when it has so many rows, or so many bytes of bodies; one record may be more."""
_US_IN_MS: Final = 1000


class _Run(NamedTuple):
    """What is the same for records that one message brought."""

    facts: Facts
    layer: str
    exchange: int | None
    settled_us: int | None
    rows: int


_OF_RUNS: Final[dict[str, Callable[[_Run], Any]]] = {
    **{name: attrgetter(f"facts.{name}") for name in FACTS},
    "protocol": lambda run: run.facts.protocol or run.layer,
    "layer": lambda run: run.layer,
    "exchange": lambda run: run.exchange,
}


def _timestamp(record: SeenRecord) -> int | None:
    stamp = record.timestamp
    return None if stamp is None or stamp > MOST_US // _US_IN_MS else stamp * _US_IN_MS


_OF_RECORDS: Final[dict[str, Callable[[Sequence[SeenRecord]], list[Any]]]] = {
    "action": lambda records: [record.action for record in records],
    "stream": lambda records: [record.stream or None for record in records],
    "seq_num": lambda records: [record.seq_num for record in records],
    "record_id": lambda records: [record.record_id for record in records],
    "offset": lambda records: [record.offset for record in records],
    "timestamp": lambda records: [_timestamp(record) for record in records],
    "acknowledged": lambda records: [record.acknowledged for record in records],
    "failure": lambda records: [record.failure or None for record in records],
    "sent": lambda records: [in_us(record.time_ns) for record in records],
}


class RecordRows:
    """Gathers rows; see `BATCH_ROWS`."""

    def __init__(self, schema: pa.Schema, constants: dict[str, str | None], *, envelopes: bool = False) -> None:
        """`schema`: the columns that are wanted, any of the table's. `constants`: `file` and `damage`."""
        self._schema = schema
        self._constants = constants
        self._content = any(name in ("body", "headers") for name in schema.names)
        self._envelopes = envelopes
        self._plain = {name: [] for name in schema.names if name in _OF_RECORDS}  # type: dict[str, list[Any]]
        self._bodies: list[bytes] = []
        self._headers: list[Any] = []
        self._routes: list[str | None] = []
        self._settled = "settled" in schema.names
        self._runs: list[_Run] = []
        self._rows = self._bytes = 0

    def add(self, message: Message, facts: Facts) -> Iterator[pa.RecordBatch]:
        """What a message makes known; gives the batches that are full."""
        records = message.records
        if not len(records):
            return
        for part in self._parts(records):
            self._append(message, facts, part)
            if self._rows >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
                yield self._take()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What has not filled a batch."""
        if self._rows:
            yield self._take()

    def _parts(self, records: Sequence[SeenRecord]) -> Iterator[Sequence[SeenRecord]]:
        """Records in parts that are not too large for a batch, by far."""
        start = size = 0
        if self._content:
            for index, record in enumerate(records):
                size += len(record.body)
                if size >= BATCH_BYTES:
                    yield records[start : index + 1]
                    start, size = index + 1, 0
        rest = records[start:] if start else records
        for first in range(0, len(rest), BATCH_ROWS):
            yield rest[first : first + BATCH_ROWS] if len(rest) > BATCH_ROWS else rest

    def _append(self, message: Message, facts: Facts, records: Sequence[SeenRecord]) -> None:
        for name, values in self._plain.items():
            values += _OF_RECORDS[name](records)
        if self._content:
            self._add_content(records)
        if "route" in self._schema.names:
            notes = facts.notes
            self._routes += [notes.route_of(record.stream) for record in records]
        first = records[0]
        settled = first.action == APPENDED and (first.acknowledged or bool(first.failure))
        self._runs.append(
            _Run(facts, message.layer, message.exchange, in_us(message.end_ns) if settled else None, len(records))
        )
        self._rows += len(records)

    def _add_content(self, records: Sequence[SeenRecord]) -> None:
        if self._envelopes:
            for record in records:
                body, headers, *_ = normal_form(record)
                self._bodies.append(body)
                self._headers.append([{"name": name, "value": value} for name, value in headers])
                self._bytes += len(body)
            return
        bodies = [record.body for record in records]
        self._bodies += bodies
        self._bytes += sum(map(len, bodies))
        self._headers += [
            [{"name": name, "value": value} for name, value in record.headers] if record.headers else ()
            for record in records
        ]

    def _take(self) -> pa.RecordBatch:
        ends = pa.array(accumulate(run.rows for run in self._runs), pa.int32())
        arrays = [self._column(field, ends) for field in self._schema]
        for values in (*self._plain.values(), self._bodies, self._headers, self._routes):
            values.clear()
        self._runs = []
        self._rows = self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, field: pa.Field, ends: pa.Array) -> pa.Array:
        name, kind = field.name, field.type
        if name in self._constants:
            return pa.repeat(pa.scalar(self._constants[name], kind), self._rows)
        if name in _OF_RUNS:
            return _spread(column_of([_OF_RUNS[name](run) for run in self._runs], kind), ends)
        if name == "settled":
            return _spread(as_times([run.settled_us for run in self._runs], kind), ends)
        if name in ("timestamp", "sent"):
            return as_times(self._plain[name], kind)
        others = {"body": self._bodies, "headers": self._headers, "route": self._routes}
        return column_of(others[name] if name in others else self._plain[name], kind)


def _spread(values: pa.Array, ends: pa.Array) -> pa.Array:
    """Values of runs as values of their rows."""
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, values))
