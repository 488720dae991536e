"""Cases about append sessions in S2S (S2 fact sheet, 2.1 to 2.3)."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Final

import trio
import zstandard

from penstock.model.limits import MIB
from penstock.protocols.conformance import Cases, Deviation, require, require_equal
from penstock.wire.compression import Compression
from penstock_s2.codec.s2s.frames import Frame, Terminal, encode_frame, encode_terminal
from penstock_s2.conformance.session import (
    SESSION,
    S2TestSession,
    append_frame,
    append_input,
    value_of,
)

__all__ = ["CASES"]

CASES: Final = Cases[S2TestSession]()
_NOTHING: Final = Frame(b"", reconnect_advised=False)
_PIECE_SECONDS: Final = 0.002
"""Pause behind a piece of a frame, so that it is sent alone."""


def _frame(payload: bytes, compression: Compression = Compression.NONE) -> bytes:
    return b"".join(encode_frame([payload], compression))


@CASES.case("append-session")
async def appends_in_a_session(session: S2TestSession) -> None:
    """The head of the response comes first, and nothing between may keep the session back; each input has an
    acknowledgement, in order, and the end ends the session."""
    await session.create()
    sizes = [1 + number % 7 for number in range(100)]
    async with session.exchange("POST", SESSION) as exchange:
        require_equal(exchange.header("cache-control"), "no-cache, no-transform")
        require_equal(exchange.header("x-accel-buffering"), "no")
        require_equal((exchange.header("content-length"), exchange.header("content-encoding")), (None, None))
        for size in sizes:
            await exchange.send(append_frame(*[b"x"] * size))
        await exchange.finish()
        acks = await exchange.acks()
    require_equal(acks, [(sum(sizes[:count]), sum(sizes[: count + 1])) for count in range(100)])
    await session.require_tail(sum(sizes))


@CASES.case("append-session")
async def answers_while_the_request_goes_on(session: S2TestSession) -> None:
    """An input is acknowledged before the request has ended."""
    await session.create()
    async with session.exchange("POST", SESSION) as exchange:
        for number in range(0, 20, 2):
            await exchange.send(append_frame(b"%d" % number, b"x"))
            require_equal(await exchange.acks(1), [(number, number + 2)])


@CASES.case("append-session")
async def frames_in_pieces(session: S2TestSession) -> None:
    """A frame may come byte by byte, and several at once."""
    await session.create()
    async with session.exchange("POST", SESSION) as exchange:
        data = append_frame(b"a")
        for at in range(len(data)):
            await exchange.send(data[at : at + 1])
            await trio.sleep(_PIECE_SECONDS)
        await exchange.send(append_frame(b"b") + append_frame(b"c"))
        require_equal(await exchange.acks(3), [(0, 1), (1, 2), (2, 3)])


def _ends(frames: Callable[[], Iterator[tuple[bytes, int, object]]]) -> None:
    """Add a case of frames that end a session: frames behind a good input, the status of the terminal frame, and the
    code of its JSON, or all of it. The good input is acknowledged, and no other is applied."""

    async def run(session: S2TestSession) -> None:
        await session.create()
        for number, (sent, status, end) in enumerate(frames()):
            async with session.exchange("POST", SESSION) as exchange:
                await exchange.send(append_frame(b"good") + sent)
                await exchange.finish()
                require_equal(await exchange.acks(1), [(number, number + 1)])
                *earlier, last = await exchange.frames() or [_NOTHING]
            if earlier or not isinstance(last, Terminal):
                raise Deviation(f"expected a terminal frame for {sent!r:.80}, got {[*earlier, last]!r:.200}")
            value = value_of(last.body)
            require_equal((last.status, value.get("code") if isinstance(end, str) else value), (status, end))
            await session.require_tail(number + 1)

    CASES.add(frames.__name__, "append-session", " ".join((frames.__doc__ or "").split()), run)


@_ends
def condition_in_a_session() -> Iterator[tuple[bytes, int, object]]:
    """An input whose condition fails ends the session with status 412; later inputs are not applied."""
    yield append_frame(b"b", match_seq_num=7) + append_frame(b"c"), 412, {"seq_num_mismatch": 1}
    yield append_frame(b"b", fencing_token="t") + append_frame(b"c"), 412, {"fencing_token_mismatch": ""}


@_ends
def empty_input() -> Iterator[tuple[bytes, int, object]]:
    """An input without records ends the session with status 422."""
    yield append_frame(), 422, "invalid"


@_ends
def frame_that_is_too_long() -> Iterator[tuple[bytes, int, object]]:
    """A frame of more than 2 MiB ends the session with status 400, bad_frame, before its bytes come."""
    yield (2 * MIB + 1).to_bytes(3, "big"), 400, "bad_frame"
    overhead = len(append_input(b"x" * MIB)) - MIB
    yield append_frame(b"x" * (2 * MIB - 1 - overhead)), 422, "invalid"


@_ends
def frame_that_is_cut_off() -> Iterator[tuple[bytes, int, object]]:
    """A body that ends within a frame ends the session with status 400, bad_frame."""
    frame = append_frame(b"b")
    for cut in (1, 3, 4, len(frame) - 1):
        yield frame[:cut], 400, "bad_frame"


@_ends
def frame_of_garbage() -> Iterator[tuple[bytes, int, object]]:
    """A frame that is no protobuf, is empty, is compressed otherwise than it says or to more than a frame holds, or is
    terminal, ends the session with status 400, bad_frame."""
    compression_3 = b"\x00\x00\x02\x60x"
    for frame in (_frame(b"\xff\xff\xff"), b"\x00\x00\x00", compression_3, b"".join(encode_terminal(400, b"{}"))):
        yield frame, 400, "bad_frame"
    cut_off, too_much = zstandard.compress(append_input(b"x" * 5000))[:-9], bytes(2 * MIB)
    for payload in (b"not zstd at all", cut_off, zstandard.compress(too_much)):
        yield _frame(payload, Compression.ZSTD), 400, "bad_frame"
    for payload in (b"not gzip at all", gzip.compress(too_much)):
        yield _frame(payload, Compression.GZIP), 400, "bad_frame"


@CASES.case("append-session")
async def compressed_frames(session: S2TestSession) -> None:
    """A frame may be compressed with zstd or gzip, whatever the others are; reserved flags are ignored."""
    await session.create()
    packers = (
        (Compression.ZSTD, zstandard.ZstdCompressor().compress),
        (Compression.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress),
        (Compression.GZIP, gzip.compress),
        (Compression.NONE, bytes),
    )
    bodies = [b"compressible " * count for count in (1, 100, 50_000)]
    async with session.exchange("POST", SESSION) as exchange:
        for body in bodies:
            for compression, pack in packers:
                await exchange.send(_frame(pack(append_input(body)), compression))
        for flags in (0x01, 0x0F, 0x10):
            frame = append_frame(b"x")
            await exchange.send(frame[:3] + bytes([flags]) + frame[4:])
        await exchange.finish()
        require_equal(await exchange.acks(), [(number, number + 1) for number in range(15)])
    for number in range(12):
        batch = await session.read_protobuf(seq_num=number, count=1)
        require(
            batch.records[0].body == bodies[number // 4], f"{bodies[number // 4]!r:.50}", batch.records[0].body[:50]
        )


@CASES.case("append-session")
async def session_on_an_unknown_stream(session: S2TestSession) -> None:
    """A session on an unknown stream is status 404, and no session."""
    await session.needs_create("create_stream_on_append")
    head = [("content-type", SESSION)]
    await session.expect_refusal("404 stream_not_found", "POST", session.records, append_frame(b"a"), head)
