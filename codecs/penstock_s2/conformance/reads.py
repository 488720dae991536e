"""Cases about reads, each a request of its own (S2 fact sheet, 1.2, 5.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import trio

from penstock.model.limits import MIB
from penstock.protocols.conformance import Cases, require, require_equal
from penstock_proto import s2_pb2 as pb
from penstock_s2.conformance.session import (
    BASE64,
    EVENTS,
    PROTOBUF,
    SESSION,
    S2TestSession,
    append_input,
    b64,
    position,
)

__all__ = ["CASES"]

CASES: Final = Cases[S2TestSession]()


async def _append_at(session: S2TestSession, *timestamps: int) -> None:
    """Append records whose bodies are their timestamps."""
    await session.append(*({"body": str(timestamp), "timestamp": timestamp} for timestamp in timestamps))


@CASES.case("read")
async def read_from_a_number(session: S2TestSession) -> None:
    """Records come in order from seq_num on; empty headers and bodies are left out. Unknown keys mean nothing."""
    await session.create("a", "b", "")
    value = await session.expect(200, "GET", f"{session.records}?seq_num=1&clamp=false&other=x&other=%ff")
    require(set(value) <= {"records", "tail"}, "records, and a tail maybe", value)
    require_equal([each["seq_num"] for each in value["records"]], [1, 2])
    require_equal([set(each) - {"seq_num", "timestamp"} for each in value["records"]], [{"body"}, set()])


@CASES.case("read")
async def read_at_the_tail(session: S2TestSession) -> None:
    """A read at or beyond the tail is status 416 with the tail; so is one without a start."""
    await session.create()
    for tail in (0, 1):
        for query in (
            *("", f"seq_num={tail}", "tail_offset=0", f"seq_num={tail}&clamp=true", f"seq_num={tail + 5}"),
            *(f"seq_num={tail + 5}&wait=1", f"seq_num={tail + 5}&clamp=true"),
        ):
            value = await session.expect(416, "GET", f"{session.records}?{query}")
            require_equal((query, value["tail"]["seq_num"]), (query, tail))
        await session.append("a")


@CASES.case("read")
async def read_from_the_end(session: S2TestSession) -> None:
    """tail_offset counts from the tail; one beyond the first record starts there."""
    await session.create("a", "b", "c")
    require_equal(await session.bodies(tail_offset=1), ["c"])
    require_equal(await session.bodies(tail_offset=2), ["b", "c"])
    require_equal(await session.bodies(tail_offset=999_999), ["a", "b", "c"])


@CASES.case("read")
async def read_from_a_time(session: S2TestSession) -> None:
    """timestamp starts at the first record at or after it; one behind the tail's own is status 416, as is a start at
    the tail of an empty stream."""
    await session.create()
    require_equal(await session.read(416, timestamp=0), {"tail": position(0)})
    for first in (10, 30):
        await _append_at(session, first, first + 5, first + 5, first + 9)
    bodies = [str(first + more) for first in (10, 30) for more in (0, 5, 5, 9)]
    for start in (0, 10, 11, 15, 19, 20, 30, 36, 39):
        require_equal(await session.bodies(timestamp=start), [body for body in bodies if int(body) >= start])
    for query in ({"timestamp": 40}, {"timestamp": 40, "clamp": "true"}):
        require_equal(await session.read(416, **query), {"tail": position(8, 39)})


@CASES.case("read")
async def read_until_a_time(session: S2TestSession) -> None:
    """until ends before the first record at or after it; a start that is not before is status 422, of any stream."""
    await session.create()
    await _append_at(session, 10, 20, 30)
    await _append_at(session, 30, 40)
    require_equal(await session.bodies(seq_num=0, until=30), ["10", "20"])
    require_equal(await session.bodies(seq_num=0, until=31), ["10", "20", "30", "30"])
    require_equal(await session.bodies(timestamp=20, until=21), ["20"])
    require_equal(await session.bodies(seq_num=0, until=1), [])
    for until in (4, 5):
        for path in (session.records, "/v1/streams/unknown/records"):
            await session.expect_refusal("422 invalid", "GET", path, None, (), timestamp=5, until=until)


@CASES.case("read")
async def read_with_bounds(session: S2TestSession) -> None:
    """count and bytes bound the response, which is empty if the first record is too large."""
    await session.create("aaaa", "b", "c")
    for query, bodies in (
        *(("count=0", []), ("count=1", ["aaaa"]), ("count=2", ["aaaa", "b"]), ("bytes=0", []), ("bytes=11", [])),
        *(("bytes=12", ["aaaa"]), ("bytes=20", ["aaaa"]), ("bytes=21", ["aaaa", "b"])),
        *(("bytes=30&count=1", ["aaaa"]), ("bytes=12&count=2", ["aaaa"])),
    ):
        records = (await session.expect(200, "GET", f"{session.records}?seq_num=0&{query}"))["records"]
        require_equal((query, [each["body"] for each in records]), (query, bodies))


@CASES.case("read")
async def reads_of_nothing(session: S2TestSession) -> None:
    """A read of any kind that may have no record or no byte is complete, wherever it starts."""
    await session.create()
    for start in ({"seq_num": 0}, {"seq_num": 9}, {"tail_offset": 0}, {"timestamp": 10**15}):
        for bound in ({"count": 0}, {"bytes": 0}):
            query = {**start, **bound}
            require_equal((await session.read(**query))["records"], [])
            for media in (EVENTS, SESSION):
                require_equal(await session.read_all_bodies(media, **query), [])


@CASES.case("read")
async def bytes_that_are_no_text(session: S2TestSession) -> None:
    """In JSON, bytes that are no UTF-8 become U+FFFD; base64 and protobuf keep them."""
    await session.create()
    body = b"ok \xff\xfe \xf0\x9f\x98\x80 \xed\xa0\x80 \xc3"
    await session.append_protobuf(append_input(body))
    require_equal(await session.bodies(seq_num=0), [body.decode("utf-8", "replace")])
    require_equal((await session.read(200, BASE64, seq_num=0))["records"][0]["body"], b64(body))
    require_equal((await session.read_protobuf(seq_num=0)).records[0].body, body)


@CASES.case("read")
async def read_as_protobuf(session: S2TestSession) -> None:
    """A response may be protobuf; errors are always JSON."""
    await session.create("a", "")
    records = (await session.read_protobuf(seq_num=0)).records
    require_equal([(each.seq_num, each.body) for each in records], [(0, b"a"), (1, b"")])
    require_equal(len((await session.read_protobuf(seq_num=0, count=0)).records), 0)
    await session.read(416, [("accept", PROTOBUF)], seq_num=2)


@CASES.case("wait")
async def read_that_waits(session: S2TestSession) -> None:
    """A read at the tail with wait ends with the first record that is appended, or empty when the time is over."""
    await session.create("a")
    require_equal(await session.bodies(seq_num=9, clamp="true", wait=1), [])
    require_equal(await session.bodies(seq_num=0, count=5, wait=8), ["a"])
    bodies: list[str] = []

    async def read() -> None:
        bodies.extend(await session.bodies(seq_num=1, wait=8))

    with trio.move_on_after(8) as waiting:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.sleep(0.3)
            await session.append("b", "c")
    require(not waiting.cancelled_caught, "a response when the record is there", "none")
    require_equal(bodies, ["b", "c"])


@CASES.case("read")
async def read_of_much(session: S2TestSession) -> None:
    """A response has 1000 records at most, and the next read goes on without a gap."""
    await session.create()
    for first in (0, 800):
        await session.append(*map(str, range(first, first + 800)))
    bodies: list[str] = []
    while len(bodies) < 1600:
        page = await session.bodies(seq_num=len(bodies), count=5000)
        require(0 < len(page) <= 1000, "1 to 1000 records", len(page))
        bodies += page
    require_equal(bodies, [str(number) for number in range(1600)])


@CASES.case("read")
async def read_of_many_bytes(session: S2TestSession) -> None:
    """A response has 1 MiB at most, and the next read goes on without a gap."""
    await session.create()
    body = b"x" * 300_000
    for _ in range(2):
        await session.append_protobuf(append_input(body, body, body))
    await session.append_protobuf(append_input(b"y" * (MIB - 8)))
    seq_num = 0
    while seq_num < 7:
        records = (await session.read_protobuf(seq_num=seq_num, bytes=100 * MIB)).records
        size = _metered_size(records)
        require(0 < size <= MIB, "up to 1 MiB", size)
        require_equal([each.seq_num for each in records], list(range(seq_num, seq_num + len(records))))
        seq_num += len(records)


def _metered_size(records: Iterable[pb.SequencedRecord]) -> int:
    return sum(8 + len(each.body) for each in records)


@CASES.case("read")
async def read_creates_a_stream(session: S2TestSession) -> None:
    """In a basin with create_stream_on_read a read of any kind, and a request for the tail, create the stream; an
    append does not."""
    await session.make_basin({"create_stream_on_read": True})
    names = [f"{session.stream}-{kind}" for kind in ("events", "json", "s2s", "tail")]
    for session.stream, media in ((names[0], EVENTS), (names[2], SESSION)):
        async with session.exchange("GET", media) as exchange:
            require_equal(await exchange.next(), ("tail", position(0)))
    session.stream = names[1]
    require_equal(await session.read(416, seq_num=0), {"tail": position(0)})
    session.stream = names[3]
    require_equal(await session.tail(), position(0))
    value = {"records": [{"body": "x"}]}
    await session.expect_refusal("404 stream_not_found", "POST", "/v1/streams/unknown/records", value)
    listing = await session.expect(200, "GET", "/v1/streams")
    require_equal([each["name"] for each in listing["streams"]], names)
