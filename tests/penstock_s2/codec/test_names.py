"""Tokens and path segments (S2 fact sheet, 1.1 and 1.4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import FailureCode, OperationFailed
from penstock_s2.codec.names import (
    decode_path_segment,
    encode_path_segment,
    validate_fencing_token,
    validate_request_token,
)

C = FailureCode
Validate = Callable[[str, FailureCode], str]


@pytest.mark.parametrize(
    ("validate", "name"),
    [
        (validate_fencing_token, ""),
        (validate_fencing_token, "é" * 18),
        (validate_request_token, "x" * 36),
    ],
)
def test_good(validate: Validate, name: str) -> None:
    assert validate(name, C.BAD_PATH) == name


@pytest.mark.parametrize(
    ("validate", "name", "why"),
    [
        (validate_fencing_token, "x" * 37, "36 bytes, not 37"),
        (validate_fencing_token, "é" * 19, "36 bytes, not 38"),
        (validate_request_token, "x" * 37, "36 bytes, not 37"),
        (validate_request_token, "\udcff", "Unicode"),
    ],
)
@pytest.mark.parametrize("where", [C.BAD_PATH, C.BAD_HEADER, C.BAD_JSON, C.BAD_QUERY])
def test_bad(validate: Validate, name: str, why: str, where: FailureCode) -> None:
    with pytest.raises(OperationFailed) as caught:
        validate(name, where)
    failure = caught.value.failure
    assert failure.code is where
    assert why in failure.message
    assert failure.message.startswith("Invalid header `s2-") is (where is C.BAD_HEADER)


def test_header_errors_name_the_header() -> None:
    with pytest.raises(OperationFailed, match="Invalid header `s2-request-token`: "):
        validate_request_token("x" * 37)


@pytest.mark.parametrize(
    ("segment", "name"),
    [
        ("", ""),
        ("health", "health"),
        ("a%2Fb", "a/b"),
        ("%20%25%3F%23+", " %?#+"),
        ("%c3%A9", "é"),
        ("\xc3\xa9", "é"),  # raw UTF-8 bytes, as latin-1 text
        ("%2E%2e", ".."),
        ("%", "%"),
        ("a%2", "a%2"),
        ("%zz", "%zz"),
        ("%%20", "% "),
    ],
)
def test_good_segments(segment: str, name: str) -> None:
    assert decode_path_segment(segment) == name


@pytest.mark.parametrize(
    ("segment", "why"),
    [
        ("%ff", "UTF-8"),
        ("%c3", "UTF-8"),
        ("%ed%a0%80", "UTF-8"),
        ("\xe9", "UTF-8"),
        ("\u20ac", "UTF-8"),
    ],
)
def test_bad_segments(segment: str, why: str) -> None:
    with pytest.raises(OperationFailed, match=why) as caught:
        decode_path_segment(segment)
    assert caught.value.failure.code is C.BAD_PATH


@given(st.text(max_size=40))
def test_segments_round_trip(name: str) -> None:
    segment = encode_path_segment(name)
    assert "/" not in segment and "?" not in segment and segment.isascii()
    assert decode_path_segment(segment) == name


@given(st.text(max_size=20))
def test_any_text_is_decoded_or_refused(segment: str) -> None:
    try:
        decode_path_segment(segment)
    except OperationFailed as error:
        assert error.failure.code is C.BAD_PATH
