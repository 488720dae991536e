"""Frames, Hello, keep-alive and request ids of the released dialect (segment fact sheet, 1.1 and 1.2)."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from support.segment.client import ReleasedSocket, SegmentSocket, bytes_of, header

from penstock_codecs.limits import MIB
from penstock_codecs.segment import TableEntry, TableKey, append_messages, join_events, released

Open = Callable[..., ReleasedSocket]
Raw = Callable[[], SegmentSocket]
KEEP_ALIVE = bytes_of(released.KeepAlive())

NO_MESSAGES = {
    "an unknown type": header(6, 0),
    "a retired type": header(72, 0),
    "a type of the server's": bytes_of(released.SegmentCreated(1, "s")),
    "a type that stands in blocks only": header(-1, 0),
    "a negative length": header(11, -1),
    "a short body": header(11, 5) + bytes(5),
    "a name that is longer than its message": header(11, 12) + bytes(8) + b"\x00\x05ab",
    "a name that is no modified UTF-8": header(11, 12) + bytes(8) + b"\x00\x02\xff\xff",
    "a name of 1,025 bytes": header(11, 1037) + bytes(8) + b"\x04\x01" + b"x" * 1025 + b"\0\0",
    "a negative count": header(90, 19) + bytes(8) + b"\0\1s" + b"\xff" * 4 + bytes(4),
    "a draft message": bytes.fromhex("0000000300000001") + b"\0",
}


@pytest.mark.parametrize("data", NO_MESSAGES.values(), ids=NO_MESSAGES.keys())
def test_clause_1_what_is_no_message_ends_the_connection(released_socket: Open, data: bytes) -> None:
    """Messages before it are answered, later ones are not."""
    with released_socket() as client:
        client.send_bytes(KEEP_ALIVE + data + KEEP_ALIVE)
        assert client.reply() == released.KeepAlive()
        assert client.ended()


@pytest.mark.parametrize("type_id", [3, 4, 100])
def test_clause_2_a_length_is_refused_before_the_body_comes(released_socket: Open, type_id: int) -> None:
    with released_socket() as client:
        client.send_bytes(header(type_id, 1 << 24))
        assert client.ended()


def test_clause_3_surplus_bytes(released_socket: Open, segment: str) -> None:
    with released_socket() as client:
        body = bytes_of(released.CreateSegment(7, segment, 0, 0))[8:] + b"surplus"
        client.send_bytes(header(20, len(body)) + body)
        assert client.reply() == released.SegmentCreated(7, segment)


def test_clause_4_short_forms(released_socket: Open, segment: str) -> None:
    """Fields that the Rust and Python clients leave out; a message without a request id is answered with -1."""
    writer = uuid4()
    with released_socket() as client:
        client.send_bytes(
            bytes_of(
                released.CreateSegment(1, segment, 0, 0),
                released.CreateTableSegment(2, f"{segment}-table"),
                released.SetupAppend(3, writer, segment),
                *append_messages(writer, [b"hello"], 1, -1),
                released.ConditionalAppend(writer, 2, 13, b"x"),
                tail=False,
            )
        )
        created, table, setup, appended, conditional = client.replies(5)
        client.send_bytes(bytes_of(released.ReadSegment(segment, 0, 100), tail=False))
        read = client.reply()
    assert created == released.SegmentCreated(1, segment)
    assert table == released.SegmentCreated(2, f"{segment}-table")
    assert setup.request_id == 3
    assert (appended.event_number, appended.request_id) == (1, -1)
    assert (conditional.event_number, conditional.request_id) == (2, -1)
    assert read == released.SegmentRead(segment, 0, True, False, join_events([b"hello", b"x"]), -1)


def test_clause_5_an_event_of_8_mib(released_socket: Open, segment: str) -> None:
    """As pravega 0.3.8 sends it; and two of them at once, as Java's batches have them."""
    event = bytes(range(256)) * (8 * MIB // 256)
    with released_socket() as client:
        client.create(segment)
        writer = client.writer(segment)
        assert client.append(writer, [event], 1).current_segment_write_offset == 8 * MIB + 8
        client.append_raw(writer, join_events([event[:-50], event[:-80]]), 3)
        assert client.content(segment) == join_events([event, event[:-50], event[:-80]])


# ---- 1.2 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [5, 6, 11, 14, 15, 16, 17, 20])
def test_clause_6_hello(released_socket: Open, version: int) -> None:
    with released_socket(version=version) as client:
        assert client.hello == released.Hello(16, 5)


@pytest.mark.parametrize(("high", "low"), [(4, 1), (20, 17), (5, 16)])
def test_clause_7_versions_that_do_not_overlap(raw_socket: Raw, high: int, low: int) -> None:
    """Our Hello may come first, as the real server's does; then the end."""
    with raw_socket() as client:
        client.send_bytes(bytes_of(released.Hello(high, low)) + KEEP_ALIVE)
        received = b""
        while data := client.socket.recv(100):
            received += data
        assert received in (b"", bytes_of(released.Hello(16, 5)))


def test_clause_8_a_client_need_not_wait(raw_socket: Raw, segment: str) -> None:
    """The whole of a conversation in one write, Hello first."""
    writer = uuid4()
    said = [
        released.Hello(16, 5),
        released.KeepAlive(),
        released.CreateSegment(1, segment, 0, 0),
        released.SetupAppend(2, writer, segment),
        *append_messages(writer, [b"hello"], 1, 3),
        released.ReadSegment(segment, 0, 100, "", 4),
    ]
    with raw_socket() as client:
        client.send_bytes(bytes_of(*said))
        *kinds, appended, read = (type(reply) for reply in client.replies(6))
    assert kinds == [released.Hello, released.KeepAlive, released.SegmentCreated, released.AppendSetup]
    assert {appended, read} == {released.DataAppended, released.SegmentRead}


def test_clause_9_hello_comes_once(released_socket: Open) -> None:
    with released_socket() as client:
        client.send_bytes(bytes_of(released.Hello(16, 5)))
        assert client.ended()


def test_clause_10_keep_alive(released_socket: Open, segment: str) -> None:
    """Each is echoed, in any state of the connection, also while a read waits."""
    with released_socket() as client:
        client.new(segment)
        client.send(*[released.KeepAlive()] * 3)
        assert client.replies(3) == [released.KeepAlive()] * 3
        client.send(released.ReadSegment(segment, 0, 100, "", 1), released.KeepAlive())
        assert client.reply() == released.KeepAlive()


def test_clause_11_request_ids(released_socket: Open, segment: str) -> None:
    """All 64 bits of it, of every request in which the reply has one."""
    writer, attribute, table, other = uuid4(), uuid4(), f"{segment}-table", f"{segment}-no"
    ids = iter(range(-(1 << 63), 0, 1 << 58))
    said = [
        released.CreateSegment(next(ids), segment, 0, 0),
        released.CreateSegment(next(ids), segment, 0, 0),
        released.GetStreamSegmentInfo(next(ids), segment),
        released.GetStreamSegmentInfo(next(ids), other),
        released.UpdateSegmentPolicy(next(ids), segment, 0, 0),
        released.UpdateSegmentAttribute(next(ids), segment, attribute, 1, -(1 << 63)),
        released.GetSegmentAttribute(next(ids), segment, attribute),
        released.SetupAppend(next(ids), writer, segment),
        released.ReadSegment(other, 0, 10, "", next(ids)),
        released.ReadSegment(segment, -1, 10, "", next(ids)),
        released.CreateTableSegment(next(ids), table),
        released.GetTableSegmentInfo(next(ids), table),
        released.UpdateTableEntries(next(ids), table, "", (TableEntry(TableKey(b"k"), b"v"),)),
        released.UpdateTableEntries(next(ids), table, "", (TableEntry(TableKey(b"k", -1), b"v"),)),
        released.ReadTable(next(ids), table, "", (TableKey(b"k"),)),
        released.ReadTableKeys(next(ids), table, "", 1, b""),
        released.ReadTableEntries(next(ids), table, "", 1, b""),
        released.ReadTableEntriesDelta(next(ids), table, "", 0, 1),
        released.DeleteTableSegment(next(ids), table, True),
        released.RemoveTableKeys(next(ids), table, "", (TableKey(b"k"),)),
        released.DeleteTableSegment(next(ids), table, False),
        released.TruncateSegment(next(ids), segment, 0),
        released.CreateTransientSegment(next(ids), writer, segment),
        released.SealSegment(next(ids), segment),
        released.SealSegment(next(ids), other),
        released.LocateOffset(next(ids), segment, 0),
        released.DeleteSegment(next(ids), segment),
        released.DeleteSegment(next(ids), segment),
    ]
    with released_socket() as client:
        for message in said:  # a client need not wait; but then replies need not come in the order of requests
            client.send(message)
            assert client.reply().request_id == message.request_id, message


@pytest.mark.parametrize("version", [15, 16])
def test_clause_12_invalid_event_number(released_socket: Open, segment: str, version: int) -> None:
    """As bytes: before version 16 it has no request id, and the trace comes last."""
    with released_socket(version=version) as client:
        client.create(segment)
        writer = client.writer(segment)
        client.append(writer, [b"x"], 5)
        client.send(*append_messages(writer, [b"x"], 5, 99))
        data = b""
        while more := client.socket.recv(1000):
            data += more
    assert data[:8] == header(55, len(data) - 8)
    assert data[8:24] == writer.bytes
    five, request = (5).to_bytes(8, "big"), (99).to_bytes(8, "big")
    if version == 15:
        assert data[24:32] == five
        trace = data[32:]
    else:
        assert data[24:32] == request
        assert data[-8:] == five
        trace = data[32:-8]
    assert int.from_bytes(trace[:2], "big") == len(trace) - 2
