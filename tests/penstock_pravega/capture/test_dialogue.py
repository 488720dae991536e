"""Conversations of the released segment protocol as messages, records and problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.captures.dialogues import CLIENT, SERVER, RecordedStream, Said, conversation, cut_up, events, hear, parts
from support.s3p.front import store_with_basin
from support.segment.dialogue import (
    GREETING,
    HELLO,
    NEW,
    OTHER,
    SETUP,
    STORED,
    STORY,
    asks,
    rows,
    says,
    told,
)
from support.segment.front import SEGMENT, Client, bytes_of
from support.segment.messages import WRITER

from penstock.capture.dialogue import APPENDED, DELIVERED
from penstock_pravega.capture.conversation import SegmentDialogue
from penstock_pravega.capture.delivering import Deliveries
from penstock_pravega.codec import Dialect, TableEntry, TableKey, append_messages, join_events, released
from penstock_pravega.codec.layout import SegmentMessage as Wire
from penstock_pravega.segment.front import SegmentFront


def test_requests_and_replies() -> None:
    heard = told(STORY)
    assert [(each.sender, each.kind, each.exchange, each.state) for each in heard] == [
        (CLIENT, "Hello", None, "hello"),
        (SERVER, "Hello", None, "open"),
        (CLIENT, "SetupAppend", 1, "open"),
        (SERVER, "AppendSetup", 1, "open"),
        (CLIENT, "AppendBlockEnd", 1, "open"),
        (SERVER, "DataAppended", 1, "open"),
        (CLIENT, "AppendBlock", None, "appending"),
        (CLIENT, "AppendBlockEnd", 1, "open"),
        (CLIENT, "AppendBlock", None, "appending"),
        (CLIENT, "AppendBlockEnd", 1, "open"),
        (CLIENT, "AppendBlock", None, "appending"),
        (CLIENT, "AppendBlockEnd", 1, "open"),
        (SERVER, "DataAppended", 1, "open"),
        (CLIENT, "ReadSegment", 2, "open"),
        (SERVER, "SegmentRead", 2, "open"),
        (CLIENT, "ReadSegment", 3, "open"),
        (SERVER, "SegmentRead", 3, "open"),
        (CLIENT, "end", None, "closed"),
    ]
    assert {each.layer for each in heard} == {"segment"}
    assert heard[0].fields == {"high_version": 16, "low_version": 5}
    assert heard[2].fields == {
        "request_id": 1,
        "writer_id": str(WRITER),
        "segment": SEGMENT,
        "delegation_token_size": 6,
    }
    assert heard[4].fields == {
        "writer_id": str(WRITER),
        "size_of_whole_events": 30,
        "size": 30,
        "number_of_events": 2,
        "last_event_number": 2,
        "request_id": 1,
        "events": 2,
        "raw": False,
    }
    assert {each.stream for each in heard[2:-1]} == {SEGMENT}
    assert heard[14].fields["events"] == 3 and heard[14].fields["size"] == 45


def test_answers_are_timed_from_the_request() -> None:
    """Chunks are a microsecond apart. An acknowledgement answers the last append that it covers."""
    heard = {(each.kind, each.end_ns): each.answers for each in told(STORY) if each.sender is SERVER}
    assert heard == {
        ("Hello", 2000): 1000,
        ("AppendSetup", 4000): 1000,
        ("DataAppended", 6000): 1000,
        ("DataAppended", 9000): 2000,
        ("SegmentRead", 11000): 1000,
        ("SegmentRead", 13000): 1000,
    }


def test_events_that_went_by() -> None:
    """An acknowledgement of several appends says only where the last of them stands."""
    *_, records = parts(told(STORY))
    assert rows(records) == [
        (APPENDED, b"hello", 70, True, ""),
        (APPENDED, b"worldwide", 83, True, ""),
        (APPENDED, b"hello", None, True, ""),
        (APPENDED, b"worldwide", None, True, ""),
        (APPENDED, b"hello", 170, True, ""),
        (APPENDED, b"worldwide", 183, True, ""),
        (DELIVERED, b"hello", 70, True, ""),
        (DELIVERED, b"worldwide", 83, True, ""),
        (DELIVERED, b"hello", 100, True, ""),
        (DELIVERED, b"worldwide", 113, True, ""),
        (APPENDED, b"hello", None, False, ""),
        (APPENDED, b"worldwide", None, False, ""),
    ]
    assert {record.stream for record in records} == {SEGMENT}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 64])
def test_cuts_change_nothing_but_times(size: int) -> None:
    def seen(said: Said) -> list[Any]:
        heard = told(said)
        keys = ["sender", "offset", "length", "kind", "exchange", "stream", "fields", "state"]
        return [[tuple(getattr(each, key) for key in keys) for each in heard], rows(parts(heard)[2])]

    assert seen(cut_up(STORY, size)) == seen(STORY)


def test_messages_stand_where_they_were_said() -> None:
    data = {sender: b"".join(part for who, part in STORY if who is sender) for sender in (CLIENT, SERVER)}
    ends = {CLIENT: 0, SERVER: 0}
    for each in told(STORY):
        if each.kind != "end":
            assert each.offset == ends[each.sender]
            ends[each.sender] = each.offset + each.length
            assert data[each.sender][each.offset : ends[each.sender]] == bytes_of(each.event)
    assert ends == {sender: len(whole) for sender, whole in data.items()}


def test_tables_are_messages_only() -> None:
    entries = tuple(TableEntry(TableKey(b"k%d" % number, number), b"value") for number in range(17))
    said = [
        *GREETING,
        asks(released.UpdateTableEntries(9, "table", "", entries)),
        says(released.TableKeyBadVersion(9, "table", "")),
    ]
    heard, _, records = parts(told(said))
    assert not records
    table, refused = heard[-2:]
    assert len(table.fields["entries"]) == 16 and table.fields["entries_count"] == 17
    assert table.fields["entries"][1] == {"key": "k1", "version": 1, "value_size": 5}
    assert (refused.failure, refused.stream, refused.answers) == ("TableKeyBadVersion: table", "table", 1000)
    assert "another version" in refused.fields["meaning"] and refused.fields["clause"]


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (released.NoSuchSegment(1, SEGMENT), f"NoSuchSegment: {SEGMENT}"),
        (released.SegmentIsSealed(1, SEGMENT, "", 4), f"SegmentIsSealed: {SEGMENT}"),
        (released.WrongHost(1, SEGMENT, "there:1"), f"WrongHost: {SEGMENT} is at there:1"),
        (released.AuthTokenCheckFailed(1, "", 1), "AuthTokenCheckFailed: expired"),
        (released.ErrorMessage(1, "", "no", 0), "ErrorMessage: no"),
        (released.OperationUnsupported(1, "append"), "OperationUnsupported: append"),
    ],
)
def test_appends_that_are_refused(reply: Wire, failure: str) -> None:
    """One request id may be that of all appends of a writer, and none of another's."""
    said = [
        *GREETING,
        *SETUP,
        asks(released.SetupAppend(2, OTHER, "other"), *append_messages(OTHER, [b"x"], 1, 2)),
        asks(*append_messages(WRITER, [b"a"], 1, 1), *append_messages(WRITER, [b"b"], 2, 1)),
        says(reply),
    ]
    heard = told(said)
    assert [each.failure for each in heard if each.sender is SERVER] == ["", "", failure]
    assert heard[-2].answers == 1000 and heard[-2].stream == SEGMENT
    *_, records = parts(heard)
    assert [(r.body, r.acknowledged, r.failure) for r in records] == [
        (b"a", False, failure),
        (b"b", False, failure),
        (b"x", False, ""),
    ]


