"""docs/metrics.md says what there is."""

from __future__ import annotations

from pathlib import Path

from penstock.observe.metrics.document import metrics_page
from penstock.observe.metrics.families import FAMILIES, LABELS
from penstock.observe.metrics.series import MetricKind

PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"


def test_the_page_is_fresh() -> None:
    """If this fails, run `python -m penstock.observe.metrics.document`."""
    assert PAGE.read_text() == metrics_page()


def test_every_family_has_its_row_and_every_label_its_meaning() -> None:
    text = PAGE.read_text()
    used = {label for family in FAMILIES for label in family.label_names}
    assert used == set(LABELS)
    for family in FAMILIES:
        assert text.count(f"| `{family.name}` | {family.kind.value} |") == 1
        assert family.meaning.rstrip(")").endswith("."), family.name


def test_names_are_those_that_prometheus_asks_for() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.name.startswith(("penstock_", "process_"))
        assert family.name.endswith("_total") == (family.kind is MetricKind.COUNTER), family.name
