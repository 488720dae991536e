"""Conversations of the released segment protocol with errors, and with parts missing."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.captures.dialogues import CLIENT, SERVER, conversation, cut_up, events, hear, parts
from support.segment.dialogue import (
    APPENDS,
    BODIES,
    GREETING,
    HELLO,
    NEW,
    OTHER,
    READS,
    SETUP,
    STORED,
    STORY,
    asks,
    rows,
    says,
    told,
)
from support.segment.front import SEGMENT, bytes_of
from support.segment.messages import WRITER

from penstock.capture.dialogue import APPENDED
from penstock.capture.dialogue.waiting import PendingBatches
from penstock.capture.pcapng import Chunk, Closed, Lost, Opened
from penstock_pravega.capture.conversation import SegmentDialogue
from penstock_pravega.codec import append_messages, join_events, released
from penstock_pravega.codec.layout import SegmentMessage as Wire

# ---- what is wrong ---------------------------------------------------------------------------------------------------


BEFORE = bytes_of(HELLO, released.SetupAppend(1, WRITER, SEGMENT))
END = released.AppendBlockEnd(WRITER, 13, join_events([b"hello"]), 1, 5, 1)
WRONG: list[tuple[bytes, int, str, str, bool]] = [
    (bytes.fromhex("000003e7 00000000"), 0, "unknown message type 999", "1.1", True),
    (bytes.fromhex("00000064 01000000"), 4, "KeepAlive of 16777216 bytes, at most", "1.1", True),
    (bytes.fromhex("00000064 ffffffff"), 4, "KeepAlive of -1 bytes", "1.1", True),
    (bytes_of(released.SegmentCreated(1, "s")), 0, "not for the client to send", "1.3", True),
    (bytes.fromhex("0000000b 00000004 00000000"), 8, "8 bytes are needed and 4 are left", "1.3", False),
    (bytes.fromhex("0000000b 0000000c 0000000000000001 ffff 6162"), 16, "a name of 65535 bytes", "0:", False),
    (bytes.fromhex("0000000b 0000000e 0000000000000001 0002 fffe 0000"), 18, "not UTF-8", "0:", False),
    (bytes_of(append_messages(OTHER, [b"x"], 1, 1)[0]), 0, "which was not set up", "1.4", False),
    (bytes_of(END, released.AppendBlockEnd(WRITER, 13, STORED[:13], 1, 4, 1)), 65, "event number 4 of", "1.4", False),
    (bytes_of(released.AppendBlock(WRITER, b"x" * 20), END), 44, "7 bytes behind the whole events", "1.4", False),
    (bytes_of(released.AppendBlock(WRITER, b""), released.KeepAlive()), 24, "between AppendBlock and", "1.4", False),
    (bytes_of(released.AppendBlockEnd(WRITER, 0, b"", 0, 1, 1)), 0, "at least 1 is appended", "1.4", False),
    (bytes_of(HELLO), 0, "Hello is not allowed outside", "1.2", False),
    (bytes_of(released.Padding(3)), 0, "Padding is not allowed outside an append", "1.3", False),
]


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(("data", "at", "rule", "clause", "fatal"), WRONG)
def test_requests_that_are_wrong(data: bytes, at: int, rule: str, clause: str, fatal: bool, size: int) -> None:
    """If the begin of the next message is known, reading resumes there."""
    said = cut_up(
        [(CLIENT, BEFORE), says(HELLO), (CLIENT, data), asks(released.GetStreamSegmentInfo(7, SEGMENT))], size
    )
    of = conversation("segment")
    heard, problems, _ = parts(hear(SegmentDialogue(of), events(of, said)))
    assert rule in problems[0].rule
    assert (problems[0].sender, problems[0].offset, problems[0].fatal) == (CLIENT, len(BEFORE) + at, fatal)
    assert problems[0].clause.startswith(f"segment fact sheet, {clause}")
    place = problems[0].offset - problems[0].context_offset
    assert problems[0].context[place:].startswith((BEFORE + data)[problems[0].offset :][:1])
    after = [each.kind for each in heard if each.exchange == 7]
    assert after == ([] if fatal else ["GetStreamSegmentInfo"])


@pytest.mark.parametrize(
    ("replies", "at", "rule", "clause"),
    [
        ([released.KeepAlive()], 0, "KeepAlive before Hello", "1.2"),
        ([HELLO, HELLO], 16, "a second Hello", "1.2"),
        ([released.Hello(4, 1)], 0, "the peer speaks versions 1 to 4", "1.2"),
        ([HELLO, released.DataAppended(WRITER, 4, 5, 1, 0)], 16, "which is not below it", "1.4"),
        ([HELLO, released.SegmentRead(SEGMENT, 5, False, False, b"", 9)], 16, "4 was asked for", "1.5"),
    ],
)
def test_replies_that_are_wrong(replies: list[Wire], at: int, rule: str, clause: str) -> None:
    said = [asks(HELLO, released.ReadSegment(SEGMENT, 4, 100, "", 9)), says(*replies)]
    of = conversation("segment")
    heard, (problem,), _ = parts(hear(SegmentDialogue(of), events(of, said)))
    assert rule in problem.rule and problem.clause.startswith(f"segment fact sheet, {clause}")
    assert (problem.sender, problem.offset, problem.fatal) == (SERVER, at, False)
    assert [each.event for each in heard if each.sender is SERVER] == replies


def test_an_append_without_its_end() -> None:
    of = conversation("segment")
    block = asks(released.AppendBlock(WRITER, b"xyz"))
    said = [*GREETING, *SETUP, block]
    _, (problem,), _ = parts(hear(SegmentDialogue(of), events(of, said)))
    assert problem.rule == f"the client finished {len(block[1])} bytes into a message" and not problem.fatal


# ---- what is missing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 9, 5000])
def test_a_conversation_from_its_middle(size: int) -> None:
    """Writers were set up earlier; the segment is unknown until a message names it."""
    of = conversation("segment")
    said = cut_up([(CLIENT, b"rest"), (SERVER, b"of it"), *APPENDS, *READS], size)
    _, problems, records = parts(hear(SegmentDialogue(of), events(of, said, offsets=(500, 600))))
    assert [(each.sender, each.offset, each.rule.split()[0], each.fatal) for each in problems] == [
        (CLIENT, 500, "4", False),
        (SERVER, 600, "5", False),
    ]
    *_, whole = parts(told(STORY))
    assert rows(records) == rows(whole)
    assert [r.stream for r in records if r.action == APPENDED] == [""] * 8


def test_an_end_whose_block_was_not_heard_has_no_events() -> None:
    of = conversation("segment")
    (_, end) = append_messages(WRITER, BODIES, 2, 1, block_size=20)
    said = [asks(end), says(released.DataAppended(WRITER, 2, NEW, 1, 30)), asks(*append_messages(WRITER, [b"c"], 3, 1))]
    heard, problems, records = parts(hear(SegmentDialogue(of), events(of, said, offsets=(99, 99))))
    assert not problems
    assert rows(records) == [(APPENDED, b"c", None, False, "")]
    assert heard[1].answers == 1000


def test_the_servers_half_alone() -> None:
    of = conversation("segment")
    said = [says(HELLO), *[each for each in READS if each[0] is SERVER]]
    _, problems, records = parts(hear(SegmentDialogue(of), events(of, said)))
    assert not problems
    assert [(r.body, r.offset) for r in records] == [
        (b"hello", 70),
        (b"worldwide", 83),
        (b"hello", 100),
        (b"worldwide", 113),
    ]


def test_lost_bytes() -> None:
    """Acknowledgements cover what came before the gap as well."""
    of = conversation("segment")
    first = bytes_of(HELLO, released.SetupAppend(1, WRITER, SEGMENT), *append_messages(WRITER, [b"a"], 1, 1))
    after = bytes_of(*append_messages(WRITER, [b"c"], 3, 1))
    replies = bytes_of(
        HELLO, released.AppendSetup(1, SEGMENT, WRITER, NEW), released.DataAppended(WRITER, 3, NEW, 1, 27)
    )
    said = [
        Opened(of, 0),
        Chunk(of, 1, CLIENT, 0, first + after[:5]),
        Lost(of, 2, CLIENT, len(first) + 5, 1000, "not written"),
        Chunk(of, 3, CLIENT, len(first) + 1005, after),
        Chunk(of, 4, SERVER, 0, replies),
        Closed(of, 5, CLIENT),
    ]
    _, problems, records = parts(hear(SegmentDialogue(of), said))
    assert [(each.offset, each.rule) for each in problems] == [
        (len(first) + 5, "1000 bytes are not in the capture: not written")
    ]
    assert rows(records) == [(APPENDED, b"a", None, True, ""), (APPENDED, b"c", 18, True, "")]


def test_appends_that_are_never_answered_are_given_up() -> None:
    of = conversation("segment")
    dialogue = SegmentDialogue(of)
    dialogue._meanings._appends._waiting = PendingBatches(most_bytes=600)
    appends = [asks(*append_messages(WRITER, [b"%d" % number], number, 1)) for number in range(1, 5)]
    said = [*GREETING, *SETUP, *appends, says(released.DataAppended(WRITER, 4, NEW, 1, 36))]
    _, problems, records = parts(hear(dialogue, events(of, said)))
    assert not problems
    assert [(r.body, r.acknowledged, r.offset) for r in records] == [
        (b"1", False, None),
        (b"2", False, None),
        (b"3", True, None),
        (b"4", True, 27),
    ]


@pytest.mark.parametrize("writers", [1, 5])
def test_appends_of_all_writers_are_bounded_together(writers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are forgotten are acknowledged by nothing."""
    monkeypatch.setattr("penstock_pravega.capture.appending.MOST_WAITING", 3)
    of = conversation("segment")
    names = [UUID(int=number) for number in range(writers)]
    setups = [asks(released.SetupAppend(1, name, SEGMENT)) for name in names]
    appends = [asks(*append_messages(names[n % writers], [b"%d" % n], n + 1, 1)) for n in range(5)]
    acks = [says(released.DataAppended(name, 9, NEW, 1)) for name in names]
    dialogue = SegmentDialogue(of)
    _, problems, records = parts(hear(dialogue, events(of, [*GREETING, *setups, *appends, *acks])))
    assert not problems
    assert {(r.body, r.acknowledged) for r in records} == {(b"%d" % n, n >= 2) for n in range(5)}
    assert dialogue._meanings._appends._count == 0
