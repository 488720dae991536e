"""Conformance cases of the released dialect (segment fact sheet, 1.1 to 1.5)."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid4

from penstock.model.limits import MIB
from penstock.protocols.conformance import Cases, Suite, require, require_equal
from penstock_pravega.codec import (
    Dialect,
    MergedSegment,
    SegmentMessage,
    TableEntry,
    TableKey,
    append_messages,
    join_events,
)
from penstock_pravega.codec.released import (
    AppendBlock,
    AppendBlockEnd,
    AppendSetup,
    ConditionalAppend,
    ConditionalBlockEnd,
    ConditionalCheckFailed,
    CreateSegment,
    CreateTableSegment,
    CreateTransientSegment,
    DataAppended,
    DeleteSegment,
    DeleteTableSegment,
    ErrorMessage,
    GetSegmentAttribute,
    GetStreamSegmentInfo,
    GetTableSegmentInfo,
    Hello,
    InvalidEventNumber,
    KeepAlive,
    MergeSegments,
    MergeSegmentsBatch,
    NoSuchSegment,
    ReadSegment,
    ReadTable,
    ReadTableEntries,
    ReadTableEntriesDelta,
    ReadTableKeys,
    RemoveTableKeys,
    SealSegment,
    SegmentAlreadyExists,
    SegmentAttribute,
    SegmentAttributeUpdated,
    SegmentCreated,
    SegmentDeleted,
    SegmentIsSealed,
    SegmentIsTruncated,
    SegmentPolicyUpdated,
    SegmentRead,
    SegmentsBatchMerged,
    SegmentSealed,
    SegmentsMerged,
    SegmentTruncated,
    SetupAppend,
    StreamSegmentInfo,
    TableEntriesDeltaRead,
    TableEntriesRead,
    TableEntriesUpdated,
    TableKeyBadVersion,
    TableKeyDoesNotExist,
    TableKeysRead,
    TableKeysRemoved,
    TableRead,
    TableSegmentInfo,
    TableSegmentNotEmpty,
    TruncateSegment,
    UpdateSegmentAttribute,
    UpdateSegmentPolicy,
    UpdateTableEntries,
)
from penstock_pravega.segment.conformance.session import (
    NO_EVENT,
    VERSIONS,
    SegmentTestLine,
    SegmentTestSession,
    bytes_of,
    resized,
    segment_session,
)

__all__ = ["RELEASED"]

_NEW: Final = -1
"""The version of a key that must not exist, or does not."""
_LARGEST: Final = 8 * MIB
"""Bytes of the largest event."""

_CASES: Final = Cases[SegmentTestSession]()
_BODIES: Final = (b"first", b"the second", b"3")
_SETUP: Final = bytes_of(SetupAppend(1, UUID(int=1), "scope/stream/0.#epoch.0"))
_FULL: Final = len(join_events(_BODIES))


def _entry(key: bytes, value: bytes, version: int = NO_EVENT) -> TableEntry:
    return TableEntry(TableKey(key, version), value)


# ---- 1.1 frames ------------------------------------------------------------------------------------------------------


def _closes(name: str, demand: str, data: bytes) -> None:
    """Add a case: after these bytes the server closes the connection without a reply."""

    async def run(session: SegmentTestSession) -> None:
        line = await session.line()
        await line.send(data)
        await line.ended()

    _CASES.add(name, "1.1", demand, run)


_closes("unknown_type", "An unknown type ends the connection.", b"\x00\x00\x7f\x00" + bytes(4))
_closes("negative_length", "A negative length ends the connection.", _SETUP[:4] + b"\xff" * 4 + _SETUP[8:])
_closes("length_beyond_the_limit", "A length of 2^24 ends the connection.", _SETUP[:4] + b"\x01\x00\x00\x00")
_closes("short_body", "A body without all its fields ends the connection.", _SETUP[:4] + b"\0\0\0\4" + bytes(4))


@_CASES.case("1.1")
async def surplus_bytes(session: SegmentTestSession) -> None:
    """Bytes behind the last field are ignored."""
    line, segment = await session.segment()
    await line.send(resized(GetStreamSegmentInfo(7, segment), 5))
    require_equal((await line.reply(StreamSegmentInfo)).request_id, 7)


@_CASES.case("1.1")
async def fields_left_out(session: SegmentTestSession) -> None:
    """Fields that later versions added may be left out, as clients of earlier versions do."""
    line, segment = await session.line(), session.name()
    await line.send(resized(CreateSegment(line.request, segment, 0, 0), -8))
    require_equal((await line.reply(SegmentCreated)).segment, segment)
    writer, data = await line.writer(segment), join_events([b"x"])
    for reply, message in (
        (DataAppended, AppendBlockEnd(writer, len(data), data, 1, 1)),
        (DataAppended, ConditionalAppend(writer, 2, len(data), b"y")),
        (SegmentRead, ReadSegment(segment, 0, MIB)),
    ):
        await line.send(resized(message, -8))
        await line.reply(reply)


@_CASES.case("1.1")
async def messages_in_pieces(session: SegmentTestSession) -> None:
    """A message may arrive in any pieces."""
    line, segment = await session.segment()
    data = bytes_of(GetStreamSegmentInfo(8, segment))
    for at in range(len(data)):
        await line.send(data[at : at + 1])
    require_equal((await line.reply(StreamSegmentInfo)).request_id, 8)


@_CASES.case("1.1")
async def largest_event(session: SegmentTestSession) -> None:
    """An event of 8 MiB fits into one append."""
    line, segment = await session.segment()
    reply = await line.append(await line.writer(segment), 1, bytes(_LARGEST))
    require_equal(reply.current_segment_write_offset, _LARGEST + 8)


# ---- 1.2 Hello and KeepAlive -----------------------------------------------------------------------------------------


@_CASES.case("1.2")
async def hello(session: SegmentTestSession) -> None:
    """Hello is answered with the server's versions, which overlap with 5 to 16."""
    line = await session.raw()
    reply = await line.greet()
    require(reply.low_version <= reply.high_version, "a range of versions", reply)
    require(reply.low_version <= 16 and reply.high_version >= 5, "versions between 5 and 16", reply)


