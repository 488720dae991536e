"""The mapping of names: the tables of docs/names.md, and the rules that it keeps."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.markdown import tables_of

from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.names import validate_stream_name
from penstock.model.records import StreamRef
from penstock_s3p.names import BasinInName, FixedBasin, S3PNames, s3p_names

MAPPINGS: dict[str, S3PNames] = {"fixed": FixedBasin("penstock"), "path": BasinInName()}


EXAMPLES, NO_STREAM, NO_NAME = tables_of("names.md", "S3P")


def value(text: str) -> bytes:
    """A bytes literal, or one times a number."""
    literal, _, times = text.partition(" * ")
    found = ast.literal_eval(literal)
    assert isinstance(found, bytes)
    return found * int(times or 1)


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: f"{row[0]} {row[1]}")
def test_examples(row: list[str]) -> None:
    mapping, name, stream = MAPPINGS[row[0]], value(row[1]), StreamRef(row[2], ast.literal_eval(row[3]))
    assert mapping.to_stream(name) == stream
    assert mapping.from_stream(stream) == name


@pytest.mark.parametrize("row", NO_STREAM, ids=lambda row: f"{row[0]} {row[1]}")
def test_names_without_a_stream(row: list[str]) -> None:
    with pytest.raises(OperationFailed) as caught:
        MAPPINGS[row[0]].to_stream(value(row[1]))
    assert caught.value.failure.code is FailureCode.NOT_REPRESENTABLE


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"\0" * 171, "of 171 bytes has bytes that are escaped (%XX): it becomes 513 bytes long, at most 512"),
        (b"x" * 513, "1 to 512 bytes, not 513"),
    ],
)
def test_the_reason_of_a_name_that_is_too_long(name: bytes, reason: str) -> None:
    with pytest.raises(OperationFailed) as caught:
        MAPPINGS["fixed"].to_stream(name)
    assert reason in caught.value.failure.message


@pytest.mark.parametrize("row", NO_NAME, ids=lambda row: f"{row[0]} {row[2]}")
def test_streams_without_a_name(row: list[str]) -> None:
    with pytest.raises(OperationFailed) as caught:
        MAPPINGS[row[0]].from_stream(StreamRef(row[1], ast.literal_eval(row[2])))
    assert caught.value.failure.code is FailureCode.NOT_REPRESENTABLE


NAMES = st.lists(
    st.sampled_from([b"%", b"%2", b"%25", b"%FF", b".", b"\x00", b"\xff", b"\xc3", b"\xa9", b"/", "é".encode(), b"A"])
    | st.binary(min_size=1, max_size=3),
    min_size=1,
    max_size=12,
).map(b"".join)


@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS)
@given(name=NAMES)
def test_there_and_back(mapping: S3PNames, name: bytes) -> None:
    """Every name has a stream of a lawful name, and that stream has this name alone."""
    if isinstance(mapping, BasinInName):
        name = b"penstock/" + name
    stream = mapping.to_stream(name)
    validate_stream_name(stream.stream, FailureCode.INVALID)
    assert mapping.from_stream(stream) == name


@given(NAMES, NAMES)
def test_injective(one: bytes, other: bytes) -> None:
    names = FixedBasin()
    assert (names.to_stream(one) == names.to_stream(other)) is (one == other)


@given(
    st.text(st.sampled_from("%0123456789ABCDEFabcdef./é\x01"), min_size=1, max_size=10)
    | st.text(min_size=1, max_size=10)
)
def test_back_and_there(stream: str) -> None:
    """A stream has a name that leads back to it, or none, even if several names lead to it."""
    ref = StreamRef("penstock", stream)
    names = FixedBasin()
    try:
        name = names.from_stream(ref)
    except OperationFailed as error:
        assert error.failure.code is FailureCode.NOT_REPRESENTABLE
    else:
        assert names.to_stream(name) == ref


def test_configured() -> None:
    assert s3p_names() == FixedBasin("penstock")
    assert s3p_names("fixed", "telemetry") == FixedBasin("telemetry")
    assert s3p_names("path") == BasinInName()
    with pytest.raises(ValueError, match="'Telemetry': basin name must"):
        s3p_names("fixed", "Telemetry")
