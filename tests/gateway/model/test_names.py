"""Names of basins and streams (S2 fact sheet, 1.4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.names import utf8_length, validate_basin_name, validate_stream_name

C = FailureCode
Validate = Callable[[str, FailureCode], str]


@pytest.mark.parametrize(
    ("validate", "name"),
    [
        (validate_basin_name, "abcdefgh"),
        (validate_basin_name, "0-------9"),
        (validate_basin_name, "a" * 48),
        (validate_stream_name, "a"),
        (validate_stream_name, "a/b"),
        (validate_stream_name, " %?#\n"),
        (validate_stream_name, "..."),
        (validate_stream_name, "é" * 256),
        (validate_stream_name, "\U0001f600"),
    ],
)
def test_good(validate: Validate, name: str) -> None:
    assert validate(name, C.BAD_PATH) == name


@pytest.mark.parametrize(
    ("validate", "name", "why"),
    [
        (validate_basin_name, "", "8 to 48"),
        (validate_basin_name, "a" * 7, "8 to 48"),
        (validate_basin_name, "a" * 49, "8 to 48"),
        (validate_basin_name, "-bcdefgh", "begin or end with a hyphen"),
        (validate_basin_name, "abcdefg-", "begin or end with a hyphen"),
        (validate_basin_name, "Abcdefgh", "lowercase"),
        (validate_basin_name, "abcd_fgh", "lowercase"),
        (validate_basin_name, "abcdefgh\n", "lowercase"),
        (validate_basin_name, "abcdefg\u0663", "lowercase"),
        (validate_stream_name, "", "1 to 512"),
        (validate_stream_name, "é" * 256 + "x", "1 to 512 bytes, not 513"),
        (validate_stream_name, ".", "must not be"),
        (validate_stream_name, "..", "must not be"),
        (validate_stream_name, "a\0b", "NUL"),
        (validate_stream_name, "\ud800", "Unicode"),
    ],
)
@pytest.mark.parametrize("where", [C.BAD_PATH, C.BAD_HEADER, C.BAD_JSON, C.INVALID])
def test_bad(validate: Validate, name: str, why: str, where: FailureCode) -> None:
    with pytest.raises(OperationFailed) as caught:
        validate(name, where)
    assert caught.value.failure.code is where
    assert why in caught.value.failure.message


@pytest.mark.parametrize(("text", "length"), [("", 0), ("a\0", 2), ("é", 2), ("\U0001f600", 4), ("\ud800", None)])
def test_length_in_utf_8(text: str, length: int | None) -> None:
    assert utf8_length(text) == length
