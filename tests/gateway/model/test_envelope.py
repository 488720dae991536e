"""The envelope: reversible, one spelling per record, and nothing else taken for one (docs/loss.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.envelope import ENVELOPE_MARK, is_marked, unwrap, wrap
from penstock.model.records import Header, Headers

DOCUMENT = Path(__file__).parents[3] / "docs" / "loss.md"
HEADERS = st.lists(st.builds(Header, st.binary(max_size=5), st.binary(max_size=5)), max_size=3).map(tuple)


def test_the_layout() -> None:
    """The bytes that docs/loss.md shows."""
    example = "f550454e 01 1206 0a016b 120176 1a04626f6479"
    assert wrap((Header(b"k", b"v"),), b"body") == bytes.fromhex(example)
    assert f"    {example}\n" in DOCUMENT.read_text(encoding="utf-8")
    assert wrap((), b"") == b"\xf5PEN\x01"


@given(HEADERS, st.binary(max_size=40))
def test_reversible(headers: Headers, body: bytes) -> None:
    envelope = wrap(headers, body)
    assert is_marked(envelope)
    assert unwrap(envelope) == (headers, body)


@given(HEADERS, st.binary(max_size=20), st.data())
def test_a_record_has_one_envelope(headers: Headers, body: bytes, data: st.DataObject) -> None:
    """Only the exact output of wrapping can be unwrapped, so a client's data is not changed on the way back."""
    changed = bytearray(wrap(headers, body))
    at = data.draw(st.integers(5, len(changed)))
    changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=4))
    try:
        record = unwrap(bytes(changed))
    except ValueError:
        return
    assert wrap(*record) == bytes(changed)


@pytest.mark.parametrize(
    ("data", "why"),
    {
        b"": "mark is missing",
        b"plain": "mark is missing",
        b"\xf5PE": "mark is missing",
        ENVELOPE_MARK: "version missing is not known",
        ENVELOPE_MARK + b"\x02": "version 2 is not known",
        ENVELOPE_MARK + b"\x01\x1a": "does not hold a record",
        ENVELOPE_MARK + b"\x01\x08\x05": "more than headers and body",
        ENVELOPE_MARK + b"\x01\x22\x00": "more than headers and body",
        ENVELOPE_MARK + b"\x01\x1a\x01x\x12\x00": "not spelled canonically",
    }.items(),
)
def test_what_is_no_envelope(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unwrap(data)
