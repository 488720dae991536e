"""The segment front: table segments (segment fact sheet, 1.3, Tables; 3.1)."""

from __future__ import annotations

import pytest
from support.segment.front import SEGMENT, Client, Connect
from trio.testing import MockClock

from penstock.net.limits import work
from penstock_pravega.codec import TableEntry, TableKey, released
from penstock_pravega.codec.limits import SEGMENT_MAX_ITEMS

TABLE = "scope/group_kvtable/0.#epoch.0"
ANY, ABSENT = -(1 << 63), -1


@pytest.fixture
async def client(connect: Connect, clock: MockClock) -> Client:
    """A connection, and an empty table."""
    client: Client = await connect()
    assert await client.call(released.CreateTableSegment(5, TABLE)) == released.SegmentCreated(5, TABLE)
    return client


async def put(client: Client, *entries: tuple[bytes, bytes, int], length: int = -1) -> tuple[int, ...]:
    request = released.UpdateTableEntries(
        6, TABLE, "", tuple(TableEntry(TableKey(k, v), b) for k, b, v in entries), length
    )
    reply = await client.expect(released.TableEntriesUpdated, request)
    assert reply.request_id == 6
    return reply.versions


async def test_creating(client: Client, clock: MockClock) -> None:
    """A table is no stream, so a stream of the same name may be."""
    assert await client.call(released.CreateTableSegment(6, TABLE)) == released.SegmentAlreadyExists(6, TABLE)
    assert await client.call(released.GetStreamSegmentInfo(7, TABLE)) == released.NoSuchSegment(7, TABLE)
    request = released.CreateTableSegment(8, "keys of 4", "", True, 4)
    assert await client.call(request) == released.SegmentCreated(8, "keys of 4")
    info = await client.expect(released.TableSegmentInfo, released.GetTableSegmentInfo(9, "keys of 4"))
    assert (info.request_id, info.segment, info.entry_count, info.key_length) == (9, "keys of 4", 0, 4)
    entry = TableEntry(TableKey(b"short"), b"v")
    reply = await client.call(released.UpdateTableEntries(10, "keys of 4", "", (entry,)))
    assert isinstance(reply, released.ErrorMessage) and (reply.request_id, reply.error_code) == (10, 0)
    for length in (-1, 100_000):
        reply = await client.call(released.CreateTableSegment(6, "x", "", True, length))
        assert isinstance(reply, released.ErrorMessage) and (reply.request_id, reply.error_code) == (6, 0)


async def test_updating_and_reading(client: Client, clock: MockClock) -> None:
    one, two = await put(client, (b"k", b"v", ABSENT), (b"", b"empty key", ANY))
    keys = (TableKey(b"k"), TableKey(b"none"), TableKey(b""))
    reply = await client.call(released.ReadTable(7, TABLE, "", keys))
    assert reply.request_id == 7 and reply.segment == TABLE
    assert reply.entries[:2] == (TableEntry(TableKey(b"k", one), b"v"), TableEntry(TableKey(b"none", -1), b""))
    assert (reply.entries[2].key.key, reply.entries[2].value) == (b"", b"empty key"), "it has no version on the wire"
    (three,) = await put(client, (b"k", b"w", one))
    assert one < two < three
    assert await put(client) == ()
    assert await client.call(released.ReadTable(8, TABLE, "", ())) == released.TableRead(8, TABLE, ())


async def test_conditions(client: Client, clock: MockClock) -> None:
    """All entries or none, each with the error of the real server."""
    (version,) = await put(client, (b"k", b"v", ABSENT))
    entry = TableEntry(TableKey(b"new"), b"x")
    for held, reply in (
        (TableKey(b"k", version + 1), released.TableKeyBadVersion(6, TABLE)),
        (TableKey(b"k", ABSENT), released.TableKeyBadVersion(6, TABLE)),
        (TableKey(b"no", version), released.TableKeyDoesNotExist(6, TABLE)),
    ):
        request = released.UpdateTableEntries(6, TABLE, "", (entry, TableEntry(held, b"x")))
        assert await client.call(request) == reply
        removal = released.RemoveTableKeys(6, TABLE, "", (TableKey(b"k"), held))
        assert await client.call(removal) == reply
    info = await client.expect(released.TableSegmentInfo, released.GetTableSegmentInfo(9, TABLE))
    assert info.entry_count == 1


