"""Message orders that the draft forbids, at both ends, and messages beside blocks."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest
from support.segment.draft_blocks import HELLO, OTHER, READ, Begin, End, Event, KeepAlive, begin, data, end
from support.segment.messages import WRITER, joined, pull, ready_client

from penstock.model.failures import LocalProtocolError
from penstock.wire import conformance
from penstock_pravega.codec import Dialect, SegmentClient, SegmentLimits, SegmentServer, draft, released
from penstock_pravega.codec.encoder import Fill

ONE = draft.partials(Event(b"worldwide"), [6])
TWO = draft.partials(Event(b"worldwide"), [1, 9])


def raw(*parts: Any) -> bytes:
    """Bytes of messages without a client that minds what it says; bytes as they are."""
    return b"".join(part if isinstance(part, bytes) else joined(part) for part in parts)


WRONG: dict[str, tuple[bytes, str]] = {
    "event outside": (raw(Event(b"x")), "Event is not allowed outside a block"),
    "event in parts outside": (raw(*ONE), "Event is not allowed outside a block"),
    "end without begin": (raw(end(0)), "EndAppendBlock is not allowed outside a block"),
    "begin in a block": (raw(begin(100), begin(100)), "BeginAppendBlock inside a block, which has 100 bytes left"),
    "end too early": (raw(begin(50), Event(b"hello"), end(13)), "EndAppendBlock inside a block, which has 37 bytes"),
    "end too late": (raw(begin(13), Event(b"hello"), Event(b"x")), "Event is not allowed behind the last byte of a"),
    "read in a block": (raw(begin(50), READ), "ReadSegment inside a block"),
    "event longer than the block": (raw(begin(12), Event(b"hello")), "Event of 5 bytes in a block, which has 12"),
    "partial longer than the block": (raw(begin(14), ONE[0]), "Partial of 7 bytes in a block, which has 14"),
    "crumbs at the end": (raw(begin(16), Event(b"hello"), b"\0\0\1"), "3 bytes at the end of a block are neither"),
    "of another": (raw(begin(0), End(OTHER, 0, 0)), f"EndAppendBlock of connection {OTHER} in a block of {WRITER}"),
    "end at another offset": (
        raw(begin(13), Event(b"hello"), End(WRITER, 14, 13)),
        r"EndAppendBlock at connection offset 14, 0 \+ 13 was expected",
    ),
    "fewer than came": (raw(begin(13), Event(b"hello"), end(8)), "leaves -5 bytes of the block's length"),
    "more than came": (raw(begin(13), Event(b"hello"), end(14)), "leaves 1 bytes of the block's length"),
    "more empty events than zeros": (raw(begin(20), Event(b"hello"), bytes(7), end(21)), "EndAppendBlock leaves 8"),
    "no whole empty events": (raw(begin(23), Event(b"hello"), bytes(10), end(17)), "EndAppendBlock leaves 4 bytes"),
    "rest longer": (raw(begin(28), Event(b"hello"), ONE[0], end(29), ONE[1]), "leaves -1 bytes"),
    "rest shorter": (raw(begin(28), Event(b"hello"), ONE[0], end(38), ONE[1]), "leaves 8 bytes"),
    "a block before the rest": (
        raw(begin(15), ONE[0], end(17), begin(0, 17)),
        "BeginAppendBlock is not allowed before",
    ),
    "an event before the rest": (raw(begin(15), ONE[0], end(17), Event(b"x")), "Event is not allowed before the rest"),
    "not set up": (raw(Begin(OTHER, 0, 0)), f"BeginAppendBlock of connection {OTHER}, which is not set up"),
    "ahead": (raw(begin(0, 5)), "BeginAppendBlock at connection offset 5, 0 was expected"),
    "behind": (raw(begin(13), Event(b"hello"), end(13), begin(0)), "at connection offset 0, 13 was expected"),
    "negative length": (raw(begin(-1)), "BeginAppendBlock with a length of -1"),
    "begin twice": (raw(ONE[0], ONE[0]), r"Partial \(Begin\) while another message is incomplete"),
    "middle without begin": (raw(TWO[1]), r"Partial \(Middle\) without a Begin"),
    "end of nothing": (raw(ONE[1]), r"Partial \(End\) without a Begin"),
    "a part of unknown kind": (raw(b"\xff\xff\xff\xfe\0\0\0\1\3"), r"Partial.part: 3 is none of .* \(byte 37\)"),
    "nested": (raw(*draft.partials(ONE[0], [9])), "a Partial inside Partials"),
    "parts that end early": (
        raw(ONE[0], draft.Partial(draft.PartialKind.END, b"")),
        "end after 6 bytes, in the middle",
    ),
    "parts that go on": (
        raw(ONE[0], draft.Partial(draft.PartialKind.END, bytes(20))),
        "have 26 bytes of a message of 8",
    ),
    "parts of nothing known": (raw(*draft.partials(KeepAlive(b"x"), [9])).replace(b"\0\0\0\x64", b"\0\0\0\x63"), "99"),
    "parts of too much": (
        raw(draft.Partial(draft.PartialKind.BEGIN, b"\0\0\0\x64\1\0\0\0")),
        "message of 16777216 bytes",
    ),
    "a reply": (raw(draft.DataAppended(WRITER, 1)), "DataAppended is not for the client to send"),
    "an end in parts": (raw(*draft.partials(end(0), [9])), "EndAppendBlock is not allowed outside a block"),
    "a request in parts where the end must stand": (
        raw(begin(13), Event(b"hello"), *draft.partials(READ, [9])),
        "ReadSegment is not allowed behind the last byte of a block",
    ),
    "an event in parts where the end must stand": (raw(begin(0), *ONE), "Event is not allowed before the rest of End"),
    "the rest of an event where the end must stand": (
        raw(begin(15), *ONE),
        "rest of a message in Partials is not allowed behind the last byte",
    ),
    "a whole end before the rest of one": (
        raw(begin(0), draft.partials(end(0), [9])[0], end(0)),
        "EndAppendBlock is not allowed before the rest of EndAppendBlock",
    ),
    "a reply in parts": (raw(*draft.partials(draft.DataAppended(WRITER, 1), [9])), "is not for the client to send"),
    "Hello": (raw(released.Hello(16, 5)), "unknown message type -127"),
    "a released message": (raw(released.ConditionalCheckFailed(WRITER, 1)), "unknown message type 8"),
    "unknown": (raw(b"\0\0\0\x63\0\0\0\0"), r"unknown message type 99 \(byte 29\)"),
    "too long": (raw(b"\0\0\0\x64\1\0\0\0"), r"KeepAlive of 16777216 bytes, at most 16777215 .* \(byte 33\)"),
    "far too long": (raw(b"\0\0\0\x64\xff\xff\xff\xff"), "KeepAlive of 4294967295 bytes"),
    "short": (raw(b"\0\0\0\x09\0\0\0\1\0"), r"ReadSegment.segment: 2 bytes are needed and 1 are left \(byte 37\)"),
    "a name too long": (raw(b"\0\0\0\x09\0\0\x04\x10\x04\x01" + b"n" * 1038), "a name of 1025 bytes, at most 1024"),
    "begin without end": (raw(begin(13), Event(b"hello")), "the connection ended inside a block, behind the last byte"),
    "half a block": (raw(begin(26), Event(b"hello")), "the connection ended inside a block, inside a block"),
    "half a message": (raw(READ)[:-1], "the connection ended 24 bytes into a message"),
    "parts without an end": (raw(ONE[0]), "the connection ended inside a message in Partials"),
    "no rest": (raw(begin(15), ONE[0], end(17)), "ended inside a block, before the rest of a block's last event"),
}


@pytest.mark.parametrize(("said", "error"), [pytest.param(*wrong, id=name) for name, wrong in WRONG.items()])
def test_what_is_wrong(said: bytes, error: str) -> None:
    def make() -> SegmentServer:
        return ready_client()[1]

    _, ending = conformance.trace(make, [said])
    assert ending.startswith("error")
    assert re.search(error, ending), ending
    conformance.cut_anywhere(make, said, range(len(said)))


def test_a_server_refuses_a_block_before_it_has_set_up() -> None:
    """The seed: only valid after SetupAppend has already been done successfully."""
    server = SegmentServer()
    server.receive(raw(draft.SetupAppend(WRITER, "seg"), begin(0)))
    events, ending = conformance.trace(lambda: server, [b"\0"])
    assert len(events) == 1 and "which is not set up" in ending


def test_a_connection_resumes_where_the_server_says() -> None:
    client, server = ready_client(level=40)
    with pytest.raises(LocalProtocolError, match="at connection offset 0, 40 was expected"):
        client.send(begin(0))
    server.receive(b"".join(client.send(begin(0, 40))))
    assert pull(server) == [begin(0, 40)]


def test_as_many_writers_as_are_allowed() -> None:
    server = SegmentServer(SegmentLimits(max_writers=1))
    server.receive(raw(*[draft.SetupAppend(UUID(int=i), "seg") for i in (1, 1, 2)]))
    events, ending = conformance.trace(lambda: server, [b"\0"])
    assert len(events) == 2 and "more than 1 writers" in ending


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ([Event(b"x")], "Event is not allowed outside a block"),
        ([Fill(1)], "padding is not allowed outside a block"),
        ([begin(1), Fill(2)], "padding of 2 bytes, 1 are left in the block"),
        ([begin(20), data(HELLO[:-1])], "BlockData: no whole event at byte 0"),
        ([begin(20), data(HELLO + b"\0\0\0\1\0\0\0\0")], "BlockData: no whole event at byte 13"),
        ([begin(20), data(HELLO + b"\0\0")], "BlockData: no whole event at byte 13"),
        ([begin(20), data(HELLO), end(13)], "EndAppendBlock is not allowed inside a block"),
        ([Begin(OTHER, 0, 0)], "which is not set up"),
        ([ONE[1]], "without a Begin"),
        ([*ONE], "Event is not allowed outside a block"),
        (draft.partials(draft.DataAppended(WRITER, 1), [9]), "DataAppended must not be sent by this side"),
        (draft.partials(end(0), [9]), "EndAppendBlock is not allowed outside a block"),
        ([draft.Partial(draft.PartialKind.BEGIN, b"\0\0\0\x63"), draft.Partial(draft.PartialKind.END, bytes(4))], "99"),
        ([draft.DataAppended(WRITER, 1)], "DataAppended must not be sent by this side"),
        ([released.Hello(16, 5)], "Hello is not a message of the draft dialect"),
        (["x"], "str is not a message of the draft dialect"),
    ],
)
def test_what_a_client_does_not_say(said: list[Any], error: str) -> None:
    client, _ = ready_client()
    for message in said[:-1]:
        client.send(message)
    with pytest.raises(LocalProtocolError, match=error):
        client.send(said[-1])


def test_replies_in_parts() -> None:
    client, server = ready_client()
    reply = draft.SegmentRead("seg", 5, draft.Flags(at_end=True), b"x" * 100)
    parts = draft.partials(reply, [1, 30])
    said = b"".join(piece for part in [parts[0], KeepAlive(b""), *parts[1:]] for piece in server.send(part))
    for byte in said[:-1]:
        client.receive(bytes([byte]))
    assert pull(client) == [KeepAlive(b"")]
    client.receive(said[-1:])
    assert pull(client) == [reply]
    with pytest.raises(LocalProtocolError, match="without a Begin"):
        server.send(parts[1])


def test_a_message_without_a_body_in_parts() -> None:
    client, server = ready_client()
    server.receive(raw(*(piece for part in draft.partials(KeepAlive(b""), [4]) for piece in client.send(part))))
    assert pull(server) == [KeepAlive(b"")]


def test_what_a_server_does_not_say() -> None:
    with pytest.raises(LocalProtocolError, match="no reply can precede the client's first message"):
        SegmentServer().send(draft.KeepAlive())
    _, server = ready_client()
    for message, error in [
        (draft.AppendSetup("seg", OTHER, 0), "did not ask for it"),
        (READ, "ReadSegment must not be sent by this side"),
        (released.Hello(16, 5), "not a message of the draft dialect"),
    ]:
        with pytest.raises(LocalProtocolError, match=error):
            server.send(message)


def test_administration_has_the_released_layouts() -> None:
    """Reading 15."""
    client, server = ready_client()
    asked = [
        released.CreateSegment(1, "seg", 0, 0),
        released.GetStreamSegmentInfo(2, "seg"),
        released.SealSegment(3, "seg"),
        released.TruncateSegment(4, "seg", 13),
        released.DeleteSegment(5, "seg"),
    ]
    server.receive(b"".join(piece for message in asked for piece in client.send(message)))
    assert pull(server) == asked
    answers = [
        released.SegmentAlreadyExists(1, "seg"),
        released.StreamSegmentInfo(2, "seg", True, False, False, 0, 13, 0),
        released.SegmentSealed(3, "seg"),
        released.SegmentTruncated(4, "seg"),
        released.SegmentDeleted(5, "seg"),
        draft.NoSuchSegment("seg"),
        draft.SegmentIsSealed("seg"),
        draft.WrongHost("seg", "elsewhere:12345"),
    ]
    client.receive(b"".join(piece for message in answers for piece in server.send(message)))
    assert pull(client) == answers


def test_a_client_that_did_not_ask_is_not_set_up() -> None:
    client = SegmentClient(Dialect.DRAFT)
    events, ending = conformance.trace(lambda: client, [raw(draft.AppendSetup("seg", WRITER, 0))])
    assert events == () and "did not ask for it" in ending


@pytest.mark.parametrize("offset", [0, 1000])
def test_an_observer_takes_a_writers_first_block_at_any_offset(offset: int) -> None:
    server = SegmentServer(observer=True)
    server.receive(raw(draft.SetupAppend(WRITER, "seg"), begin(13, offset), Event(b"hello"), end(13, offset)))
    assert [type(event).__name__ for event in pull(server)] == [
        "SetupAppend",
        "BeginAppendBlock",
        "BlockData",
        "EndAppendBlock",
    ]
