"""Segments: creation, state, sealing, truncation, attributes, merges (segment fact sheet, 1.3)."""

import time
from collections.abc import Callable
from uuid import uuid4

import pytest
from support.s2.client import S2Client
from support.segment.client import NO_ATTRIBUTE, UNKNOWN_WRITER, ReleasedSocket

from penstock_codecs.segment import MergeAttributeUpdate, SegmentMessage, join_events, released

Open = Callable[..., ReleasedSocket]
REPLACE, REPLACE_IF_GREATER, ACCUMULATE, REPLACE_IF_EQUALS = 1, 2, 3, 4


def test_clause_13_create(released_socket: Open, shared_basin: S2Client, segment: str) -> None:
    """The stream is there for the clients of other protocols; a stream that they made is a segment that exists."""
    stream = segment.split("/")[1]
    with released_socket() as client:
        client.create(segment)
        client.send(released.CreateSegment(5, segment, 100, 2, "token", 1 << 30))
        reply = client.reply()
        assert isinstance(reply, released.SegmentAlreadyExists)
        assert (reply.request_id, reply.segment) == (5, segment)
        assert shared_basin.tail(stream)["seq_num"] == 0
        made = shared_basin.ensure_stream(f"{stream}-made")
        client.send(released.CreateSegment(6, segment.replace(stream, made), 0, 0))
        assert isinstance(client.reply(), released.SegmentAlreadyExists)


def test_clause_14_info(released_socket: Open, segment: str) -> None:
    before = time.time_ns() // 1_000_000
    with released_socket() as client:
        client.create(segment)
        info = client.info(segment)
        assert info == released.StreamSegmentInfo(
            info.request_id, segment, True, False, False, info.last_modified, 0, 0
        )
        client.append(client.writer(segment), [b"hello", b"world"], 2)
        client.truncate(segment, 13)
        client.seal(segment)
        info = client.info(segment)
        assert (info.exists, info.is_sealed, info.is_deleted) == (True, True, False)
        assert (info.start_offset, info.write_offset) == (13, 26)
        assert before <= info.last_modified <= time.time_ns() // 1_000_000


def test_clause_15_seal(released_socket: Open, shared_basin: S2Client, segment: str) -> None:
    """Nothing can be appended any more, by any protocol; sealing again is no error."""
    with released_socket() as client:
        client.new(segment, b"hello")
        client.seal(segment)
        client.seal(segment)
        assert client.info(segment).is_sealed
        assert client.content(segment) == join_events([b"hello"])
    stream = segment.split("/")[1]
    answer = shared_basin.append_json(stream, {"records": [{"body": "x"}]})
    assert answer.status // 100 == 4, answer
    assert shared_basin.bodies(stream, seq_num=0) == ["hello"]


def test_clause_16_delete(released_socket: Open, shared_basin: S2Client, segment: str) -> None:
    with released_socket() as client:
        client.new(segment, b"hello")
        client.delete(segment)
        no_such(client, released.GetStreamSegmentInfo(3, segment))
        client.create(segment)
        assert client.info(segment).write_offset == 0


def test_clause_17_policy(released_socket: Open, segment: str) -> None:
    """It is taken and changes nothing: segments are not scaled here."""
    with released_socket() as client:
        client.create(segment)
        reply = client.expect(released.SegmentPolicyUpdated, released.UpdateSegmentPolicy(4, segment, 10, 1))
        assert reply == released.SegmentPolicyUpdated(4, segment)


def test_clause_18_attributes(released_socket: Open, segment: str) -> None:
    one, two = uuid4(), uuid4()
    with released_socket() as client:
        client.create(segment)
        assert client.attribute(segment, one) == NO_ATTRIBUTE
        assert not client.set_attribute(segment, one, 5, expected=4)
        assert client.set_attribute(segment, one, 5)
        assert not client.set_attribute(segment, one, 6)
        assert client.set_attribute(segment, one, -6, expected=5)
        assert client.attribute(segment, one) == -6
        assert client.attribute(segment, two) == NO_ATTRIBUTE
        assert client.set_attribute(segment, one, NO_ATTRIBUTE, expected=-6)
        assert client.attribute(segment, one) == NO_ATTRIBUTE
        writer = client.writer(segment)
        client.append(writer, [b"x"], 7)
        assert client.attribute(segment, writer) == 7  # a writer's number is one of them