@_CASES.case("1.2")
async def hello_with_a_request(session: SegmentTestSession) -> None:
    """A client need not wait for the answer to Hello."""
    _, segment = await session.segment()
    line = await session.raw()
    await line.send(VERSIONS, GetStreamSegmentInfo(9, segment))
    await line.reply(Hello)
    require_equal((await line.reply(StreamSegmentInfo)).request_id, 9)


@_CASES.case("1.2")
async def versions_that_do_not_overlap(session: SegmentTestSession) -> None:
    """The connection of a client with later versions only ends, after the server's Hello at most."""
    line = await session.raw()
    await line.send(Hello(2_000, 1_999))
    reply = await line.next()
    if isinstance(reply, Hello):
        reply = await line.next()
    require_equal(reply, None)


@_CASES.case("1.2")
async def keep_alive(session: SegmentTestSession) -> None:
    """KeepAlive is answered with KeepAlive."""
    line = await session.line()
    await line.ask(KeepAlive, KeepAlive())


@_CASES.case("1.2")
async def request_ids(session: SegmentTestSession) -> None:
    """Each reply has the id of its request, of any 64 bits."""
    line, segment = await session.segment(b"x")
    _, table, _ = await session.table(_entry(b"a", b"1"))
    missing, attribute, numbers = session.name(), uuid4(), itertools.count(-(1 << 63), 1 << 59)
    requests: tuple[Any, ...] = (
        GetStreamSegmentInfo(0, segment),
        GetStreamSegmentInfo(next(numbers), segment),
        GetStreamSegmentInfo(next(numbers), missing),
        CreateSegment(next(numbers), segment, 0, 0),
        UpdateSegmentPolicy(next(numbers), segment, 0, 0),
        UpdateSegmentAttribute(next(numbers), segment, attribute, 1, NO_EVENT),
        GetSegmentAttribute(next(numbers), segment, attribute),
        SetupAppend(next(numbers), attribute, segment),
        ReadSegment(segment, 0, 10, "", next(numbers)),
        ReadSegment(missing, 0, 10, "", next(numbers)),
        CreateTableSegment(next(numbers), table),
        UpdateTableEntries(next(numbers), table, "", (_entry(b"a", b"2"),)),
        UpdateTableEntries(next(numbers), table, "", (_entry(b"a", b"3", _NEW),)),
        ReadTable(next(numbers), table, "", (TableKey(b"a"),)),
        ReadTableKeys(next(numbers), table, "", 1, b""),
        ReadTableEntries(next(numbers), table, "", 1, b""),
        ReadTableEntriesDelta(next(numbers), table, "", 0, 1),
        RemoveTableKeys(next(numbers), table, "", (TableKey(b"none", 1),)),
        TruncateSegment(next(numbers), segment, 0),
        SealSegment(next(numbers), segment),
    )
    for request in requests:
        reply = await line.ask(SegmentMessage, request)
        require(getattr(reply, "request_id", None) == request.request_id, f"the id of {request}", reply)


