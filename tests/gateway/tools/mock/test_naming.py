"""Tests by name, and the directories of their recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.tools.mock.naming import EVERY_TEST, directory_of, normalized_test, recordings_by_test


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("", ""),
        ("tests/test_orders.py::test_first[s2-1]", "tests/test_orders.py/test_first[s2-1]"),
        ("tests/test_orders.py::TestAll::test_first (setup)", "tests/test_orders.py/TestAll/test_first"),
        ("test_it.py::test[a/b] (call)", "test_it.py/test[a/b]"),
        ("Orders: first one", "Orders%3A first one"),
        ("../../etc::..", "%2E%2E/%2E%2E/etc/%2E%2E"),
        ("a\0b\n", "a%00b"),
        ("prüfung", "pr%C3%BCfung"),
    ],
)
def test_a_name_is_a_path_below_the_recording(name: str, path: str) -> None:
    assert normalized_test(name) == path
    assert normalized_test(path.replace("%", "")) or not path


def test_long_names_differ_and_fit() -> None:
    first, second = normalized_test("x" * 5000 + "1"), normalized_test("x" * 5000 + "2")
    assert first != second and len(first) == len(second) < 255


def test_captures_are_found_by_test(tmp_path: Path) -> None:
    for name in ("all.pcapng", "tests/a.py/test_1/x.pcapng.zst", f"{EVERY_TEST}/y.pcapng", "notes/readme.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(recordings_by_test(tmp_path)) == [
        ("", tmp_path),
        ("", tmp_path / EVERY_TEST),
        ("tests/a.py/test_1", tmp_path / "tests/a.py/test_1"),
    ]
    assert list(recordings_by_test(tmp_path / "all.pcapng")) == [("", tmp_path / "all.pcapng")]
    assert list(recordings_by_test(tmp_path / "missing")) == []
    assert directory_of(tmp_path, "") == tmp_path / EVERY_TEST
    assert directory_of(tmp_path, "tests/a.py/test_1") == tmp_path / "tests/a.py/test_1"
