"""Tables for people."""

from __future__ import annotations

from penstock_spark.cli.showing import table_lines


def test_numbers_stand_to_the_right_and_empty_columns_are_left_out() -> None:
    rows = [("penstock/a", 1_234_567, None, None, 0.5), ("b", None, None, True, 12.0)]
    assert table_lines(["stream", "records", "client", "ok", "ratio"], rows) == [
        "stream        records  ok   ratio",
        "penstock/a  1,234,567  -     0.50",
        "b                   -  yes  12.00",
    ]


def test_details_of_nothing_are_left_out() -> None:
    assert table_lines(["gaps", "missing"], [(0, 0), (0, None)]) == ["gaps", "   0", "   0"]
    assert table_lines(["gaps", "missing"], [(0, 0), (1, 3)])[1:] == ["   0        0", "   1        3"]


def test_what_peers_say_cannot_move_the_cursor() -> None:
    assert table_lines(["stream"], [("a\x1b[2Jb\n",), ("x" * 100,)]) == ["stream", "a?[2Jb?", "x" * 57 + "..."]


def test_bytes_maps_and_arrays() -> None:
    [_, line] = table_lines(["a", "b", "c"], [(b"ab\xff", {"REFUSED": 2}, [1, 2])])
    assert line == r"ab\xff  REFUSED: 2  1, 2"


def test_no_rows() -> None:
    assert table_lines(["a"], []) == ["(no rows)"]
