"""docs/protocols/segment.md says what the code does: its tables are made from the code's."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_pravega.codec import Dialect
from penstock_pravega.codec.documentation import limits_table, message_table, order_table
from penstock_pravega.codec.limits import SEGMENT_MAX_ITEMS, SEGMENT_MAX_NAME, SegmentLimits

PAGE = (Path(__file__).parents[3] / "docs/protocols/segment.md").read_text()


@pytest.mark.parametrize("dialect", Dialect)
def test_the_page_has_the_tables(dialect: Dialect) -> None:
    """`python -m penstock_pravega.codec.documentation` prints them."""
    assert message_table(dialect) in PAGE
    assert order_table(dialect) in PAGE


def test_the_page_has_the_limits() -> None:
    assert limits_table() in PAGE
    limits = SegmentLimits()
    for number in (limits.max_message_bytes, limits.max_append_bytes, SEGMENT_MAX_NAME, SEGMENT_MAX_ITEMS):
        assert f"| {number}" in limits_table()


def test_both_layouts_of_the_message_that_changed() -> None:
    assert "before wire version 16: writer_id, event_number, server_stack_trace" in message_table(Dialect.RELEASED)


def test_optional_fields_stand_in_brackets() -> None:
    row = next(row for row in message_table(Dialect.RELEASED).splitlines() if "| DataAppended |" in row)
    assert row.endswith("[i64 previous_event_number, i64 request_id, i64 current_segment_write_offset] |")
