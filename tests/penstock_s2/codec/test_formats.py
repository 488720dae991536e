"""Header `s2-format` and what it does to bytes (S2 fact sheet, section 0 and 1.2)."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import FailureCode, OperationFailed
from penstock_s2.codec.formats import BytesFormat, parse_bytes, parse_format, spell_bytes, spell_exactly


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, BytesFormat.RAW),
        ("raw", BytesFormat.RAW),
        ("json", BytesFormat.RAW),
        ("base64", BytesFormat.BASE64),
        ("json-binsafe", BytesFormat.BASE64),
        (" base64 ", BytesFormat.BASE64),
    ],
)
def test_known(value: str | None, expected: BytesFormat) -> None:
    assert parse_format(value) is expected


@pytest.mark.parametrize("value", ["", "hex", "utf8", "RAW", "base64,raw", "base64url"])
def test_unknown(value: str) -> None:
    with pytest.raises(OperationFailed, match="Invalid header `s2-format`: ") as caught:
        parse_format(value)
    assert caught.value.failure.code is FailureCode.BAD_HEADER


@pytest.mark.parametrize(
    "text",
    ["YQ", "YQ=", "YQ==\n", "Y Q==", "YWJj=", "YW-_", "=", "====", "A===", "YQ==YQ==", "é", "\ud83d", "YWI=YWI=", "*"],
)
def test_bad_base64(text: str) -> None:
    with pytest.raises(ValueError):
        parse_bytes[BytesFormat.BASE64](text)


@pytest.mark.parametrize(("text", "data"), [("", b""), ("YQ==", b"a"), ("YR==", b"a"), ("+/+/", b"\xfb\xff\xbf")])
def test_good_base64(text: str, data: bytes) -> None:
    assert parse_bytes[BytesFormat.BASE64](text) == data


@given(st.binary(max_size=300))
def test_base64_is_the_standard_alphabet_with_padding(data: bytes) -> None:
    text = spell_bytes[BytesFormat.BASE64](data)
    assert text == base64.b64encode(data).decode()
    assert parse_bytes[BytesFormat.BASE64](text) == data


@given(st.text(alphabet="AZaz09+/=-_ \n\u00e9", max_size=24))
def test_any_text_is_base64_as_the_standard_library_has_it_or_refused(text: str) -> None:
    try:
        data = parse_bytes[BytesFormat.BASE64](text)
    except ValueError:
        return
    assert base64.b64decode(text, validate=True) == data
    # A change of the pad bits apart, there is one spelling of every data.
    assert base64.b64encode(data).decode().rstrip("=")[:-1] == text.rstrip("=")[:-1]
    assert len(text) % 4 == 0


def test_raw_is_lossy_only_where_it_may_be() -> None:
    assert spell_bytes[BytesFormat.RAW](b"a\xff\xe2\x82b") == "a\ufffd\ufffdb"
    with pytest.raises(UnicodeDecodeError):
        spell_exactly[BytesFormat.RAW](b"\xff")
    assert spell_exactly[BytesFormat.BASE64](b"\xff") == "/w=="
