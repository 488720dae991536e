"""HTTP/2: bodies that are read without h2 are what h2 would deliver, with the same windows and errors."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import pytest
from hyperframe.frame import DataFrame, Frame, HeadersFrame, PingFrame, RstStreamFrame, WindowUpdateFrame
from hypothesis import example, given
from hypothesis import strategies as st
from support.http.h2_frames import GET, POST, answer, headers, started
from support.http.story import pull, said, story

from penstock.model.failures import RemoteProtocolError
from penstock.wire.http import Credit, Data, HttpCodec, Received
from penstock.wire.http.h2 import Http2Connection
from penstock.wire.http.h2_frames import H2

LIMITED = [*POST, ("content-length", "9000")]


def data(stream_id: int, size: int, flags: tuple[str, ...], pad: int) -> DataFrame:
    body = bytes([stream_id + size & 255]) * size
    return DataFrame(stream_id, body, flags=[*flags, *(["PADDED"] if pad else [])], pad_length=pad)


frames = st.one_of(
    st.builds(
        data,
        st.sampled_from([1, 1, 1, 3, 5, 7, 9]),
        st.sampled_from([0, 1, 5, 4000, 9000, 16_384, 60_000, 65_536, 65_537]),
        st.sampled_from([(), (), (), ("END_STREAM",)]),
        st.sampled_from([0, 0, 0, 1, 200]),
    ),
    st.builds(PingFrame, st.just(0), st.just(b"12345678")),
    st.builds(RstStreamFrame, st.sampled_from([1, 3])),
    st.builds(WindowUpdateFrame, st.just(1), st.sampled_from([1, 2**31 - 1])),
    st.just(HeadersFrame(1, b"\x82", flags=[])),
)


def heard(codec: Http2Connection, pieces: list[bytes], credited: bool) -> tuple[list[object], str, int, bytes]:
    """Return the story, the error, the bytes of body that take up window, and the codec's output."""
    events: list[Received] = []
    error, credit = "", 0

    def answer_data(codec: HttpCodec, event: Received) -> None:
        nonlocal credit
        events.append(event)
        if isinstance(event, Data):
            credit += event.credit
            if credited:
                codec.send(Credit(event.stream_id, event.credit))

    try:
        for piece in pieces:
            codec.receive(piece)
            pull(codec, answer_data)
    except RemoteProtocolError as failure:
        error = failure.failure.message
    return story(events), error, credit, said(codec)


def opened() -> Http2Connection:
    codec = started(headers(1, POST), headers(3, LIMITED), headers(5, POST), headers(7, GET, "END_STREAM"))
    answer(codec, 5, b"early", end=True)
    said(codec)
    return codec


@given(st.lists(frames, max_size=30), st.lists(st.integers(0, 300_000), max_size=4), st.booleans())
@example([data(1, 60_000, (), 0)] * 20, [], False)
@example([data(3, 4000, (), 0)] * 3, [], True)
@example([data(3, 4000, (), 0)] * 2 + [data(3, 1000, ("END_STREAM",), 0)], [], True)
@example([data(1, 60_000, (), 0), data(5, 60_000, (), 0)] * 40, [7, 60_011], True)
def test_as_h2_reads_them(sent: list[Frame], cuts: list[int], credited: bool) -> None:
    stream = b"".join(frame.serialize() for frame in sent)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[start:stop] for start, stop in pairwise(edges)]
    *ours, our_output = heard(opened(), pieces, credited)
    with patch.object(H2, "take_body", return_value=None):
        *theirs, their_output = heard(opened(), pieces, credited)
    assert ours == theirs
    if not credited:  # else the windows open in other steps
        assert our_output == their_output


def test_frames_of_one_stream_are_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = opened()
    monkeypatch.setattr(H2, "_receive_data_frame", None)
    codec.receive(b"".join(data(number, 4000, (), 0).serialize() for number in (1, 1, 1, 3)))
    pieces = [event for event in pull(codec) if isinstance(event, Data)]
    assert [(piece.stream_id, len(piece.data)) for piece in pieces] == [(1, 12_000), (3, 4000)]


def test_few_enough_frames_are_read_at_a_time_for_others_to_have_their_turn() -> None:
    codec = opened()
    codec.receive(data(1, 1, (), 0).serialize() * 1000)
    sizes = [len(event.data) for event in pull(codec) if isinstance(event, Data)]
    assert sum(sizes) == 1000
    assert max(sizes) <= 64
