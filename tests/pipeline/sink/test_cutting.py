"""Rows put together as appends, and their digest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.limits import MAX_BATCH_BYTES
from penstock.model.records import Header, metered_size
from penstock_spark.sink.cutting import AppendLimits, AppendRows, Cutter
from penstock_spark.sink.digest import RowDigest, RowPiece
from penstock_spark.sink.failures import SinkFailed
from penstock_spark.sink.marker import Marker, find_marker, marker_header, marker_room

ROWS = st.lists(
    st.tuples(
        st.binary(max_size=12),
        st.lists(st.tuples(st.binary(min_size=1, max_size=3), st.binary(max_size=3)), max_size=2),
        st.none() | st.integers(0, 2**50),
    ),
    max_size=30,
)


def piece(rows: list[tuple[bytes, list[tuple[bytes, bytes]], int | None]]) -> RowPiece:
    headers = {index: tuple(Header(*one) for one in row[1]) for index, row in enumerate(rows) if row[1]}
    return RowPiece([row[0] for row in rows], headers, [row[2] for row in rows])


def digest(rows: list[tuple[bytes, list[tuple[bytes, bytes]], int | None]]) -> str:
    whole = RowDigest()
    whole.add(piece(rows))
    return whole.text()


def cuts_of(
    rows: list[tuple[bytes, list[tuple[bytes, bytes]], int | None]], sizes: list[int], limits: AppendLimits
) -> list[AppendRows]:
    cutter, cuts, at = Cutter("penstock/a", limits), [], 0
    for size in [*sizes, len(rows)]:
        if at < len(rows):
            cuts += cutter.add(piece(rows[at : at + size]))
            at += size
    return cuts + cutter.rest()


@given(ROWS, st.lists(st.integers(1, 7), max_size=8), st.integers(1, 9), st.integers(40, 200))
def test_cuts_are_the_rows(rows: list, sizes: list[int], most: int, room: int) -> None:
    limits = AppendLimits(most, room)
    cuts = cuts_of(rows, sizes, limits)
    assert [body for cut in cuts for body in cut.rows.bodies] == [row[0] for row in rows]
    assert [time for cut in cuts for time in cut.rows.timestamps or ()] == [row[2] for row in rows]
    assert [cut.rows.headers.get(index, ()) for cut in cuts for index in range(len(cut.rows.bodies))] == [
        tuple(row[1]) for row in rows
    ]
    end = 0
    for cut in cuts:
        assert cut.first == end < cut.end
        end = cut.end
        count, size = len(cut.rows.bodies), metered_size(cut.rows.bodies, cut.rows.headers)
        assert count <= most and size <= room
        for row in range(cut.first + 1, cut.end + 1):
            assert cut.digest_at(row) == digest(rows[:row])
        for row in range(cut.first, cut.end):
            rest = cut.after(row)
            assert (rest.first, rest.end, rest.rows.bodies) == (row, cut.end, cut.rows.bodies[row - cut.first :])
            assert rest.digest_at(rest.end) == digest(rows[: cut.end])
    assert [(cut.first, cut.end) for cut in cuts] == [(cut.first, cut.end) for cut in cuts_of(rows, [], limits)]


@given(ROWS, ROWS)
def test_other_rows_have_another_digest(one: list, other: list) -> None:
    assert (digest(one) == digest(other)) == (one == other)


def test_a_cut_is_as_large_as_s2_takes() -> None:
    owner = b"sink 1 2"
    most_bytes = AppendLimits().most_bytes - marker_room(owner)
    cutter = Cutter("penstock/a", AppendLimits(most_bytes=most_bytes))
    body = bytes(most_bytes - 8)
    (cut,) = [*cutter.add(RowPiece([body])), *cutter.rest()]
    header = marker_header(owner, Marker(2**63, 2**63, cut.digest_at(1)))
    assert metered_size(cut.rows.bodies, {0: (header,)}) == MAX_BATCH_BYTES


def test_a_row_that_is_too_large_is_named() -> None:
    cutter = Cutter("penstock/a", AppendLimits(1000, 100))
    cutter.add(RowPiece([b"x"] * 5))
    with pytest.raises(SinkFailed, match=r"penstock/a: row 6 of this task is 111 bytes .*at most 100"):
        cutter.add(RowPiece([b"x", bytes(92), b"x"], {1: (Header(b"a", b"12345678"),)}))


def test_markers_are_found_by_their_owner_only() -> None:
    marker = Marker(3, 7, "abc")
    header = marker_header(b"sink 1 2", marker)
    assert find_marker(b"sink 1 2", (Header(b"x", b"y"), header)) == marker
    assert find_marker(b"sink 1 20", (header,)) is None
    assert find_marker(b"sink 1", (header,)) is None
    for value in (b"sink 1 2 3 7", b"sink 1 2 a b c", b"sink 1 2 3 7 abc d"):
        assert find_marker(b"sink 1 2", (Header(b"penstock-sink", value),)) is None
