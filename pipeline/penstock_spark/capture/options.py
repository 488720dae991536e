"""The options of the source `penstock-capture`, checked together: every fault is named at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock_spark.options import Option, WrongOptions, boolean, integer, read_options, text
from penstock_spark.schemas import ALL_TABLES, CAPTURE_TABLES

__all__ = ["CAPTURE_OPTIONS", "MOST_GROUPS", "CaptureOptions", "capture_options"]

MOST_GROUPS: Final = 256
"""Maximum number of groups per recording: each of them reads all its bytes."""


def _paths(value: str) -> tuple[str, ...]:
    """Parse a JSON array, as Spark passes several paths."""
    try:
        decoded = json.loads(value)
    except ValueError:
        decoded = None
    if not isinstance(decoded, list) or not decoded or not all(isinstance(path, str) and path for path in decoded):
        raise ValueError(f"{value!r} is not a JSON array of paths")
    return tuple(decoded)


def _table(value: str) -> str:
    if value not in (*CAPTURE_TABLES, ALL_TABLES):
        raise ValueError(f"{value!r} is not one of {', '.join((*CAPTURE_TABLES, ALL_TABLES))}")
    return value


def _seconds(most: float) -> Callable[[str], float]:
    def read(value: str) -> float:
        try:
            seconds = float(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a number of seconds") from None
        if not 0 <= seconds <= most:
            raise ValueError(f"{value} is not between 0 and {most:g} seconds")
        return seconds

    return read


CAPTURE_OPTIONS: Final = (
    Option("path", text, None, "a file, a directory of captures, or a glob; set by `load`"),
    Option("paths", _paths, (), "several paths, as a JSON array; set by `load` with a list"),
    Option(
        "table",
        _table,
        "records",
        "the table: `connections`, `messages` or `records`; `all` gives the three as columns, each a struct "
        "that is null in rows of the others, so that a recording is decoded only once",
    ),
    Option(
        "groups",
        integer(1, MOST_GROUPS),
        None,
        "number of tasks among which the conversations of a recording are divided; by default more for larger "
        "recordings",
    ),
    Option(
        "together",
        boolean,
        False,
        "batch only: whether all files are one recording, in the order of their names, as in `penstock show`; "
        "otherwise the files of one run of a gateway are one recording, and each other file is one by itself",
    ),
    Option("envelopes", boolean, False, "whether bodies that are envelopes are unpacked into records with headers"),
    Option(
        "skip_unreadable",
        boolean,
        False,
        "whether files that cannot be opened, or are not captures, are skipped; each becomes a row of "
        "`connections` with only `file` and `damage`",
    ),
    Option(
        "max_files_per_batch", integer(1), None, "maximum number of new files in a micro-batch of a streaming query"
    ),
    Option(
        "settle_seconds",
        _seconds(86_400.0),
        10.0,
        "streaming only: time without a write to the last file of a recording after which the recording counts "
        "as ended; for files of other programs, the time before they are read",
    ),
)


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The checked options. `groups`, `max_files_per_batch` None: not set."""

    paths: tuple[str, ...]
    table: str
    groups: int | None
    together: bool
    envelopes: bool
    skip_unreadable: bool
    max_files_per_batch: int | None
    settle_seconds: float


def capture_options(options: Mapping[str, str]) -> CaptureOptions:
    """Check the options that Spark passes. Raises WrongOptions."""
    faults: list[str] = []
    values: dict[str, Any] = read_options(CAPTURE_OPTIONS, options, faults, endpoint=False)
    path = values.pop("path")
    values["paths"] = (*([path] if path else []), *values["paths"])
    if not values["paths"] and not faults:
        faults.append("path: is missing; set it to a file, a directory of captures, or a glob")
    if faults:
        raise WrongOptions("penstock-capture", faults)
    return CaptureOptions(**values)
