"""Rows that are not valid records: detect them before they are sent, and fail, skip or keep them, as the option says.

They are detected by their content alone, so that each attempt of a task finds the same ones, and the file that keeps
them is written again with the same content under the same name.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock_spark.sink.columns import ColumnLayout
from penstock_spark.sink.failures import SinkFailed
from penstock_spark.sink.marker import MARKER

if TYPE_CHECKING:
    from penstock_spark.sink.identity import Identity

__all__ = ["FAIL", "KEEP", "POLICIES", "SKIP", "Unwritable"]

FAIL: Final = "fail"
SKIP: Final = "skip"
KEEP: Final = "keep"
POLICIES: Final = (FAIL, SKIP, KEEP)

_LOG: Final = logging.getLogger("penstock_spark.sink")
_SHOWN: Final = 10
"""Rows that are logged one by one."""


class Unwritable:
    """The unwritable rows of one task. `policy`: one of `POLICIES`. `path`: the directory for `KEEP`, a path or a URL
    that Arrow supports."""

    def __init__(self, identity: Identity, policy: str = FAIL, path: str = "") -> None:
        self._identity = identity
        self._policy = policy
        self._path = path
        self._kept: list[pa.RecordBatch] = []
        self._count = 0

    def sift(self, batch: pa.RecordBatch, layout: ColumnLayout, first: int, most: int) -> pa.RecordBatch:
        """Return the batch without rows that are not valid records. `first`: the number of its first row in this task;
        `most`: metered bytes of a record. Raises SinkFailed with stream and record, with the policy `FAIL`."""
        reasons = _reasons(batch, layout, most)
        if not reasons:
            return batch
        streams = [layout.stream] * batch.num_rows if layout.stream else batch.column("stream").to_pylist()
        numbers = batch.column("seq_num").to_pylist() if "seq_num" in batch.schema.names else None
        for row, reason in sorted(reasons.items()):
            record = "" if numbers is None else f" (record {numbers[row]})"
            said = f"{streams[row]}: row {first + row} of this task{record} {reason}"
            if self._policy == FAIL:
                raise SinkFailed(f"{said}. With the option unwritable, skip omits such rows, and keep saves them")
            self._count += 1
            if self._count <= _SHOWN:
                _LOG.warning("%s; it is %s", said, "left out" if self._policy == SKIP else "put aside")
        if self._policy == KEEP:
            aside = batch.take(pa.array(sorted(reasons)))
            rows = {"unwritable_row": pa.array([first + row for row in sorted(reasons)], pa.int64())}
            rows["unwritable_reason"] = pa.array([reasons[row] for row in sorted(reasons)], pa.string())
            for name, column in rows.items():
                aside = aside.append_column(name, column)
            self._kept.append(aside)
        return batch.filter(pa.array([row not in reasons for row in range(batch.num_rows)]))

    def finish(self) -> None:
        """Write the kept rows to a Parquet file of this task. Raises SinkFailed if that fails."""
        if self._count > _SHOWN:
            _LOG.warning("%s: %d rows in all cannot be written as records", self._identity, self._count)
        if not self._kept:
            return
        from pyarrow import fs, parquet

        identity = self._identity
        name = f"{identity.sink}-{identity.batch}-{identity.partition}.parquet"
        try:
            system, directory = fs.FileSystem.from_uri(self._path) if "://" in self._path else _local(self._path)
            system.create_dir(directory, recursive=True)
            unfinished = f"{directory}/.{name}.unfinished"
            parquet.write_table(pa.Table.from_batches(self._kept), unfinished, filesystem=system)
            system.move(unfinished, f"{directory}/{name}")
        except (OSError, pa.ArrowException) as error:
            raise SinkFailed(f"{self._path}: cannot save rows there: {error}") from error


def _local(path: str) -> tuple[Any, str]:
    from pyarrow import fs

    return fs.LocalFileSystem(), path.rstrip("/")


def _reasons(batch: pa.RecordBatch, layout: ColumnLayout, most: int) -> dict[int, str]:
    """Return by row why rows are not valid records."""
    body = batch.column("body")
    reasons = dict.fromkeys(_where(body.is_null()), "has no body")
    if layout.stream is None and batch.column("stream").null_count:
        reasons |= dict.fromkeys(_where(batch.column("stream").is_null()), "has no stream")
    if layout.timestamp:
        early = pc.less(batch.column("timestamp").cast(pa.int64()), 0)
        reasons |= dict.fromkeys(_where(early), "has a timestamp before 1970, which records cannot have")
    sizes = pc.fill_null(pc.binary_length(body), 0).to_numpy(zero_copy_only=False).astype(np.int64) + 8
    if layout.headers:
        reasons |= _headers(batch.column("headers"), sizes)
    for row in np.flatnonzero(sizes > most).tolist():
        said = f"is {sizes[row]} bytes (metered, with its headers); at most {most} can be appended"
        reasons.setdefault(row, said)
    return reasons


def _headers(column: pa.Array, sizes: np.ndarray[Any, np.dtype[np.int64]]) -> dict[int, str]:
    """Return by row why headers are invalid; adds their sizes to the rows' `sizes`."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    if not counts.any():
        return {}
    pairs = column.flatten()
    rows = np.repeat(np.arange(len(counts)), counts)
    names, values = (pc.struct_field(pairs, name) for name in ("name", "value"))
    lengths = [pc.fill_null(pc.binary_length(side), 0).to_numpy(zero_copy_only=False) for side in (names, values)]
    own = pc.equal(names.cast(pa.binary()), MARKER).fill_null(False).to_numpy(zero_copy_only=False)  # dropped
    taken = np.where(own, 0, lengths[0] + lengths[1] + 2)
    np.add.at(sizes, rows, taken)
    reasons = {}
    for pair in np.flatnonzero(lengths[0] == 0).tolist():
        row = int(rows[pair])
        command = counts[row] == 1 and names[pair].is_valid and values[pair].is_valid
        reasons[row] = (
            "has a header without name: it is a command to the server (such as fence or trim), not a record"
            if command
            else "has a header without name or value"
        )
    for pair in _where(values.is_null()):
        reasons[int(rows[pair])] = "has a header without name or value"
    return reasons


def _where(mask: pa.Array) -> list[int]:
    rows: list[int] = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).tolist()
    return rows