# ---- 1.3 segments ----------------------------------------------------------------------------------------------------


@_CASES.case("1.3")
async def create_segment(session: SegmentTestSession) -> None:
    """A new segment is empty and open."""
    line, segment = await session.segment()
    info = await line.info(segment)
    require_equal((info.segment, info.is_sealed, info.write_offset, info.start_offset), (segment, False, 0, 0))


@_CASES.case("1.3")
async def create_segment_again(session: SegmentTestSession) -> None:
    """Creating a segment that exists is answered with SegmentAlreadyExists, and changes nothing."""
    line, segment = await session.segment(*_BODIES)
    reply = await line.ask(SegmentAlreadyExists, CreateSegment(11, segment, 0, 0))
    require_equal((reply.request_id, reply.segment), (11, segment))
    await line.holds(segment, join_events(_BODIES))


@_CASES.case("1.3")
async def unknown_segments(session: SegmentTestSession) -> None:
    """Requests for a segment that does not exist are answered with NoSuchSegment."""
    line, segment = await session.line(), session.name()
    for message in (
        GetStreamSegmentInfo(12, segment),
        SealSegment(12, segment),
        DeleteSegment(12, segment),
        TruncateSegment(12, segment, 0),
        UpdateSegmentPolicy(12, segment, 0, 0),
        GetSegmentAttribute(12, segment, uuid4()),
        UpdateSegmentAttribute(12, segment, uuid4(), 1, NO_EVENT),
        ReadSegment(segment, 0, 100, "", 12),
        SetupAppend(12, uuid4(), segment),
        DeleteTableSegment(12, segment, False),
        UpdateTableEntries(12, segment, "", (_entry(b"a", b"1"),)),
        RemoveTableKeys(12, segment, "", (TableKey(b"a"),)),
        ReadTable(12, segment, "", (TableKey(b"a"),)),
        ReadTableKeys(12, segment, "", 1, b""),
        ReadTableEntries(12, segment, "", 1, b""),
        ReadTableEntriesDelta(12, segment, "", 0, 1),
    ):
        reply = await line.ask(NoSuchSegment, message)
        require_equal((reply.request_id, reply.segment), (12, segment))


@_CASES.case("1.3")
async def seal_segment(session: SegmentTestSession) -> None:
    """A sealed segment keeps its bytes and takes no more."""
    line, segment = await session.segment(*_BODIES)
    writer = await line.writer(segment)
    await line.ask(SegmentSealed, SealSegment(line.request, segment))
    require_equal((await line.info(segment)).is_sealed, True)
    reply = await line.ask(SegmentIsSealed, *append_messages(writer, _BODIES, 1, 13))
    require_equal(reply.segment, segment)
    await line.holds(segment, join_events(_BODIES))


@_CASES.case("1.3")
async def delete_segment(session: SegmentTestSession) -> None:
    """A deleted segment is gone."""
    line, segment = await session.segment(*_BODIES)
    await line.ask(SegmentDeleted, DeleteSegment(line.request, segment))
    await line.ask(NoSuchSegment, GetStreamSegmentInfo(line.request, segment))


@_CASES.case("1.3")
async def update_segment_policy(session: SegmentTestSession) -> None:
    """UpdateSegmentPolicy is answered with SegmentPolicyUpdated."""
    line, segment = await session.segment()
    reply = await line.ask(SegmentPolicyUpdated, UpdateSegmentPolicy(14, segment, 100, 1))
    require_equal((reply.request_id, reply.segment), (14, segment))


@_CASES.case("1.3")
async def truncate_segment(session: SegmentTestSession) -> None:
    """Truncation moves the start; offsets stay, and SegmentIsTruncated gives the start to a read before it."""
    line, segment = await session.segment(*_BODIES)
    content, start = join_events(_BODIES), 13
    await line.ask(SegmentTruncated, TruncateSegment(line.request, segment, start))
    info = await line.info(segment)
    require_equal((info.start_offset, info.write_offset), (start, len(content)))
    reply = await line.ask(SegmentIsTruncated, ReadSegment(segment, 3, 100, "", 15))
    require_equal((reply.segment, reply.start_offset, reply.offset), (segment, start, 3))
    await line.holds(segment, content[start:], start)


