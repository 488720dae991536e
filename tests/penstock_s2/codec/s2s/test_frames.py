"""S2S framing (S2 fact sheet, 2.1 and 2.7)."""

import gzip
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import LocalProtocolError
from penstock.wire.compression import Compression, compress
from penstock.wire.conformance import pieces_of
from penstock_s2.codec.s2s.frames import (
    MAX_HELD,
    Frame,
    FrameError,
    FrameReader,
    Terminal,
    choose_compression,
    compress_payload,
    encode_frame,
    encode_terminal,
    is_plain,
)

MAX_LENGTH = 2_097_152
TEXT = b"all work and no play " * 100

Seen = list[tuple[object, ...]]


def seen(frame: Frame | Terminal) -> tuple[object, ...]:
    first, second, *_compression = frame
    return (type(frame).__name__, bytes(first) if isinstance(first, memoryview) else first, second)


def read(pieces: list[bytes]) -> Seen:
    """All frames of the pieces, pulled after each; raises FrameError."""
    reader = FrameReader()
    frames = []
    for piece in pieces:
        reader.feed(piece)
        while (frame := reader.next()) is not None:
            frames.append(seen(frame))
        assert reader.held <= MAX_HELD
    reader.end()
    return frames


@pytest.mark.parametrize(
    ("pieces", "wire"),
    [
        (encode_frame([b"\x12\x00"]), "0000030012 00"),
        (encode_frame([b"\x12", b"", b"\x00"], reconnect_advised=True), "0000031012 00"),
        (encode_frame([]), "00000100"),
        (encode_frame([b"x"], Compression.ZSTD), "00000220 78"),
        (encode_frame([b"x"], Compression.GZIP, reconnect_advised=True), "00000250 78"),
        (encode_terminal(412, b'{"seq_num_mismatch":7}'), "00001980019c" + b'{"seq_num_mismatch":7}'.hex()),
    ],
)
def test_golden_frames(pieces: list[bytes], wire: str) -> None:
    assert b"".join(pieces) == bytes.fromhex(wire)


@pytest.mark.parametrize(
    ("wire", "frame"),
    [
        ("00000100", ("Frame", b"", False)),
        ("000003001200", ("Frame", b"\x12\x00", False)),
        ("0000031f1200", ("Frame", b"\x12\x00", True)),  # reserved bits are ignored
        ("00000380019c", ("Terminal", 412, b"")),
        ("000005ff019c7b7d", ("Terminal", 412, b"{}")),  # all other flags mean nothing on a terminal frame
    ],
)
def test_known_frames(wire: str, frame: tuple[object, ...]) -> None:
    assert read([bytes.fromhex(wire)]) == [frame]


frames = st.tuples(
    st.sampled_from([b"", b"x", b"hello", TEXT, TEXT * 3]), st.sampled_from(Compression), st.booleans(), st.booleans()
)


@given(st.lists(frames, max_size=6), st.lists(st.integers(0, 1 << 20), max_size=8), st.booleans())
def test_cut_anywhere(some: list[tuple[bytes, Compression, bool, bool]], cuts: list[int], reuse: bool) -> None:
    wire, expected = b"", []
    for payload, compression, advised, terminal in some:
        if terminal:
            wire += b"".join(encode_terminal(500, payload))
            expected.append(("Terminal", 500, payload))
        else:
            used, content = compress_payload(compression, payload)
            wire += b"".join(encode_frame([content], used, reconnect_advised=advised))
            expected.append(("Frame", payload, advised))
    pieces = pieces_of(wire, cuts)
    assert read([bytearray(piece) for piece in pieces] if reuse else pieces) == expected  # type: ignore[misc]


