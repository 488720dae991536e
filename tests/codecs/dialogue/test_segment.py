"""Conversations of the released segment protocol as messages, records and problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.dialogues import CLIENT, SERVER, RecordedStream, Said, conversation, cut_up, events, hear, messages, parts
from support.s3p_front import store_with_basin
from support.segment import WRITER
from support.segment_front import SEGMENT, Client, bytes_of

from penstock.fronts.segment import SegmentFront
from penstock_codecs.capture import Chunk, Closed, Lost, Opened
from penstock_codecs.dialogue import APPENDED, DELIVERED, Message, SeenRecord
from penstock_codecs.dialogue.segment import SegmentDialogue
from penstock_codecs.dialogue.waiting import Waiting
from penstock_codecs.segment import Dialect, TableEntry, TableKey, append_messages, join_events, released
from penstock_codecs.segment.layout import Message as Wire

OTHER = UUID("00112233-4455-6677-8899-aabbccddee00")
NEW = -(1 << 63)
BODIES = [b"hello", b"worldwide"]
STORED = join_events(BODIES)
HELLO = released.Hello(16, 5)


def asks(*requests: Wire) -> tuple[Any, bytes]:
    return CLIENT, bytes_of(*requests)


def says(*replies: Wire, **options: Any) -> tuple[Any, bytes]:
    return SERVER, bytes_of(*replies, **options)


GREETING: Said = [asks(HELLO), says(HELLO)]
SETUP: Said = [
    asks(released.SetupAppend(1, WRITER, SEGMENT, "secret")),
    says(released.AppendSetup(1, SEGMENT, WRITER, NEW)),
]
APPENDS: Said = [
    asks(*append_messages(WRITER, BODIES, 2, 1)),
    says(released.DataAppended(WRITER, 2, NEW, 1, 100)),
    asks(*append_messages(WRITER, BODIES, 4, 1, block_size=20), *append_messages(WRITER, BODIES, 6, 1, block_size=50)),
    asks(*append_messages(WRITER, BODIES, 8, 1, block_size=30, room=False)),
    says(released.DataAppended(WRITER, 6, 2, 1, 200)),
]
READS: Said = [
    asks(released.ReadSegment(SEGMENT, 70, 1 << 20, "", 2)),
    says(released.SegmentRead(SEGMENT, 70, True, False, STORED + STORED[:15], 2)),
    asks(released.ReadSegment(SEGMENT, 115, 1 << 20, "", 3)),
    says(released.SegmentRead(SEGMENT, 115, True, False, STORED[15:], 3)),
]
STORY: Said = [*GREETING, *SETUP, *APPENDS, *READS]
Row = tuple[str, bytes, int | None, bool, str]


def told(said: Said) -> list[Message]:
    return messages(SegmentDialogue, conversation("segment"), said)


def rows(records: list[SeenRecord]) -> list[Row]:
    return [(r.action, r.body, r.offset, r.acknowledged, r.failure) for r in records]


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


def test_tables_and_conditional_appends_are_messages_only() -> None:
    entries = tuple(TableEntry(TableKey(b"k%d" % number, number), b"value") for number in range(17))
    said = [
        *GREETING,
        *SETUP,
        asks(
            released.ConditionalAppend(WRITER, 1, 0, b"event", 1),
            released.ConditionalBlockEnd(WRITER, 2, 13, b"raw", 1),
        ),
        says(released.DataAppended(WRITER, 1, NEW, 1, 13), released.ConditionalCheckFailed(WRITER, 2, 1)),
        asks(released.UpdateTableEntries(9, "table", "", entries)),
        says(released.TableKeyBadVersion(9, "table", "")),
    ]
    heard, _, records = parts(told(said))
    assert not records
    failed, table, refused = heard[-3:]
    assert failed.failure == f"ConditionalCheckFailed: event number 2 of writer {WRITER}"
    assert (failed.stream, failed.answers) == (SEGMENT, 1000)
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
    """Where the next message stands is known, what comes behind is read."""
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
    """Writers were set up before it; the segment is not known until somebody names it."""
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
    dialogue._meanings._appends._waiting = Waiting(most_bytes=600)
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


# ---- against the front, and everything else --------------------------------------------------------------------------


async def test_a_real_front(tmp_path: Path) -> None:
    """What the dialogue makes known is what the client sent and was given."""
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