@_CASES.case("1.3")
async def attributes(session: SegmentTestSession) -> None:
    """An attribute is set only if it has the expected value; one that was never set is -2^63."""
    line, segment = await session.segment()
    attribute = uuid4()

    async def value() -> int:
        return (await line.ask(SegmentAttribute, GetSegmentAttribute(line.request, segment, attribute))).value

    require_equal(await value(), NO_EVENT)
    for expected, new, success in ((NO_EVENT, 5, True), (4, 6, False), (5, 7, True)):
        message = UpdateSegmentAttribute(line.request, segment, attribute, new, expected)
        require_equal((await line.ask(SegmentAttributeUpdated, message)).success, success)
    require_equal(await value(), 7)


@_CASES.case("1.3")
async def merge_segments(session: SegmentTestSession) -> None:
    """Merging appends a transient segment to its parent, and removes it."""
    line, segment = await session.segment(b"before")
    made = await line.ask(SegmentCreated, CreateTransientSegment(line.request, uuid4(), segment))
    await line.append(await line.writer(made.segment), 1, *_BODIES)
    reply = await line.ask(SegmentsMerged, MergeSegments(16, segment, made.segment))
    content = join_events((b"before", *_BODIES))
    require_equal((reply.request_id, reply.new_target_write_offset), (16, len(content)))
    await line.holds(segment, content)
    await line.ask(NoSuchSegment, GetStreamSegmentInfo(line.request, made.segment))


@_CASES.case("1.3")
async def merge_several_segments(session: SegmentTestSession) -> None:
    """MergeSegmentsBatch appends segments in their order, and says where each ends in the target."""
    line, segment = await session.segment(b"0")
    content = join_events([b"0"])
    merged: list[MergedSegment] = []
    for body in (b"one", b"second"):
        transient = await line.ask(SegmentCreated, CreateTransientSegment(line.request, uuid4(), segment))
        await line.append(await line.writer(transient.segment), 1, body)
        content += join_events([body])
        merged.append(MergedSegment(transient.segment, len(content)))
    request = MergeSegmentsBatch(17, segment, tuple(source.source for source in merged))
    require_equal(await line.ask(SegmentsBatchMerged, request), SegmentsBatchMerged(17, segment, tuple(merged)))
    await line.holds(segment, content)


# ---- 1.3 tables ------------------------------------------------------------------------------------------------------


async def _rows(line: SegmentTestLine, table: str, *keys: bytes) -> list[tuple[bytes, bytes, int]]:
    message = ReadTable(line.request, table, "", tuple(map(TableKey, keys)))
    return [(entry.key.key, entry.value, entry.key.version) for entry in (await line.ask(TableRead, message)).entries]


@_CASES.case("1.3")
async def create_table_again(session: SegmentTestSession) -> None:
    """Creating a table that exists is answered with SegmentAlreadyExists."""
    line, table, _ = await session.table()
    await line.ask(SegmentAlreadyExists, CreateTableSegment(line.request, table))


@_CASES.case("1.3")
async def update_and_read_a_table(session: SegmentTestSession) -> None:
    """Entries are read as they were written, with rising versions; a missing key has version -1 and no value."""
    line, table, versions = await session.table(_entry(b"a", b"1"), _entry(b"b", b"2"))
    require(len(versions) == 2 and versions[0] < versions[1], "two rising versions", versions)
    expected = [(b"b", b"2", versions[1]), (b"none", b"", _NEW), (b"a", b"1", versions[0])]
    require_equal(await _rows(line, table, b"b", b"none", b"a", b"b"), [*expected, expected[0]])


@_CASES.case("1.3")
async def conditional_updates_of_a_table(session: SegmentTestSession) -> None:
    """An update is held against the version of each key, and changes nothing if one differs."""
    line, table, (version,) = await session.table(_entry(b"a", b"1"))
    for entries in (
        (_entry(b"new", b"x", _NEW), _entry(b"a", b"2", _NEW)),
        (_entry(b"new", b"x", _NEW), _entry(b"a", b"2", version + 1)),
    ):
        await line.ask(TableKeyBadVersion, UpdateTableEntries(line.request, table, "", entries))
    absent = UpdateTableEntries(line.request, table, "", (_entry(b"new", b"x", version),))
    await line.ask(TableKeyDoesNotExist, absent)
    require_equal(await _rows(line, table, b"a", b"new"), [(b"a", b"1", version), (b"new", b"", _NEW)])
    update = UpdateTableEntries(line.request, table, "", (_entry(b"a", b"2", version),))
    (later,) = (await line.ask(TableEntriesUpdated, update)).versions
    require_equal(await _rows(line, table, b"a"), [(b"a", b"2", later)])