@pytest.mark.parametrize("offset", [0, 5, 13, 20, 26])
def test_clause_19_truncate(released_socket: Open, shared_basin: S2Client, segment: str, offset: int) -> None:
    """Also inside an event, which stays whole for protocols of records; never backwards."""
    content = join_events([b"hello", b"world"])
    with released_socket() as client:
        client.new(segment, b"hello", b"world")
        client.truncate(segment, offset)
        client.truncate(segment, 0)
        info = client.info(segment)
        assert (info.start_offset, info.write_offset) == (offset, 26)
        assert client.content(segment) == content[offset:]
        client.append(client.writer(segment), [b"!"], 1)
        assert client.info(segment).write_offset == 35
    bodies = shared_basin.bodies(segment.split("/")[1], seq_num=0)
    assert bodies == ["hello", "world", "!"][offset // 13 :]


def test_clause_19_truncate_beyond_the_end(released_socket: Open, segment: str) -> None:
    with released_socket() as client:
        client.new(segment, b"hello")
        client.send(released.TruncateSegment(8, segment, 14))
        assert client.reply() == released.SegmentIsTruncated(8, segment, 0, "", 14)
        assert client.content(segment) == join_events([b"hello"])


def transient(client: ReleasedSocket, parent: str, *pieces: bytes) -> str:
    """A transient segment with these bytes, as a large event is sent."""
    writer = uuid4()
    name = client.expect(released.SegmentCreated, released.CreateTransientSegment(1, writer, parent)).segment
    assert client.setup(name, writer) == UNKNOWN_WRITER
    offset = 0
    for number, piece in enumerate(pieces):
        message = released.ConditionalBlockEnd(writer, number, offset, piece, client.next_id())
        client.expect(released.DataAppended, message)
        offset += len(piece)
    return name


def test_clause_20_merge(released_socket: Open, shared_basin: S2Client, segment: str) -> None:
    """The bytes of a large event come in one piece behind what is there; attributes change with it or not at all."""
    event = join_events([b"large" * 300_000])
    writer, count, level = uuid4(), uuid4(), uuid4()
    with released_socket() as client:
        client.new(segment, b"first")
        source = transient(client, segment, event[:1_000_000], event[1_000_000:])
        assert source != segment
        assert client.info(source).write_offset == len(event)
        assert client.set_attribute(segment, count, 10)
        updates = (
            MergeAttributeUpdate(writer, REPLACE_IF_EQUALS, 5, NO_ATTRIBUTE),
            MergeAttributeUpdate(count, ACCUMULATE, 3, 0),
            MergeAttributeUpdate(level, REPLACE, 1, 0),
        )
        merged = client.expect(released.SegmentsMerged, released.MergeSegments(2, segment, source, "", updates))
        assert merged == released.SegmentsMerged(2, segment, source, 13 + len(event))
        assert client.content(segment) == join_events([b"first"]) + event
        assert [client.attribute(segment, one) for one in (writer, count, level)] == [5, 13, 1]
        no_such(client, released.GetStreamSegmentInfo(3, source))

        refused = transient(client, segment, join_events([b"not"]))
        for stale in (
            MergeAttributeUpdate(writer, REPLACE_IF_EQUALS, 6, 4),
            MergeAttributeUpdate(count, REPLACE_IF_GREATER, 13, 0),
        ):
            client.send(released.MergeSegments(4, segment, refused, "", (stale,)))
            assert not isinstance(client.reply(), released.SegmentsMerged)
        assert client.info(segment).write_offset == 13 + len(event)
        assert client.attribute(segment, count) == 13
    # What is larger than a record may be is there for the readers of records as raw pieces.
    found = shared_basin.read_proto(segment.split("/")[1], seq_num=1).records
    assert found[0].body == event[: len(found[0].body)]


def test_clause_21_merge_of_several(released_socket: Open, segment: str) -> None:
    with released_socket() as client:
        client.new(segment, b"0")
        sources = tuple(transient(client, segment, join_events([body])) for body in (b"one", b"two"))
        assert len(set(sources)) == 2
        merged = client.expect(released.SegmentsBatchMerged, released.MergeSegmentsBatch(9, segment, sources))
        assert (merged.request_id, merged.target) == (9, segment)
        assert [(one.source, one.new_target_write_offset) for one in merged.sources] == [
            (sources[0], 20),
            (sources[1], 31),
        ]
        assert client.content(segment) == join_events([b"0", b"one", b"two"])


def test_clause_22_locate(released_socket: Open, segment: str) -> None:
    """No released version has it, but who asks is told: the first event that begins at or behind the offset."""
    with released_socket() as client:
        client.new(segment, b"hello", b"world")
        for target, found in ((0, 0), (1, 13), (13, 13), (14, 26), (26, 26)):
            reply = client.expect(released.OffsetLocated, released.LocateOffset(5, segment, target))
            assert reply == released.OffsetLocated(5, segment, found)


def test_clause_23_what_is_for_the_administrator(released_socket: Open, segment: str) -> None:
    """Refused by name, and the connection goes on."""
    with released_socket() as client:
        for message in (released.FlushToStorage(0, "", 5), released.ListStorageChunks(segment, "", 5)):
            reply = client.expect(released.OperationUnsupported, message)
            assert (reply.request_id, reply.operation) == (5, type(message).__name__)


def no_such(client: ReleasedSocket, message: SegmentMessage) -> None:
    """Must be answered NoSuchSegment, with the request's id and segment."""
    reply = client.expect(released.NoSuchSegment, message)
    assert reply.request_id == message.request_id  # type: ignore[attr-defined]


def test_clause_24_no_such_segment(released_socket: Open, segment: str) -> None:
    """Of every request about a segment or table; the connection stays. A read's offset comes back."""
    table = f"{segment}-table"
    attribute = uuid4()
    with released_socket() as client:
        for message in (
            released.SetupAppend(1, attribute, segment),
            released.GetStreamSegmentInfo(2, segment),
            released.SealSegment(3, segment),
            released.DeleteSegment(4, segment),
            released.TruncateSegment(5, segment, 0),
            released.GetSegmentAttribute(6, segment, attribute),
            released.UpdateSegmentAttribute(7, segment, attribute, 1, NO_ATTRIBUTE),
            released.MergeSegments(8, segment, f"{segment}#transient.1"),
            released.UpdateSegmentPolicy(9, segment, 0, 0),
            released.GetTableSegmentInfo(11, table),
            released.DeleteTableSegment(12, table, False),
            released.UpdateTableEntries(13, table, "", ()),
            released.RemoveTableKeys(14, table, "", ()),
            released.ReadTable(15, table, "", ()),
            released.ReadTableKeys(16, table, "", 1, b""),
            released.ReadTableEntries(17, table, "", 1, b""),
            released.ReadTableEntriesDelta(18, table, "", 0, 1),
        ):
            no_such(client, message)
        client.send(released.ReadSegment(segment, 44, 10, "", 19))
        reply = client.reply()
        assert isinstance(reply, released.NoSuchSegment)
        assert (reply.request_id, reply.segment, reply.offset) == (19, segment, 44)


@pytest.mark.parametrize("name", ["", "a/b/c/d", "sp ace", "a\0é😀", "scope/", "x" * 1024])
def test_names_without_a_counterpart(released_socket: Open, name: str) -> None:
    """Refused with words; the connection stays, and nothing was created."""
    with released_socket() as client:
        for message in (released.CreateSegment(5, name, 0, 0), released.GetStreamSegmentInfo(5, name)):
            client.send(message)
            reply = client.reply()
            assert isinstance(reply, released.ErrorMessage | released.NoSuchSegment), reply
            assert reply.request_id == 5
        client.send(released.KeepAlive())
        assert client.reply() == released.KeepAlive()


def test_short_names(released_socket: Open, segment: str) -> None:
    """`scope/stream/0` and `scope/stream` mean segment 0 of epoch 0; the reply has the name that was said."""
    scope, stream, _ = segment.split("/")
    with released_socket() as client:
        client.new(segment, b"hello")
        for number, name in enumerate((f"{scope}/{stream}/0", f"{scope}/{stream}", stream)):
            info = client.info(name)
            assert (info.segment, info.write_offset) == (name, 13 + 8 * number)
            client.append(client.writer(name), [b""], 1)
            client.truncate(name, 0)
            assert client.read(name, 0).segment == name
        assert client.info(segment).write_offset == 13 + 3 * 8
