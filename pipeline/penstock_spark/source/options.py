"""The options of the source `penstock`, checked together: every fault is named at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.options import Option, WrongOptions, boolean, endpoint_of, integer, read_options, text
from penstock_spark.source.bounds import EARLIEST, LATEST, Bounds, read_end, read_start
from penstock_spark.source.selection import Selection, read_names

__all__ = ["SOURCE_OPTIONS", "SourceOptions", "source_options"]

SOURCE_OPTIONS: Final = (
    Option("basin", text, None, "the basin (segments: scope) of streams that are named without"),
    Option("stream", text, None, "the name of one stream, `basin/stream`; S3P: the name alone"),
    Option("streams", read_names, (), "names of streams, with commas between them or as a JSON array"),
    Option(
        "stream_pattern",
        read_names,
        (),
        "globs (`*`, `?`, `[ab]`) of names, as `streams`; a streaming query looks for new streams at each micro-batch",
    ),
    Option("start", read_start, Bounds({}, EARLIEST), "from where; a streaming query's checkpoint wins over it"),
    Option("end", read_end, Bounds({}, LATEST), "up to where, batch only"),
    Option(
        "max_records_per_batch", integer(1), None, "most records of one micro-batch, shared out fairly among streams"
    ),
    Option(
        "records_per_partition",
        integer(1),
        None,
        "how many records one task reads; by default so many that their number is sensible",
    ),
    Option(
        "min_partitions",
        integer(1, 100_000),
        1,
        "least number of tasks, where a stream can be read in ranges (S2S), or enough streams are there",
    ),
    Option(
        "fail_on_data_loss",
        boolean,
        True,
        "whether records that are gone before they were read (trimmed, stream deleted) fail the query; else it goes on "
        "behind them, with a warning in the log",
    ),
    Option(
        "unreadable_timestamps",
        boolean,
        False,
        "whether timestamps beyond the year 294246, which Spark has no value for, become null, with a warning in the "
        "log; else a record that has one fails the query, which names stream and record",
    ),
    Option(
        "push_filters",
        boolean,
        False,
        "batch only: whether filters on stream, seq_num and timestamp bound what is read, instead of choosing from it "
        "afterwards. Only for a DataFrame that is used once, with one set of filters: Spark (4.1 to 4.3) keeps the "
        "last filters that it pushed, and uses of the same DataFrame with others would miss rows",
    ),
    Option(
        "envelopes",
        boolean,
        False,
        "S3P and segments: whether bodies that are the gateway's envelopes become the records inside, with headers",
    ),
)
"""Beside these: `endpoint`, and `clients.endpoint.ENDPOINT_OPTIONS`."""

_NEITHER: Final = {"s2s": ("offset",), "s3p": ("offset",), "segment": ("timestamp",)}
"""Kinds of bounds that a protocol lacks."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The checked options; `max_records_per_batch` and `records_per_partition` None: not set."""

    endpoint: Endpoint
    selection: Selection
    start: Bounds
    end: Bounds
    max_records_per_batch: int | None
    records_per_partition: int | None
    min_partitions: int
    fail_on_data_loss: bool
    unreadable_timestamps: bool
    push_filters: bool
    envelopes: bool


def source_options(given: Mapping[str, str], *, refused: Mapping[str, str] | None = None) -> SourceOptions:
    """Check the options that Spark passes. `refused`: options that do not apply here, and why.

    Raises WrongOptions with all faults.
    """
    given = {name.lower(): value for name, value in given.items()}
    faults = [f"{name}: {why}" for name, why in (refused or {}).items() if name in given]
    values = read_options(SOURCE_OPTIONS, given, faults)
    endpoint = endpoint_of(given, faults)
    if not given.keys() & {"stream", "streams", "stream_pattern"}:
        faults.append("stream: say stream, streams or stream_pattern")
    basin = values.pop("basin")
    selection = _selection(values, basin)
    for name in ("start", "end"):
        values[name] = values[name].within(basin)
    if endpoint is not None:
        faults += _against_protocol(endpoint.protocol, selection, values)
    faults += _unknown_streams(selection, values)
    if faults or endpoint is None:
        raise WrongOptions("format penstock", faults)
    return SourceOptions(endpoint=endpoint, selection=selection, **values)


def _selection(values: dict[str, Any], basin: str | None) -> Selection:
    one = values.pop("stream")
    names = tuple(dict.fromkeys((*(() if one is None else (one,)), *values.pop("streams"))))
    return Selection(names, values.pop("stream_pattern")).within(basin)


def _against_protocol(protocol: str, selection: Selection, values: Mapping[str, Any]) -> list[str]:
    faults = []
    for name in ("start", "end"):
        kinds = {bound.kind for bound in values[name].all}
        faults += [f"{name}: {protocol} knows no {kind}" for kind in _NEITHER[protocol] if kind in kinds]
    if protocol == "s3p" and selection.patterns:
        faults.append("stream_pattern: s3p has no list of streams; name them")
    if protocol != "s3p":
        faults += [f"stream: {name!r} names no basin" for name in selection.names if "/" not in name]
    if protocol == "s2s" and values["envelopes"]:
        faults.append("envelopes: s2s carries headers itself")
    return faults


def _unknown_streams(selection: Selection, values: Mapping[str, Any]) -> list[str]:
    """Return faults for streams in `start` and `end` that are not read, if the streams are known."""
    if selection.patterns:
        return []
    return [
        f"{name}: {stream} is not read"
        for name in ("start", "end")
        for stream in values[name].named
        if stream not in selection.names
    ]
