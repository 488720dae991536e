"""Frames that are passed on: the same bytes for any cuts, and never an unfinished frame."""

import tracemalloc
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_s2.codec.s2s.frames import FrameError, encode_frame, encode_terminal
from penstock_s2.codec.s2s.whole_frames import WholeFrames

FRAMES = [b"".join(encode_frame([b"x" * size])) for size in (1, 2, 300)]
TERMINAL = b"".join(encode_terminal(412, b'{"seq_num_mismatch":7}'))


def fed(cutter: WholeFrames, data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut the data into pieces and return the output for each."""
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    return [b"".join(cutter.feed(data[a:b])) for a, b in pairwise(edges) if a < b]


@given(st.lists(st.sampled_from(FRAMES), max_size=8), st.lists(st.integers(0, 2000), max_size=12))
def test_any_cut(frames: list[bytes], cuts: list[int]) -> None:
    data = b"".join(frames)
    ends = {len(b"".join(frames[:count])) for count in range(len(frames) + 1)}
    cutter = WholeFrames()
    out = b""
    for part in fed(cutter, data, cuts):
        out += part
        assert len(out) in ends
    assert out == data
    assert cutter.held == 0
    cutter.finish()


def test_byte_by_byte_gives_each_frame_at_its_last_byte() -> None:
    data = b"".join(FRAMES)
    cutter = WholeFrames()
    given_at = {index: out for index in range(len(data)) if (out := b"".join(cutter.feed(data[index : index + 1])))}
    ends = [sum(map(len, FRAMES[: count + 1])) - 1 for count in range(len(FRAMES))]
    assert given_at == dict(zip(ends, FRAMES, strict=True))


def test_pieces_are_not_copied() -> None:
    cutter = WholeFrames()
    frame = FRAMES[2]
    first, second = frame[:100], frame[100:]
    assert cutter.feed(first) == []
    assert [id(piece) for piece in cutter.feed(second)] == [id(first), id(second)]


@pytest.mark.parametrize("sizes", [[5000, 7, 7, 7, 5000, 9, 9], [7, 5000, 7, 7, 5000, 1], [7, 7, 7, 4096, 4095, 1, 1]])
def test_small_pieces_stay_in_their_place_between_large_ones(sizes: list[int]) -> None:
    content = bytes(range(256)) * 100
    data = b"".join(encode_frame([content])) + b"".join(encode_frame([content[::-1]]))
    cuts = [*accumulate(sizes), *accumulate(sizes, initial=len(data) // 2 + 1)]
    assert b"".join(fed(WholeFrames(), data, cuts)) == data


def test_terminal_frames_are_noticed() -> None:
    cutter = WholeFrames()
    cutter.feed(FRAMES[0])
    assert not cutter.terminal
    assert b"".join(cutter.feed(TERMINAL)) == TERMINAL
    assert cutter.terminal


@pytest.mark.parametrize("cut", [1, 4, len(TERMINAL) - 1])
def test_a_terminal_frame_counts_once_it_is_whole(cut: int) -> None:
    cutter = WholeFrames()
    assert b"".join(cutter.feed(FRAMES[0] + TERMINAL[:cut])) == FRAMES[0]
    assert not cutter.terminal
    assert b"".join(cutter.feed(TERMINAL[cut:])) == TERMINAL
    assert cutter.terminal


@pytest.mark.parametrize(
    ("data", "text"), [(b"\0\0\0", "empty frame payload"), (b"\x20\0\x01", "frame exceeds decode limit")]
)
@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_no_frame_is_refused_with_its_length(data: bytes, text: str, at_once: bool) -> None:
    cutter = WholeFrames()
    cutter.feed(FRAMES[0])
    cutter.check()
    assert fed(cutter, data, [] if at_once else [1, 2])[-1] == b""
    for call in (cutter.check, cutter.finish):
        with pytest.raises(FrameError, match=text):
            call()
    assert cutter.feed(FRAMES[0]) == [], "nothing follows"


@pytest.mark.parametrize("data", [b"\0\0\0", b"\x20\0\x01"])
@pytest.mark.parametrize("cut", range(len(FRAMES[0]) + 1))
def test_frames_before_one_that_is_none_are_passed_on(data: bytes, cut: int) -> None:
    cutter = WholeFrames()
    said = FRAMES[0] + FRAMES[1] + data
    assert b"".join(fed(cutter, said, [cut])) == FRAMES[0] + FRAMES[1]
    with pytest.raises(FrameError):
        cutter.check()


@pytest.mark.parametrize("cut", range(1, len(FRAMES[1])))
def test_an_end_inside_a_frame(cut: int) -> None:
    cutter = WholeFrames()
    assert b"".join(cutter.feed(FRAMES[0] + FRAMES[1][:cut])) == FRAMES[0]
    assert cutter.held == cut
    with pytest.raises(FrameError, match="bytes remaining on stream"):
        cutter.finish()


def test_a_frame_in_tiny_pieces_takes_no_more_memory_than_it_is_long() -> None:
    cutter = WholeFrames()
    frame = b"".join(encode_frame([bytes(100_000)]))
    tracemalloc.start()
    try:
        for at in range(0, len(frame) - 2, 2):
            assert cutter.feed(frame[at : at + 2]) == []
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 2 * len(frame)
    assert b"".join(cutter.feed(frame[cutter.held :])) == frame


def test_the_rest_of_a_large_piece_does_not_keep_the_whole() -> None:
    cutter = WholeFrames()
    tracemalloc.start()
    try:
        piece = b"".join(encode_frame([bytes(100_000)])) + FRAMES[0][:2]
        cutter.feed(piece)
        del piece
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 10_000
    assert b"".join(cutter.feed(FRAMES[0][2:])) == FRAMES[0]
