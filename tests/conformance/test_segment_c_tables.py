"""Table segments (segment fact sheet, 1.3 and what synchronizers need of them, 3.1)."""

from collections.abc import Callable
from typing import Any

import pytest
from support.segment.client import ReleasedSocket, rows

from penstock_codecs.segment import TableEntry, TableKey, released

Open = Callable[..., ReleasedSocket]
ANY, ABSENT = -(1 << 63), -1


@pytest.fixture
def table(segment: str) -> str:
    """A name that is not there yet, as reader groups choose it."""
    return segment.replace("/0.", "_kvtable/0.")


def keys_of(reply: released.TableKeysRead) -> list[bytes]:
    return [key.key for key in reply.keys]


def test_clause_25_create(released_socket: Open, table: str) -> None:
    """It creates no stream: other operations do not see tables."""
    with released_socket() as client:
        client.create_table(table)
        client.send(released.CreateTableSegment(5, table, "", True, 16, 1 << 20))
        reply = client.reply()
        assert isinstance(reply, released.SegmentAlreadyExists)
        assert (reply.request_id, reply.segment) == (5, table)
        client.send(released.GetStreamSegmentInfo(6, table))
        assert isinstance(client.reply(), released.NoSuchSegment)


def test_clause_26_update(released_socket: Open, table: str) -> None:
    with released_socket() as client:
        client.create_table(table)
        first, second = client.put(table, (b"a", b"1", ABSENT), (b"b", b"2", ANY))
        assert 0 <= first < second
        for version, kind in (
            (ABSENT, released.TableKeyBadVersion),
            (second, released.TableKeyBadVersion),
        ):
            reply = client.put(table, (b"c", b"3", ANY), (b"a", b"9", version))
            assert isinstance(reply, kind)
            assert reply.segment == table
        assert isinstance(client.put(table, (b"c", b"3", first)), released.TableKeyDoesNotExist)
        assert client.get(table, b"a", b"b", b"c") == [(b"a", b"1", first), (b"b", b"2", second), (b"c", b"", -1)]
        (third,) = client.put(table, (b"a", b"new", first))
        assert third > second
        assert client.get(table, b"a") == [(b"a", b"new", third)]
        (fourth,) = client.put(table, (b"a", b"", ANY))
        assert client.get(table, b"a") == [(b"a", b"", fourth)]


def test_clause_27_the_state_before_the_update(released_socket: Open, table: str) -> None:
    """pravega 0.3.8 sends the same key several times, each expected not to exist; the last one stays."""
    with released_socket() as client:
        client.create_table(table)
        versions = client.put(table, (b"k", b"1", ABSENT), (b"k", b"2", ABSENT), (b"l", b"3", ABSENT))
        assert list(versions) == sorted(set(versions))
        assert client.get(table, b"k", b"l") == [(b"k", b"2", versions[1]), (b"l", b"3", versions[2])]
        assert client.put(table) == ()


def test_clause_28_remove(released_socket: Open, table: str) -> None:
    def remove(*keys: TableKey) -> Any:
        client.send(released.RemoveTableKeys(client.next_id(), table, "", keys))
        return client.reply()

    with released_socket() as client:
        client.create_table(table)
        first, second = client.put(table, (b"a", b"1", ANY), (b"b", b"2", ANY))
        assert isinstance(remove(TableKey(b"a"), TableKey(b"b", first)), released.TableKeyBadVersion)
        assert isinstance(remove(TableKey(b"a"), TableKey(b"no", first)), released.TableKeyDoesNotExist)
        assert client.get(table, b"a") == [(b"a", b"1", first)]
        reply = remove(TableKey(b"a", first), TableKey(b"no"))
        assert isinstance(reply, released.TableKeysRemoved)
        assert reply.segment == table
        assert client.get(table, b"a", b"b") == [(b"a", b"", -1), (b"b", b"2", second)]
        (third,) = client.put(table, (b"a", b"again", ABSENT))
        assert third > second


def test_clause_29_read(released_socket: Open, table: str) -> None:
    with released_socket() as client:
        client.create_table(table)
        (version,) = client.put(table, (b"\0\xff", bytes(range(256)), ANY))
        assert client.get(table, b"no", b"\0\xff", b"no", b"\0\xff") == [
            (b"no", b"", -1),
            (b"\0\xff", bytes(range(256)), version),
            (b"no", b"", -1),
            (b"\0\xff", bytes(range(256)), version),
        ]
        assert client.get(table) == []


def test_clause_30_listing(released_socket: Open, table: str) -> None:
    """Every entry once, however many are asked for at a time; the token of the last page leads to an empty one."""
    expected = {b"%03d" % number: b"v%d" % number for number in range(25)}
    with released_socket() as client:
        client.create_table(table)
        versions = client.put(table, *((key, value, ANY) for key, value in expected.items()))
        keys: list[bytes] = []
        token = b""
        while True:
            message = released.ReadTableKeys(client.next_id(), table, "", 4, token)
            page = client.expect(released.TableKeysRead, message)
            if not page.keys:
                break
            keys += keys_of(page)
            token = page.continuation_token
        assert keys == list(expected)
        entries: list[TableEntry] = []
        token = b""
        while True:
            read = released.ReadTableEntries(client.next_id(), table, "", 10, token)
            more = client.expect(released.TableEntriesRead, read)
            if not more.entries:
                break
            entries += more.entries
            token = more.continuation_token
        assert rows(entries) == [(*pair, version) for pair, version in zip(expected.items(), versions, strict=True)]
        message = released.ReadTableKeys(client.next_id(), table, "", 100, b"", b"", b"003", b"006")
        assert keys_of(client.expect(released.TableKeysRead, message)) == [b"003", b"004", b"005", b"006"]


