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
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, list) or not found or not all(isinstance(one, str) and one for one in found):
        raise ValueError(f"{value!r} is no JSON array of paths")
    return tuple(found)


def _table(value: str) -> str:
    if value not in (*CAPTURE_TABLES, ALL_TABLES):
        raise ValueError(f"{value!r} is none of {', '.join((*CAPTURE_TABLES, ALL_TABLES))}")
    return value


def _seconds(most: float) -> Callable[[str], float]:
    def read(value: str) -> float:
        try:
            seconds = float(value)
        except ValueError:
            raise ValueError(f"{value!r} is no number of seconds") from None
        if not 0 <= seconds <= most:
            raise ValueError(f"{value} is not between 0 and {most:g} seconds")
        return seconds

    return read


CAPTURE_OPTIONS: Final = (
    Option("path", text, None, "a file, a directory of captures, or a glob; `load` sets it"),
    Option("paths", _paths, (), "several of them, as a JSON array; `load` of a list sets it"),
    Option(
        "table",
        _table,
        "records",
        "which table: `connections`, `messages` or `records`; `all`: the three as columns, each a struct that is null "
        "in rows of the others, so that a recording is decoded once for all of them",
    ),
    Option(
        "groups",
        integer(1, MOST_GROUPS),
        None,
        "into how many tasks the conversations of each recording are divided; by default more for larger ones",
    ),
    Option(
        "together",
        boolean,
        False,
        "whether all files are one recording, in the order of their names, as `penstock show` reads them; else files "
        "that one run of a gateway wrote are one, and any other is one of its own; batch only",
    ),
    Option("envelopes", boolean, False, "whether bodies that are envelopes become the records inside, with headers"),
    Option(
        "skip_unreadable",
        boolean,
        False,
        "whether files that cannot be opened, or are no captures, are left out; each is a row of `connections` with "
        "nothing but `file` and `damage`",
    ),
    Option(
        "push_filters",
        boolean,
        False,
        "batch only: whether conversations that filters leave out are not decoded. Only for a DataFrame that is used "
        "once, with one set of filters (see the option of the source `penstock`)",
    ),
    Option("max_files_per_batch", integer(1), None, "most new files in one micro-batch of a streaming query"),
    Option(
        "settle_seconds",
        _seconds(86_400.0),
        10.0,
        "so long the last file of a recording must have been left alone before the recording is taken to have ended "
        "(streaming); files of other programs, before they are read",
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
    push_filters: bool
    max_files_per_batch: int | None
    settle_seconds: float


def capture_options(given: Mapping[str, str]) -> CaptureOptions:
    """Check the options that Spark passes. Raises WrongOptions."""
    faults: list[str] = []
    values: dict[str, Any] = read_options(CAPTURE_OPTIONS, given, faults, endpoint=False)
    path = values.pop("path")
    values["paths"] = (*([path] if path else []), *values["paths"])
    if not values["paths"] and not faults:
        faults.append("path: is missing; it is a file, a directory of captures, or a glob")
    if faults:
        raise WrongOptions("penstock-capture", faults)
    return CaptureOptions(**values)
