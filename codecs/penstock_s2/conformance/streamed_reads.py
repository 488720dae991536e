"""Cases about reads whose response goes on: as events, and in S2S sessions (S2 fact sheet, 2.1 to 2.4, 3)."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from penstock.model.limits import MIB
from penstock.protocols.conformance import Cases, require, require_equal
from penstock.wire.compression import Compression
from penstock_s2.codec.s2s.limits import S2S_COMPRESSION_THRESHOLD
from penstock_s2.conformance.session import (
    BASE64,
    EVENTS,
    JSON,
    SESSION,
    S2Exchange,
    S2TestSession,
    append_input,
    b64,
    position,
)

__all__ = ["CASES"]

CASES: Final = Cases[S2TestSession]()
_FORMS: Final = (("events", EVENTS, "as_events"), ("read-session", SESSION, "in_a_session"))
"""Clauses, the media types of reads that go on, and how the names of their cases end."""
_AT_ONCE: Final = 3.0
"""Seconds within which a reader that follows is sent a new record."""
_WAIT: Final = 2
"""Seconds that readers wait for records."""
_PAUSE: Final = 0.5
"""Seconds until a record is appended."""
_RACING: Final = 100
"""Records that are appended while readers begin to follow."""
_COMPRESSIONS: Final[dict[str, set[Compression]]] = {
    "zstd, gzip": {Compression.ZSTD},
    "gzip, zstd": {Compression.ZSTD, Compression.GZIP},
    "gzip": {Compression.GZIP},
    "br": set(),
    "": set(),
}
"""Compressions that a request's accept-encoding allows."""


def _either_way(run: Callable[[str, S2TestSession], Awaitable[None]], clause: str = "") -> None:
    """Add a case as events, and one in a session. `clause`: of both; "": each has its own."""
    for own_clause, media, suffix in _FORMS:
        demand = " ".join((run.__doc__ or "").split())
        CASES.add(f"{run.__name__}_{suffix}", clause or own_clause, demand, functools.partial(run, media))


async def _require_next(exchange: S2Exchange, kind: str, value: object) -> None:
    """Receive a batch, or a ping or heartbeat, which must come at once."""
    with trio.move_on_after(_AT_ONCE) as waiting:
        require_equal(await exchange.next(), (kind, value))
    require(not waiting.cancelled_caught, f"{kind} at once", "nothing")


def _head(media: str) -> tuple[str, str]:
    return ("accept" if media == EVENTS else "content-type", media)


@_either_way
async def follow(media: str, session: S2TestSession) -> None:
    """A reader is sent all records, in batches of 1000 at most, then the tail, then new records at once."""
    await session.create()
    for first in (0, 1000):
        await session.append_protobuf(append_input(*(b"%d" % number for number in range(first, first + 1000))))
    async with session.exchange("GET", media, seq_num=500) as exchange:
        require_equal(await exchange.bodies(1500), [str(number) for number in range(500, 2000)])
        await _require_next(exchange, "tail", await session.tail())
        for body in ("live 1", "live 2"):
            await session.append(body)
            await _require_next(exchange, "records", [body])


@_either_way
async def follow_during_appends(media: str, session: S2TestSession) -> None:
    """A reader that begins to follow while records are appended is sent each of them once."""
    await session.create()

    async def read(first: int) -> None:
        async with session.exchange("GET", media, seq_num=first, clamp="true") as exchange:
            bodies = await exchange.bodies(_RACING - first)
            require_equal(bodies, [str(number) for number in range(first, _RACING)])

    async with trio.open_nursery() as nursery:
        for number in range(_RACING):
            if not number % 10:
                nursery.start_soon(read, 0)
                nursery.start_soon(read, number)
            await session.append(str(number))