def test_a_reused_buffer_does_not_change_what_was_fed() -> None:
    """A gateway reads into one buffer again and again."""
    wire = b"".join(encode_frame([TEXT]) * 3)
    reader, buffer, frames = FrameReader(), bytearray(1000), []
    for at in range(0, len(wire), 1000):
        piece = wire[at : at + 1000]
        buffer[: len(piece)] = piece
        reader.feed(memoryview(buffer)[: len(piece)])
        buffer[:] = bytes(1000)
        while (frame := reader.next()) is not None:
            frames.append(frame)  # kept: views must stay good
    assert [bytes(frame[0]) for frame in frames] == [TEXT] * 3  # type: ignore[call-overload]


def test_the_largest_frame() -> None:
    payload = bytes(MAX_LENGTH - 1)
    wire = b"".join(encode_frame([payload]))
    assert wire[:4] == b"\x20\x00\x00\x00"
    assert read([wire]) == [("Frame", payload, False)]
    with pytest.raises(LocalProtocolError):
        encode_frame([payload, b"x"])


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        (b"\x20\x00\x01", "frame exceeds decode limit"),
        (b"\xff\xff\xff", "frame exceeds decode limit"),
        (b"\x00\x00\x00", "empty frame payload"),
        (b"\x00\x00\x02\x60x", "unknown compression algorithm"),
        (b"\x00\x00\x01\x80", "terminal frame has no status"),
        (b"\x00\x00\x05\x20zstd", "not a zstd frame"),
        (b"\x00\x00\x05\x40gzip", "damaged gzip member"),
    ],
)
def test_faults_are_told_as_soon_as_they_are_clear(wire: bytes, text: str) -> None:
    """Not a byte more than shown is needed, and what came before is delivered."""
    reader = FrameReader()
    reader.feed(b"\x00\x00\x02\x00x" + wire)
    assert reader.next() is not None
    with pytest.raises(FrameError, match=text):
        reader.next()
    reader = FrameReader()
    reader.feed(wire[:-1])
    assert reader.next() is None


@pytest.mark.parametrize("length", range(1, 9))
def test_an_end_inside_a_frame(length: int) -> None:
    reader = FrameReader()
    reader.feed(b"\x00\x00\x06\x00hello"[:length])
    assert reader.next() is None
    with pytest.raises(FrameError, match="bytes remaining on stream"):
        reader.end()


@pytest.mark.parametrize("compression", [Compression.ZSTD, Compression.GZIP])
def test_payloads_larger_than_a_frame_are_refused_when_decompressed(compression: Compression) -> None:
    for size, fits in ((MAX_LENGTH - 1, True), (MAX_LENGTH, False)):
        data = bytes(size)
        content = zstandard.compress(data) if compression is Compression.ZSTD else gzip.compress(data)
        wire = b"".join(encode_frame([content], compression))
        if fits:
            assert read([wire]) == [("Frame", data, False)]
        else:
            with pytest.raises(FrameError, match="exceeds"):
                read([wire])


