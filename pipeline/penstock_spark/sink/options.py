"""The options of the sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.names import validate_basin_name
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.options import Option, WrongOptions, boolean, endpoint_of, integer, read_options, text
from penstock_spark.sink.identity import SINK_NAME, PlannedSink, one_off
from penstock_spark.sink.unwritable import FAIL, KEEP, POLICIES

__all__ = ["OPTIONS", "SinkOptions", "read_settings"]

_SPARKS: Final = frozenset({"checkpointlocation", "queryname", "path", "outputmode"})
"""Options that Spark adds to ours."""


def _sink_name(value: str) -> str:
    if not SINK_NAME.fullmatch(value):
        raise ValueError(
            f"{value!r} is not a name: expected 1 to 80 of A-Z a-z 0-9 . _ -, beginning with a letter or digit"
        )
    return value


def _policy(value: str) -> str:
    if value not in POLICIES:
        raise ValueError(f"{value!r} is not one of {', '.join(POLICIES)}")
    return value


def _columns(value: str) -> frozenset[str]:
    return frozenset(filter(None, (name.strip() for name in value.split(","))))


OPTIONS: Final = (
    Option(
        "stream", text, None, "stream for all rows, named as in the source; takes precedence over the column `stream`"
    ),
    Option("sink", _sink_name, None, "name of the sink; by default the id of the streaming query"),
    Option(
        "batch",
        integer(0),
        None,
        "number of the batch that the job writes with `sink`; must grow from job to job. Not for streaming",
    ),
    Option(
        "ledger",
        text,
        None,
        "basin of the sink's ledger; by default that of `stream`",
    ),
    Option("create", boolean, False, "whether to create missing streams that an append does not create"),
    Option(
        "unwritable",
        _policy,
        FAIL,
        "handling of rows that cannot be written as records (command records; rows larger than 1 MiB minus "
        "about 100 bytes for the sink's marker, with a timestamp before 1970, or without body or stream): "
        "`fail` ends the job with an error that names stream and record, `skip` omits them with a warning in "
        "the log, `keep` omits and saves them",
    ),
    Option(
        "unwritable_path",
        text,
        "",
        "with `unwritable = keep`: a directory that all tasks can reach; each task with such rows saves them "
        "there as a Parquet file, with the columns `unwritable_row` and `unwritable_reason` added",
    ),
    Option("ignore", _columns, frozenset(), "columns that are not written, separated by commas"),
)
"""Beside those of the endpoint (`clients.endpoint`)."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options. Picklable: tasks get them from the driver. `ledger`: the basin of the ledger."""

    endpoint: Endpoint
    stream: str | None
    sink: PlannedSink
    ledger: str
    create: bool
    ignore: frozenset[str]
    unwritable: str = FAIL
    unwritable_path: str = ""


def read_settings(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Check options and return the settings. Raises WrongOptions with all faults."""
    faults: list[str] = []
    if given.get("path"):
        faults.append("path: save() and start() take no path; set the option or the column `stream`")
    known = {name: value for name, value in given.items() if name not in _SPARKS}
    values = read_options(OPTIONS, known, faults)
    endpoint = endpoint_of(given, faults)
    faults += _contradictions(given, values, streaming)
    faults += _name_faults(given, values)
    if faults or endpoint is None:
        raise WrongOptions("sink penstock", faults)
    stream = values["stream"]
    sink = PlannedSink(values["sink"], values["batch"]) if streaming or values["sink"] else one_off()
    return SinkOptions(
        endpoint,
        stream,
        sink,
        values["ledger"] or stream.partition("/")[0],
        values["create"],
        values["ignore"],
        values["unwritable"],
        values["unwritable_path"],
    )


def _name_faults(given: Mapping[str, str], values: Mapping[str, Any]) -> list[str]:
    """Return faults in the names of stream and ledger. An option with an invalid value counts as set."""
    stream = values["stream"]
    if stream is not None and not all(stream.partition("/")):
        return [f"stream: {stream!r} is not a stream: expected `basin/stream`"]
    if "ledger" not in given and "stream" not in given:
        return ["ledger: needed if a column names the streams: the basin of the sink's ledger"]
    if values["ledger"]:
        try:
            validate_basin_name(values["ledger"], FailureCode.INVALID)
        except OperationFailed as error:
            return [f"ledger: {error.failure.message}"]
    return []


def _contradictions(given: Mapping[str, str], values: Mapping[str, Any], streaming: bool) -> list[str]:
    """Return faults in combinations of options. An option with an invalid value counts as set."""
    faults = []
    if streaming and "batch" in given:
        faults.append("batch: not for a streaming query, which numbers its batches itself")
    if not streaming and "sink" in given and "batch" not in given:
        faults.append("batch: needed with sink: the number of this job, which must grow from job to job")
    if not streaming and "batch" in given and "sink" not in given:
        faults.append("sink: needed with batch: the name under which batches are numbered")
    if (values["unwritable"] == KEEP) != bool(values["unwritable_path"]):
        faults.append("unwritable_path: needed with unwritable = keep, and only then")
    if "body" in values["ignore"]:
        faults.append("ignore: the body cannot be ignored")
    return faults