@_either_way
async def bounds(media: str, session: S2TestSession) -> None:
    """count, bytes and until bound the records, and so does wait of 0 by the tail; then the response ends."""
    await session.create()
    require_equal(await session.read_all_bodies(media, seq_num=0, wait=0), [])
    for number, time in enumerate((10, 20, 30)):
        await session.append({"body": f"body {number}", "timestamp": time})
    for query, count in (
        *(({"count": 1}, 1), ({"count": 3}, 3), ({"count": 9}, 3), ({"bytes": 28}, 2), ({"bytes": 27}, 1)),
        *(({"until": 30}, 2), ({"wait": 0}, 3), ({"count": 2, "wait": 9}, 2)),
    ):
        got = await session.read_all_bodies(media, seq_num=0, **query)
        require_equal((query, got), (query, ["body 0", "body 1", "body 2"][:count]))


@functools.partial(_either_way, clause="wait")
async def wait(media: str, session: S2TestSession) -> None:
    """With wait a reader is sent the tail, and the end when nothing has been appended for so long; with count, too,
    when it has as many records."""
    await session.create("a")
    async with session.exchange("GET", media, seq_num=1, wait=_WAIT) as exchange:
        await _require_next(exchange, "tail", await session.tail())
        began = trio.current_time()
        await trio.sleep(_PAUSE)
        await session.append("b")
        await _require_next(exchange, "records", ["b"])
        require_equal(await exchange.next(), ("end", None))
    seconds = trio.current_time() - began
    require(
        _WAIT + 0.8 * _PAUSE < seconds < _WAIT + _AT_ONCE, f"an end {_WAIT} s behind the record", f"{seconds:.1f} s"
    )
    async with session.exchange("GET", media, seq_num=1, count=2, wait=9) as exchange:
        require_equal(await exchange.bodies(1), ["b"])
        await session.append("c", "d")
        require_equal((await exchange.bodies(1), await exchange.next()), (["c"], ("end", None)))


@_either_way
async def beyond_the_tail(media: str, session: S2TestSession) -> None:
    """A start beyond the tail, and one at the tail with bounds, is status 416, as JSON; with clamp a reader follows."""
    head = [_head(media)]
    await session.create()
    require_equal(await session.read(416, head, timestamp=0, count=1), {"tail": position(0)})
    await session.append("a")
    for query in ({"seq_num": 9}, {"seq_num": 1, "count": 1}, {"timestamp": 2**63, "count": 1}):
        require_equal((await session.read(416, head, **query))["tail"]["seq_num"], 1)
    async with session.exchange("GET", media, seq_num=9, clamp="true") as exchange:
        await _require_next(exchange, "tail", await session.tail())
        await session.append("b")
        await _require_next(exchange, "records", ["b"])


@_either_way
async def deletion(media: str, session: S2TestSession) -> None:
    """A reader that follows is sent an error, and no other end, if the stream is deleted."""
    await session.create()
    async with session.exchange("GET", media, seq_num=0) as exchange:
        await _require_next(exchange, "tail", position(0))
        await session.expect(202, "DELETE", session.path())
        while (came := await exchange.next())[0] in ("tail", "records"):
            pass
    require_equal((came[0], set(came[1] or ())), ("error", {"code", "message"}))


@CASES.case("events")
async def events_of_records(session: S2TestSession) -> None:
    """An event of records has an id of its last number, and the count and the bytes up to it. Nothing between may keep
    or change the events, and s2-format is the form of records."""
    await session.create("a\r\n\n\u2028", "b", "c")
    async with session.exchange("GET", EVENTS, seq_num=0, count=2) as exchange:
        require_equal(exchange.header("cache-control"), "no-cache, no-transform")
        require_equal(exchange.header("x-accel-buffering"), "no")
        *batches, end = await exchange.events()
    require_equal(end, {"data": "[DONE]"})
    require_equal([list(event) for event in batches], [["event", "id", "data"]] * len(batches))
    require_equal(({event["event"] for event in batches}, batches[-1]["id"]), ({"batch"}, "1,2,24"))
    require_equal(await session.read_all_bodies(EVENTS, seq_num=0, count=1), ["a\r\n\n\u2028"])
    require_equal(await session.read_all_bodies(EVENTS, *BASE64, seq_num=1, count=1), [b64(b"b")])


