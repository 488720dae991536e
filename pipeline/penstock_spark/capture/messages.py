"""The table `messages`: messages and violations of protocols, as Arrow batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa

from penstock.capture.dialogue import Message, Problem
from penstock.capture.plugin import HTTP
from penstock.model.limits import MIB
from penstock_spark.capture.facts import FACTS, Facts
from penstock_spark.capture.values import as_times, column_of, in_us

__all__ = ["BATCH_ROWS", "MessageRows", "as_json"]

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 16 * MIB
"""A batch ends at BATCH_ROWS rows, or at this many characters of the column `fields`."""
PROBLEM: Final = "problem"
_NS_IN_US: Final = 1000
_OF_BOTH: Final[dict[str, Callable[[_Row], Any]]] = {
    **{name: attrgetter(f"facts.{name}") for name in FACTS},
    "sender": lambda row: row.said.sender.value,
    "exchange": lambda row: row.said.exchange,
    "offset": lambda row: row.said.offset,
}
_OF_PROBLEMS: Final[dict[str, Callable[[Problem], Any]]] = {
    "kind": lambda _problem: PROBLEM,
    "start": lambda problem: in_us(problem.time_ns),
    "end": lambda problem: in_us(problem.time_ns),
    "rule": lambda problem: problem.rule,
    "clause": lambda problem: problem.clause or None,
    "fatal": lambda problem: problem.fatal,
    "context": lambda problem: bytes(problem.context),
    "context_offset": lambda problem: problem.context_offset,
}
_OF_ROWS: Final[dict[str, Callable[[_Row], Any]]] = {
    **_OF_BOTH,
    "protocol": lambda row: row.facts.protocol or (None if isinstance(row.said, Problem) else row.said.layer),
    "route": lambda row: row.facts.notes.route_of("" if isinstance(row.said, Problem) else row.said.stream),
    "failed": lambda row: row.failed,
}


class _Row(NamedTuple):
    said: Message | Problem
    facts: Facts
    failed: bool


def as_json(fields: Mapping[str, Any]) -> str:
    """Return a message's fields as JSON; values that JSON cannot express become text."""
    try:
        return orjson.dumps(fields, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):  # integers beyond 64 bits, or strings that are not UTF-8
        return json.dumps(fields, separators=(",", ":"), default=str)


def _answers(message: Message) -> float | None:
    return None if message.answers is None else message.answers / _NS_IN_US


_OF_MESSAGES: Final[dict[str, Callable[[Message], Any]]] = {
    "layer": lambda message: message.layer,
    "kind": lambda message: message.kind,
    "stream": lambda message: message.stream or None,
    "start": lambda message: in_us(message.start_ns),
    "end": lambda message: in_us(message.end_ns),
    "length": lambda message: message.length,
    "answers_us": _answers,
    "records": lambda message: len(message.own_records),
    "metered": lambda message: (
        message.fields.get("metered") if isinstance(message.fields.get("metered"), int) else None
    ),
    "compression": lambda message: message.fields.get("compression") if message.layer != HTTP else None,
    "state": lambda message: message.state or None,
    "failure": lambda message: message.failure or None,
    "fields": lambda message: as_json(message.fields),
}


class MessageRows:
    """Gathers rows of the table `messages` into batches (see BATCH_BYTES). Only values of requested columns are
    kept."""

    def __init__(self, schema: pa.Schema, constants: dict[str, str | None]) -> None:
        """`schema`: the requested columns, any of the table's. `constants`: `file` and `damage`."""
        self._schema = schema
        self._constants = constants
        self._columns: dict[str, list[Any]] = {name: [] for name in schema.names if name not in constants}
        self._rows = self._bytes = 0

    def add(self, item: Message | Problem, facts: Facts, failed: bool) -> Iterator[pa.RecordBatch]:
        """Add a message or a problem; yield full batches. `failed`: as the column."""
        row = _Row(item, facts, failed)
        own: Mapping[str, Callable[[Any], Any]] = _OF_PROBLEMS if isinstance(item, Problem) else _OF_MESSAGES
        for name, values in self._columns.items():
            make = _OF_ROWS.get(name)
            if make is not None:
                values.append(make(row))
            else:
                get = own.get(name)
                values.append(None if get is None else get(item))
        self._rows += 1
        if "fields" in self._columns:
            self._bytes += len(self._columns["fields"][-1] or "")
        if self._rows >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
            yield self._take()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an incomplete batch."""
        if self._rows:
            yield self._take()

    def _take(self) -> pa.RecordBatch:
        arrays = [self._column(field) for field in self._schema]
        for values in self._columns.values():
            values.clear()
        self._rows = self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, field: pa.Field) -> pa.Array:
        if field.name in self._constants:
            return pa.repeat(pa.scalar(self._constants[field.name], field.type), self._rows)
        values = self._columns[field.name]
        return as_times(values, field.type) if field.name in ("start", "end") else column_of(values, field.type)
