"""HTTP as an observer splits it: heads, bodies and frames with their places, however the bytes are cut."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial

import pytest

from penstock.wire.http.observer.bodies import body_of
from penstock.wire.http.observer.faults import HttpFault
from penstock.wire.http.observer.frames import END_STREAM, LARGEST_FRAME, PADDED, Frame2, FrameScanner, FrameType
from penstock.wire.http.observer.heads import (
    REQUEST_LINE,
    STATUS_LINE,
    Framing,
    Head,
    HeadBuffer,
    request_framing,
    response_framing,
)


def frame(kind: int, payload: bytes, *, flags: int = 0, stream_id: int = 1, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack(">HBBBL", size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def scanned(
    pieces: list[bytes], max_frame: int | None = None, contents: Mapping[int, object] | None = None
) -> list[tuple[str, int, bytes]]:
    """Return name, offset and content of what is handed on, with adjacent pieces of content or padding joined.

    `contents`: frames that have none are passed over.
    """
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
        passed = 0 if contents is None else scanner.pass_over(memoryview(piece), contents)
        scanner.receive(memoryview(piece)[passed:], offset + passed, 0)
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


def test_whole_data_without_a_content_is_passed_over() -> None:
    plain, kept = frame(0, b"abc", stream_id=3), frame(0, b"abc")
    contents = {1: object(), 3: None}
    assert scanned([plain + plain + kept], contents=contents) == [
        ("content", 2 * len(plain) + 9, b"abc"),
        (f"DATA to {2 * len(plain) + len(kept)}", 2 * len(plain), b""),
    ]
    others = [kept, frame(0, b"abc", stream_id=5), frame(0, b"end", flags=END_STREAM, stream_id=3), DATA]
    others += [frame(0, b"\1pad\0", flags=PADDED, stream_id=3), frame(6, bytes(8), stream_id=0), frame(3, bytes(4))]
    said, passed_over = b"", set()
    for other in others:
        passed_over |= set(range(len(said), len(said) + 2 * len(plain)))
        said += plain + plain + other
    expected = [one for one in scanned([said]) if one[1] not in passed_over]
    for at in range(len(said)):
        for pieces in ([said[:at], said[at:]], [said[:at], *(said[one : one + 1] for one in range(at, len(said)))]):
            assert [one for one in scanned(pieces, contents=contents) if one[1] not in passed_over] == expected


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


# ---- HTTP/1.1 --------------------------------------------------------------------------------------------------------

HEAD = b"\r\n\nPOST /x HTTP/1.1\r\nHost: a\r\nX: 1\r\n \t2\nY:\r\n\r\n"


def head_of(data: bytes, at: int = 0) -> tuple[Head, int]:
    """Return the head in data that comes in two pieces, and the offset of its end."""
    buffer = HeadBuffer(STATUS_LINE if data.startswith(b"HTTP/") else REQUEST_LINE)
    found, used = buffer.receive(memoryview(data)[:at], 100, 0) if at else (None, 0)
    if found is None:
        assert used == at
        found, used = buffer.receive(memoryview(data)[at:], 100 + at, 0)
        used += at
    assert found is not None and buffer.held == 0
    return found, 100 + used


def test_heads_wherever_they_are_cut() -> None:
    for at in range(len(HEAD)):
        head, end = head_of(HEAD + b"body", at)
        assert (head.start, end, head.line) == (103, 100 + len(HEAD), (b"POST", b"/x", b"1.1")), at
        assert head.headers == (("host", "a"), ("x", "1 2"), ("y", ""))
        assert head.offsets == [100 + HEAD.index(name) for name in (b"Host", b"X:", b"Y:")]
        assert list(head.values(b"x")) == [(head.offsets[1], b"1 2")]


@pytest.mark.parametrize(
    ("version", "fields", "framing"),
    [
        (b"1.1", b"host: a\r\n", Framing(False, 0)),
        (b"1.0", b"", Framing(False, 0)),
        (b"1.1", b"host: a\r\ncontent-length: 3, 3\r\ncontent-length: 3\r\n", Framing(False, 3)),
        (b"1.1", b"host: a\r\ntransfer-encoding: Chunked\r\n", Framing(True, 0)),
        (b"1.1", b"", "exactly one Host"),
        (b"1.1", b"host: a\r\nhost: a\r\n", "exactly one Host"),
        (b"1.0", b"transfer-encoding: chunked\r\n", "does not go with"),
        (b"1.1", b"host: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n", "does not go with"),
        (b"1.1", b"host: a\r\ntransfer-encoding: gzip\r\n", "chunked, once"),
        (b"1.1", b"host: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", "chunked, once"),
        (b"1.1", b"host: a\r\ncontent-length: 3\r\ncontent-length: 4\r\n", "one Content-Length"),
        (b"1.1", b"host: a\r\ncontent-length: -3\r\n", "is a number"),
    ],
)
def test_the_bodies_of_requests(version: bytes, fields: bytes, framing: Framing | str) -> None:
    """RFC 9112, 6; a fault is at the last of the fields here, or at the head."""
    head, _ = head_of(b"GET / HTTP/" + version + b"\r\n" + fields + b"\r\n")
    if isinstance(framing, Framing):
        assert request_framing(head) == framing
    else:
        with pytest.raises(HttpFault, match=framing) as caught:
            request_framing(head)
        assert caught.value.offset == (head.offsets[-1] if head.offsets else head.start)


def test_the_bodies_of_responses() -> None:
    start = b"HTTP/1.1 200 OK\r\n"
    for fields, framing in (
        (b"", Framing(False, None)),
        (b"content-length: 0\r\n", Framing(False, 0)),
        (b"transfer-encoding: chunked\r\ncontent-length: 5\r\n", Framing(True, None)),
    ):
        head, _ = head_of(start + fields + b"\r\n")
        assert response_framing(head, bodiless=False) == framing
        assert response_framing(head, bodiless=True) == Framing(False, 0)


def take(taken: list[tuple[int, bytes]], piece: memoryview, offset: int, _: int) -> None:
    taken.append((offset, bytes(piece)))


@pytest.mark.parametrize(
    ("framing", "data", "trailers", "missing"),
    [
        (Framing(False, 5), b"abcde", (), "5 bytes of a body are missing"),
        (
            Framing(True, None),
            b"2\r\nab\r\n3\r\ncde\r\n0\r\nk: v\r\n\r\n",
            (("k", "v"),),
            "the last chunk of a body is missing",
        ),
    ],
)
def test_bodies_wherever_they_are_cut(
    framing: Framing, data: bytes, trailers: tuple[tuple[str, str], ...], missing: str
) -> None:
    for at in range(1, len(data)):
        taken: list[tuple[int, bytes]] = []
        body = body_of(framing, partial(take, taken))
        assert body is not None and not body.begun and body.finish(100, 0) == missing
        assert body.receive(memoryview(data)[:at], 100, 1) == at and body.over is None
        assert body.begun
        assert body.receive(memoryview(data + b"next")[at:], 100 + at, 2) == len(data) - at
        assert body.over is not None and body.trailers == trailers
        assert body.over.end == 100 + len(data)
        assert body.over.start == (100 + len(data) if framing.length else 100 + data.index(b"0\r\n"))
        assert b"".join(piece for _, piece in taken) == b"abcde"
        assert all(data[offset - 100 :].startswith(piece) for offset, piece in taken)


def test_a_body_that_ends_with_the_connection_and_one_that_is_empty() -> None:
    taken: list[bytes] = []
    body = body_of(Framing(False, None), lambda piece, _, __: taken.append(bytes(piece)))
    assert body is not None and body.begun
    assert body.receive(memoryview(b"abc"), 100, 0) == 3 and body.over is None
    assert body.finish(103, 5) == "" and body.over == (103, 103, 5, 5) and taken == [b"abc"]
    assert body_of(Framing(False, 0), lambda *_: None) is None


@pytest.mark.parametrize("data", [b"2\r\nabX", b"x", b"0\r\n:"])
def test_a_chunk_that_breaks_a_rule_is_named_with_its_place(data: bytes) -> None:
    body = body_of(Framing(True, None), lambda *_: None)
    assert body is not None
    with pytest.raises(HttpFault) as caught:
        body.receive(memoryview(data + b"\r\n"), 100, 0)
    assert caught.value.offset == 100 + len(data) - 1
