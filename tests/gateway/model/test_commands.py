"""Command records (S2 fact sheet, 5.3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.commands import Fence, TrimTo, parse_command, trim_points
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Append
from penstock.model.records import U64_MAX, Header, Headers, StreamRef


@given(st.integers(0, U64_MAX))
def test_trims(seq_num: int) -> None:
    assert parse_command((Header(b"", b"trim"),), seq_num.to_bytes(8, "big")) == TrimTo(seq_num)
    trim, fence = (Header(b"", b"trim"),), (Header(b"", b"fence"),)
    headers: dict[int, Headers] = {1: trim, 2: fence, 3: (Header(b"a", b"b"),), 4: trim}
    bodies = [b"x", seq_num.to_bytes(8, "big"), b"t", b"y", bytes(8)]
    assert trim_points(Append(StreamRef("b", "s"), bodies, 0, headers=headers)) == [seq_num, 0]


def test_fences() -> None:
    assert parse_command((Header(b"", b"fence"),), "tök".encode()) == Fence("tök")
    assert parse_command((Header(b"", b"fence"),), b"") == Fence("")


@pytest.mark.parametrize("headers", [(), (Header(b"fence", b""),), (Header(b"", b"fence"), Header(b"k", b""))])
def test_ordinary_records(headers: Headers) -> None:
    assert parse_command(headers, b"tok") is None


@pytest.mark.parametrize(
    ("name", "body"), [(b"fence", b"t" * 37), (b"fence", b"\xff"), (b"trim", bytes(7)), (b"trim", b""), (b"bogus", b"")]
)
def test_a_malformed_command_is_refused(name: bytes, body: bytes) -> None:
    append = Append(StreamRef("b", "s"), [b"fine", body], 0, headers={1: (Header(b"", name),)})
    with pytest.raises(OperationFailed) as caught:
        trim_points(append)
    assert caught.value.failure.code is FailureCode.INVALID