def delta(client: ReleasedSocket, table: str, position: int, count: int) -> released.TableEntriesDeltaRead:
    message = released.ReadTableEntriesDelta(client.next_id(), table, "", position, count)
    return client.expect(released.TableEntriesDeltaRead, message)


def test_clause_31_delta(released_socket: Open, table: str) -> None:
    """A synchronizer goes on from lastPosition until there is nothing more, and misses no change that is current."""
    with released_socket() as client:
        client.create_table(table)
        empty = delta(client, table, 0, 10)
        assert (empty.entries, empty.should_clear, empty.reached_end) == ((), False, True)
        client.put(table, *((b"%d" % number, b"old", ANY) for number in range(6)))
        newest = client.put(table, (b"2", b"new", ANY), (b"4", b"new", ANY))
        found: list[tuple[bytes, bytes, int]] = []
        position = 0
        for _ in range(20):
            page = delta(client, table, position, 2)
            assert page.last_position >= position
            assert len(page.entries) <= 2
            found += rows(page.entries)
            position = page.last_position
            if page.reached_end:
                break
        assert [key for key, _, _ in found] == [b"0", b"1", b"3", b"5", b"2", b"4"]
        assert [version for _, _, version in found] == sorted(version for _, _, version in found)
        assert delta(client, table, position, 10).entries == ()
        assert rows(delta(client, table, newest[0], 10).entries) == [
            (b"2", b"new", newest[0]),
            (b"4", b"new", newest[1]),
        ]
        client.put(table, (b"6", b"later", ANY))
        assert [row[0] for row in rows(delta(client, table, position, 10).entries)] == [b"6"]


def test_clause_32_info(released_socket: Open, table: str) -> None:
    with released_socket() as client:
        client.expect(released.SegmentCreated, released.CreateTableSegment(1, table, "", True, 2))
        client.put(table, (b"ab", b"1", ANY), (b"cd", b"2", ANY), (b"ab", b"3", ANY))
        info = client.expect(released.TableSegmentInfo, released.GetTableSegmentInfo(7, table))
        assert (info.request_id, info.segment, info.entry_count, info.key_length) == (7, table, 2, 2)
        assert 0 <= info.start_offset < info.length
        client.send(
            released.UpdateTableEntries(8, table, "", (TableEntry(TableKey(b"long"), b"v"),)),
        )
        reply = client.reply()
        assert isinstance(reply, released.ErrorMessage)
        assert reply.error_code == 0
        assert client.get(table, b"ab")[0][1] == b"3"


def test_clause_33_delete(released_socket: Open, table: str) -> None:
    with released_socket() as client:
        client.create_table(table)
        client.put(table, (b"k", b"v", ANY))
        reply = client.expect(released.TableSegmentNotEmpty, released.DeleteTableSegment(5, table, True))
        assert (reply.request_id, reply.segment) == (5, table)
        client.expect(released.TableKeysRemoved, released.RemoveTableKeys(6, table, "", (TableKey(b"k"),)))
        client.expect(released.SegmentDeleted, released.DeleteTableSegment(7, table, True))
        client.create_table(table)
        client.put(table, (b"k", b"v", ANY))
        client.expect(released.SegmentDeleted, released.DeleteTableSegment(8, table, False))
        client.expect(released.NoSuchSegment, released.ReadTable(9, table, "", (TableKey(b"k"),)))
        client.create_table(table)
        assert client.get(table, b"k") == [(b"k", b"", -1)]


def test_clause_34_the_table_must_end_there(released_socket: Open, table: str) -> None:
    with released_socket() as client:
        client.create_table(table)
        client.put(table, (b"k", b"v", ANY))
        length = client.expect(released.TableSegmentInfo, released.GetTableSegmentInfo(1, table)).length
        entries = (TableEntry(TableKey(b"k"), b"new"),)
        for message in (
            released.UpdateTableEntries(2, table, "", entries, length + 1),
            released.RemoveTableKeys(3, table, "", (TableKey(b"k"),), length + 1),
        ):
            client.send(message)
            reply = client.reply()
            assert not isinstance(reply, released.TableEntriesUpdated | released.TableKeysRemoved), reply
            assert reply.request_id == message.request_id
        assert client.get(table, b"k")[0][1] == b"v"
        client.expect(released.TableEntriesUpdated, released.UpdateTableEntries(4, table, "", entries, length))
        assert client.get(table, b"k")[0][1] == b"new"


@pytest.mark.slow
def test_a_table_survives(fresh_gateway: Any) -> None:
    """Acknowledged entries are there after `kill -9`, with their versions."""
    table = "scope/group_kvtable/0.#epoch.0"
    with ReleasedSocket(("127.0.0.1", fresh_gateway.segment_port)) as client:
        client.create_table(table)
        versions = client.put(table, (b"a", b"1", ABSENT), (b"b", b"2", ABSENT))
    fresh_gateway.restart(kill=True)
    with ReleasedSocket(("127.0.0.1", fresh_gateway.segment_port)) as client:
        assert client.get(table, b"a", b"b") == [(b"a", b"1", versions[0]), (b"b", b"2", versions[1])]
        (later,) = client.put(table, (b"a", b"3", versions[0]))
        assert later > versions[1]
