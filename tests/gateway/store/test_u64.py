"""Unsigned numbers in SQLite keep their order."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.records import U64_MAX
from penstock.store.u64 import from_sql, to_sql

numbers = st.one_of(
    st.integers(0, U64_MAX), st.sampled_from([0, 1, 2**31, 2**63 - 1, 2**63, 2**63 + 1, U64_MAX - 1, U64_MAX])
)


@given(st.lists(numbers, max_size=20), numbers)
def test_order_comparison_and_index_are_those_of_the_numbers(values: list[int], bound: int) -> None:
    db = sqlite3.connect(":memory:")
    try:
        db.execute("CREATE TABLE t (v)")
        db.execute("CREATE INDEX i ON t (v)")
        db.executemany("INSERT INTO t VALUES (?)", [(to_sql(value),) for value in values])
        ordered = [from_sql(row[0]) for row in db.execute("SELECT v FROM t INDEXED BY i ORDER BY v")]
        assert ordered == sorted(values)
        after = [
            from_sql(row[0])
            for row in db.execute("SELECT v FROM t INDEXED BY i WHERE v >= ? ORDER BY v", (to_sql(bound),))
        ]
        assert after == [value for value in ordered if value >= bound]
    finally:
        db.close()


def test_small_numbers_stay_readable_and_others_are_refused() -> None:
    assert to_sql(2**63 - 1) == 2**63 - 1
    assert to_sql(2**63) == b"\x80" + bytes(7)
    for wrong in (-1, U64_MAX + 1):
        with pytest.raises(OverflowError):
            to_sql(wrong)