async def test_where_the_table_must_end(client: Client, clock: MockClock) -> None:
    await put(client, (b"k", b"v", ANY))
    length = (await client.call(released.GetTableSegmentInfo(9, TABLE))).length
    entries = (TableEntry(TableKey(b"k"), b"w"),)
    for request in (
        released.UpdateTableEntries(6, TABLE, "", entries, length + 1),
        released.RemoveTableKeys(6, TABLE, "", (TableKey(b"k"),), length + 1),
    ):
        assert await client.call(request) == released.SegmentIsTruncated(6, TABLE, length, "", length + 1)
    assert await put(client, (b"k", b"w", ANY), length=length) == (length,)


async def test_removing_and_deleting(client: Client, clock: MockClock) -> None:
    await put(client, (b"k", b"v", ANY))
    assert await client.call(released.DeleteTableSegment(5, TABLE, True)) == released.TableSegmentNotEmpty(5, TABLE)
    removal = released.RemoveTableKeys(6, TABLE, "", (TableKey(b"k"), TableKey(b"none")))
    assert await client.call(removal) == released.TableKeysRemoved(6, TABLE)
    assert await client.call(released.DeleteTableSegment(7, TABLE, True)) == released.SegmentDeleted(7, TABLE)
    for request in (
        released.DeleteTableSegment(8, TABLE, False),
        released.GetTableSegmentInfo(8, TABLE),
        released.UpdateTableEntries(8, TABLE, "", ()),
        released.RemoveTableKeys(8, TABLE, "", ()),
        released.ReadTable(8, TABLE, "", ()),
        released.ReadTableKeys(8, TABLE, "", 1, b""),
        released.ReadTableEntries(8, TABLE, "", 1, b""),
        released.ReadTableEntriesDelta(8, TABLE, "", 0, 1),
    ):
        assert await client.call(request) == released.NoSuchSegment(8, TABLE)


async def iterated(client: Client, count: int, **bounds: bytes) -> list[bytes]:
    """All keys as the Java client lists them: a page without a token is the end, and what is in it is dropped."""
    found: list[bytes] = []
    token = b""
    while True:
        request = released.ReadTableKeys(7, TABLE, "", count, token, **bounds)
        keys = await client.expect(released.TableKeysRead, request)
        entries = await client.expect(
            released.TableEntriesRead, released.ReadTableEntries(8, TABLE, "", count, token, **bounds)
        )
        assert [entry.key for entry in entries.entries] == list(keys.keys)
        assert keys.continuation_token == entries.continuation_token
        if not keys.continuation_token:
            return found
        found += [key.key for key in keys.keys]
        token = keys.continuation_token


@pytest.mark.parametrize("count", [1, 3, 1000, 0, -1, 2**31 - 1])
async def test_iterating(client: Client, clock: MockClock, count: int) -> None:
    keys = [b"", *(b"%02d" % number for number in range(7)), b"\xff"]
    await put(client, *((key, b"v", ANY) for key in keys))
    assert await iterated(client, count) == keys
    assert await iterated(client, count, from_key=b"02", to_key=b"04") == [b"02", b"03", b"04"]
    assert await iterated(client, count, from_key=b"x") == [b"\xff"]
    assert await iterated(client, count, to_key=b"00") == [b"", b"00"]


async def test_a_token_that_is_none_of_ours(client: Client, clock: MockClock) -> None:
    reply = await client.call(released.ReadTableKeys(7, TABLE, "", 1, b"made up"))
    assert isinstance(reply, released.ErrorMessage) and (reply.request_id, reply.error_code) == (7, 0)


async def test_what_has_changed(client: Client, clock: MockClock) -> None:
    """As the Rust client's synchronizer asks: until nothing more comes."""
    versions = await put(client, *((b"%d" % number, b"v", ANY) for number in range(5)))
    (newest,) = await put(client, (b"1", b"w", ANY))
    found: list[tuple[bytes, int]] = []
    position = 0
    while True:
        reply = await client.call(released.ReadTableEntriesDelta(7, TABLE, "", position, 2))
        assert (reply.request_id, reply.segment, reply.should_clear) == (7, TABLE, False)
        found += [(entry.key.key, entry.key.version) for entry in reply.entries]
        position = reply.last_position
        if reply.reached_end:
            break
    assert found == [(b"0", versions[0]), *zip((b"2", b"3", b"4"), versions[2:], strict=True), (b"1", newest)]
    for start, changed in ((newest, (b"1",)), (position, ())):
        reply = await client.call(released.ReadTableEntriesDelta(7, TABLE, "", start, 2))
        assert tuple(entry.key.key for entry in reply.entries) == changed
    await put(client, (b"later", b"v", ANY))
    reply = await client.call(released.ReadTableEntriesDelta(7, TABLE, "", position, 2))
    assert [entry.key.key for entry in reply.entries] == [b"later"]


