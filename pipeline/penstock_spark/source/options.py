"""The options of the source `penstock`, checked together: every fault is named at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.options import Option, WrongOptions, boolean, endpoint_of, integer, read_options, text
from penstock_spark.source.bounds import EARLIEST, LATEST, StreamBounds, read_end, read_start
from penstock_spark.source.selection import StreamSelection, read_names

__all__ = ["SOURCE_OPTIONS", "SourceOptions", "source_options"]

SOURCE_OPTIONS: Final = (
    Option("basin", text, None, "the basin of streams named without one"),
    Option("stream", text, None, "name of a stream, `basin/stream`"),
    Option("streams", read_names, (), "names of streams, separated by commas or as a JSON array"),
    Option(
        "stream_pattern",
        read_names,
        (),
        "globs (`*`, `?`, `[ab]`) of names, separated like `streams`; a streaming query looks for new streams "
        "at each micro-batch",
    ),
    Option(
        "start",
        read_start,
        StreamBounds({}, EARLIEST),
        "start position; the checkpoint of a streaming query takes precedence",
    ),
    Option("end", read_end, StreamBounds({}, LATEST), "end position; batch only"),
    Option(
        "max_records_per_batch",
        integer(1),
        None,
        "maximum number of records in a micro-batch, divided fairly among streams",
    ),
    Option(
        "records_per_partition",
        integer(1),
        None,
        "number of records that a task reads; by default chosen so that the number of tasks is reasonable",
    ),
    Option(
        "min_partitions",
        integer(1, 100_000),
        1,
        "minimum number of tasks, if there are so many records",
    ),
    Option(
        "fail_on_data_loss",
        boolean,
        True,
        "whether records that were trimmed or deleted before they were read fail the query; otherwise it skips "
        "them, with a warning in the log",
    ),
    Option(
        "unreadable_timestamps",
        boolean,
        False,
        "whether timestamps beyond the year 294246, which Spark cannot represent, become null, with a warning "
        "in the log; otherwise such a record fails the query with an error that names stream and record",
    ),
)
"""Beside these: `endpoint`, and `clients.endpoint.ENDPOINT_OPTIONS`."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The checked options; `max_records_per_batch` and `records_per_partition` None: not set."""

    endpoint: Endpoint
    selection: StreamSelection
    start: StreamBounds
    end: StreamBounds
    max_records_per_batch: int | None
    records_per_partition: int | None
    min_partitions: int
    fail_on_data_loss: bool
    unreadable_timestamps: bool


def source_options(given: Mapping[str, str], *, refused: Mapping[str, str] | None = None) -> SourceOptions:
    """Check the options that Spark passes. `refused`: options that do not apply here, and why.

    Raises WrongOptions with all faults.
    """
    given = {name.lower(): value for name, value in given.items()}
    faults = [f"{name}: {reason}" for name, reason in (refused or {}).items() if name in given]
    values = read_options(SOURCE_OPTIONS, given, faults)
    endpoint = endpoint_of(given, faults)
    if not given.keys() & {"stream", "streams", "stream_pattern"}:
        faults.append("stream: set stream, streams or stream_pattern")
    basin = values.pop("basin")
    selection = _selection(values, basin)
    for name in ("start", "end"):
        values[name] = values[name].within(basin)
    faults += [f"stream: {name!r} names no basin" for name in selection.names if "/" not in name]
    faults += _unknown_streams(selection, values)
    if faults or endpoint is None:
        raise WrongOptions("format penstock", faults)
    return SourceOptions(endpoint=endpoint, selection=selection, **values)


def _selection(values: dict[str, Any], basin: str | None) -> StreamSelection:
    stream = values.pop("stream")
    names = tuple(dict.fromkeys((*(() if stream is None else (stream,)), *values.pop("streams"))))
    return StreamSelection(names, values.pop("stream_pattern")).within(basin)


def _unknown_streams(selection: StreamSelection, values: Mapping[str, Any]) -> list[str]:
    """Return faults for streams in `start` and `end` that are not read, if the streams are known."""
    if selection.patterns:
        return []
    return [
        f"{name}: stream {stream} is not among those to read"
        for name in ("start", "end")
        for stream in values[name].named
        if stream not in selection.names
    ]