@_CASES.case("1.3")
async def update_of_a_key_twice(session: SegmentTestSession) -> None:
    """Entries are held against the table before the update: a new key may come twice, and the last value stays."""
    entries = (_entry(b"a", b"1", _NEW), _entry(b"a", b"2", _NEW), _entry(b"b", b"3", _NEW))
    line, table, versions = await session.table(*entries)
    require(len(versions) == 3 and list(versions) == sorted(set(versions)), "three rising versions", versions)
    require_equal(await _rows(line, table, b"a", b"b"), [(b"a", b"2", versions[1]), (b"b", b"3", versions[2])])


@_CASES.case("1.3")
async def remove_keys_of_a_table(session: SegmentTestSession) -> None:
    """A key is removed if it has the expected version; set again, it has a later one."""
    line, table, (version, last) = await session.table(_entry(b"a", b"1"), _entry(b"b", b"2"))
    bad = RemoveTableKeys(line.request, table, "", (TableKey(b"a", version + 100),))
    await line.ask(TableKeyBadVersion, bad)
    await line.ask(TableKeysRemoved, RemoveTableKeys(line.request, table, "", (TableKey(b"a", version),)))
    require_equal(await _rows(line, table, b"a", b"b"), [(b"a", b"", _NEW), (b"b", b"2", last)])
    update = UpdateTableEntries(line.request, table, "", (_entry(b"a", b"3", _NEW),))
    (later,) = (await line.ask(TableEntriesUpdated, update)).versions
    require(later > last, f"a version above {last}", later)


def _by_pages(
    name: str,
    demand: str,
    request: type[ReadTableKeys] | type[ReadTableEntries],
    reply: type[TableKeysRead] | type[TableEntriesRead],
) -> None:
    """Add a case: pages go on from the token of the page before, until an empty one, and have each key once."""

    async def run(session: SegmentTestSession) -> None:
        keys = [b"key-%d" % number for number in range(10)]
        line, table, _ = await session.table(*(_entry(key, b"x") for key in keys))
        listed: list[bytes] = []
        token = b""
        for _ in range(len(keys) + 1):
            page = await line.ask(reply, request(line.request, table, "", 3, token))
            token = page.continuation_token
            page_keys = page.keys if isinstance(page, TableKeysRead) else [entry.key for entry in page.entries]
            listed += [key.key for key in page_keys]
            if not page_keys:
                break
        require_equal(sorted(listed), keys)

    _CASES.add(name, "1.3", demand, run)


_by_pages("keys_of_a_table_by_pages", "Pages of keys have each key once.", ReadTableKeys, TableKeysRead)
_by_pages("entries_of_a_table_by_pages", "Pages of entries have each once.", ReadTableEntries, TableEntriesRead)


@_CASES.case("1.3")
async def changes_of_a_table(session: SegmentTestSession) -> None:
    """The delta from a position has the entries from there on, each in its latest version."""
    line, table, versions = await session.table(_entry(b"a", b"1"), _entry(b"b", b"2"))
    update = UpdateTableEntries(line.request, table, "", (_entry(b"a", b"3"),))
    (later,) = (await line.ask(TableEntriesUpdated, update)).versions
    delta = await line.ask(TableEntriesDeltaRead, ReadTableEntriesDelta(line.request, table, "", 0, 100))
    entries = sorted((entry.key.key, entry.value, entry.key.version) for entry in delta.entries)
    require_equal(entries, [(b"a", b"3", later), (b"b", b"2", versions[1])])

    async def keys_from(position: int) -> list[bytes]:
        request = ReadTableEntriesDelta(line.request, table, "", position, 100)
        return [entry.key.key for entry in (await line.ask(TableEntriesDeltaRead, request)).entries]

    require_equal(await keys_from(later), [b"a"])
    require_equal(await keys_from(delta.last_position), [])
    await line.ask(TableEntriesUpdated, UpdateTableEntries(line.request, table, "", (_entry(b"c", b"4"),)))
    require_equal(await keys_from(delta.last_position), [b"c"])