async def test_too_large(client: Client, clock: MockClock) -> None:
    """Keys and values, and what is asked for at once; the connection goes on."""
    for key, value in ((bytes(8193), b""), (b"k", bytes(1 << 20))):
        request = released.UpdateTableEntries(6, TABLE, "", (TableEntry(TableKey(key), value),))
        reply = await client.call(request)
        assert isinstance(reply, released.ErrorMessage) and (reply.request_id, reply.error_code) == (6, 0)
    await put(client, (b"k", bytes(1_000_000), ANY))
    reply = await client.call(released.ReadTable(7, TABLE, "", (TableKey(b"k"),) * 20))
    assert isinstance(reply, released.ErrorMessage) and (reply.request_id, reply.error_code) == (7, 0)
    keys = tuple(TableKey(b"%d" % number + bytes(8000)) for number in range(2000))
    await client.send(released.ReadTable(8, TABLE, "", keys))
    assert len((await client.reply()).entries) == 2000


async def test_a_reply_that_does_not_fit_into_a_message(client: Client, clock: MockClock) -> None:
    """Each key that is asked for takes a little more in the reply than in the request."""
    count = SEGMENT_MAX_ITEMS
    size = (0xFFFFF0 - 8 - 100) // count - 16
    keys = tuple(TableKey(number.to_bytes(4, "big") + bytes(size - 4)) for number in range(count))
    reply = await client.call(released.ReadTable(8, TABLE, "", keys))
    assert isinstance(reply, released.ErrorMessage) and (reply.request_id, reply.error_code) == (8, 0)
    assert await client.call(released.GetStreamSegmentInfo(9, SEGMENT)) == released.NoSuchSegment(9, SEGMENT)


async def test_others_run_between_the_items_of_a_request(
    client: Client, clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests = 0

    async def rest(_: work.Work) -> None:
        nonlocal rests
        rests += 1

    monkeypatch.setattr(work, "TURN_SECONDS", -1.0)
    monkeypatch.setattr(work.Work, "rest", rest)
    count = 50
    keys = tuple(TableKey(b"%d" % number, ANY) for number in range(count))
    for request in (
        released.UpdateTableEntries(6, TABLE, "", tuple(TableEntry(key, b"v") for key in keys), -1),
        released.ReadTable(6, TABLE, "", keys),
        released.ReadTableKeys(6, TABLE, "", count, b""),
        released.ReadTableEntries(6, TABLE, "", count, b""),
        released.ReadTableEntriesDelta(6, TABLE, "", 0, count),
        released.RemoveTableKeys(6, TABLE, "", keys, -1),
        released.MergeSegmentsBatch(6, SEGMENT, tuple(f"scope/{number}/0.#epoch.0" for number in range(count))),
    ):
        rests = 0
        await client.call(request)
        assert rests >= count, request


@pytest.mark.parametrize("table", ["#", "#controller"])
async def test_tables_of_the_gateways_own_are_not_for_clients(client: Client, clock: MockClock, table: str) -> None:
    """One of them holds the controller's state."""
    entry = TableEntry(TableKey(b"k", ANY), b"v")
    for request in (
        released.CreateTableSegment(6, table),
        released.DeleteTableSegment(6, table, False, ""),
        released.GetTableSegmentInfo(6, table),
        released.UpdateTableEntries(6, table, "", (entry,), -1),
        released.RemoveTableKeys(6, table, "", (TableKey(b"k", ANY),), -1),
        released.ReadTable(6, table, "", (TableKey(b"k"),)),
        released.ReadTableKeys(6, table, "", 10, b""),
        released.ReadTableEntries(6, table, "", 10, b""),
        released.ReadTableEntriesDelta(6, table, "", 0, 10),
    ):
        reply = await client.call(request)
        assert isinstance(reply, released.ErrorMessage)
        assert (reply.request_id, reply.segment, reply.error_code) == (6, table, 0)