@pytest.mark.parametrize("version", [15, 16])
def test_a_stale_event_number(version: int) -> None:
    """Its reply has an older layout for older clients; before Hello was heard, the one that fits."""
    refusal = says(released.InvalidEventNumber(WRITER, 1, "", 2), version=version)
    if version == 15:
        refusal = says(released.InvalidEventNumber(WRITER, -1, "", 2), version=version)
    append = asks(*append_messages(WRITER, [b"a"], 1, 1), *append_messages(WRITER, [b"b"], 2, 1))
    failure = f"InvalidEventNumber: event number 2 of writer {WRITER}"
    greeting = [asks(released.Hello(version, 5)), says(HELLO)]
    for said, offsets in (([*greeting, *SETUP, append, refusal], (0, 0)), ([append, refusal], (10, 10))):
        of = conversation("segment")
        _, problems, records = parts(hear(SegmentDialogue(of), events(of, said, offsets=offsets)))
        assert not problems
        assert [(r.body, r.acknowledged, r.failure) for r in records] == [(b"b", False, failure), (b"a", False, "")]


def test_bytes_that_are_no_events() -> None:
    """A byte stream's are one record per append and per read, which its message says; those may end like an event."""
    raw = b"\xff\xfeabcdefgh"
    said = [
        *GREETING,
        *SETUP,
        asks(*[released.AppendBlockEnd(WRITER, len(raw), raw, 1, 1, 1)]),
        says(released.DataAppended(WRITER, 1, NEW, 1, 10)),
        says(
            released.SegmentRead(SEGMENT, 0, True, False, raw, 5),
            released.SegmentRead(SEGMENT, 10, True, False, bytes(8), 6),
        ),
        says(released.SegmentRead("mixed", 0, True, False, STORED + raw, 7)),
    ]
    heard, _, records = parts(told(said))
    assert rows(records) == [
        (APPENDED, raw, 0, True, ""),
        (DELIVERED, raw, 0, True, ""),
        (DELIVERED, bytes(8), 10, True, ""),
        (DELIVERED, b"hello", 0, True, ""),
        (DELIVERED, b"worldwide", 13, True, ""),
        (DELIVERED, raw, 30, True, ""),
    ]
    assert [each.fields["raw"] for each in heard if "raw" in each.fields] == [True, True, True, True]
    assert heard[-1].fields["events"] == 2


