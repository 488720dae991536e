"""Frames of HTTP/2 as an observer splits them: content and padding with their places, however the bytes are cut."""

from __future__ import annotations

import struct

import pytest

from penstock_codecs.http.observer.faults import HttpFault
from penstock_codecs.http.observer.frames import LARGEST_FRAME, PADDED, Frame2, FrameScanner, FrameType


def frame(kind: int, payload: bytes, *, flags: int = 0, stream_id: int = 1, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack(">HBBBL", size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def scanned(pieces: list[bytes], max_frame: int | None = None) -> list[tuple[str, int, bytes]]:
    """Return name, offset and content of what is handed on, with adjacent pieces of content or padding joined."""
    told: list[tuple[str, int, bytes]] = []

    def join(name: str, offset: int, piece: memoryview) -> None:
        if told and told[-1][0] == name and told[-1][1] + len(told[-1][2]) == offset:
            name, offset, before = told.pop()
            told.append((name, offset, before + bytes(piece)))
        else:
            told.append((name, offset, bytes(piece)))

    scanner = FrameScanner(
        lambda _, piece, offset, __: join("content", offset, piece),
        lambda one, payload, span: told.append((f"{one.name} to {span.end}", span.start, payload)),
        lambda _, piece, offset, __: join("padding", offset, piece),
    )
    scanner.max_frame = max_frame or scanner.max_frame
    offset = 0
    for piece in pieces:
        scanner.receive(memoryview(piece), offset, 0)
        offset += len(piece)
    return told


DATA = frame(0, b"\x03abcdef\0\0\0", flags=PADDED) + frame(0, b"\0", flags=PADDED) + frame(0, b"gh") + frame(0, b"")
OTHERS = frame(9, b"block") + frame(6, b"12345678", stream_id=0) + frame(0xBA, b"unknown")
EXPECTED = [
    *[("content", 10, b"abcdef"), ("padding", 16, bytes(3)), ("DATA to 19", 0, b"")],
    ("DATA to 29", 19, b""),
    *[("content", 38, b"gh"), ("DATA to 40", 29, b""), ("DATA to 49", 40, b"")],
    *[("CONTINUATION to 63", 49, b"block"), ("PING to 80", 63, b"12345678"), ("type 0xba to 96", 80, b"unknown")],
]


def test_frames_wherever_they_are_cut() -> None:
    said = DATA + OTHERS
    assert scanned([said]) == scanned([said[at : at + 1] for at in range(len(said))]) == EXPECTED
    for cut in range(1, len(said)):
        assert scanned([said[:cut], said[cut:]]) == EXPECTED, cut


@pytest.mark.parametrize(
    ("said", "at", "rule"),
    [
        (frame(0, b"", length=16_385), 0, "a frame has at most 16384 bytes here"),
        (frame(0, b"", stream_id=0), 5, "DATA is on a stream"),
        (frame(6, bytes(8)), 5, "PING is on stream 0"),
        (frame(6, bytes(7), stream_id=0), 0, "PING does not have 7 bytes"),
        (frame(3, bytes(5)), 0, "RST_STREAM does not have 5 bytes"),
        (frame(8, bytes(3)), 0, "WINDOW_UPDATE does not have 3 bytes"),
        (frame(0, b"", flags=PADDED), 0, "DATA does not have 0 bytes"),
        (frame(0, b"\x02a", flags=PADDED), 9, "padding is shorter than its frame"),
    ],
)
def test_what_breaks_a_rule_is_named_with_its_place(said: bytes, at: int, rule: str) -> None:
    with pytest.raises(HttpFault, match=rule) as caught:
        scanned([DATA, said])
    assert caught.value.offset == len(DATA) + at
    assert caught.value.clause.startswith("RFC 9113, section ")


@pytest.mark.parametrize(
    ("kind", "least", "most", "streams"),
    [
        *[(0, 0, None, (1,)), (1, 0, None, (1,)), (2, 5, 5, (1,)), (3, 4, 4, (1,)), (4, 0, None, (0,))],
        *[(5, 4, None, (1,)), (6, 8, 8, (0,)), (7, 8, None, (0,)), (8, 4, 4, (0, 1)), (9, 0, None, (1,))],
    ],
)
def test_lengths_and_streams_of_each_type(kind: int, least: int, most: int | None, streams: tuple[int, ...]) -> None:
    """RFC 9113, 6."""
    for stream_id in (0, 1, 0x80000000):
        for length in {max(least - 1, 0), least, least + 1, 16_384}:
            said = frame(kind, bytes(length), stream_id=stream_id)
            good = (stream_id & 0x7FFFFFFF) in streams and least <= length <= (most or 16_384)
            if good:
                assert scanned([said])[-1][0] == f"{FrameType(kind).name} to {len(said)}"
            else:
                with pytest.raises(HttpFault, match=FrameType(kind).name):
                    scanned([said])


def test_only_data_may_be_larger_than_what_is_held() -> None:
    size = (1 << 20) + 1
    assert scanned([frame(0, bytes(size))], LARGEST_FRAME)[0] == ("content", 9, bytes(size))
    assert len(scanned([frame(1, bytes(size - 1))], LARGEST_FRAME)[0][2]) == size - 1
    with pytest.raises(HttpFault, match="at most 1048576 bytes"):
        scanned([frame(1, b"", length=size)], LARGEST_FRAME)


def test_names_of_frames() -> None:
    assert [Frame2(0, kind, 0, 1, 0, 0).name for kind in (*FrameType, 10)] == [
        *(one.name for one in FrameType),
        "type 0xa",
    ]
