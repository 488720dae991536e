"""The table `connections`: each conversation in sum, as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from penstock_codecs.capture import Sender
from penstock_codecs.dialogue.summaries import Summary
from penstock_spark.capture.facts import FACTS, Facts
from penstock_spark.capture.files import Place, plain_name
from penstock_spark.capture.values import as_times, column_of, in_us

__all__ = ["OF_DIALOGUES", "ConnectionRows"]

BATCH_ROWS: Final = 10_000
"""A batch has so many rows."""
OF_DIALOGUES: Final = frozenset({"messages", "problems", "failures", "appended", "delivered"})
"""Columns for which what was said must be decoded."""

_OF_SUMMARIES: Final[dict[str, Callable[[Summary], Any]]] = {
    "server": lambda summary: str(summary.conversation.server),
    "tls": lambda summary: summary.conversation.tls,
    "start": lambda summary: in_us(summary.start_ns),
    "end": lambda summary: in_us(summary.end_ns),
    "ended": lambda summary: summary.ended,
    "reset": lambda summary: summary.reset,
    "whole": lambda summary: summary.whole,
    "client_bytes": lambda summary: summary.sent[Sender.CLIENT],
    "server_bytes": lambda summary: summary.sent[Sender.SERVER],
    "client_chunks": lambda summary: summary.chunks[Sender.CLIENT],
    "server_chunks": lambda summary: summary.chunks[Sender.SERVER],
    "lost_bytes": lambda summary: summary.lost,
    "messages": lambda summary: summary.messages,
    "problems": lambda summary: summary.problems,
    "failures": lambda summary: summary.failures,
    "appended": lambda summary: summary.appended,
    "delivered": lambda summary: summary.delivered,
}
_OF_FACTS: Final[dict[str, Callable[[Facts], Any]]] = {
    **{name: attrgetter(name) for name in (*FACTS, "protocol")},
    "route": lambda facts: facts.notes.route,
    "notes": lambda facts: facts.notes.values,
}


class ConnectionRows:
    """Gathers rows; see `BATCH_ROWS`."""

    def __init__(self, schema: pa.Schema, constants: dict[str, str | None]) -> None:
        """`schema`: the columns that are wanted, any of the table's. `constants`: `file` and `damage`."""
        self._schema = schema
        self._constants = constants
        self._columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        self._rows = 0

    def add(self, summary: Summary, facts: Facts) -> Iterator[pa.RecordBatch]:
        """A conversation that has ended, or is told as far as it went; gives the batches that are full."""
        for name, values in self._columns.items():
            if name in self._constants:
                values.append(self._constants[name])
            elif name in _OF_FACTS:
                values.append(_OF_FACTS[name](facts))
            else:
                values.append(_OF_SUMMARIES[name](summary))
        self._rows += 1
        if self._rows >= BATCH_ROWS:
            yield self._take()

    def unreadable(self, files: Iterable[tuple[Place, str]]) -> None:
        """Rows of files that were left out: `file` and `damage`, and nothing else."""
        for place, why in files:
            said = {"file": plain_name(str(place)), "damage": why}
            for name, values in self._columns.items():
                values.append(said.get(name))
            self._rows += 1

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What has not filled a batch."""
        if self._rows:
            yield self._take()

    def _take(self) -> pa.RecordBatch:
        arrays = [
            as_times(self._columns[field.name], field.type)
            if field.name in ("start", "end")
            else column_of(self._columns[field.name], field.type)
            for field in self._schema
        ]
        for values in self._columns.values():
            values.clear()
        self._rows = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