# ---- against the front, and everything else --------------------------------------------------------------------------


async def test_a_real_front(tmp_path: Path) -> None:
    """The dialogue reports exactly what the client sent and received."""
    ours, theirs = trio.testing.memory_stream_pair()
    stream = RecordedStream(ours)
    client = Client(stream, Dialect.RELEASED)
    bodies = [bytes([number]) * size for number, size in enumerate((1, 300, 5000))]
    async with store_with_basin(tmp_path) as back, trio.open_nursery() as nursery:
        nursery.start_soon(SegmentFront(back).serve, theirs)
        await client.greet()
        await client.create()
        writer = await client.writer()
        acks = [await client.append(writer, 2, *bodies[:2]), await client.append(writer, 3, bodies[2])]
        content = await client.content()
        await client.call(released.GetStreamSegmentInfo(5, "none/none/0.#epoch.0"))
        await stream.send_eof()
        nursery.cancel_scope.cancel()
    assert content == join_events(bodies)
    of = conversation("segment")
    heard, problems, records = parts(hear(SegmentDialogue(of), events(of, stream.said)))
    assert not problems
    places = [0, 9, 317]
    assert [(r.action, r.body, r.offset, r.stream, r.acknowledged) for r in records] == [
        (action, body, place, SEGMENT, True)
        for action in (APPENDED, DELIVERED)
        for body, place in zip(bodies, places, strict=True)
    ]
    assert [each.event for each in heard if each.kind == "DataAppended"] == acks
    assert [each.failure for each in heard if each.failure] == ["NoSuchSegment: none/none/0.#epoch.0"]


