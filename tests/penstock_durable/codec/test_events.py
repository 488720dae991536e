"""Event streams (protocol, 5.7): a server wired to a client, cuts, mutations and bombs."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.failures import LocalProtocolError, RemoteProtocolError
from penstock.wire.codec import NEED_DATA, PAUSED, Pull
from penstock_durable.codec import (
    COMMENT,
    MAX_EVENT_BYTES,
    Control,
    DataEvent,
    DurableEvent,
    DurableEventsClient,
    DurableEventsServer,
    EventMode,
    event_mode,
    spell_offset,
)

CONTROLS = st.builds(
    Control,
    st.integers(0, 10**15).map(spell_offset),
    st.none() | st.integers(0, 10**12),
    st.booleans(),
)
BODIES = {
    EventMode.JSON: st.text(max_size=30).map(lambda text: json.dumps(text).encode()),
    EventMode.TEXT: st.text(min_size=1, max_size=30).map(str.encode),
    EventMode.BASE64: st.binary(min_size=1, max_size=30),
}


def received(mode: EventMode, *pieces: bytes) -> list[DurableEvent]:
    """The events that a client gets of these pieces, until it needs more."""
    client = DurableEventsClient(mode)
    found: list[DurableEvent] = []
    for piece in pieces:
        client.receive(piece)
        while not isinstance(event := client.next_event(), Pull):
            found.append(event)
    return found


def sent(mode: EventMode, *events: DurableEvent) -> bytes:
    server = DurableEventsServer(mode)
    return b"".join(piece for event in events for piece in server.send(event))


def as_read(mode: EventMode, event: DurableEvent) -> DurableEvent:
    """An event as its reader gets it."""
    if isinstance(event, Control) or mode is EventMode.JSON:
        return event
    joined = b"".join(event.bodies)
    return DataEvent((re.sub(rb"\r\n|\r", b"\n", joined) if mode is EventMode.TEXT else joined,))


def test_vectors() -> None:
    assert sent(EventMode.JSON, DataEvent((b'{"a":1}', b"2"))) == b'event: data\ndata:[{"a":1},2]\n\n'
    assert sent(EventMode.TEXT, DataEvent((b"one\r\ntwo", b"\n three"))) == (
        b"event: data\ndata:one\ndata:two\ndata:  three\n\n"
    )
    assert sent(EventMode.BASE64, DataEvent((b"\xff", b"\xfe"))) == b"event: data\ndata://4=\n\n"
    assert sent(EventMode.TEXT, Control(spell_offset(1), 5, up_to_date=True)) == (
        b'event: control\ndata:{"streamNextOffset":"%b","streamCursor":"5","upToDate":true}\n\n'
        % spell_offset(1).encode()
    )


def test_the_last_event_has_no_cursor() -> None:
    data = sent(EventMode.TEXT, Control(spell_offset(1), 5, up_to_date=True, closed=True))
    assert b"streamCursor" not in data and b'"streamClosed":true' in data


@pytest.mark.parametrize(
    ("content_type", "mode"),
    [
        ("application/json", EventMode.JSON),
        ("application/ld+json; x=1", EventMode.JSON),
        ("text/html", EventMode.TEXT),
        ("image/png", EventMode.BASE64),
    ],
)
def test_the_mode_follows_from_the_content_type(content_type: str, mode: EventMode) -> None:
    assert event_mode(content_type) is mode


@pytest.mark.parametrize("mode", EventMode)
@given(data=st.data())
def test_a_client_wired_to_a_server(mode: EventMode, data: st.DataObject) -> None:
    bodies = st.lists(BODIES[mode], min_size=1, max_size=4).map(tuple)
    events = data.draw(st.lists(st.one_of(CONTROLS, bodies.map(DataEvent)), max_size=6))
    wire = sent(mode, *events)
    assert received(mode, wire) == [as_read(mode, event) for event in events]
    cut = data.draw(st.integers(0, len(wire)))
    assert received(mode, *filter(None, (wire[:cut], wire[cut:]))) == received(mode, wire)


@pytest.mark.parametrize("mode", EventMode)
def test_every_cut(mode: EventMode) -> None:
    wire = sent(
        mode, DataEvent((b'"a\\n b"', b"[1]")), Control(spell_offset(2), 3), Control(spell_offset(2), closed=True)
    )
    whole = received(mode, wire)
    assert len(whole) == 3
    for cut in range(1, len(wire)):
        assert received(mode, wire[:cut], wire[cut:]) == whole


@pytest.mark.parametrize("mode", EventMode)
@given(at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_mutations(mode: EventMode, at: int, byte: int) -> None:
    """A changed byte gives other events, or an error of the peer, and nothing else."""
    wire = bytearray(sent(mode, DataEvent((b'{"a": 1}',)), Control(spell_offset(2), 3, up_to_date=True)))
    wire[at % len(wire)] = byte
    client = DurableEventsClient(mode)
    client.receive(wire)
    client.receive(b"")
    try:
        while not isinstance(client.next_event(), Pull):
            pass
    except RemoteProtocolError as error:
        with pytest.raises(RemoteProtocolError, match=re.escape(str(error))):
            client.next_event()


def test_nothing_follows_the_end() -> None:
    server = DurableEventsServer(EventMode.TEXT)
    end = b"".join(server.send(Control(spell_offset(0), closed=True)))
    with pytest.raises(LocalProtocolError, match="closed"):
        server.send(DataEvent((b"x",)))
    client = DurableEventsClient(EventMode.TEXT)
    client.receive(end + sent(EventMode.TEXT, DataEvent((b"more",))))
    assert client.next_event() == Control(spell_offset(0), closed=True)
    assert client.next_event() is PAUSED
    assert client.buffered == 0
    assert server.next_event() is PAUSED


def test_other_events_and_comments_are_skipped() -> None:
    control = sent(EventMode.TEXT, Control(spell_offset(1)))
    assert received(EventMode.TEXT, COMMENT + b"event: other\ndata:x\n\ndata:y\n\n" + COMMENT + control) == [
        Control(spell_offset(1))
    ]


def test_offsets_are_any_servers() -> None:
    """They are opaque: a client keeps them as they are."""
    control = b'event: control\ndata:{"streamNextOffset":"01JQXK5V00/7","upToDate":true}\n\n'
    assert received(EventMode.TEXT, control) == [Control("01JQXK5V00/7", up_to_date=True)]


@pytest.mark.parametrize(
    ("mode", "event", "why"),
    [
        (EventMode.BASE64, b"event: data\ndata:a\n\n", "base64"),
        (EventMode.BASE64, b"event: data\ndata:!!!!\n\n", "base64"),
        (EventMode.JSON, b"event: data\ndata:{}\n\n", "array"),
        (EventMode.JSON, b"event: data\ndata:[1,\n\n", "JSON"),
        *(
            (EventMode.TEXT, b"event: control\ndata:%b\n\n" % bad, "control")
            for bad in (b"x", b"{}", b"[]", b"[" * 5000, b'{"streamNextOffset":"\xff"}')
        ),
        (EventMode.TEXT, b'event: control\ndata:{"x":' + b"[" * 5000 + b"\n\n", "control event is nested too deeply"),
        *(
            (EventMode.TEXT, b'event: control\ndata:{"streamNextOffset":"%b"}\n\n' % bad, "no offset")
            for bad in (b"now", b"-1", b"", b"a b", b"a" * 257)
        ),
        (
            EventMode.TEXT,
            b'event: control\ndata:{"streamNextOffset":"%b","streamCursor":"x"}\n\n' % spell_offset(1).encode(),
            "control",
        ),
    ],
)
def test_malformed_events(mode: EventMode, event: bytes, why: str) -> None:
    client = DurableEventsClient(mode)
    client.receive(sent(mode, Control(spell_offset(0))) + event)
    assert client.next_event() == Control(spell_offset(0))
    with pytest.raises(RemoteProtocolError, match=why):
        client.next_event()


def test_a_bomb_is_refused() -> None:
    client = DurableEventsClient(EventMode.TEXT, max_event_bytes=1000)
    with pytest.raises(RemoteProtocolError, match="larger than 1000 bytes"):
        for _ in range(100):
            client.receive(b"data:" + b"x" * 95 + b"\n")
            assert client.next_event() is NEED_DATA
            assert client.buffered <= 1000
    assert MAX_EVENT_BYTES < 2**24


def test_the_end_of_the_response() -> None:
    client = DurableEventsClient(EventMode.TEXT)
    assert client.next_event() is NEED_DATA
    client.receive(b"")
    assert client.next_event() is PAUSED
    with pytest.raises(LocalProtocolError, match="sends no events"):
        client.send(Control(spell_offset(0)))
    server = DurableEventsServer(EventMode.TEXT)
    assert server.next_event() is NEED_DATA
    server.receive(b"ignored")
    assert server.next_event() is NEED_DATA
    server.receive(b"")
    assert server.next_event() is PAUSED and server.buffered == 0
