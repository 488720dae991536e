"""The draft dialect by the fifteen readings of the segment fact sheet, section 2."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from support.segment.client import DraftSocket, ReleasedSocket, bytes_of, header

from penstock_codecs.segment import append_messages, draft, join_events, released

Open = Callable[..., DraftSocket]
Begin, End, Event, Part = draft.BeginAppendBlock, draft.EndAppendBlock, draft.Event, draft.PartialKind
WRITER, OTHER = UUID(int=1), UUID(int=2)
HELLO, WORLDWIDE = join_events([b"hello"]), join_events([b"worldwide"])


@pytest.fixture
def stored(draft_socket: Open, segment: str) -> Callable[[], bytes]:
    """Creates the segment, and gives what it holds."""
    with draft_socket() as client:
        client.create(segment)

    def content() -> bytes:
        with draft_socket() as client:
            return client.content(segment)

    return content


def test_reading_1_type_ids(draft_socket: Open, stored: Callable[[], bytes], segment: str) -> None:
    """A conversation byte by byte, with the released ids."""
    name = len(segment).to_bytes(2, "big") + segment.encode()
    connection = WRITER.bytes

    def message(type_id: int, *fields: bytes) -> bytes:
        return header(type_id, sum(map(len, fields))) + b"".join(fields)

    zero, thirteen = bytes(8), (13).to_bytes(8, "big")
    with draft_socket() as client:
        for said, heard in (
            (message(1, connection, name), message(2, name, connection, zero)),
            (
                message(3, connection, zero, (13).to_bytes(4, "big"))
                + message(0, b"hello")
                + message(4, connection, thirteen, (13).to_bytes(4, "big")),
                message(7, connection, thirteen),
            ),
            (
                message(9, name, zero, (1000).to_bytes(4, "big")),
                message(10, name, zero, b"\x80", HELLO),
            ),
            (message(100, b"any data"), message(100, b"any data")),
        ):
            client.send_bytes(said)
            client.socket.settimeout(5)
            received = b""
            while len(received) < len(heard):
                received += client.socket.recv(1000)
            assert received == heard
    assert stored() == HELLO


def test_reading_2_the_dialect(
    draft_socket: Open, released_socket: Callable[[], ReleasedSocket], raw_socket: Callable[[], Any], segment: str
) -> None:
    """By the first four bytes, on one port, and for good."""
    with draft_socket() as client:
        client.create(segment)
        client.send_bytes(bytes_of(released.Hello(16, 5)))
        assert client.ended()
    with released_socket() as client:
        assert client.info(segment).exists
        client.send_bytes(bytes_of(draft.SetupAppend(WRITER, segment)))
        assert client.ended()
    for at in (1, 2, 3):
        with raw_socket() as client:
            data = bytes_of(released.Hello(16, 5))
            client.send_bytes(data[:at])
            with draft_socket() as other:
                assert other.info(segment).exists
            client.send_bytes(data[at:])
            assert client.reply() == released.Hello(16, 5)


def test_reading_3_flags(draft_socket: Open, segment: str) -> None:
    """0x80 at the tail, 0x40 at the end; a read of all there is may have them or not, the last one has them."""

    def flags(offset: int, size: int) -> tuple[int, bytes]:
        client.send_bytes(bytes_of(draft.ReadSegment(segment, offset, size)))
        start = 8 + 2 + len(segment) + 8
        data = b""
        while len(data) < 8 or len(data) < 8 + int.from_bytes(data[4:8], "big"):
            data += client.socket.recv(1000)
        return data[start], data[start + 1 :]

    with draft_socket() as client:
        client.create(segment)
        client.setup(segment, WRITER)
        client.append(WRITER, 0, [b"hello", b"world"])
        assert flags(0, 13) == (0, HELLO)
        assert flags(13, 1000) == (0x80, join_events([b"world"]))
        client.seal(segment)
        last, rest = flags(26, 1000)
        assert (last & 0x40, last & 0x3F, rest) == (0x40, 0, b"")


BROKEN = {
    "Begin while one is open": bytes_of(draft.Partial(Part.BEGIN, b"\0")) * 2,
    "Middle without Begin": bytes_of(draft.Partial(Part.MIDDLE, b"\0")),
    "End without Begin": bytes_of(draft.Partial(Part.END, bytes_of(draft.KeepAlive()))),
    "an unknown part": header(-2, 2) + b"\x03\0",
    "a Partial without a part": header(-2, 0),
    "a Partial inside Partials": bytes_of(*draft.partials(draft.Partial(Part.BEGIN, bytes_of(draft.KeepAlive())), [5])),
    "an end before the message is whole": bytes_of(
        draft.Partial(Part.BEGIN, bytes_of(draft.KeepAlive(b"abc"))[:9]), draft.Partial(Part.END, b"b")
    ),
    "more than the message": bytes_of(
        draft.Partial(Part.BEGIN, bytes_of(draft.KeepAlive(b"abc"))), draft.Partial(Part.END, b"x")
    ),
    "an unknown type in Partials": bytes_of(draft.Partial(Part.BEGIN, header(99, 0)), draft.Partial(Part.END, b"")),
    "a reply in Partials": bytes_of(*draft.partials(draft.DataAppended(WRITER, 0), [9])),
    "an Event in Partials, outside a block": bytes_of(*draft.partials(Event(b"x"), [8])),
    "too long a message": bytes_of(draft.Partial(Part.BEGIN, header(100, 1 << 24))),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
def test_readings_4_and_5_partials_that_are_none(draft_socket: Open, data: bytes) -> None:
    with draft_socket() as client:
        client.send_bytes(bytes_of(draft.KeepAlive(b"before")) + data + bytes_of(draft.KeepAlive(b"behind")))
        assert client.reply() == draft.KeepAlive(b"before")
        assert client.ended()


def test_reading_5_any_message_in_partials(draft_socket: Open, segment: str) -> None:
    """Every request, cut at every place, other messages between the pieces; the reply comes where the End came."""
    requests: list[Any] = [
        released.CreateSegment(1, segment, 0, 0),
        draft.SetupAppend(WRITER, segment),
        draft.ReadSegment(segment, 0, 100),
        released.GetStreamSegmentInfo(2, segment),
        draft.KeepAlive(b"data"),
    ]
    with draft_socket() as client:
        client.create(segment)
        client.setup(segment, WRITER)
        client.append(WRITER, 0, [b"hello"])
        expected = {type(request): _reply(client, request) for request in requests}
        for request in requests:
            size = len(bytes_of(request))
            for cuts in [[cut] for cut in range(size + 1)] + [[0, 3, 9], list(range(1, size))]:
                first, *rest = draft.partials(request, cuts)
                said: list[Any] = [first]
                for part in rest:
                    said += [draft.KeepAlive(b"between"), part]
                client.send(*said)
                assert client.replies(len(rest)) == [draft.KeepAlive(b"between")] * len(rest)
                assert client.reply() == expected[type(request)]


def _reply(client: DraftSocket, request: Any) -> Any:
    client.send(request)
    return client.reply()


NOT_NOW = {
    "an Event outside a block": bytes_of(Event(b"x")),
    "an EndAppendBlock without a block": bytes_of(End(WRITER, 0, 0)),
    "a block of a connection that is not set up": bytes_of(Begin(OTHER, 0, 0)),
    "a block of a negative length": bytes_of(Begin(WRITER, 0, -1)),
    "a reply": bytes_of(draft.DataAppended(WRITER, 0)),
    "a released append": bytes_of(*append_messages(WRITER, [b"x"], 1, 1)),
    "a released set-up": bytes_of(released.SetupAppend(1, WRITER, "s")),
    "an unknown type": header(99, 0),
}


@pytest.mark.parametrize("data", NOT_NOW.values(), ids=NOT_NOW.keys())
def test_reading_11_what_is_not_allowed_now(draft_socket: Open, segment: str, data: bytes) -> None:
    with draft_socket() as client:
        client.create(segment)
        client.setup(segment, WRITER)
        client.send_bytes(data)
        assert client.ended()


@pytest.mark.parametrize("length", [1 << 24, 0x7FFFFFFF, 0xFFFFFFFF])
@pytest.mark.parametrize("type_id", [100, 9, -2])
def test_reading_12_lengths(draft_socket: Open, type_id: int, length: int) -> None:
    with draft_socket() as client:
        client.send_bytes(header(type_id, length))
        assert client.ended()


def test_reading_13_errors(draft_socket: Open, segment: str) -> None:
    """NoSuchSegment and SegmentIsSealed with nothing but the segment; the connection stays."""
    name = len(segment).to_bytes(2, "big") + segment.encode()
    with draft_socket() as client:
        for message in (draft.SetupAppend(WRITER, segment), draft.ReadSegment(segment, 0, 10)):
            client.send(message)
            wanted = header(53, len(name)) + name
            received = b""
            while len(received) < len(wanted):
                received += client.socket.recv(1000)
            assert received == wanted
        client.create(segment)
        client.setup(segment, WRITER)
        client.append(WRITER, 0, [b"hello"])
        client.seal(segment)
        client.send(*client.block(WRITER, 13, [b"world"]))
        assert client.reply() == draft.SegmentIsSealed(segment)
        assert client.content(segment) == HELLO


def test_reading_14_modified_utf_8(draft_socket: Open) -> None:
    """Names with it are read; that they have no counterpart ends the connection, since the draft has no words."""
    name = "a\0é😀"
    with draft_socket() as client:
        client.send_bytes(bytes_of(released.GetStreamSegmentInfo(1, name)))
        try:
            assert client.reply() == draft.NoSuchSegment(name)
        except EOFError:
            return


@pytest.mark.parametrize("size", [1, 7, 13, 100])
def test_reads(draft_socket: Open, segment: str, size: int) -> None:
    """A reply has at most the bytes that the read suggests, or 8; at the tail it waits, and later requests do not."""
    content = join_events([b"hello", b"", b"world" * 100])
    with draft_socket() as client, draft_socket() as other:
        client.create(segment)
        client.setup(segment, WRITER)
        client.append(WRITER, 0, [b"hello", b"", b"world" * 100])
        assert client.read_bytes(segment, 0, len(content)) == content
        found = b""
        while len(found) < len(content):
            data = client.read(segment, len(found), size).data
            assert len(data) <= max(size, 8)
            found += data
        assert found == content
        client.send(draft.ReadSegment(segment, len(content), size), draft.KeepAlive(b"meanwhile"))
        assert client.reply() == draft.KeepAlive(b"meanwhile")
        other.setup(segment, OTHER)
        other.append(OTHER, 0, [b"more"])
        reply = client.reply()
        assert reply.data == join_events([b"more"])[: max(size, 8)]


def test_reading_15_administration(draft_socket: Open, segment: str) -> None:
    """With the released layouts, request ids and all."""
    with draft_socket() as client:
        client.create(segment)
        client.send(released.CreateSegment(5, segment, 0, 0))
        reply = client.reply()
        assert isinstance(reply, released.SegmentAlreadyExists)
        assert (reply.request_id, reply.segment) == (5, segment)
        client.setup(segment, WRITER)
        client.append(WRITER, 0, [b"hello", b"world"])
        client.truncate(segment, 13)
        client.seal(segment)
        info = client.info(segment)
        assert (info.start_offset, info.write_offset, info.is_sealed) == (13, 26, True)
        assert client.read(segment, 13).data == join_events([b"world"])
        client.delete(segment)
        client.send(released.GetStreamSegmentInfo(6, segment))
        assert client.reply() == draft.NoSuchSegment(segment)
