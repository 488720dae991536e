"""Print tables on standard output, for people or as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["MOST_ROWS", "show_table", "table_lines"]

MOST_ROWS: Final = 1000
"""Maximum number of rows printed for people."""
_WIDEST: Final = 60
_DETAILS: Final = frozenset({"missing", "altered_duplicates", "heartbeats_missed"})
"""Columns that detail the one before; omitted if all are 0."""


def show_table(title: str, frame: DataFrame, *, as_json: bool = False) -> None:
    """Print a table: for people its title and its non-empty columns; as JSON all columns, an object per line."""
    if as_json:
        for row in frame.toLocalIterator():
            click.echo(json.dumps({"table": title} | row.asDict(recursive=True), default=_plain))
        return
    rows = [tuple(row) for row in frame.limit(MOST_ROWS + 1).collect()]
    click.echo(f"\n{title}")
    for line in table_lines(frame.columns, rows[:MOST_ROWS]):
        click.echo(line)
    if len(rows) > MOST_ROWS:
        click.echo(f"(showing {MOST_ROWS} rows; --json shows all)")


def table_lines(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return a table as lines, numbers aligned right. Columns that are empty in every row, and details that are 0, are
    omitted."""
    if not rows:
        return ["(no rows)"]
    kept = [at for at, name in enumerate(columns) if any(_has_content(name, row[at]) for row in rows)]
    cells = [[_text(row[at]) for at in kept] for row in rows]
    names = [columns[at] for at in kept]
    widths = [max(len(name), *(len(row[at]) for row in cells)) for at, name in enumerate(names)]
    right = [all(isinstance(row[at], int | float | None) and row[at] is not True for row in rows) for at in kept]
    return [_line(names, widths, right), *(_line(row, widths, right) for row in cells)]


def _has_content(name: str, value: Any) -> bool:
    return value not in (None, [], {}) and not (value == 0 and name in _DETAILS)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    adjusted = (
        cell.rjust(width) if is_right else cell.ljust(width)
        for cell, width, is_right in zip(cells, widths, right, strict=True)
    )
    return "  ".join(adjusted).rstrip()


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value).decode("utf-8", "backslashreplace")
    elif isinstance(value, dict):
        value = ", ".join(f"{key}: {_text(element)}" for key, element in value.items())
    elif isinstance(value, tuple) and hasattr(value, "asDict"):
        value = "-".join(_text(element) for element in value)
    elif isinstance(value, list):
        value = ", ".join(map(_text, value))
    text = "".join(character if character.isprintable() else "?" for character in str(value))
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


def _plain(value: Any) -> Any:
    """Return a value that JSON lacks: bytes in base64, times in ISO 8601."""
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    return value.isoformat()
