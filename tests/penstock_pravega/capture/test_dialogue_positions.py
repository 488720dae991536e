"""Positions of records of the released segment protocol: conditional appends, shared acknowledgements, cut reads."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.captures.dialogues import CLIENT, SERVER, Said, conversation, events, hear, parts
from support.segment.dialogue import GREETING, NEW, OTHER, SETUP, STORED, asks, rows, says, told
from support.segment.front import SEGMENT
from support.segment.messages import WRITER

from penstock.capture.dialogue import APPENDED, DELIVERED, Problem
from penstock.capture.pcapng import Sender
from penstock_pravega.capture.conversation import SegmentDialogue
from penstock_pravega.capture.delivering import Deliveries
from penstock_pravega.codec import append_messages, released
from penstock_pravega.codec.layout import SegmentMessage as Wire

BOTH: Said = [asks(released.SetupAppend(2, OTHER, SEGMENT)), says(released.AppendSetup(2, SEGMENT, OTHER, NEW))]


def places(*said: tuple[Sender, bytes]) -> list[tuple[bytes, int | None]]:
    *_, records = parts(told([*GREETING, *SETUP, *BOTH, *said]))
    return [(record.body, record.offset) for record in records]


def one(body: bytes, number: int, writer: UUID = WRITER) -> Wire:
    (message,) = append_messages(writer, [body], number, 1)
    return message


def ack(number: int, end: int, writer: UUID = WRITER) -> Wire:
    return released.DataAppended(writer, number, NEW, 1, end)


# ---- conditional appends ---------------------------------------------------------------------------------------------


def test_conditional_appends() -> None:
    """They state their own offset, even if an old server leaves it out of its reply."""
    said = [
        *GREETING,
        *SETUP,
        asks(
            released.ConditionalAppend(WRITER, 1, 40, b"event", 1),
            released.ConditionalBlockEnd(WRITER, 2, 53, b"raw", 1),
            released.ConditionalBlockEnd(WRITER, 3, 56, STORED, 1),
        ),
        says(released.DataAppended(WRITER, 1, NEW), released.DataAppended(WRITER, 3, 1, 1, 86)),
        asks(released.ConditionalBlockEnd(WRITER, 4, 86, b"late", 1)),
        says(released.ConditionalCheckFailed(WRITER, 4, 1)),
        asks(released.ConditionalAppend(WRITER, 5, 90, b"lost", 1)),
    ]
    heard, _, records = parts(told(said))
    failure = f"ConditionalCheckFailed: event number 4 of writer {WRITER}"
    assert rows(records) == [
        (APPENDED, b"event", 40, True, ""),
        (APPENDED, b"raw", 53, True, ""),
        (APPENDED, b"hello", 56, True, ""),
        (APPENDED, b"worldwide", 69, True, ""),
        (APPENDED, b"late", None, False, failure),
        (APPENDED, b"lost", None, False, ""),
    ]
    assert {record.stream for record in records} == {SEGMENT}
    told_of = [(each.kind, each.fields["size"], each.fields["events"], each.fields["raw"]) for each in heard[4:7]]
    assert told_of == [
        ("ConditionalAppend", 13, 1, False),
        ("ConditionalBlockEnd", 3, 0, True),
        ("ConditionalBlockEnd", 30, 2, False),
    ]
    refusals = [(each.failure, each.stream, each.answers) for each in heard if each.failure]
    assert refusals == [(failure, SEGMENT, 1000)]


def test_an_unconditional_append_behind_a_conditional_one() -> None:
    said = asks(one(b"first", 1), released.ConditionalBlockEnd(WRITER, 2, 100, b"raw", 1), one(b"then", 3))
    assert places(said, says(ack(3, 115))) == [(b"first", None), (b"raw", 100), (b"then", 103)]
    assert places(said, says(ack(3, 130))) == [(b"first", None), (b"raw", 100), (b"then", 118)]


# ---- one acknowledgement for several appends -------------------------------------------------------------------------


def test_all_of_them_where_nothing_can_stand_between() -> None:
    """From the writer's last acknowledgement to this one there is room for them only."""
    first = asks(one(b"a", 1)), says(ack(1, 209))
    several = asks(one(b"b", 2), one(b"cc", 3), one(b"ddd", 4))
    assert places(*first, several, says(ack(4, 239))) == [(b"a", 200), (b"b", 209), (b"cc", 218), (b"ddd", 228)]
    assert places(*first, several, says(ack(4, 249))) == [(b"a", 200), (b"b", None), (b"cc", None), (b"ddd", 238)]


