"""Content types, and the JSON messages of a stream (protocol, section 7)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import FailureCode, OperationFailed
from penstock_durable.codec import check_message, essence, is_json, join_messages, split_messages
from penstock_durable.codec.media import is_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/plain", "text/plain"),
        ("TEXT/Plain; charset=UTF-8", "text/plain"),
        (" application/json ", "application/json"),
        ("application/vnd.api+json;v=1", "application/vnd.api+json"),
    ],
)
def test_the_essence_of_a_content_type(content_type: str, kind: str) -> None:
    assert essence(content_type) == kind


@pytest.mark.parametrize("content_type", ["", "text", "text/", "/plain", "text/plain/x", "te xt/plain", "text/plain x"])
def test_texts_that_are_no_content_type(content_type: str) -> None:
    with pytest.raises(OperationFailed, match="is not a media type") as raised:
        essence(content_type)
    assert raised.value.failure.code is FailureCode.BAD_HEADER


def test_streams_of_messages_and_of_text() -> None:
    assert is_json("Application/JSON; charset=utf-8") and is_json("application/ld+json")
    assert not is_json("application/json-seq") and not is_json("text/plain")
    assert is_text("text/csv") and is_text("application/json") and not is_text("application/octet-stream")


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (b'{"a": 1}', [b'{"a": 1}']),
        (b" [1 , [2,3],\n{} ] ", [b"1", b"[2,3]", b"{}"]),
        (b"[[1,2]]", [b"[1,2]"]),
        (b"[]", []),
        (b'"\xc3\xa9"', [b'"\xc3\xa9"']),
        (b'["\\u00e9", 1.50, 10E2]', [b'"\\u00e9"', b"1.50", b"10E2"]),
        (b"12345678901234567890123456789.5", [b"12345678901234567890123456789.5"]),
        (b"\xef\xbb\xbf [1]", [b"1"]),
        (b'"\\ud800"', [b'"\\ud800"']),
        (
            b'[ "\\uDFFF\\uD800" ,\n{"\\udc00\\n": "\\ud83d\\ude00\\ud83dx"}, []]',
            [b'"\\uDFFF\\uD800"', b'{"\\udc00\\n": "\\ud83d\\ude00\\ud83dx"}', b"[]"],
        ),
        (b'"\\\\ud800\\\\\\ud800"', [b'"\\\\ud800\\\\\\ud800"']),
    ],
)
def test_one_level_of_an_array_is_messages_spelled_as_they_came(body: bytes, messages: list[bytes]) -> None:
    assert split_messages(body) == messages


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b" ", b"{", b"[1,]", b"[1 2]", b"NaN", b"[Infinity]", b"{} {}", b"'a'", b'"a', b'"\x00"', b"01", b"nul"),
        *(
            b'"\xff"',
            b'["\xed\xa0\x80"]',
            b'{"a":1}x',
            b"\xef\xbb\xbf",
            b"\xef\xbb\xbf" * 2 + b"{}",
            b'"\\ud800',
            b'"\\ud8"',
        ),
        *(b"[" * 100_000, b"[" * 5000 + b"]" * 5000, b'["\\ud800"' + b"[" * 5000, b"\\ud800", b" \xef\xbb\xbf1"),
    ],
)
def test_bodies_that_are_not_json(body: bytes) -> None:
    with pytest.raises(OperationFailed) as raised:
        split_messages(body)
    assert raised.value.failure.code is FailureCode.BAD_JSON


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'"a\xff"', "byte 2 is not UTF-8"),
        (b'"\\ud800" x', "trailing characters"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_reasons(body: bytes, reason: str) -> None:
    with pytest.raises(OperationFailed, match=reason):
        split_messages(body)


@given(st.lists(JSON, max_size=5))
def test_what_is_joined_is_split_again(values: list[Any]) -> None:
    messages = [json.dumps(value).encode() for value in values]
    assert split_messages(join_messages(messages)) == messages
    assert json.loads(join_messages(messages)) == values


@given(st.binary(max_size=60))
def test_any_body_is_split_or_refused(body: bytes) -> None:
    """JSON is JSON to another parser as well."""
    try:
        messages = split_messages(body)
    except OperationFailed:
        return
    for message in messages:
        json.loads(message)
        check_message(message, 0)


@pytest.mark.parametrize("body", [b"", b"plain", b"{} {}", b'"\xff"', b"[" * 100_000])
def test_records_that_are_no_messages(body: bytes) -> None:
    with pytest.raises(OperationFailed, match="record 7 is not JSON") as raised:
        check_message(body, 7)
    assert raised.value.failure.details["seq_num"] == 7
