"""Conformance cases of the draft's dialect, from the draft as the segment fact sheet reads it (section 2).

The clauses are the messages of the draft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID, uuid4

from penstock.model.limits import MIB
from penstock.protocols.conformance import Cases, Suite, require, require_equal
from penstock_pravega.codec import Dialect, SegmentMessage, join_events
from penstock_pravega.codec.draft import (
    AppendSetup,
    BeginAppendBlock,
    DataAppended,
    EndAppendBlock,
    Event,
    KeepAlive,
    NoSuchSegment,
    Partial,
    PartialKind,
    ReadSegment,
    SegmentIsSealed,
    SegmentRead,
    SetupAppend,
    partials,
)
from penstock_pravega.codec.released import (
    CreateSegment,
    DeleteSegment,
    GetStreamSegmentInfo,
    Hello,
    SealSegment,
    SegmentAlreadyExists,
    SegmentDeleted,
    SegmentSealed,
    SegmentTruncated,
    StreamSegmentInfo,
    TruncateSegment,
)
from penstock_pravega.segment.conformance.session import (
    SegmentTestLine,
    SegmentTestSession,
    bytes_of,
    segment_session,
)

__all__ = ["DRAFT"]

_CASES: Final = Cases[SegmentTestSession]()
_BODIES: Final = (b"first", b"the second", b"3")
_STORED: Final = join_events(_BODIES)
_READ: Final = bytes_of(ReadSegment("scope/stream/0.#epoch.0", 0, 100))
_PIECE: Final = Partial(PartialKind.BEGIN, _READ[:5])


async def _set_up(line: SegmentTestLine, segment: str, connection: UUID, level: int = 0) -> None:
    """Set up a connection id, which has this much stored."""
    await line.begin(SetupAppend(connection, segment))
    require_equal(await line.reply(AppendSetup), AppendSetup(segment, connection, level))


async def _appending(session: SegmentTestSession) -> tuple[SegmentTestLine, str, UUID]:
    """Create a segment and set up a connection id for it."""
    line, segment = await session.segment()
    connection = uuid4()
    await _set_up(line, segment, connection)
    return line, segment, connection


def _block(connection: UUID, offset: int, bodies: Sequence[bytes]) -> list[SegmentMessage]:
    """Return a block of whole events."""
    size = len(join_events(bodies))
    events = [Event(body) for body in bodies]
    return [
        BeginAppendBlock(connection, offset, size),
        *events,
        EndAppendBlock(connection, offset + size, size),
    ]


async def _acknowledged(line: SegmentTestLine, connection: UUID, offset: int, level: int = 0) -> None:
    """Await that everything from `level` to `offset` is acknowledged, in one step or several."""
    while level < offset:
        reply = await line.reply(DataAppended)
        require_equal(reply.connection_id, connection)
        acknowledged = reply.connection_offset_ack_level
        require(level < acknowledged <= offset, f"an acknowledgement between {level} and {offset}", reply)
        level = acknowledged


async def _holds(line: SegmentTestLine, segment: str, content: bytes) -> None:
    received = bytearray()
    while len(received) < len(content):
        reply = await line.ask(SegmentRead, ReadSegment(segment, len(received), MIB))
        require_equal((reply.segment, reply.offset), (segment, len(received)))
        require(bool(reply.data), f"{len(content) - len(received)} more bytes", reply)
        received += reply.data
    require(bytes(received) == content, f"{content!r:.200}", bytes(received))
    require_equal((await line.info(segment)).write_offset, len(content))


def _closes(name: str, clause: str, demand: str, data: bytes) -> None:
    """Add a case: after these bytes the server closes the connection without a reply."""

    async def run(session: SegmentTestSession) -> None:
        line = await session.raw()
        await line.send(data)
        await line.ended()

    _CASES.add(name, clause, demand, run)


_closes("length-of-2-24", "messages", "A message of 2^24 bytes ends the connection.", _READ[:4] + b"\x01\0\0\0")
_closes("unknown-type", "messages", "An unknown type ends the connection.", b"\0\0\x7f\0" + bytes(4))
_closes(
    "begin-within-a-partial",
    "partial",
    "A Partial does not begin before the last one has ended.",
    bytes_of(_PIECE, _PIECE),
)
_closes(
    "middle-without-a-begin", "partial", "A Partial begins with Begin.", bytes_of(Partial(PartialKind.MIDDLE, _READ))
)
_closes(
    "unknown-part",
    "partial",
    "A part is Begin, Middle or End.",
    bytes_of(_PIECE).replace(b"\0" + _READ[:5], b"\3" + _READ[:5]),
)
_closes("event-outside-a-block", "block", "An Event stands in a block only.", bytes_of(Event(b"x")))
_closes("block-without-setup", "block", "A block comes after Setup Append.", bytes_of(*_block(UUID(int=1), 0, _BODIES)))


def _closes_after_setup(name: str, clause: str, demand: str, messages: Callable[[UUID], list[SegmentMessage]]) -> None:
    """Add a case: after these messages of a connection id that is set up, the server closes without a reply."""

    async def run(session: SegmentTestSession) -> None:
        line, _, connection = await _appending(session)
        await line.send(*messages(connection))
        await line.ended()

    _CASES.add(name, clause, demand, run)


_closes_after_setup(
    "hello-after-a-message",
    "messages",
    "A connection keeps the dialect of its first message.",
    lambda _: [Hello(16, 5)],
)
_closes_after_setup(
    "message-within-a-block",
    "block",
    "Only Events and Partials stand in a block.",
    lambda connection: [BeginAppendBlock(connection, 0, 50), KeepAlive(b"12345")],
)
_closes_after_setup(
    "end-at-another-offset",
    "block",
    "EndAppendBlock has the offset behind its block.",
    lambda connection: [BeginAppendBlock(connection, 0, 9), Event(b"x"), EndAppendBlock(connection, 8, 9)],
)


@_CASES.case("partial")
async def message_in_partials(session: SegmentTestSession) -> None:
    """A message in Partials is as if it came whole, also with other messages between the pieces."""
    line, segment, connection = await _appending(session)
    await line.send(*_block(connection, 0, _BODIES))
    await _acknowledged(line, connection, len(_STORED))
    for request, kind in (
        (ReadSegment(segment, 0, MIB), SegmentRead),
        (GetStreamSegmentInfo(1, segment), StreamSegmentInfo),
        (KeepAlive(b"data"), KeepAlive),
    ):
        size = len(bytes_of(request))
        for cuts in ([0, 3, 9], range(1, size), *([cut] for cut in range(size + 1))):
            first, *later = partials(request, cuts)
            await line.send(first, KeepAlive(b"between"), *later)
            require_equal((await line.reply(KeepAlive)).data, b"between")
            await line.reply(kind)


@_CASES.case("messages")
async def released_requests(session: SegmentTestSession) -> None:
    """Segments are created, described, truncated and deleted by the messages of the released dialect."""
    line, segment, connection = await _appending(session)
    await line.send(*_block(connection, 0, _BODIES))
    await _acknowledged(line, connection, len(_STORED))
    require_equal((await line.ask(SegmentAlreadyExists, CreateSegment(5, segment, 0, 0))).request_id, 5)
    await line.ask(SegmentTruncated, TruncateSegment(6, segment, 13))
    info = await line.ask(StreamSegmentInfo, GetStreamSegmentInfo(7, segment))
    require_equal((info.request_id, info.start_offset, info.write_offset), (7, 13, len(_STORED)))
    await line.ask(SegmentDeleted, DeleteSegment(8, segment))
    require_equal(await line.ask(NoSuchSegment, GetStreamSegmentInfo(9, segment)), NoSuchSegment(segment))


@_CASES.case("keep-alive")
async def keep_alive_with_data(session: SegmentTestSession) -> None:
    """KeepAlive is answered, whatever its data."""
    line = await session.raw()
    for data in (b"", b"any data"):
        require_equal((await line.ask(KeepAlive, KeepAlive(data))).data, data)


@_CASES.case("setup")
async def setup_of_a_new_connection_id(session: SegmentTestSession) -> None:
    """A new connection id has nothing stored: 0."""
    await _appending(session)


@_CASES.case("setup")
async def setup_after_a_reconnect(session: SegmentTestSession) -> None:
    """The reply to a connection id that comes back says how much is stored; the next block begins there."""
    line, segment, connection = await _appending(session)
    await line.send(*_block(connection, 0, _BODIES))
    await _acknowledged(line, connection, len(_STORED))
    again = await session.raw()
    await _set_up(again, segment, connection, len(_STORED))
    await again.send(*_block(connection, len(_STORED), [b"more"]))
    require_equal((await again.reply(DataAppended)).connection_offset_ack_level, len(_STORED) + 12)
    await _holds(again, segment, _STORED + join_events([b"more"]))


@_CASES.case("setup")
async def setup_for_an_unknown_segment(session: SegmentTestSession) -> None:
    """An unknown segment is answered with NoSuchSegment, and the connection stays."""
    line, segment = await session.raw(), session.name()
    await line.begin(SetupAppend(uuid4(), segment))
    require_equal((await line.reply(NoSuchSegment)).segment, segment)
    await line.ask(KeepAlive, KeepAlive())


@_CASES.case("block")
async def block_of_whole_events(session: SegmentTestSession) -> None:
    """A block of whole events is stored and acknowledged by its end."""
    line, segment, connection = await _appending(session)
    await line.send(*_block(connection, 0, _BODIES))
    await _acknowledged(line, connection, len(_STORED))
    await _holds(line, segment, _STORED)


@_CASES.case("block")
async def block_that_ends_in_a_partial(session: SegmentTestSession) -> None:
    """The last event may begin in the block and end behind EndAppendBlock, and is acknowledged only then."""
    line, segment, connection = await _appending(session)
    begin, end = partials(Event(b"worldwide"), [6])
    size = len(bytes_of(Event(b"hello"), begin))
    stored = join_events([b"hello", b"worldwide"])
    await line.send(
        BeginAppendBlock(connection, 0, size),
        Event(b"hello"),
        begin,
        EndAppendBlock(connection, len(stored), len(stored)),
        KeepAlive(),
    )
    level = 0
    while isinstance(reply := await line.next(), DataAppended):
        level = reply.connection_offset_ack_level
        require(level < len(stored), "no acknowledgement of an event that is not complete", reply)
    require_equal(reply, KeepAlive())
    await line.send(end)
    await _acknowledged(line, connection, len(stored), level)
    await _holds(line, segment, stored)


@_CASES.case("block")
async def block_that_ends_early(session: SegmentTestSession) -> None:
    """Bytes behind Block Length are not stored: a block may end before its announced length."""
    line, segment, connection = await _appending(session)
    stored = join_events([b"hello"])
    await line.send(
        BeginAppendBlock(connection, 0, len(stored) + 16),
        Event(b"hello"),
        bytes(16),
        EndAppendBlock(connection, len(stored), len(stored)),
    )
    await _acknowledged(line, connection, len(stored))
    await _holds(line, segment, stored)


@_CASES.case("block")
async def blocks_in_flight(session: SegmentTestSession) -> None:
    """Blocks need not wait for each other, and are acknowledged in order."""
    line, segment, connection = await _appending(session)
    for number in range(10):
        await line.send(*_block(connection, number * len(_STORED), _BODIES))
    await _acknowledged(line, connection, 10 * len(_STORED))
    await _holds(line, segment, _STORED * 10)


@_CASES.case("block")
async def several_connection_ids(session: SegmentTestSession) -> None:
    """Several appends share a connection."""
    line, segment, connection = await _appending(session)
    other = uuid4()
    await _set_up(line, segment, other)
    for connection_id in (connection, other):
        await line.send(*_block(connection_id, 0, _BODIES))
        await _acknowledged(line, connection_id, len(_STORED))
    await _holds(line, segment, _STORED * 2)


@_CASES.case("block")
async def block_at_another_offset(session: SegmentTestSession) -> None:
    """A block that does not begin where the last one ended ends the connection, and is not stored."""
    line, segment, connection = await _appending(session)
    await line.send(*_block(connection, 7, _BODIES))
    await line.ended()
    require_equal((await (await session.raw()).info(segment)).write_offset, 0)


@_CASES.case("block")
async def block_of_a_stale_connection(session: SegmentTestSession) -> None:
    """A block ends the connection if another connection has stored bytes of the same connection id since."""
    line, segment, connection = await _appending(session)
    newer = await session.raw()
    await _set_up(newer, segment, connection)
    await newer.send(*_block(connection, 0, _BODIES))
    await _acknowledged(newer, connection, len(_STORED))
    await line.send(*_block(connection, 0, _BODIES))
    await line.ended()
    await _holds(newer, segment, _STORED)


@_CASES.case("block")
async def block_for_a_sealed_segment(session: SegmentTestSession) -> None:
    """A block for a sealed segment is answered with SegmentIsSealed."""
    line, segment, connection = await _appending(session)
    await line.ask(SegmentSealed, SealSegment(line.request, segment))
    await line.send(*_block(connection, 0, _BODIES))
    require_equal((await line.reply(SegmentIsSealed)).segment, segment)


@_CASES.case("read")
async def read_from_the_middle(session: SegmentTestSession) -> None:
    """A read starts anywhere; the reply says the segment and the offset."""
    line, segment, connection = await _appending(session)
    await line.send(*_block(connection, 0, _BODIES))
    await _acknowledged(line, connection, len(_STORED))
    reply = await line.ask(SegmentRead, ReadSegment(segment, 3, MIB))
    require_equal((reply.segment, reply.offset), (segment, 3))
    require(bool(reply.data) and _STORED[3:].startswith(reply.data), "the bytes from 3 on", reply)


@_CASES.case("read")
async def read_at_the_tail(session: SegmentTestSession) -> None:
    """A read at the tail waits for bytes, and holds up nothing else on its connection."""
    line, segment, connection = await _appending(session)
    await line.send(ReadSegment(segment, 0, MIB))
    await line.ask(KeepAlive, KeepAlive())
    await line.send(*_block(connection, 0, _BODIES))
    replies = [await line.next(), await line.next()]
    reads = [reply for reply in replies if isinstance(reply, SegmentRead)]
    require(len(reads) == 1 and _STORED.startswith(reads[0].data), "what is appended", replies)


@_CASES.case("read")
async def end_of_the_segment(session: SegmentTestSession) -> None:
    """At the end of a sealed segment the flag of the end is set, and there are no more bytes."""
    line, segment, connection = await _appending(session)
    await line.send(*_block(connection, 0, _BODIES))
    await _acknowledged(line, connection, len(_STORED))
    await line.ask(SegmentSealed, SealSegment(line.request, segment))
    reply = await line.ask(SegmentRead, ReadSegment(segment, len(_STORED), MIB))
    require_equal((reply.flags.at_end, reply.data), (True, b""))


@_CASES.case("read")
async def read_of_an_unknown_segment(session: SegmentTestSession) -> None:
    """An unknown segment is answered with NoSuchSegment."""
    line, segment = await session.raw(), session.name()
    require_equal((await line.ask(NoSuchSegment, ReadSegment(segment, 0, 100))).segment, segment)


DRAFT: Final = Suite(
    title="Segment protocol, draft",
    source="the messages of its text",
    clauses={
        "messages": "Types and lengths",
        "partial": "Partial Message",
        "keep-alive": "KeepAlive",
        "setup": "Setup Append",
        "block": "BeginAppendBlock to EndAppendBlock",
        "read": "Read Segment",
    },
    cases=tuple(_CASES.found),
    session=partial(segment_session, dialect=Dialect.DRAFT),
)