def test_some_of_them() -> None:
    """The later ones were asked for when the segment was known to reach to where they begin."""
    said = [
        asks(one(b"a", 1)),
        asks(released.GetStreamSegmentInfo(5, SEGMENT)),
        says(released.StreamSegmentInfo(5, SEGMENT, True, False, False, 0, 300)),
        asks(one(b"b", 2), one(b"c", 3)),
        says(ack(3, 318)),
    ]
    assert places(*said) == [(b"a", None), (b"b", 300), (b"c", 309)]


def test_another_writers_bytes_may_be_as_many() -> None:
    """`a` may stand before what the other writer's acknowledgement covers, and its second event between."""
    said = [
        asks(one(b"a", 1), one(b"x", 1, OTHER), one(b"y", 2, OTHER), one(b"b", 2)),
        says(ack(1, 118, OTHER), ack(2, 136)),
    ]
    assert places(*said) == [(b"x", 109), (b"a", None), (b"b", 127), (b"y", None)]


@pytest.mark.parametrize("end", [3, 0, -5])
def test_an_end_that_cannot_be(end: int) -> None:
    assert places(asks(one(b"a", 1)), says(ack(1, end))) == [(b"a", None)]


# ---- whose refusal it is ---------------------------------------------------------------------------------------------


def test_what_answers_another_request_refuses_no_append() -> None:
    """Request ids may be shared."""
    said = [
        asks(one(b"a", 1), released.GetStreamSegmentInfo(1, "gone"), released.ReadSegment(SEGMENT, 7, 10, "", 1)),
        says(released.NoSuchSegment(1, "gone"), released.SegmentIsTruncated(1, SEGMENT, 70, "", 7), ack(1, 9)),
    ]
    assert places(*said) == [(b"a", 0)]


def test_a_writer_that_was_not_set_up() -> None:
    said = [*GREETING, SETUP[0], asks(one(b"a", 1)), says(released.NoSuchSegment(1, SEGMENT))]
    *_, (record,) = parts(told(said))
    assert (record.acknowledged, record.failure) == (False, f"NoSuchSegment: {SEGMENT}")


# ---- events that reads have cut --------------------------------------------------------------------------------------


Row = tuple[str, bytes, int | None]


def cuts(*said: tuple[Sender, bytes], deliveries: Deliveries | None = None) -> tuple[list[Problem], list[Row]]:
    of = conversation("segment")
    dialogue = SegmentDialogue(of, deliveries)
    _, problems, records = parts(hear(dialogue, events(of, [*GREETING, *said])))
    return problems, [(record.action, record.body, record.offset) for record in records]


def piece(begin: int, end: int, *, ends: bool = False) -> tuple[Sender, bytes]:
    return says(released.SegmentRead(SEGMENT, 70 + begin, True, ends, STORED[begin:end], 1))


def test_an_event_whose_rest_is_never_read() -> None:
    (problem,), records = cuts(piece(0, 10), piece(10, 20))
    assert problem.rule == f"7 bytes of the event at offset 83 of {SEGMENT} were read, and not the rest"
    assert problem.clause == "segment fact sheet, 1.5: events in a segment"
    assert (problem.sender, problem.fatal) == (SERVER, False)
    assert problem.offset == sum(len(data) for who, data in (*GREETING, piece(0, 10), piece(10, 20)) if who != CLIENT)
    assert records == [(DELIVERED, b"hello", 70)]


def test_an_event_that_is_read_to_its_end() -> None:
    problems, records = cuts(piece(0, 20), piece(20, 30))
    assert not problems
    assert records == [(DELIVERED, b"hello", 70), (DELIVERED, b"worldwide", 83)]


@pytest.mark.parametrize("said", [(piece(0, 20, ends=True),), (piece(0, 20), piece(20, 20, ends=True))])
def test_a_segment_that_ends_within_an_event(said: Said) -> None:
    (problem,), _ = cuts(*said)
    assert problem.rule == "the segment ends 7 bytes into the event at offset 83"
    assert problem.clause.startswith("segment fact sheet, 1.5") and not problem.fatal


def test_what_another_conversation_has_read_on_is_not_missing() -> None:
    deliveries = Deliveries()
    of = conversation("segment")
    first, second = SegmentDialogue(of, deliveries), SegmentDialogue(of, deliveries)
    heard = [each for event in events(of, [*GREETING, piece(0, 20)], closed=()) for each in first.receive(event)]
    *_, records = parts(hear(second, events(of, [*GREETING, piece(20, 30)])))
    assert [record.body for record in records] == [b"worldwide"]
    assert not parts([*heard, *first.end()])[1]
