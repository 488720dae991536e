"""docs/limits.md says what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.app.config.limits_document import _TABLES, LIMITS, limits_page

PAGE = Path(__file__).parents[4] / "docs" / "limits.md"
NO_LIMITS = {"default_count", "read_hold_seconds"}


def test_the_page_is_what_is_written() -> None:
    assert PAGE.read_text() == limits_page()


@pytest.mark.parametrize("table", _TABLES)
def test_every_limit_of_the_configuration_is_there(table: str) -> None:
    told = {row.key for row in LIMITS if row.table == table}
    assert told == set(_TABLES[table].__struct_fields__) - NO_LIMITS
