"""HTTP/2: flow control, turns, and what is credited when."""

import h2.exceptions
import pytest
from hyperframe.frame import (
    DataFrame,
    HeadersFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import given
from hypothesis import strategies as st
from support.http.h2_frames import (
    GET,
    POST,
    answer,
    body_of,
    frames_of,
    headers,
    parse,
    started,
)
from support.http.story import pull, said

from penstock.wire.http import Body, Credit, Data, End, HttpLimits, Reset, ResponseHead
from penstock.wire.http.h2 import Http2Connection
from penstock.wire.http.h2_frames import data_frames

# ---- flow control ------------------------------------------------------------------------------------------------


def test_credit_opens_the_windows_only_after_consumption() -> None:
    codec = started(headers(1, POST))
    size = 0
    for _ in range(40):
        codec.receive(DataFrame(1, b"x" * 16384).serialize())
        size += sum(event.credit for event in pull(codec) if isinstance(event, Data))
    assert size == 40 * 16384
    assert said(codec) == b""
    codec.send(Credit(1, size))
    assert [f.window_increment for f in frames_of(codec, WindowUpdateFrame) if f.stream_id == 1] == [size]


def test_padding_is_credited_by_itself() -> None:
    codec = started(headers(1, POST))
    total = 0
    for _ in range(200):
        codec.receive(DataFrame(1, b"x" * 5000, pad_length=255, flags=["PADDED"]).serialize())
        for event in pull(codec):
            assert isinstance(event, Data)
            codec.send(Credit(1, event.credit))
            total += 5256
    increments = [f.window_increment for f in frames_of(codec, WindowUpdateFrame) if f.stream_id == 1]
    assert sum(increments) >= total - HttpLimits().stream_window // 2


def test_a_small_answer_is_one_data_frame() -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    answer(codec, 1, b'{"code":', b'"x"}', end=True)
    head, data = parse(b"".join(codec.output(1 << 20)))
    assert isinstance(head, HeadersFrame)
    assert isinstance(data, DataFrame)
    assert data.data == b'{"code":"x"}'
    assert "END_STREAM" in data.flags


def test_a_piece_to_be_written_at_once_takes_its_window() -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    assert codec.framed(1, b"ping") is None, "before the head"
    answer(codec, 1)
    assert codec.framed(1, b"ping") is None, "the head has to be written first"
    said(codec)
    window, given = codec.window(1), codec.given
    assert body_of(parse(codec.framed(1, b"ping") or b""), 1) == b"ping"
    assert (codec.window(1), codec.given) == (window - 4, given + 4)
    assert codec.framed(3, b"ping") is None
    assert codec.framed(1, bytes(16385)) is None
    codec.send(Body(1, [bytes(window - 7)]))
    said(codec)
    assert codec.framed(1, b"ping") is None, "3 bytes of window are left"
    assert codec.window(1) == 3
    codec.send(Body(1, [b"more"]))
    said(codec)
    codec.receive(WindowUpdateFrame(0, 100).serialize() + WindowUpdateFrame(1, 100).serialize())
    pull(codec)
    assert codec.framed(1, b"ping") is None, "a byte that was sent before still waits"
    said(codec)
    assert codec.framed(1, b"ping")
    codec.send(End(1))
    assert codec.framed(1, b"ping") is None


def test_large_bodies_wait_for_window_and_are_split_by_frame_size() -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    body = bytes(range(256)) * 1000
    answer(codec, 1, body, end=True)
    frames = parse(said(codec))
    assert body_of(frames, 1) == body[:65535]
    assert max(len(f.data) for f in frames if isinstance(f, DataFrame)) == 16384
    assert codec.unsent(1) == len(body) - 65535
    assert said(codec) == b""
    codec.receive(WindowUpdateFrame(0, 1 << 20).serialize() + WindowUpdateFrame(1, 100_000).serialize())
    pull(codec)
    more = parse(said(codec))
    assert body_of(frames + more, 1) == body[:165535]
    codec.receive(WindowUpdateFrame(1, 1 << 20).serialize())
    pull(codec)
    more += parse(said(codec))
    assert body_of(frames + more, 1) == body
    assert codec.unsent(1) == 0
    assert ["END_STREAM" in f.flags for f in more][-1]


@given(
    st.lists(st.integers(0, 90_000), max_size=6), st.lists(st.integers(1, 70_000), max_size=8), st.integers(1, 2**18)
)
def test_no_byte_is_lost_or_sent_beyond_the_window(sizes: list[int], windows: list[int], room: int) -> None:
    codec = started(WindowUpdateFrame(0, 1 << 24), headers(1, GET, "END_STREAM"))
    body = b"".join(bytes([i + 1]) * size for i, size in enumerate(sizes))
    codec.send(ResponseHead(1, 200, []))
    for i, size in enumerate(sizes):
        codec.send(Body(1, [bytes([i + 1]) * size]))
    codec.send(End(1))
    allowed, got, ended = 65535, b"", False
    for window in [0, *windows, len(body) + 1]:
        if window:
            codec.receive(WindowUpdateFrame(1, window).serialize())
            pull(codec)
            allowed += window
        while data := b"".join(codec.output(room)):
            frames = parse(data)
            got += body_of(frames, 1)
            ended = any("END_STREAM" in f.flags for f in frames)
        assert got == body[:allowed]
    assert got == body
    assert ended


def test_parts_of_a_body_share_its_frames() -> None:
    """A part that does not fill its frame makes none of its own."""
    codec = started(headers(1, GET, "END_STREAM"))
    parts = [b"head", b"x" * 40_000, b"next", b"y" * 20_000]
    answer(codec, 1, *parts)
    frames = [frame for frame in parse(said(codec)) if isinstance(frame, DataFrame)]
    assert [len(frame.data) for frame in frames] == [16_384] * 3 + [60_008 - 3 * 16_384]
    assert body_of(frames, 1) == b"".join(parts)
    assert not any(frame.flags for frame in frames)


def test_h2_refuses_what_a_stream_does_not_allow() -> None:
    codec = started(headers(1, GET))
    answer(codec, 1, b"all", end=True)
    said(codec)
    window = codec._h2.outbound_flow_control_window
    with pytest.raises(h2.exceptions.ProtocolError):
        data_frames(codec._h2, 1, [b"more"], False)
    assert codec._h2.outbound_flow_control_window == window


def test_streams_take_turns_and_a_blocked_one_blocks_no_other() -> None:
    codec = started(
        WindowUpdateFrame(0, 1 << 24), headers(1, GET, "END_STREAM"), headers(3, GET, "END_STREAM"), headers(5, GET)
    )
    codec.receive(WindowUpdateFrame(3, 1 << 22).serialize() + WindowUpdateFrame(5, 1 << 22).serialize())
    pull(codec)
    for stream_id in (1, 3, 5):
        answer(codec, stream_id, bytes(1 << 20))
    frames = parse(b"".join(codec.output(550_000)))
    sizes = {stream_id: len(body_of(frames, stream_id)) for stream_id in (1, 3, 5)}
    assert sizes == {1: 65535, 3: 256 * 1024, 5: 256 * 1024}
    frames += parse(said(codec))
    assert [len(body_of(frames, stream_id)) for stream_id in (1, 3, 5)] == [65535, 1 << 20, 1 << 20]


def test_a_stream_without_window_takes_no_turns_until_it_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = list[int]()
    give_turn = Http2Connection._give_turn
    monkeypatch.setattr(
        Http2Connection, "_give_turn", lambda *arguments: turns.append(arguments[1]) or give_turn(*arguments)
    )
    codec = started(SettingsFrame(0, {SettingsFrame.INITIAL_WINDOW_SIZE: 10}), headers(1, GET), headers(3, GET))
    for stream_id in (1, 3):
        answer(codec, stream_id, bytes(40))
    said(codec)
    turns.clear()
    codec.send(Body(1, [bytes(5)]))
    assert not codec.has_output
    assert said(codec) == b""
    codec.receive(WindowUpdateFrame(0, 10).serialize())
    pull(codec)
    assert said(codec) == b""
    assert not turns
    codec.receive(WindowUpdateFrame(3, 10).serialize())
    pull(codec)
    assert codec.has_output
    assert [frame.stream_id for frame in frames_of(codec, DataFrame)] == [3]
    codec.receive(SettingsFrame(0, {SettingsFrame.INITIAL_WINDOW_SIZE: 40}).serialize())
    pull(codec)
    frames = parse(said(codec))
    assert [len(body_of(frames, stream_id)) for stream_id in (1, 3)] == [30, 20]
    assert (codec.unsent(1), codec.unsent(3)) == (5, 0)


def test_streams_take_turns_where_the_window_of_the_connection_is_small() -> None:
    codec = started(*[headers(i, GET, "END_STREAM") for i in (1, 3, 5)])
    for stream_id in (1, 3, 5):
        codec.receive(WindowUpdateFrame(stream_id, 1 << 20).serialize())
        pull(codec)
        answer(codec, stream_id, bytes(1 << 20))
    said(codec)
    sent = []
    for _ in range(6):
        codec.receive(WindowUpdateFrame(0, 1000).serialize())
        pull(codec)
        sent += [frame.stream_id for frame in frames_of(codec, DataFrame)]
    assert sorted(sent[:3]) == sorted(sent[3:]) == [1, 3, 5]


def test_a_window_that_was_taken_back_is_none() -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    answer(codec, 1, bytes(65_536))
    said(codec)
    codec.receive(SettingsFrame(0, {SettingsFrame.INITIAL_WINDOW_SIZE: 0}).serialize())
    codec.receive(WindowUpdateFrame(0, 1000).serialize())
    pull(codec)
    assert codec.window(1) == 0


def test_a_changed_initial_window_and_frame_size_are_kept() -> None:
    codec = started(WindowUpdateFrame(0, 1 << 20), headers(1, GET, "END_STREAM"))
    settings = {SettingsFrame.INITIAL_WINDOW_SIZE: 200_000, SettingsFrame.MAX_FRAME_SIZE: 50_000}
    codec.receive(SettingsFrame(0, settings).serialize())
    pull(codec)
    answer(codec, 1, bytes(300_000))
    frames = [f for f in parse(said(codec)) if isinstance(f, DataFrame)]
    assert [len(f.data) for f in frames] == [50_000] * 4


def test_a_reset_drops_what_is_unsent() -> None:
    codec = started(headers(1, GET, "END_STREAM"))
    answer(codec, 1, bytes(100_000))
    said(codec)
    codec.receive(RstStreamFrame(1, 8).serialize())
    assert pull(codec) == [Reset(1, 8)]
    assert codec.unsent(1) == 0
    codec.send(Body(1, [b"to nobody"], end=True))
    assert said(codec) == b""


def test_large_parts_are_not_copied_and_counted_together() -> None:
    """A thousand streams that give no window, all reading the same records, hold them once."""
    no_window = SettingsFrame(0, settings={4: 0})
    codec = started(no_window, *[headers(i, GET, "END_STREAM") for i in (1, 3, 5)])
    records = bytes(100_000)
    for i in (1, 3, 5):
        answer(codec, i, b"")
        codec.send(Body(i, [b"head", records, b"tail", b"end"]))
        assert [len(piece) for piece in codec._streams[i].unsent] == [4, 100_000, 7]
        assert codec._streams[i].unsent[1] is records
    assert codec.held == 3 * codec.unsent(1) == 3 * 100_011
    codec.receive(RstStreamFrame(1, 8).serialize())
    pull(codec)
    codec.send(Reset(3))
    assert codec.held == 100_011
    codec.receive(WindowUpdateFrame(5, window_increment=60_000).serialize())
    pull(codec)
    said(codec)
    assert codec.unsent(5) == 40_011
    assert codec.held == 100_007, "the part that has begun is there until its last byte has gone"
    codec.receive(WindowUpdateFrame(0, 1 << 20).serialize() + WindowUpdateFrame(5, window_increment=40_004).serialize())
    pull(codec)
    said(codec)
    assert codec.held == 7
    codec.receive(WindowUpdateFrame(5, window_increment=7).serialize())
    pull(codec)
    said(codec)
    assert codec.held == 0
