"""Bytes of a segment as records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_pravega.codec import NoEvent, join_events, take_records

LARGE = {"max_body": 10, "max_event": 100}


@given(
    st.lists(st.binary(max_size=40), max_size=10),
    st.integers(0, 12),
    st.integers(0, 300),
    st.data(),
    st.integers(0, 99),
)
def test_all_comes_back_wherever_it_is_cut(
    events: list[bytes], count: int, size: int, data: st.DataObject, offset: int
) -> None:
    """Scans that each begin where the last one ended give everything, in the same pieces as one scan of it all."""
    whole = join_events(events)
    expected = take_records(whole, offset, count=10**6, size=10**6, **LARGE)
    bodies: list[bytes] = []
    starts: list[int] = []
    at = 0
    while at < len(whole):
        end = data.draw(st.integers(at, len(whole)))
        found = take_records(whole[at:end], offset + at, count=count + 1, size=size, **LARGE)
        if not found.bodies:
            assert 0 < found.missing <= len(whole) - end
            end += found.missing
            found = take_records(whole[at:end], offset + at, count=1, size=1, **LARGE)
            if not found.bodies:  # that was its header
                end += found.missing
                found = take_records(whole[at:end], offset + at, count=1, size=1, **LARGE)
        bodies += found.bodies
        starts += found.offsets[:-1]
        at = found.offsets[-1] - offset
    assert bodies == expected.bodies
    assert [*starts, offset + len(whole)] == expected.offsets
    small = [body for index, body in enumerate(bodies) if index in expected.inner]
    assert len(small) == sum((len(event) + 7) // 10 for event in events if len(event) > 10)


def test_bounds() -> None:
    data = join_events([b"12345"] * 4)
    assert len(take_records(data, 0, count=2, size=1000, **LARGE).bodies) == 2
    assert len(take_records(data, 0, count=9, size=14, **LARGE).bodies) == 2
    assert len(take_records(data, 0, count=9, size=0, **LARGE).bodies) == 1
    for size, pieces in ((10, 1), (11, 2), (100, 11)):
        found = take_records(join_events([b"x" * size]), 0, count=9, size=1000, **LARGE)
        assert (len(found.bodies), len(found.inner)) == (pieces, pieces - 1)


@pytest.mark.parametrize(
    ("junk", "why"),
    [
        (b"\0\0\0\1\0\0\0\0", "message type 1"),
        (b"\0\0\0\0\0\0\0\x65", "101 bytes"),
        (b"\0\0\0\0\xff\xff\xff\xff", "bytes"),
    ],
)
def test_what_is_no_event(junk: bytes, why: str) -> None:
    """Events before it are returned; the error is raised by the next scan, which begins at it."""
    data = join_events([b"good"]) + junk
    found = take_records(data, 5, count=9, size=1000, **LARGE)
    assert (found.bodies, found.offsets) == ([b"good"], [5, 17])
    with pytest.raises(NoEvent, match=why) as caught:
        take_records(data[12:], 17, count=9, size=1000, **LARGE)
    assert caught.value.offset == 17
