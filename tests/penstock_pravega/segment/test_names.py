"""Segments' names and the streams that they stand for: the tables of docs/names.md, and the rules that it keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.markdown import tables_of
from support.store import Fails

from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.names import validate_basin_name, validate_stream_name
from penstock.model.records import StreamRef
from penstock_pravega.segment.names import SegmentName, SegmentNames

NAMES = SegmentNames()
TRANSACTION = f"#transaction.{7:032x}"
LONG = "x" * 255

EXAMPLES = [
    ("basin-one/stream/0.#epoch.0", "basin-one", "stream"),
    ("basin-one/stream/2.#epoch.1", "basin-one", "stream/2.#epoch.1"),
    ("penstock/stream/0.#epoch.0", "penstock", "stream"),
    ("Scope/stream/0.#epoch.0", "penstock", "Scope/stream"),
    ("Scope/stream/0.#epoch.3", "penstock", "Scope/stream/0.#epoch.3"),
    ("_system/stream/0.#epoch.0", "penstock", "_system/stream"),
    ("basin-one/_RGgroup/0.#epoch.0", INTERNAL_BASIN, "basin-one/_RGgroup/0.#epoch.0"),
    (f"s/t/0.#epoch.0{TRANSACTION}", INTERNAL_BASIN, f"s/t/0.#epoch.0{TRANSACTION}"),
    ("s/t/1.#epoch.0#transient.1f", INTERNAL_BASIN, "s/t/1.#epoch.0#transient.1f"),
    (f"s/t/0.#epoch.0{TRANSACTION}#transient.1f", INTERNAL_BASIN, f"s/t/0.#epoch.0{TRANSACTION}#transient.1f"),
    (f"{LONG}/{LONG}/0.#epoch.0", "penstock", f"{LONG}/{LONG}"),
]


DOCUMENTED, DOCUMENTED_SHORT, NO_SEGMENT_DOCUMENTED, NO_NAME_DOCUMENTED = tables_of("names.md", "Segments")
EXAMPLES += [(row[0], row[1], row[2]) for row in DOCUMENTED]


@pytest.mark.parametrize(("segment", "basin", "stream"), EXAMPLES, ids=[row[0][:40] for row in EXAMPLES])
def test_examples(segment: str, basin: str, stream: str) -> None:
    ref = StreamRef(basin, stream)
    assert NAMES.to_stream(segment) == ref
    assert str(NAMES.from_stream(ref)) == segment


SHORT = [
    *DOCUMENTED_SHORT,
    ("stream", "penstock/stream/0.#epoch.0"),
    ("scope/stream", "scope/stream/0.#epoch.0"),
    ("scope/stream/0", "scope/stream/0.#epoch.0"),
    ("scope/stream/4", "scope/stream/4.#epoch.0"),
    ("scope/4", "scope/4/0.#epoch.0"),
    (f"scope/stream/4{TRANSACTION}", f"scope/stream/4.#epoch.0{TRANSACTION}"),
]


@pytest.mark.parametrize(("short", "long"), SHORT)
def test_short_names_mean_the_same_as_long_ones(short: str, long: str) -> None:
    assert str(SegmentName.parse(short, "penstock")) == long
    assert NAMES.to_stream(short) == NAMES.to_stream(long)


NO_SEGMENT = [
    *(row[0] for row in NO_SEGMENT_DOCUMENTED),
    "",
    "/",
    "scope/",
    "/stream",
    "a/b/c/d",
    "a/b/c",
    "a/b/01.#epoch.0",
    "a/b/0.#epoch.00",
    "a/b/0.#epoch.",
    "a/b/0.epoch.0",
    "b/0.#epoch.0",
    "a/b/2147483648.#epoch.0",
    "a/b/0.#epoch.2147483648",
    "a/b/99999999999",
    "a/b/-1",
    "a/b/0.#epoch.0#",
    "a/b/0.#epoch.0#transaction.7",
    f"a/b/0.#epoch.0#transaction.{'F' * 32}",
    "a/b/0.#epoch.0#transient.",
    f"a/b/0.#epoch.0#transient.{'0' * 33}",
    "a/./0.#epoch.0",
    "../b",
    "a b/c",
    "scope/é",
    "scope/stream\n",
    "scope/\0",
    f"scope/{LONG}x",
    f"{LONG}x/stream",
    f"{LONG}/{LONG}/0.#epoch.1",
]


@pytest.mark.parametrize("name", NO_SEGMENT, ids=ascii)
def test_names_without_a_stream(name: str) -> None:
    with Fails(FailureCode.NOT_REPRESENTABLE):
        NAMES.to_stream(name)


NO_NAME = [
    *(StreamRef(row[0], row[1]) for row in NO_NAME_DOCUMENTED),
    StreamRef("penstock", "a b"),
    StreamRef("penstock", "_hidden"),
    StreamRef("penstock", "Scope/_hidden"),
    StreamRef("penstock", "basin-one/stream"),
    StreamRef("penstock", "stream/0.#epoch.0"),
    StreamRef("penstock", "Scope/stream/0"),
    StreamRef("basin-one", "Scope/stream"),
    StreamRef("basin-one", "stream/1"),
    StreamRef("basin-one", f"stream{TRANSACTION}"),
    StreamRef("basin-one", "x" * 256),
    StreamRef("Basin", "stream"),
    StreamRef(INTERNAL_BASIN, "basin-one/stream/0.#epoch.0"),
    StreamRef(INTERNAL_BASIN, "basin-one/_stream"),
]


@pytest.mark.parametrize("stream", NO_NAME, ids=str)
def test_streams_without_a_name(stream: StreamRef) -> None:
    with Fails(FailureCode.NOT_REPRESENTABLE, "segment clients have no name"):
        NAMES.from_stream(stream)


PARTS = st.sampled_from(["penstock", "basin-one", "basin", "a", "0", "_a", "A.b"]) | st.from_regex(
    r"[A-Za-z0-9._-]{1,12}", fullmatch=True
).filter(lambda name: name not in (".", ".."))
NUMBERS = st.sampled_from([0, 1, 2**31 - 1]) | st.integers(0, 2**31 - 1)
SUFFIXES = st.just("") | st.from_regex(r"(#transaction\.[0-9a-f]{32})?(#transient\.[0-9a-f]{1,32})?", fullmatch=True)
SEGMENTS = st.builds(SegmentName, PARTS, PARTS, NUMBERS, NUMBERS, SUFFIXES)


@given(SEGMENTS)
def test_there_and_back(segment: SegmentName) -> None:
    stream = NAMES.to_stream(segment)
    assert NAMES.from_stream(stream) == segment
    assert NAMES.to_stream(str(segment)) == stream
    assert SegmentName.parse(str(segment), "other") == segment
    validate_stream_name(stream.stream, FailureCode.INVALID)
    if stream.basin != INTERNAL_BASIN:
        validate_basin_name(stream.basin, FailureCode.INVALID)
        assert not segment.suffix


@given(SEGMENTS, SEGMENTS)
def test_injective(one: SegmentName, other: SegmentName) -> None:
    assert (NAMES.to_stream(one) == NAMES.to_stream(other)) is (one == other)


@given(
    st.sampled_from(["penstock", "basin-one", INTERNAL_BASIN]),
    st.lists(
        st.sampled_from(["/", "basin-one", "penstock", "a", "_", ".", "0", "5", ".#epoch.", "#transient.", "é"])
        | st.text(max_size=2),
        min_size=1,
        max_size=8,
    ).map("".join),
)
def test_back_and_there(basin: str, stream: str) -> None:
    """A stream has a name that leads back to it, or none, even if several names lead to it."""
    ref = StreamRef(basin, stream)
    try:
        name = NAMES.from_stream(ref)
    except OperationFailed as error:
        assert error.failure.code is FailureCode.NOT_REPRESENTABLE
    else:
        assert NAMES.to_stream(name) == NAMES.to_stream(str(name)) == ref


@given(PARTS, PARTS, NUMBERS, NUMBERS)
def test_ids(scope: str, stream: str, number: int, epoch: int) -> None:
    name = SegmentName(scope, stream, number, epoch)
    assert name.id == epoch * 2**32 + number
    assert SegmentName.of_id(scope, stream, name.id) == name


@pytest.mark.parametrize("number", [-1, 2**31, 2**63, -(2**63)])
def test_numbers_that_are_no_segments(number: int) -> None:
    with Fails(FailureCode.NOT_REPRESENTABLE, "a segment's"):
        SegmentName.of_id("scope", "stream", number)


def test_scopes() -> None:
    assert NAMES.basin_of("basin-one") == ("basin-one", "")
    assert NAMES.basin_of("penstock") == ("penstock", "")
    assert NAMES.basin_of("Scope") == ("penstock", "Scope/")
    assert SegmentNames("telemetry").basin_of("penstock") == ("penstock", "")
    assert SegmentNames("telemetry").basin_of("scope") == ("telemetry", "scope/")
    for bad in ("", "a/b", "..", "é", "a" * 256):
        with Fails(FailureCode.NOT_REPRESENTABLE):
            NAMES.basin_of(bad)


@pytest.mark.parametrize(
    ("name", "owner", "name_there"),
    [
        (f"s/t/0.#epoch.0{TRANSACTION}", "penstock/s/t", f"basin-two/far/0.#epoch.0{TRANSACTION}"),
        (f"basin-one/t/0.#epoch.0{TRANSACTION}", "basin-one/t", f"basin-two/far/0.#epoch.0{TRANSACTION}"),
        ("basin-one/_MARKt/0.#epoch.0", "basin-one/t", "basin-two/_MARKfar/0.#epoch.0"),
        ("basin-one/_MARK/0.#epoch.0", "basin-one/_MARK", "basin-two/far/0.#epoch.0"),
        ("_kv", "penstock/_kv", "basin-two/far/0.#epoch.0"),
    ],
)
def test_an_internal_segment_follows_its_owner(name: str, owner: str, name_there: str) -> None:
    assert str(NAMES.owner_of(name)) == owner
    assert NAMES.name_beside(StreamRef("basin-two", "far"), name) == name_there


def test_no_segment_is_beside_a_stream_that_is_no_segment() -> None:
    assert NAMES.owner_of("any text") is None
    assert NAMES.name_beside(StreamRef("basin-two", "any text"), "basin-one/_kv") is None


def test_the_basin_must_be_one() -> None:
    with pytest.raises(ValueError, match="'Telemetry' is not a basin's name"):
        SegmentNames("Telemetry")