@CASES.case("events")
async def media_type_of_events(session: S2TestSession) -> None:
    """Of the accepted media types the first one counts."""
    await session.create("x")
    value = await session.read(200, [("accept", f"{JSON}, {EVENTS}")], seq_num=0)
    require_equal(value["records"][0]["body"], "x")
    head = [("accept", f"{EVENTS};q=0.9, */*")]
    response = await session.request("GET", session.records, None, head, seq_num=0, count=1)
    require_equal(response.header("content-type"), EVENTS)


@CASES.case("events")
async def last_event_id(session: S2TestSession) -> None:
    """last-event-id goes on behind its record, whatever start is given; delivered records count towards the bounds,
    and the ids count on."""
    await session.create(*"abcdefgh")
    resumed = ("last-event-id", "1,2,18")
    for query in (
        {"seq_num": 0, "count": 5},
        {"tail_offset": 1, "bytes": 45},
        {"timestamp": 0, "count": 5},
        {"count": 5},
    ):
        async with session.exchange("GET", EVENTS, [resumed], **query) as exchange:
            *batches, end = await exchange.events()
        bodies = [each["body"] for event in batches for each in json.loads(event["data"])["records"]]
        require_equal((query, bodies, batches[-1]["id"]), (query, ["c", "d", "e"], "4,5,45"))
        require_equal(end, {"data": "[DONE]"})


@CASES.case("events")
async def last_event_of_all(session: S2TestSession) -> None:
    """A reader that had all that it may have is at the end; another that had all records follows."""
    await session.create("a", "b")
    for number in ("1,2,18", "7,2,99", "0,2,9"):
        require_equal(await session.read_all_bodies(EVENTS, ("last-event-id", number), seq_num=0, count=2), [])
    async with session.exchange("GET", EVENTS, [("last-event-id", "1,2,18")], seq_num=0) as exchange:
        await _require_next(exchange, "tail", await session.tail())
        await session.append("c")
        require_equal([event.get("id") for event in await exchange.events(1)], ["2,3,27"])
    number = str(2**64 - 1)
    await session.read(416, [_head(EVENTS), ("last-event-id", f"{number},{number},{number}")], seq_num=0)


@CASES.case("read-session")
async def media_type_of_a_session(session: S2TestSession) -> None:
    """A session is chosen by its content type, whatever is accepted. Nothing between may keep or change its frames."""
    await session.create("x")
    for accept in (JSON, EVENTS, ""):
        head = [("accept", accept)] * bool(accept)
        async with session.exchange("GET", SESSION, head, seq_num=0) as exchange:
            require_equal(exchange.header("cache-control"), "no-cache, no-transform")
            require_equal(exchange.header("x-accel-buffering"), "no")
            require_equal((exchange.header("content-length"), exchange.header("content-encoding")), (None, None))
            require_equal(await exchange.next(), ("records", ["x"]))


@CASES.case("read-session")
async def compressed_batches(session: S2TestSession) -> None:
    """Frames may be compressed as accept-encoding says, if they have 1 KiB or more, and never otherwise."""
    await session.create("compress me " * 1000, "small")
    for accepted, allowed in _COMPRESSIONS.items():
        head = [("accept-encoding", accepted)] * bool(accepted)
        for start in (0, 1):
            async with session.exchange("GET", SESSION, head, seq_num=start, wait=0) as exchange:
                for frame in await exchange.messages():
                    is_large = len(frame.payload) >= S2S_COMPRESSION_THRESHOLD
                    choice = {Compression.NONE, *(allowed if is_large else ())}
                    require(frame.compression in choice, f"one of {choice} for {accepted!r}", frame.compression)


@CASES.case("read-session")
async def session_of_a_large_record(session: S2TestSession) -> None:
    """A record of 1 MiB is delivered in one frame."""
    body = (bytes(range(128)) * 8192)[: MIB - 8]
    await session.create()
    await session.append_protobuf(append_input(body))
    async with session.exchange("GET", SESSION, seq_num=0) as exchange:
        kind, bodies = await exchange.next()
    require((kind, bodies) == ("records", [body.decode()]), "the record", kind)