@_CASES.case("1.3")
async def table_that_ends_elsewhere(session: SegmentTestSession) -> None:
    """An update that expects another end of the table changes nothing; one that expects its end is made."""
    line, table, (version,) = await session.table(_entry(b"a", b"1"))
    end = (await line.ask(TableSegmentInfo, GetTableSegmentInfo(line.request, table))).length
    entries = (_entry(b"a", b"2"),)
    reply = await line.ask(SegmentMessage, UpdateTableEntries(line.request, table, "", entries, end + 1))
    require(not isinstance(reply, TableEntriesUpdated), "an error", reply)
    require_equal(await _rows(line, table, b"a"), [(b"a", b"1", version)])
    await line.ask(TableEntriesUpdated, UpdateTableEntries(line.request, table, "", entries, end))


@_CASES.case("1.3")
async def information_about_a_table(session: SegmentTestSession) -> None:
    """GetTableSegmentInfo is answered with where a table begins and ends."""
    line, table, _ = await session.table(_entry(b"a", b"1"))
    reply = await line.ask(TableSegmentInfo, GetTableSegmentInfo(25, table))
    require_equal((reply.request_id, reply.segment), (25, table))
    require(0 <= reply.start_offset < reply.length, "a table that is not empty", reply)


@_CASES.case("1.3")
async def delete_of_a_table_with_entries(session: SegmentTestSession) -> None:
    """A table that must be empty is not deleted while it has entries."""
    line, table, _ = await session.table(_entry(b"a", b"1"))
    await line.ask(TableSegmentNotEmpty, DeleteTableSegment(line.request, table, True))
    await line.ask(SegmentDeleted, DeleteTableSegment(line.request, table, False))
    await line.ask(NoSuchSegment, ReadTable(line.request, table, "", (TableKey(b"a"),)))


# ---- 1.4 appending ---------------------------------------------------------------------------------------------------


@_CASES.case("1.4")
async def setup_of_a_new_writer(session: SegmentTestSession) -> None:
    """SetupAppend of an unknown writer is answered with its ids, and with -2^63 for its last event."""
    line, segment = await session.segment()
    writer = uuid4()
    reply = await line.ask(AppendSetup, SetupAppend(17, writer, segment))
    require_equal(reply, AppendSetup(17, segment, writer, NO_EVENT))


@_CASES.case("1.4")
async def append(session: SegmentTestSession) -> None:
    """DataAppended has the last event's number, the one before, the request, and the segment's new end."""
    line, segment = await session.segment()
    writer, end, previous = await line.writer(segment), 0, NO_EVENT
    for last, bodies in ((3, _BODIES), (10, _BODIES[:1])):
        end += len(join_events(bodies))
        reply = await line.ask(DataAppended, *append_messages(writer, bodies, last, 18))
        require_equal(reply, DataAppended(writer, last, previous, 18, end))
        previous = last
    await line.holds(segment, join_events((*_BODIES, _BODIES[0])))


def _stored(name: str, demand: str, **form: Any) -> None:
    """Add a case: an append in this form of blocks stores the events."""

    async def run(session: SegmentTestSession) -> None:
        line, segment = await session.segment()
        writer = await line.writer(segment)
        for last in (3, 6):
            await line.append(writer, last, *_BODIES, **form)
        await line.holds(segment, join_events(_BODIES * 2))

    _CASES.add(name, "1.4", demand, run)


_stored("block_that_is_full", "A block may be filled exactly.", block_size=_FULL, room=False)
_stored("block_with_padding", "A block that was announced too long ends in Padding.", block_size=_FULL + 20)
_stored("block_with_a_partial_event", "An event may be split between block and end.", block_size=_FULL - 5)


@_CASES.case("1.4")
async def bytes_that_are_no_events(session: SegmentTestSession) -> None:
    """Bytes are stored as they are, also if they are no events, or an event comes in two appends."""
    line, segment = await session.segment()
    writer, event = await line.writer(segment), join_events([b"event"])
    pieces = (b"raw", bytes(7), event, bytes(8), event[:6], event[6:], bytes(range(256)))
    for number, data in enumerate(pieces):
        await line.ask(DataAppended, AppendBlockEnd(writer, len(data), data, 1, number, line.request))
    await line.holds(segment, b"".join(pieces))


