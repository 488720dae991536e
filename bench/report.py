"""Tables and ratios of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["size_name", "table"]


def size_name(size: int) -> str:
    """100 B, 1 KiB, 16 KiB."""
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table in aligned columns; the first two columns to the left, the others to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"| {' | '.join(aligned)} |"

    rule = ["-" * width if column < 2 else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join((line(head), line(rule), *map(line, rows)))


def number(value: float) -> str:
    """Three digits that count, with thousands marked."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def against(results: Mapping[str, float], name: str, base: str) -> str:
    """`results[name] / results[base]`, or a dash where one of them is missing."""
    if base not in results or name not in results or not results[base]:
        return "-"
    return f"{results[name] / results[base]:.2f}"
