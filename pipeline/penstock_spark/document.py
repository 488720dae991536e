"""Generate the reference page of the pipeline, `docs/pipeline-reference.md`, from the tables that the code uses.

python -m penstock_spark.document
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from penstock_spark.capture.options import CAPTURE_OPTIONS
from penstock_spark.clients.endpoint import ENDPOINT_OPTIONS
from penstock_spark.jobs.schemas import DIFFERENCES, GROWTH, LATENCY, QUALITY, THROUGHPUT, USAGE, VERDICTS
from penstock_spark.options import Option
from penstock_spark.schemas import CAPTURE_TABLES, SOURCE_RECORDS, Column
from penstock_spark.sink.options import OPTIONS as SINK_OPTIONS
from penstock_spark.source.options import SOURCE_OPTIONS

__all__ = ["reference_page"]

_TITLE: Final = """\
# The pipeline: options and tables

To look up an option of a source or sink, or a column of a table, use this page; [the pipeline](pipeline.md) explains
their use. It is generated from the code by `python -m penstock_spark.document`.
"""
_OPTIONS: Final = (
    ("Options of the source `penstock`", "These, and the options of the endpoint (below).", SOURCE_OPTIONS),
    ("Options of the sink `penstock`", "These, and the options of the endpoint (below).", SINK_OPTIONS),
    ("Options of the source `penstock-capture`", "", CAPTURE_OPTIONS),
)
_TABLES: Final = (
    ("Table of the source `penstock`", SOURCE_RECORDS),
    *((f"Table `{name}` of the source `penstock-capture`", columns) for name, columns in CAPTURE_TABLES.items()),
    ("Table of the job `quality`", QUALITY),
    ("Table of the job `latency`", LATENCY),
    ("Table of the job `usage`", USAGE),
    ("Table of throughput, in the report", THROUGHPUT),
    ("Table of the growth of streams, in the report", GROWTH),
    ("Table of verdicts of the job `audit`", VERDICTS),
    ("Table of differences of the job `audit`", DIFFERENCES),
)


def reference_page() -> str:
    """Return the text of the page."""
    parts = [_TITLE]
    for title, note, options in _OPTIONS:
        parts.append("\n".join(_section(title, note, ("option", "default", "meaning"), map(_option, options))))
    endpoint = ((f"`{name}`", meaning) for name, meaning in ENDPOINT_OPTIONS.items())
    note = (
        "`endpoint` is `http://HOST:PORT` or `https://HOST:PORT`, the address of a gateway or another S2S server.\n"
        "Servers of other protocols are reached [through a gateway](pipeline.md#servers-of-other-protocols)."
    )
    parts.append("\n".join(_section("Options of the endpoint", note, ("option", "meaning"), endpoint)))
    for title, columns in _TABLES:
        parts.append("\n".join(_section(title, "", ("column", "type", "meaning"), map(_column, columns))))
    return "\n".join(parts)


def _section(title: str, note: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"## {title}\n"
    if note:
        yield f"{note}\n"
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


def _option(option: Option) -> tuple[str, str, str]:
    return f"`{option.name}`", _default(option.default), option.meaning


def _default(value: object) -> str:
    """Return a default as one writes it; "" if there is none, or the meaning explains it."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if isinstance(value, (int, float, str)) and value != "" else ""


def _column(column: Column) -> tuple[str, str, str]:
    return f"`{column.name}`", f"`{column.type}`", column.meaning


if __name__ == "__main__":
    (Path.cwd() / "docs" / "pipeline-reference.md").write_text(reference_page(), encoding="utf-8")
