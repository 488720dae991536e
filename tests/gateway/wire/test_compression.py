"""zstd and gzip: results, refusals, and that no input costs more than its limit."""

import gzip
import random
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.limits import MIB
from penstock.wire.compression import (
    Compression,
    DecompressionError,
    TooLarge,
    UnsupportedWindow,
    compress,
    decompress,
    most_compressed,
)

ZSTD, GZIP = Compression.ZSTD, Compression.GZIP
BOTH = pytest.mark.parametrize("compression", [ZSTD, GZIP])
LIMIT = 2 * 1024 * 1024 - 1
TEXT = b'{"level":"info","message":"hello"}\n' * 300


def zstd_unsized(data: bytes) -> bytes:
    """A frame that does not state its content's size, as live S2 sends."""
    encoder = zstandard.ZstdCompressor(level=3).compressobj()
    return encoder.compress(data) + encoder.flush()


def zstd_checked(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


SPELLINGS = {
    "zstd": (ZSTD, lambda data: compress(ZSTD, data)),
    "zstd without size": (ZSTD, zstd_unsized),
    "zstd with checksum": (ZSTD, zstd_checked),
    "zstd level 19": (ZSTD, zstandard.ZstdCompressor(level=19).compress),
    "gzip": (GZIP, lambda data: compress(GZIP, data)),
    "gzip level 9": (GZIP, lambda data: gzip.compress(data, 9)),
    "gzip with a name": (GZIP, lambda data: b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0" + gzip.compress(data)[10:]),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(
    "data", [b"", b"x", TEXT, random.Random(1).randbytes(300_000)], ids=["0", "1", "text", "noise"]
)
def test_round_trips(spelling: str, data: bytes) -> None:
    compression, encode = SPELLINGS[spelling]
    encoded = encode(data)
    assert decompress(compression, encoded, LIMIT) == data
    assert decompress(compression, memoryview(bytearray(encoded)), len(data)) == data
    if data:
        with pytest.raises(DecompressionError):
            decompress(compression, encoded, len(data) - 1)


@BOTH
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=4), st.data())
def test_concatenations_are_one_content(compression: Compression, parts: list[bytes], data: st.DataObject) -> None:
    spellings = [encode for which, encode in SPELLINGS.values() if which is compression]
    encoded = b"".join(data.draw(st.sampled_from(spellings))(part) for part in parts)
    whole = b"".join(parts)
    assert decompress(compression, encoded, len(whole)) == whole
    if whole:
        with pytest.raises(DecompressionError):
            decompress(compression, encoded, len(whole) - 1)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_truncation_and_any_garbage_behind_is_refused(spelling: str) -> None:
    compression, encode = SPELLINGS[spelling]
    encoded = encode(TEXT)
    for length in range(len(encoded)):
        with pytest.raises(DecompressionError):
            decompress(compression, encoded[:length], LIMIT)
    for garbage in (b"\0", b"x", b"garbage", encoded[:-1]):
        with pytest.raises(DecompressionError):
            decompress(compression, encoded + garbage, LIMIT)


@BOTH
@given(st.binary(max_size=40), st.booleans(), st.data())
def test_garbage_gives_content_or_the_one_error(
    compression: Compression, noise: bytes, near_miss: bool, data: st.DataObject
) -> None:
    if near_miss:
        encoded = bytearray(SPELLINGS[data.draw(st.sampled_from(sorted(SPELLINGS)))][1](TEXT))
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at : at + len(noise)] = noise
        noise = bytes(encoded)
    try:
        assert len(decompress(compression, noise, 20_000)) <= 20_000
    except DecompressionError as error:
        assert str(error)


@pytest.mark.parametrize("kind", range(0x50, 0x60))
def test_skippable_zstd_frames_are_skipped(kind: int) -> None:
    skippable = bytes((kind,)) + b"\x2a\x4d\x18\x03\x00\x00\x00abc"
    frame = compress(ZSTD, TEXT)
    assert decompress(ZSTD, skippable + frame + skippable, LIMIT) == TEXT
    assert decompress(ZSTD, skippable, LIMIT) == b""
    assert decompress(ZSTD, skippable[:4] + bytes(4), LIMIT) == b""
    with pytest.raises(DecompressionError, match="cut short"):
        decompress(ZSTD, skippable[:-1], LIMIT)


def test_nothing_is_no_compressed_content() -> None:
    for compression in (ZSTD, GZIP):
        with pytest.raises(DecompressionError):
            decompress(compression, b"", LIMIT)


@BOTH
def test_many_small_frames_are_refused(compression: Compression) -> None:
    one = compress(compression, b"")
    assert decompress(compression, one * 128, LIMIT) == b""
    with pytest.raises(DecompressionError, match="more than 128"):
        decompress(compression, one * 129, LIMIT)


