"""Cases about append sessions in S2S (S2 fact sheet, 2.1 to 2.3)."""

from __future__ import annotations

import gzip
from typing import Final

import trio
import zstandard

from penstock.protocols.conformance import Cases, Deviation, require, require_equal
from penstock.protocols.s2.conformance.session import (
    SESSION,
    S2TestSession,
    append_frame,
    append_input,
    value_of,
)
from penstock_codecs.compression import Compression
from penstock_codecs.limits import MIB
from penstock_codecs.s2s.frames import Frame, Terminal, encode_frame, encode_terminal

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


async def _require_end(session: S2TestSession, sent: bytes, stored: int, status: int, end: object) -> None:
    """Send bytes in a session: the inputs before the fault are acknowledged, then a terminal frame ends the session.

    `end`: the code of the frame's JSON, or all of it.
    """
    await session.create()
    async with session.exchange("POST", SESSION) as exchange:
        await exchange.send(sent)
        await exchange.finish()
        *before, last = await exchange.frames() or [_NOTHING]
    if not isinstance(last, Terminal):
        raise Deviation(f"expected a terminal frame, got {last!r:.200}")
    body = value_of(bytes(last.body))
    require_equal((last.status, len(before)), (status, stored))
    require_equal(body.get("code") if isinstance(end, str) else body, end)
    await session.require_tail(stored)
    await session.expect(202, "DELETE", session.path())
    session.stream = session.server.new_name()


@CASES.case("append-session")
async def condition_in_a_session(session: S2TestSession) -> None:
    """An input whose condition fails ends the session with status 412; later inputs are not applied."""
    good = append_frame(b"a", match_seq_num=0)
    sent = good + append_frame(b"b", match_seq_num=7) + append_frame(b"c")
    await _require_end(session, sent, 1, 412, {"seq_num_mismatch": 1})
    sent = good + append_frame(b"b", fencing_token="t") + append_frame(b"c")
    await _require_end(session, sent, 1, 412, {"fencing_token_mismatch": ""})


@CASES.case("append-session")
async def empty_input(session: S2TestSession) -> None:
    """An input without records ends the session with status 422."""
    await _require_end(session, append_frame(b"a") + append_frame(), 1, 422, "invalid")


@CASES.case("append-session")
async def frame_that_is_too_long(session: S2TestSession) -> None:
    """A frame of more than 2 MiB ends the session with status 400, bad_frame, before its bytes come."""
    good = append_frame(b"a")
    await _require_end(session, good + (2 * MIB + 1).to_bytes(3, "big"), 1, 400, "bad_frame")
    overhead = len(append_input(b"x" * MIB)) - MIB
    longest = append_frame(b"x" * (2 * MIB - 1 - overhead))
    await _require_end(session, good + longest, 1, 422, "invalid")


@CASES.case("append-session")
async def frame_that_is_cut_off(session: S2TestSession) -> None:
    """A body that ends within a frame ends the session with status 400, bad_frame."""
    frame = append_frame(b"b")
    for cut in (1, 3, 4, len(frame) - 1):
        await _require_end(session, append_frame(b"a") + frame[:cut], 1, 400, "bad_frame")


_ZEROS: Final = bytes(2 * MIB)
_GARBAGE: Final = {
    "no protobuf": _frame(b"\xff\xff\xff"),
    "without a flag": b"\x00\x00\x00",
    "a compression that there is not": b"\x00\x00\x02\x60x",
    "terminal": b"".join(encode_terminal(400, b"{}")),
    "no zstd": _frame(b"not zstd at all", Compression.ZSTD),
    "no gzip": _frame(b"not gzip at all", Compression.GZIP),
    "zstd that is cut off": _frame(zstandard.compress(append_input(b"x" * 5000))[:-9], Compression.ZSTD),
    "zstd of 2 MiB": _frame(zstandard.compress(_ZEROS), Compression.ZSTD),
    "gzip of 2 MiB": _frame(gzip.compress(_ZEROS), Compression.GZIP),
}


@CASES.case("append-session")
async def frame_of_garbage(session: S2TestSession) -> None:
    """A frame that is no protobuf, is empty, is compressed otherwise than it says or to more than a frame holds, or is
    terminal, ends the session with status 400, bad_frame."""
    for frame in _GARBAGE.values():
        await _require_end(session, append_frame(b"a") + frame, 1, 400, "bad_frame")


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
    await session.refused("404 stream_not_found", "POST", session.records, append_frame(b"a"), head)
