"""The options of the sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock_codecs.failures import FailureCode, OperationFailed
from penstock_codecs.s2.names import validate_basin_name
from penstock_spark.clients.endpoint import Endpoint
from penstock_spark.options import Option, WrongOptions, boolean, endpoint_of, integer, read_options, text
from penstock_spark.sink.identity import SINK_NAME, Sink, one_off
from penstock_spark.sink.unwritable import FAIL, KEEP, POLICIES

__all__ = ["OPTIONS", "Settings", "read_settings"]


def _sink_name(value: str) -> str:
    if not SINK_NAME.fullmatch(value):
        raise ValueError(f"{value!r} is none: 1 to 80 of A-Z a-z 0-9 . _ -, the first a letter or digit")
    return value


def _basin(value: str) -> str:
    try:
        validate_basin_name(value, FailureCode.INVALID)
    except OperationFailed as error:
        raise ValueError(error.failure.message) from None
    return value


def _stream(value: str) -> str:
    basin, slash, name = value.partition("/")
    if not slash or not basin or not name:
        raise ValueError(f"{value!r} is no stream: a name is `basin/stream`")
    return value


def _policy(value: str) -> str:
    if value not in POLICIES:
        raise ValueError(f"{value!r} is none of {', '.join(POLICIES)}")
    return value


def _columns(value: str) -> frozenset[str]:
    return frozenset(filter(None, (name.strip() for name in value.split(","))))


OPTIONS: Final = (
    Option("stream", _stream, None, "where all rows go: `basin/stream`; wins over the column `stream`, which names it"),
    Option("sink", _sink_name, None, "the sink's name; a streaming query's id where absent"),
    Option("batch", integer(0), None, "which batch of `sink` a job writes; grows from job to job. Not for streaming"),
    Option(
        "ledger",
        _basin,
        None,
        "the basin in which the sink keeps its ledger; that of `stream` where absent. Not for segments",
    ),
    Option("create", boolean, False, "whether streams are made that are not there, where an append does not make them"),
    Option(
        "unwritable",
        _policy,
        FAIL,
        "what is done with rows that are no records (command records, larger than 1 MiB less some 100 bytes for the "
        "sink's marker, stamped before 1970, without body or stream): `fail` ends the job and names stream and record, "
        "`skip` leaves them out with a warning in the log, `keep` puts them aside, too",
    ),
    Option(
        "unwritable_path",
        text,
        "",
        "with `unwritable = keep`: a directory that all tasks reach, for a Parquet file of each task that had such "
        "rows, with columns `unwritable_row` and `unwritable_reason` beside the frame's",
    ),
    Option("ignore", _columns, frozenset(), "columns that are not written, with commas between them"),
)
"""Beside those of the endpoint (`clients.endpoint`)."""

_SPARKS: Final = frozenset({"checkpointlocation", "queryname", "path", "outputmode"})
"""Options that Spark adds to ours."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked options. Picklable: tasks get them from the driver. `ledger`: the basin; "" for segments."""

    endpoint: Endpoint
    stream: str | None
    sink: Sink
    ledger: str
    create: bool
    ignore: frozenset[str]
    unwritable: str = FAIL
    unwritable_path: str = ""


def read_settings(given: Mapping[str, str], *, streaming: bool) -> Settings:
    """Check options and return the settings. Raises WrongOptions with all faults."""
    faults: list[str] = []
    if given.get("path"):
        faults.append("path: save() and start() take none; the option stream, or the column, says where rows go")
    known = {name: value for name, value in given.items() if name not in _SPARKS}
    values = read_options(OPTIONS, known, faults)
    endpoint = endpoint_of(given, faults)
    faults += _contradictions(given, values, endpoint.protocol if endpoint else "", streaming)
    if faults or endpoint is None:
        raise WrongOptions("sink penstock", faults)
    stream = values["stream"]
    basin = values["ledger"] or (stream or "").partition("/")[0]
    ledger = basin if endpoint.protocol == "s2s" else ""
    sink = Sink(values["sink"], values["batch"]) if streaming or values["sink"] else one_off()
    return Settings(
        endpoint,
        stream,
        sink,
        ledger,
        values["create"],
        values["ignore"],
        values["unwritable"],
        values["unwritable_path"],
    )


def _contradictions(given: Mapping[str, str], values: Mapping[str, Any], protocol: str, streaming: bool) -> list[str]:
    """Return faults in combinations of options. An option with an invalid value counts as set."""
    faults = []
    if protocol == "s3p":
        faults.append(
            "endpoint: an S3P server can neither be told where an append must land nor who appends, so that rows "
            "would be doubled when Spark does a task again; a gateway that stores the stream itself takes them over "
            "S2S (http://), and its S3P clients read them"
        )
    if protocol == "s2s" and "ledger" not in given and "stream" not in given:
        faults.append("ledger: needed where a column names the streams: the basin in which the sink keeps its ledger")
    if streaming and "batch" in given:
        faults.append("batch: a streaming query counts its batches itself")
    if not streaming and "sink" in given and "batch" not in given:
        faults.append("batch: needed beside sink: the number of this job, which grows from job to job")
    if not streaming and "batch" in given and "sink" not in given:
        faults.append("sink: needed beside batch: a name under which the batches are counted")
    if (values["unwritable"] == KEEP) != bool(values["unwritable_path"]):
        faults.append("unwritable_path: goes with unwritable = keep, which needs it")
    if "body" in values["ignore"]:
        faults.append("ignore: the body is what is written")
    return faults