@_CASES.case("1.4")
async def appends_in_flight(session: SegmentTestSession) -> None:
    """Appends need not wait for each other; acknowledgements come in order, and one may cover several."""
    line, segment = await session.segment()
    writer, count = await line.writer(segment), 20
    for number in range(1, count + 1):
        await line.send(*append_messages(writer, [b"%d" % number], number, 19))
    acknowledged = NO_EVENT
    while acknowledged < count:
        reply = await line.reply(DataAppended)
        require_equal(reply.previous_event_number, acknowledged)
        require(reply.event_number > acknowledged, f"an event after {acknowledged}", reply)
        acknowledged = reply.event_number
    await line.holds(segment, join_events([b"%d" % number for number in range(1, count + 1)]))


@_CASES.case("1.4")
async def several_writers(session: SegmentTestSession) -> None:
    """Writers of several segments share a connection."""
    line, first_segment = await session.segment()
    second_segment = session.name()
    await line.ask(SegmentCreated, CreateSegment(line.request, second_segment, 0, 0))
    writers = [await line.writer(first_segment), await line.writer(second_segment)]
    for number in (1, 2):
        for writer in writers:
            reply = await line.append(writer, number, b"%d" % number)
            require_equal((reply.writer_id, reply.event_number), (writer, number))
    for segment in (first_segment, second_segment):
        await line.holds(segment, join_events([b"1", b"2"]))


@_CASES.case("1.4")
async def writer_that_reconnects(session: SegmentTestSession) -> None:
    """AppendSetup gives a writer that comes back the number of its last stored event."""
    line, segment = await session.segment()
    writer = await line.writer(segment)
    await line.append(writer, 41, b"x")
    again = await session.line()
    reply = await again.ask(AppendSetup, SetupAppend(again.request, writer, segment))
    require_equal(reply.last_event_number, 41)
    require_equal((await again.append(writer, 42, b"y")).previous_event_number, 41)


@_CASES.case("1.4")
async def stale_event_number(session: SegmentTestSession) -> None:
    """A number below the writer's last ends the connection, after InvalidEventNumber at most; nothing is stored."""
    line, segment = await session.segment()
    writer = await line.writer(segment)
    await line.append(writer, 5, b"x")
    again = await session.line()
    await again.ask(AppendSetup, SetupAppend(again.request, writer, segment))
    for connection in (line, again):
        await connection.send(*append_messages(writer, [b"y"], 4, connection.request))
        reply = await connection.next()
        if isinstance(reply, InvalidEventNumber):
            reply = await connection.next()
        require_equal(reply, None)
    await (await session.line()).holds(segment, join_events([b"x"]))


@_CASES.case("1.4")
async def writer_without_setup(session: SegmentTestSession) -> None:
    """Data of a writer that was not set up ends the connection."""
    line, segment = await session.segment()
    await line.send(*append_messages(uuid4(), [b"x"], 1, line.request))
    await line.ended()
    require_equal((await (await session.line()).info(segment)).write_offset, 0)


@_CASES.case("1.4")
async def message_within_a_block(session: SegmentTestSession) -> None:
    """Nothing comes between AppendBlock and AppendBlockEnd, else the connection ends."""
    line, segment = await session.segment()
    writer, data = await line.writer(segment), join_events([b"x"])
    await line.send(AppendBlock(writer, data), GetStreamSegmentInfo(line.request, segment))
    await line.send(AppendBlockEnd(writer, len(data), b"", 1, 1, line.request))
    await line.ended()


@_CASES.case("1.4")
async def end_of_another_writer(session: SegmentTestSession) -> None:
    """AppendBlockEnd is of the writer of the AppendBlock before it, else the connection ends."""
    line, segment = await session.segment()
    data = join_events([b"x"])
    writer, second = await line.writer(segment), await line.writer(segment)
    await line.send(AppendBlock(writer, data), AppendBlockEnd(second, len(data), b"", 1, 1, line.request))
    await line.ended()


@_CASES.case("1.4")
async def conditional_append(session: SegmentTestSession) -> None:
    """ConditionalAppend stores an event only if the segment ends at the expected offset; the connection stays."""
    line, segment = await session.segment(b"x")
    writer, end = await line.writer(segment), len(join_events([b"x"]))
    failed = await line.ask(ConditionalCheckFailed, ConditionalAppend(writer, 1, end - 1, b"y", 20))
    require_equal(failed, ConditionalCheckFailed(writer, 1, 20))
    reply = await line.ask(DataAppended, ConditionalAppend(writer, 2, end, b"z", 21))
    require_equal((reply.event_number, reply.request_id), (2, 21))
    await line.holds(segment, join_events([b"x", b"z"]))