def test_small_payloads_and_such_as_do_not_shrink_stay_as_they_are() -> None:
    for compression in (Compression.ZSTD, Compression.GZIP):
        assert compress_payload(compression, TEXT[:1023]) == (Compression.NONE, TEXT[:1023])
        used, content = compress_payload(compression, TEXT[:1024])
        assert used is compression and len(content) < 1024
        noise = zstandard.compress(bytes(range(256)) * 8 + TEXT, 19) * 20
        noise = bytes((byte * 167 + at * at // 7) % 256 for at, byte in enumerate(noise[:1500]))
        used, content = compress_payload(compression, noise)
        assert len(content) <= len(noise)
    assert compress_payload(Compression.NONE, TEXT) == (Compression.NONE, TEXT)


def test_an_announced_length_costs_nothing() -> None:
    tracemalloc.start()
    try:
        readers = [FrameReader() for _ in range(1000)]
        for reader in readers:
            reader.feed(b"\x20\x00\x00\x00")
            assert reader.next() is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_frame_in_many_pieces_costs_no_more_than_its_bytes() -> None:
    size = 1 << 17
    wire = b"".join(encode_frame([bytes(size)]))
    tracemalloc.start()
    try:
        reader = FrameReader()
        for at in range(len(wire) - 1):
            reader.feed(wire[at : at + 1])
            assert reader.next() is None
        assert tracemalloc.get_traced_memory()[1] < 2.5 * size
        reader.feed(wire[-1:])
        assert reader.next() is not None
        assert tracemalloc.get_traced_memory()[0] < 10_000, "what was taken out is still held"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ([], Compression.NONE),
        (["identity", "br", "*"], Compression.NONE),
        (["gzip"], Compression.GZIP),
        (["gzip", "deflate", "zstd"], Compression.ZSTD),
        (["zstd;q=0.1", "gzip;q=1.0"], Compression.ZSTD),
        (["GZip ; q=1"], Compression.GZIP),
        (["gzip2", "xzstd"], Compression.NONE),
        (["zstd;q=0", "gzip; Q=0.5"], Compression.GZIP),
        (["zstd;q=0.000", "gzip; q=0 "], Compression.NONE),
        (["zstd;level=1;q=0", "gzip ; q = 0.0"], Compression.NONE),
    ],
)
def test_choice_of_compression(accepted: list[str], chosen: Compression) -> None:
    assert choose_compression(accepted) is chosen


@pytest.mark.parametrize("compression", Compression)
def test_frames_say_what_they_were_compressed_with(compression: Compression) -> None:
    reader = FrameReader()
    reader.feed(b"".join(encode_frame([compress(compression, TEXT)], compression)))
    assert reader.next() == (TEXT, False, compression)


@pytest.mark.parametrize(
    ("wire", "at"),
    [
        ("000000", 0),  # no payload
        ("ffffff00", 0),  # too long
        ("00000160", 3),  # no such compression
        ("0000028001", 4),  # half a status
        ("00000220ff", 4),  # not zstd
        ("0000030010", 5),  # cut short
    ],
)
def test_faults_say_where_the_first_wrong_byte_is(wire: str, at: int) -> None:
    data = bytes.fromhex(wire)
    reader = FrameReader()
    reader.feed(b"".join(encode_frame([b"before"])) + data)
    assert isinstance(reader.next(), Frame)
    with pytest.raises(FrameError) as caught:
        reader.next()
        reader.end()
    assert (caught.value.at, caught.value.excerpt) == (at, data)


def test_the_beginning_of_a_frame_keeps_no_more_than_itself() -> None:
    """Neither the frames that came with it, nor an object for each of its pieces."""
    reader = FrameReader()
    whole = b"".join(encode_frame([b"x" * 100_000]))
    reader.feed(whole + whole[:2])
    assert isinstance(reader.next(), Frame)
    assert reader.next() is None
    assert len(reader._buffer) == 2
    for at in range(2, 50_000, 5):
        reader.feed(whole[at : min(at + 5, 50_000)])
        assert reader.next() is None
    assert reader.held == 50_000
    assert sum(map(len, reader._pieces)) + len(reader._buffer) == 50_000
    assert len(reader._pieces) <= 50_000 // 4096 + 1
    reader.feed(whole[50_000:])
    found = reader.next()
    assert isinstance(found, Frame) and bytes(found.payload) == b"x" * 100_000
    assert reader.held == 0


@pytest.mark.parametrize(
    ("head", "plain"),
    [
        ("00000100", True),
        ("20000000", True),
        ("00000110", True),  # it advises to reconnect
        ("00000000", False),
        ("20000100", False),
        ("00000120", False),
        ("00000140", False),
        ("00000160", False),
        ("00000380", False),
        ("000003a0", False),
    ],
)
def test_heads_of_plain_messages(head: str, plain: bool) -> None:
    """Not compressed, not terminal, and of a length that a frame may have."""
    assert is_plain(bytes.fromhex(head)) is plain
