"""The tables of our own documents, for tests that hold the code against them."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["tables_of"]

DOCUMENTS = Path(__file__).parents[2] / "docs"


def tables_of(document: str, heading: str) -> list[list[list[str]]]:
    """Return the rows of each table under a second-level heading, without header rows; cells without back-ticks."""
    text = (DOCUMENTS / document).read_text(encoding="utf-8")
    _, found, section = text.partition(f"\n## {heading}\n")
    assert found, f"{document} has no heading {heading}"
    section = section.partition("\n## ")[0] + "\n"
    return [
        [[cell.strip().strip("`") for cell in line.strip("|\n").split(" | ")] for line in block.splitlines()[2:]]
        for block in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    ]