@_CASES.case("1.4")
async def conditional_block(session: SegmentTestSession) -> None:
    """ConditionalBlockEnd stores bytes as they are, under the same condition."""
    line, segment = await session.segment()
    writer = await line.writer(segment)
    await line.ask(DataAppended, ConditionalBlockEnd(writer, 1, 0, b"raw", line.request))
    await line.ask(ConditionalCheckFailed, ConditionalBlockEnd(writer, 2, 0, b"late", line.request))
    await line.holds(segment, b"raw")


# ---- 1.5 events and reading ------------------------------------------------------------------------------------------


@_CASES.case("1.5")
async def read_anywhere(session: SegmentTestSession) -> None:
    """A read may start within an event; the reply has the segment, the offset and the request's id."""
    line, segment = await session.segment(*_BODIES)
    reply = await line.ask(SegmentRead, ReadSegment(segment, 3, MIB, "", 22))
    require_equal((reply.segment, reply.offset, reply.request_id), (segment, 3, 22))
    require(bool(reply.data) and join_events(_BODIES)[3:].startswith(reply.data), "the bytes from 3 on", reply)


@_CASES.case("1.5")
async def read_a_little(session: SegmentTestSession) -> None:
    """A reply has no more bytes than were asked for, of at least 8."""
    line, segment = await session.segment(*_BODIES)
    for suggested in (0, 9):
        data = (await line.read(segment, 0, suggested)).data
        require(0 < len(data) <= max(suggested, 8), f"1 to {max(suggested, 8)} bytes", data)


@_CASES.case("1.5")
async def read_at_the_tail(session: SegmentTestSession) -> None:
    """A read at the tail waits for bytes, and meanwhile holds up nothing else on its connection."""
    line, segment = await session.segment(b"x")
    end = len(join_events([b"x"]))
    await line.send(ReadSegment(segment, end, MIB, "", 23))
    require_equal((await line.info(segment)).write_offset, end)
    other = await session.line()
    await other.append(await other.writer(segment), 1, b"y")
    reply = await line.reply(SegmentRead)
    require_equal((reply.offset, reply.data, reply.request_id), (end, join_events([b"y"]), 23))


@_CASES.case("1.5")
async def seal_ends_a_waiting_read(session: SegmentTestSession) -> None:
    """A read that waits ends when the segment is sealed, with the end of the segment."""
    line, segment = await session.segment(b"x")
    await line.send(ReadSegment(segment, len(join_events([b"x"])), MIB, "", 24))
    other = await session.line()
    await other.ask(SegmentSealed, SealSegment(other.request, segment))
    reply = await line.reply(SegmentRead)
    if not reply.end_of_segment:  # a server may tell the end with the next read
        reply = await line.read(segment, len(join_events([b"x"])))
    require_equal((reply.end_of_segment, reply.data), (True, b""))


@_CASES.case("1.5")
async def end_of_a_sealed_segment(session: SegmentTestSession) -> None:
    """At the end of a sealed segment a read is answered at once, with the end of the segment."""
    line, segment = await session.segment(b"x")
    await line.ask(SegmentSealed, SealSegment(line.request, segment))
    require_equal((await line.read(segment, 0, 8)).end_of_segment, False)
    reply = await line.read(segment, len(join_events([b"x"])))
    require_equal((reply.end_of_segment, reply.data), (True, b""))


@_CASES.case("1.5")
async def reads_out_of_range(session: SegmentTestSession) -> None:
    """A negative offset, and one beyond the end of a sealed segment, are errors."""
    line, segment = await session.segment(b"x")
    await line.ask(SegmentSealed, SealSegment(line.request, segment))
    for offset in (-1, 1_000):
        await line.ask(ErrorMessage, ReadSegment(segment, offset, 100, "", line.request))


RELEASED: Final = Suite(
    title="Segment protocol, released dialect",
    source="the sections of its fact sheet",
    clauses={
        "1.1": "Frames",
        "1.2": "Hello and KeepAlive",
        "1.3": "Segments and tables",
        "1.4": "Appending",
        "1.5": "Reading",
    },
    cases=tuple(_CASES.found),
    session=partial(segment_session, dialect=Dialect.RELEASED),
)