@given(st.data())
def test_mutations_are_read_as_before_up_to_the_problem(data: st.DataObject) -> None:
    """Nothing before what changed is read otherwise, and nothing raises."""
    side = data.draw(st.sampled_from([CLIENT, SERVER]))
    spoken = b"".join(part for who, part in STORY if who is side)
    at = data.draw(st.integers(0, len(spoken) - 1))
    changed = spoken[:at] + data.draw(st.binary(max_size=3)) + spoken[at + data.draw(st.integers(0, 3)) :]
    of = conversation("segment")
    heard, problems, _ = parts(hear(SegmentDialogue(of), events(of, [(side, changed)])))
    before = [each for each in told([(side, spoken)]) if each.offset + each.length <= at]
    assert [(each.offset, each.event) for each in heard[: len(before)]] == [
        (each.offset, each.event) for each in before
    ]
    assert all(problem.offset >= (before[-1].offset if before else 0) for problem in problems)


def test_an_event_that_was_read_over_two_connections() -> None:
    """Clients with a pool of connections do that. Another server's segment may have the same name."""
    first = [*GREETING, says(released.SegmentRead(SEGMENT, 0, False, False, STORED[:20], 1))]
    second = [*GREETING, says(released.SegmentRead(SEGMENT, 20, False, False, STORED[20:], 2))]
    deliveries = Deliveries()

    def heard(name: str, said: Said) -> list[tuple[bytes, int | None]]:
        of = replace(conversation("segment"), name=name)
        *_, records = parts(hear(SegmentDialogue(of, deliveries), events(of, said)))
        return [(record.body, record.offset) for record in records]

    assert heard("listeners.one", first) == [(b"hello", 0)]
    assert heard("backs.other", second) == [(STORED[20:], 20)]
    assert heard("listeners.one", second) == [(b"worldwide", 13)]


def test_reads_that_share_a_request_id_are_told_apart_by_their_offsets() -> None:
    """As the Java client does; also where they are refused."""
    said = [
        *GREETING,
        asks(released.ReadSegment(SEGMENT, 0, 10, "", 7)),
        asks(released.ReadSegment(SEGMENT, 30, 10, "", 7), released.ReadSegment(SEGMENT, 60, 10, "", 7)),
        says(released.SegmentRead(SEGMENT, 30, False, False, b"", 7)),
        says(released.SegmentIsTruncated(7, SEGMENT, 40, "", 0)),
        says(released.NoSuchSegment(7, SEGMENT)),
    ]
    assert [each.answers for each in told(said)[-3:]] == [1000, 3000, 3000]


def test_requests_that_are_never_answered_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_pravega.capture.requests.MOST_WAITING", 2)
    said = [
        *GREETING,
        asks(*[released.GetStreamSegmentInfo(number, f"s{number}") for number in range(3)]),
        says(*[released.NoSuchSegment(number, "") for number in range(3)]),
    ]
    assert [each.stream for each in told(said)[-3:]] == ["", "s1", "s2"]


def test_zeros_are_bytes_and_not_a_million_empty_events() -> None:
    zeros = bytes(8 * 1001)
    said = [
        *GREETING,
        *SETUP,
        asks(released.AppendBlockEnd(WRITER, len(zeros), zeros, 1, 1, 1)),
        asks(released.AppendBlockEnd(WRITER, 80, zeros[:80], 10, 2, 1)),
        says(released.DataAppended(WRITER, 2, NEW, 1, 8088)),
        says(released.SegmentRead(SEGMENT, 0, True, False, zeros, 5)),
        says(released.SegmentRead("few", 0, True, False, zeros[:8000], 6)),
    ]
    heard, _, records = parts(told(said))
    assert [len(record.body) for record in records] == [8008, *[0] * 10, 8008, *[0] * 1000]
    assert [record.offset for record in records[1:11]] == list(range(8008, 8088, 8))
    assert [each.fields["raw"] for each in heard if "raw" in each.fields] == [True, False, True, False]