def test_a_corrupt_checksum_is_noticed() -> None:
    encoded = bytearray(zstd_checked(TEXT))
    encoded[-1] ^= 1
    with pytest.raises(DecompressionError):
        decompress(ZSTD, encoded, LIMIT)
    encoded = bytearray(compress(GZIP, TEXT))
    encoded[-5] ^= 1
    with pytest.raises(DecompressionError):
        decompress(GZIP, encoded, LIMIT)


def test_a_claimed_window_is_refused_before_it_is_allocated() -> None:
    """A frame of a dozen bytes that asks for a window of 1.9 GiB."""
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([20 << 3 | 7]) + b"\x01\x00\x00"
    with pytest.raises(DecompressionError, match="window"):
        decompress(ZSTD, frame, LIMIT)


@pytest.mark.parametrize("size", [1, 9 * MIB, 18 * MIB])
@pytest.mark.parametrize("log", [23, 24, 27, 28])
def test_windows_of_up_to_128_mib_are_taken_and_no_larger_one_is_allocated_than_the_content_needs(
    log: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocated: list[int] = []

    def decompressor(max_window_size: int, real: Any = zstandard.ZstdDecompressor) -> Any:
        allocated.append(max_window_size)
        return real(max_window_size=max_window_size)

    monkeypatch.setattr(zstandard, "ZstdDecompressor", decompressor)
    text = random.Random(log).randbytes(min(size, 9 * MIB)) * max(1, size // (9 * MIB))  # repeats itself from afar
    parameters = zstandard.ZstdCompressionParameters(window_log=log, enable_ldm=True)
    encoder = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = encoder.compress(text) + encoder.flush()
    if log == 28:
        with pytest.raises(UnsupportedWindow, match="window of 268435456 bytes, at most 134217728"):
            decompress(ZSTD, frame, len(text))
        return
    assert decompress(ZSTD, frame, len(text)) == text
    assert decompress(ZSTD, frame, 64 * MIB) == text
    with pytest.raises(TooLarge):
        decompress(ZSTD, frame, len(text) - 1)
    assert max(allocated, default=0) <= min(1 << log, 64 * MIB)


def test_a_claimed_size_is_refused_before_it_is_allocated() -> None:
    frame = b"\x28\xb5\x2f\xfd\xe0" + (2**62).to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(DecompressionError, match="exceeds"):
        decompress(ZSTD, frame, LIMIT)


# ---- bombs ---------------------------------------------------------------------------------------------------


def zeros(encoder: "zlib._Compress | zstandard.ZstdCompressionObj") -> bytes:
    block = bytes(1024 * 1024)
    return b"".join(encoder.compress(block) for _ in range(256)) + encoder.flush()


BOMBS = {
    "zstd, stating 256 MiB": (ZSTD, lambda: zeros(zstandard.ZstdCompressor(level=1).compressobj(size=256 << 20))),
    "zstd, stating nothing": (ZSTD, lambda: zeros(zstandard.ZstdCompressor(level=1).compressobj())),
    "gzip": (GZIP, lambda: zeros(zlib.compressobj(9, zlib.DEFLATED, 31))),
    "zstd, stating less": (
        ZSTD,
        lambda: b"\x28\xb5\x2f\xfd\xa0\x00\x00\x01\x00" + b"\x02\x00\x10\x00" * 2000 + b"\x03\x00\x10\x00",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_cost_at_most_the_limit(name: str) -> None:
    compression, make = BOMBS[name]
    bomb = make()
    assert len(bomb) < 300_000
    before = reset_peak_rss()
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError):
            decompress(compression, bomb, LIMIT)
        # the content's buffers and their joining, the input held, and zlib's copy of what it has not consumed
        assert tracemalloc.get_traced_memory()[1] <= 2 * LIMIT + 3 * len(bomb)
    finally:
        tracemalloc.stop()
    # zstd's own window and zlib's buffers are not Python's, so the process is measured too
    assert peak_rss() - before < 16 << 20


def peak_rss() -> int:
    """The most memory that this process has had in RAM since the last reset, in bytes (proc(5), VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def reset_peak_rss() -> int:
    """Forget earlier peaks (proc(5), clear_refs); gives what is in RAM now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_rss()


# ---- bodies that arrive in pieces ----------------------------------------------------------------------------


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("size", [0, 1, 100, 100_000, 3_000_000])
def test_no_content_takes_more_than_the_most(compression: Compression, size: int) -> None:
    noise = random.Random(2).randbytes(size)
    encoded = compress(compression, noise)
    assert len(encoded) <= most_compressed(compression, size)
    assert decompress(compression, encoded, size) == noise


def test_what_is_not_compressed_has_the_same_limit() -> None:
    assert decompress(Compression.NONE, memoryview(b"abc"), 3) == b"abc"
    with pytest.raises(DecompressionError, match="exceeds"):
        decompress(Compression.NONE, b"abc", 2)
