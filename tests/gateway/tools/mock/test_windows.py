"""Recorded frames of HTTP/2 for a client with windows of its own."""

from __future__ import annotations

from struct import pack

from penstock.tools.mock.windows import FlowWindows
from penstock_codecs.http import PREFACE


def frame(kind: int, stream_id: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + pack(">L", stream_id) + payload


DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8


def opened(*frames: bytes) -> FlowWindows:
    windows = FlowWindows()
    windows.received(PREFACE + b"".join(frames))
    return windows


def test_whole_frames_go_out_as_they_are() -> None:
    windows = opened()
    frames = frame(SETTINGS, 0) + frame(HEADERS, 1, b"head") + frame(DATA, 1, b"x" * 100)
    for at in range(0, len(frames), 7):
        windows.put(frames[at : at + 7])
    assert windows.ready() == frames
    assert not windows.blocked


def test_data_waits_for_the_window_of_its_stream() -> None:
    windows = opened(frame(SETTINGS, 0, pack(">HL", 4, 10)))
    first, second, head = frame(DATA, 1, b"x" * 8), frame(DATA, 1, b"y" * 8), frame(HEADERS, 3, b"head")
    windows.put(first + second + head)
    assert windows.ready() == first
    assert windows.blocked, "what follows waits too: frames stay in order"
    windows.received(frame(WINDOW_UPDATE, 1, pack(">L", 5)))
    assert windows.ready() == b""
    windows.received(frame(WINDOW_UPDATE, 1, pack(">L", 1)))
    assert windows.ready() == second + head


def test_data_waits_for_the_window_of_the_connection() -> None:
    windows = opened(frame(SETTINGS, 0, pack(">HL", 4, 1 << 20)))
    frames = [frame(DATA, 1, bytes(16_000)) for _ in range(5)]
    windows.put(b"".join(frames))
    assert windows.ready() == b"".join(frames[:4]), "65,535 bytes are let by"
    windows.received(frame(WINDOW_UPDATE, 0, pack(">L", 16_000)))
    assert windows.ready() == frames[4]


def test_a_window_that_is_made_smaller_counts_for_streams_that_are_open() -> None:
    windows = opened(frame(SETTINGS, 0, pack(">HL", 4, 100)))
    windows.put(frame(DATA, 1, bytes(60)))
    assert windows.ready()
    windows.received(frame(SETTINGS, 0, pack(">HL", 4, 50)))
    windows.put(frame(DATA, 1, b"x"))
    assert windows.ready() == b""


def test_live_pings_are_answered_and_recorded_answers_are_not_given() -> None:
    windows = opened(frame(PING, 0, b"12345678"))
    windows.put(frame(PING, 0, b"recorded", flags=1) + frame(HEADERS, 1, b"head"))
    assert windows.ready() == frame(PING, 0, b"12345678", flags=1) + frame(HEADERS, 1, b"head")


def test_the_rest_of_a_recording_that_was_cut_short() -> None:
    windows = opened()
    windows.put(frame(HEADERS, 1, b"head")[:6])
    assert windows.ready() == b""
    assert windows.rest() == frame(HEADERS, 1, b"head")[:6]


def test_a_frame_that_no_window_of_the_client_will_ever_take_is_cut() -> None:
    """Its last piece ends the stream."""
    windows = opened(frame(SETTINGS, 0, pack(">HL", 4, 10)))
    windows.put(frame(DATA, 1, b"abcdefghijklmnopqrstuvwxy", flags=1) + frame(HEADERS, 3, b"head"))
    assert windows.ready() == frame(DATA, 1, b"abcdefghij")
    assert windows.blocked
    windows.received(frame(WINDOW_UPDATE, 1, pack(">L", 6)))
    assert windows.ready() == frame(DATA, 1, b"klmnop")
    windows.received(frame(WINDOW_UPDATE, 1, pack(">L", 10)))
    assert windows.ready() == frame(DATA, 1, b"qrstuvwxy", flags=1) + frame(HEADERS, 3, b"head")
