"""The page of options and tables."""

from __future__ import annotations

from pathlib import Path

from penstock_spark.document import reference_page

ROOT = Path(__file__).parents[2]


def test_the_page_is_fresh() -> None:
    """If this fails, run `python -m penstock_spark.document`."""
    assert (ROOT / "docs" / "pipeline-reference.md").read_text() == reference_page()
