"""The released protocol: appends in every form, the order of messages, versions; client wired to server."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.segment.messages import MESSAGES, WRITER, joined, message_of, pull

from penstock.model.failures import LocalProtocolError
from penstock.wire import conformance
from penstock_pravega.codec import (
    BlockAppended,
    Dialect,
    Direction,
    SegmentClient,
    SegmentLimits,
    SegmentMessage,
    SegmentServer,
    append_messages,
    draft,
    join_events,
    released,
)
from penstock_pravega.codec.released_order import TRANSITIONS, ReleasedState

OTHER = UUID(int=7)
HELLO = released.Hello(16, 5)
SETUP = released.SetupAppend(1, WRITER, "seg")
Block, End = released.AppendBlock, released.AppendBlockEnd
EVENTS = [b"hello", b"worldwide"]
CONTENT = join_events(EVENTS)


def ready() -> tuple[SegmentClient, SegmentServer]:
    """Both ends, after Hello and SetupAppend."""
    client, server = SegmentClient(Dialect.RELEASED), SegmentServer()
    server.receive(b"".join([*client.send(HELLO), *client.send(SETUP)]))
    assert pull(server) == [HELLO, SETUP]
    assert server.dialect is Dialect.RELEASED
    answers = [HELLO, released.AppendSetup(1, "seg", WRITER, -(1 << 63))]
    client.receive(b"".join(piece for message in answers for piece in server.send(message)))
    assert pull(client) == answers
    return client, server


def block_end(data: bytes = b"", whole: int = 0, count: int = 1, last: int = 1) -> released.AppendBlockEnd:
    return End(WRITER, whole, data, count, last, 1)


FORMS = {
    "the end alone": append_messages(WRITER, EVENTS, 2, 1),
    "exact, without room": append_messages(WRITER, EVENTS, 2, 1, block_size=30, room=False),
    "exact, with room for a wrapper": append_messages(WRITER, EVENTS, 2, 1, block_size=30),
    "padding": append_messages(WRITER, EVENTS, 2, 1, block_size=300),
    "partial": append_messages(WRITER, EVENTS, 2, 1, block_size=20),
    "partial, header cut": append_messages(WRITER, EVENTS, 2, 1, block_size=14),
    "partial, nothing of it": append_messages(WRITER, EVENTS, 2, 1, block_size=13),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_an_append(form: str) -> None:
    client, server = ready()
    said = b"".join(piece for message in FORMS[form] for piece in client.send(message))
    expected = [BlockAppended(WRITER, CONTENT, 2, 2, 1)]
    server.receive(said)
    assert pull(server) == expected
    for cut in range(1, len(said)):
        _, server = ready()
        got = []
        for piece in (said[:cut], said[cut:]):
            server.receive(piece)
            got += pull(server)
        assert got == expected


def test_what_the_forms_are() -> None:
    """As in the table of `appends`, and the vectors."""
    sizes = {form: [len(getattr(message, "data", b"")) for message in messages] for form, messages in FORMS.items()}
    assert sizes == {
        "the end alone": [30],
        "exact, without room": [30, 0],
        "exact, with room for a wrapper": [38, 0],
        "padding": [308, 0],
        "partial": [28, 10],
        "partial, header cut": [22, 16],
        "partial, nothing of it": [21, 17],
    }


@pytest.mark.parametrize(("size", "room"), [(13, False), (31, False), (5, True)])
def test_forms_that_do_not_exist(size: int, room: bool) -> None:
    with pytest.raises(ValueError, match="block of"):
        append_messages(WRITER, EVENTS, 2, 1, block_size=size, room=room)


@examples(most=1000)
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=6), st.none() | st.integers(0, 200), st.data())
def test_any_append(bodies: list[bytes], size: int | None, data: st.DataObject) -> None:
    client, server = ready()
    if size is not None:
        size = max(size, len(join_events(bodies[:-1])))
    messages = append_messages(WRITER, bodies, 9, 4, block_size=size)
    said = b"".join(piece for message in messages for piece in client.send(message))
    got = []
    for piece in conformance.pieces_of(said, data.draw(st.lists(st.integers(0, 500), max_size=5))):
        server.receive(piece)
        got += pull(server)
    assert got == [BlockAppended(WRITER, join_events(bodies), len(bodies), 9, 4)]


def test_an_append_may_be_said_as_it_is_heard() -> None:
    client, server = ready()
    append = BlockAppended(WRITER, CONTENT, 2, 2, 1)
    server.receive(b"".join(client.send(append)))
    assert pull(server) == [append]


FREE = {
    direction: [
        cls
        for dialect, cls in MESSAGES
        if dialect is Dialect.RELEASED
        and cls.direction in (direction, Direction.BOTH)
        and cls not in (released.Hello, Block, End, released.ConditionalAppend, released.ConditionalBlockEnd)
    ]
    for direction in (Direction.REQUEST, Direction.REPLY)
}


@examples(most=300)
@given(st.lists(st.sampled_from(FREE[Direction.REQUEST]).flatmap(message_of), max_size=5))
def test_requests(messages: list[SegmentMessage]) -> None:
    client, server = ready()
    server.receive(b"".join(piece for message in messages for piece in client.send(message)))
    assert pull(server) == messages


@examples(most=300)
@given(st.lists(st.sampled_from(FREE[Direction.REPLY]).flatmap(message_of), max_size=5))
def test_replies(messages: list[SegmentMessage]) -> None:
    client, server = ready()
    client.receive(b"".join(piece for message in messages for piece in server.send(message)))
    assert pull(client) == messages


def test_conditional_appends() -> None:
    client, server = ready()
    said: list[Any] = [released.ConditionalAppend(WRITER, 1, 0, b"x", 3)]
    said += [released.ConditionalBlockEnd(WRITER, 2, 9, b"raw", 4)]
    server.receive(b"".join(piece for message in said for piece in client.send(message)))
    assert pull(server) == said


WRAPPED = b"\xff\xff\xff\xff\0\0\0\1\0"
WRONG: dict[str, tuple[bytes, str]] = {
    "hello twice": (joined(HELLO), "Hello is not allowed outside an append"),
    "not set up": (joined(Block(OTHER, b"")), f"AppendBlock of writer {OTHER}, which was not set up"),
    "the end, not set up": (joined(End(OTHER, 0, b"", 1, 1, 1)), f"AppendBlockEnd of writer {OTHER}, which was not"),
    "conditional, not set up": (joined(released.ConditionalAppend(OTHER, 1, 0, b"")), "ConditionalAppend of writer"),
    "raw conditional, not set up": (
        joined(released.ConditionalBlockEnd(OTHER, 1, 0, b"", 1)),
        "ConditionalBlockEnd of",
    ),
    "between": (joined(Block(WRITER, b""), released.KeepAlive()), "KeepAlive is not allowed between AppendBlock and"),
    "two blocks": (joined(Block(WRITER, b""), Block(WRITER, b"")), "AppendBlock is not allowed between"),
    "end of another": (
        joined(released.SetupAppend(1, OTHER, "s"), Block(WRITER, b""), End(OTHER, 0, b"", 1, 1, 1)),
        f"AppendBlockEnd of writer {OTHER} after an AppendBlock of {WRITER}",
    ),
    "more whole events than bytes": (joined(Block(WRITER, b"abc"), block_end(whole=4)), "is 4, the AppendBlock has 3"),
    "less than nothing": (joined(block_end(whole=-1)), "size_of_whole_events is -1"),
    "no events": (joined(block_end(count=0)), "number_of_events is 0, at least 1"),
    "data behind a full block": (joined(Block(WRITER, b"abc"), block_end(b"d", 3)), "has 1 bytes after an AppendBlock"),
    "data behind padding": (
        joined(Block(WRITER, WRAPPED), block_end(b"d")),
        "has 1 bytes after an AppendBlock without",
    ),
    "crumbs": (joined(Block(WRITER, b"abc"), block_end(whole=1)), "2 bytes behind the whole events of an AppendBlock"),
    "an event as wrapper": (joined(Block(WRITER, bytes(8)), block_end()), "message type 0 behind the whole events"),
    "a short wrapper": (
        joined(Block(WRITER, WRAPPED + b"\0"), block_end()),
        "of 1 bytes at the end of an Append.*, 2",
    ),
    "a long wrapper": (joined(Block(WRITER, WRAPPED[:-1]), block_end()), "of 1 bytes at the end of an AppendBlock, 0"),
    "backwards": (joined(block_end(last=5), block_end(last=4)), "event number 4 of writer .* after 5"),
    "conditional backwards": (joined(block_end(last=5), released.ConditionalAppend(WRITER, 4, 0, b"")), "4 of writer"),
    "an event": (joined(released.Event(b"")), "Event is not allowed outside an append"),
    "padding": (joined(released.Padding(1)), "Padding is not allowed outside an append"),
    "a partial event": (joined(released.PartialEvent(b"")), "PartialEvent is not allowed outside an append"),
    "a reply": (joined(released.SegmentSealed(1, "s")), "SegmentSealed is not for the client to send"),
    "a draft message": (joined(draft.SetupAppend(OTHER, "s")), "SetupAppend.writer_id: 16 bytes are needed"),
    "unknown": (b"\0\0\0\x0d\0\0\0\0", r"unknown message type 13 \(byte 55\)"),
    "negative length": (b"\0\0\0\x64\xff\xff\xff\xff", r"KeepAlive of -1 bytes, at most 16777215 are .* \(byte 59\)"),
    "too long": (b"\0\0\0\x64\1\0\0\0", "KeepAlive of 16777216 bytes, at most 16777215"),
    "short": (b"\0\0\0\x1c\0\0\0\x09" + bytes(9), r"SealSegment.segment: 2 bytes are needed and 1 are .* \(byte 71\)"),
    "a name too long": (
        b"\0\0\0\x1c\0\0\x08\0" + bytes(8) + b"\4\1" + bytes(2038),
        "a name of 1025 bytes, at most 1024",
    ),
    "a block without end": (joined(Block(WRITER, b"abc")), "ended inside an append: AppendBlockEnd is missing"),
    "half a message": (joined(SETUP)[:-1], "ended 38 bytes into a message"),
}
BEFORE = joined(HELLO, SETUP)


def test_where_the_errors_are_counted_from() -> None:
    assert len(BEFORE) == 16 + 39


@pytest.mark.parametrize(("said", "error"), [pytest.param(*wrong, id=name) for name, wrong in WRONG.items()])
def test_what_is_wrong(said: bytes, error: str) -> None:
    events, ending = conformance.trace(SegmentServer, [BEFORE + said])
    assert ending.startswith("error") and len(events) >= 2
    assert re.search(error, ending), ending
    conformance.cut_anywhere(SegmentServer, BEFORE + said, range(len(BEFORE + said)))


@pytest.mark.parametrize(
    ("high", "low", "good"),
    [(16, 5, True), (15, 5, True), (5, 5, True), (40, 16, True), (17, 17, False), (4, 1, False), (5, 6, False)],
)
def test_versions(high: int, low: int, good: bool) -> None:
    hello = released.Hello(high, low)
    server, client = SegmentServer(), SegmentClient(Dialect.RELEASED)
    for codec in (server, client):
        events, ending = conformance.trace(lambda codec=codec: codec, [joined(hello)])
        assert (ending == "Pull.PAUSED") is good
        assert len(events) == (good or codec is server), "a server answers before it closes (1.2)"


@pytest.mark.parametrize(("high", "size"), [(15, 26), (16, 34)])
def test_the_layout_is_that_of_the_client(high: int, size: int) -> None:
    """InvalidEventNumber, the only message that changed between 11 and 16 (1.2)."""
    client, server = SegmentClient(Dialect.RELEASED), SegmentServer()
    server.receive(b"".join(client.send(released.Hello(high, 5))))
    assert pull(server) == [released.Hello(high, 5)] and server.version == high
    client.receive(b"".join(server.send(HELLO)))
    said = b"".join(server.send(released.InvalidEventNumber(WRITER, 9, "", 3)))
    assert len(said) == 8 + size
    client.receive(said)
    assert pull(client) == [HELLO, released.InvalidEventNumber(WRITER, 9 if high == 16 else -1, "", 3)]


def test_an_equal_event_number_is_for_the_server_to_answer() -> None:
    _, server = ready()
    server.receive(joined(block_end(last=5), block_end(last=5)))
    assert [append.last_event_number for append in pull(server)] == [5, 5]


def test_limits() -> None:
    server = SegmentServer(SegmentLimits(max_append_bytes=30, max_writers=2))
    server.receive(BEFORE + joined(*append_messages(WRITER, EVENTS, 2, 1, block_size=20)))
    assert pull(server)[2:] == [BlockAppended(WRITER, CONTENT, 2, 2, 1)]
    server.receive(joined(released.SetupAppend(1, OTHER, "s")))
    assert len(pull(server)) == 1
    events, ending = conformance.trace(lambda: server, [joined(released.SetupAppend(1, UUID(int=9), "s"))])
    assert not events and "more than 2 writers are set up" in ending
    server = SegmentServer(SegmentLimits(max_append_bytes=29))
    _, ending = conformance.trace(
        lambda: server, [BEFORE + joined(*append_messages(WRITER, EVENTS, 2, 1, block_size=20))]
    )
    assert "an append of 30 bytes, at most 29 are allowed" in ending


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ([SETUP], "SetupAppend is not allowed before Hello"),
        ([HELLO, Block(WRITER, b"")], "which was not set up"),
        ([HELLO, SETUP, Block(WRITER, b""), released.KeepAlive()], "KeepAlive is not allowed between"),
        ([HELLO, released.SegmentCreated(1, "s")], "SegmentCreated must not be sent by this side"),
        ([HELLO, released.Padding(1)], "Padding must not be sent by this side"),
        (
            [HELLO, SETUP, Block(WRITER, bytes(0xFFFFFF - 23))],
            "16777208 bytes, at most 16777207",
        ),
        ([released.Hello(3, 1)], "the peer speaks versions 1 to 3, we 5 to 16"),
    ],
)
def test_what_a_client_does_not_say(said: list[Any], error: str) -> None:
    client = SegmentClient(Dialect.RELEASED)
    for message in said[:-1]:
        client.send(message)
    with pytest.raises(LocalProtocolError, match=error):
        client.send(said[-1])


def test_what_a_server_does_not_say() -> None:
    server = SegmentServer()
    server.receive(joined(HELLO))
    pull(server)
    with pytest.raises(LocalProtocolError, match="KeepAlive before Hello"):
        server.send(released.KeepAlive())
    server.send(HELLO)
    server.send(released.KeepAlive())
    with pytest.raises(LocalProtocolError, match="SealSegment must not be sent by this side"):
        server.send(released.SealSegment(1, "s"))


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (joined(released.KeepAlive()), "KeepAlive before Hello"),
        (joined(HELLO, HELLO), "a second Hello"),
        (joined(HELLO, SETUP), "SetupAppend is not for the server to send"),
        (joined(HELLO, released.Event(b"")), "Event is not for the server to send"),
        (joined(HELLO)[:-1], "the connection ended 15 bytes into a message"),
    ],
)
def test_what_a_client_does_not_hear(said: bytes, error: str) -> None:
    client = SegmentClient(Dialect.RELEASED)
    _, ending = conformance.trace(lambda: client, [said])
    assert error in ending
    with pytest.raises(LocalProtocolError, match="the conversation has ended"):
        client.send(HELLO)


def test_the_dialect_waits_for_four_bytes() -> None:
    server = SegmentServer()
    for byte in joined(HELLO)[:3]:
        server.receive(bytes([byte]))
        assert pull(server) == [] and server.dialect is None
    server.receive(joined(HELLO)[3:])
    assert pull(server) == [HELLO] and server.dialect is Dialect.RELEASED
    assert pull(SegmentServer()) == []


def test_every_row_has_its_clause() -> None:
    assert all(row.clause.startswith("1.") for row in TRANSITIONS.values())
    assert {state for state, _ in TRANSITIONS} == set(ReleasedState)
