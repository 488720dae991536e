"""Conversations of the draft dialect as messages, records and problems; and the vectors of both dialects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio.testing
from support.captures.dialogues import (
    CLIENT,
    SERVER,
    RecordedStream,
    Said,
    conversation,
    cut_up,
    events,
    hear,
    messages,
    parts,
)
from support.s3p.front import store_with_basin
from support.segment.front import SEGMENT, Client, bytes_of
from support.segment.messages import WRITER

from penstock.capture.dialogue import APPENDED, DELIVERED, Message
from penstock_pravega.capture.conversation import SegmentDialogue
from penstock_pravega.codec import Dialect, draft, join_events, released
from penstock_pravega.codec.layout import SegmentMessage as Wire
from penstock_pravega.segment.front import SegmentFront

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "penstock_pravega" / "codec" / "segment_vectors.json").read_text()
)
OTHER = UUID("00112233-4455-6677-8899-aabbccddee00")
HELLO = draft.Event(b"hello")
BEGIN, END = draft.partials(draft.Event(b"worldwide"), [6])
FLAGS = draft.Flags(at_tail=True)


def asks(*requests: Wire) -> tuple[Any, bytes]:
    return CLIENT, bytes_of(*requests)


def says(*replies: Wire) -> tuple[Any, bytes]:
    return SERVER, bytes_of(*replies)


STORY: Said = [
    asks(draft.SetupAppend(WRITER, SEGMENT)),
    says(draft.AppendSetup(SEGMENT, WRITER, 0)),
    # A block whose last event goes on behind its end, with something else between; and one that is filled up.
    asks(draft.BeginAppendBlock(WRITER, 0, 28), HELLO, BEGIN, draft.EndAppendBlock(WRITER, 30, 30)),
    asks(draft.KeepAlive(b"x"), END, draft.BeginAppendBlock(WRITER, 30, 29), HELLO),
    (CLIENT, bytes(16) + bytes_of(draft.EndAppendBlock(WRITER, 51, 21))),
    says(draft.DataAppended(WRITER, 51)),
    asks(*draft.partials(draft.ReadSegment(SEGMENT, 0, 1000), [3, 9])),
    says(*draft.partials(draft.SegmentRead(SEGMENT, 0, FLAGS, join_events([b"hello", b"worldwide"])[:20]), [8])),
    says(draft.SegmentRead(SEGMENT, 20, FLAGS, join_events([b"hello", b"worldwide"])[20:])),
    asks(draft.ReadSegment("none", 0, 10)),
    says(draft.NoSuchSegment("none")),
]


def told(said: Said) -> list[Message]:
    return messages(SegmentDialogue, conversation("segment"), said)


def test_requests_and_replies() -> None:
    heard = told(STORY)
    assert [(each.sender, each.kind, each.offset, each.length, each.state) for each in heard] == [
        (CLIENT, "SetupAppend", 0, 49, "open"),
        (SERVER, "AppendSetup", 0, 57, "open"),
        (CLIENT, "BeginAppendBlock", 49, 36, "appending"),
        (CLIENT, "KeepAlive", 149, 9, "appending"),
        (CLIENT, "Event", 85, 93, "appending"),  # with what stands between its parts
        (CLIENT, "EndAppendBlock", 113, 36, "open"),
        (CLIENT, "BeginAppendBlock", 178, 36, "appending"),
        (CLIENT, "Event", 214, 29, "appending"),
        (CLIENT, "EndAppendBlock", 243, 36, "open"),
        (SERVER, "DataAppended", 57, 32, "open"),
        (CLIENT, "ReadSegment", 279, 72, "open"),
        (SERVER, "SegmentRead", 89, 80, "open"),
        (SERVER, "SegmentRead", 169, 52, "open"),
        (CLIENT, "ReadSegment", 351, 26, "open"),
        (SERVER, "NoSuchSegment", 221, 14, "open"),
    ]
    assert [each.fields.get("partials") for each in heard if "partials" in each.fields] == [3, 2]
    assert heard[4].fields == {
        "connection_id": str(WRITER),
        "connection_offset": 0,
        "size": 30,
        "events": 2,
        "raw": False,
    }
    assert heard[11].fields["at_tail"] is True and heard[11].fields["at_end"] is False
    assert (heard[-1].failure, heard[-1].stream) == ("NoSuchSegment: none", "none")
    assert {each.exchange for each in heard} == {None}
    assert [each.answers for each in heard if each.sender is SERVER] == [1000, 1000, 1000, None, 1000]


def test_events_that_went_by() -> None:
    *_, records = parts(told(STORY))
    assert [(r.action, r.body, r.offset, r.stream, r.acknowledged) for r in records] == [
        (APPENDED, b"hello", None, SEGMENT, True),
        (APPENDED, b"worldwide", None, SEGMENT, True),
        (APPENDED, b"hello", None, SEGMENT, True),
        (APPENDED, b"", None, SEGMENT, True),
        (DELIVERED, b"hello", 0, SEGMENT, True),
        (DELIVERED, b"worldwide", 13, SEGMENT, True),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 64])
def test_cuts_change_nothing_but_times(size: int) -> None:
    def seen(said: Said) -> list[Any]:
        heard = told(said)
        keys = ["sender", "offset", "length", "kind", "stream", "fields", "state"]
        records = [(r.action, r.body, r.offset, r.acknowledged) for r in parts(heard)[2]]
        return [[tuple(getattr(each, key) for key in keys) for each in heard], records]

    assert seen(cut_up(STORY, size)) == seen(STORY)


def test_a_refusal_names_the_segment_only() -> None:
    said = [
        asks(draft.SetupAppend(WRITER, SEGMENT), draft.SetupAppend(OTHER, "other")),
        asks(draft.BeginAppendBlock(WRITER, 0, 13), HELLO, draft.EndAppendBlock(WRITER, 13, 13)),
        asks(draft.BeginAppendBlock(OTHER, 0, 13), HELLO, draft.EndAppendBlock(OTHER, 13, 13)),
        says(draft.SegmentIsSealed(SEGMENT), draft.DataAppended(OTHER, 13)),
    ]
    *_, records = parts(told(said))
    assert [(r.stream, r.acknowledged, r.failure) for r in records] == [
        (SEGMENT, False, f"SegmentIsSealed: {SEGMENT}"),
        ("other", True, ""),
    ]


SETUP = bytes_of(draft.SetupAppend(WRITER, SEGMENT))
BLOCK = bytes_of(draft.BeginAppendBlock(WRITER, 0, 13))
WRONG: list[tuple[bytes, int, str, str]] = [
    (bytes.fromhex("000003e7 00000000"), 0, "unknown message type 999", "1.1"),
    (bytes_of(HELLO), 0, "Event is not allowed outside a block", "2, readings 6"),
    (bytes_of(draft.BeginAppendBlock(OTHER, 0, 13)), 0, "is not set up", "2, reading 6"),
    (bytes_of(draft.BeginAppendBlock(WRITER, 0, -1)), 0, "with a length of -1", "2, reading 6"),
    (BLOCK + bytes_of(draft.KeepAlive(b"12345")), 36, "KeepAlive inside a block", "2, reading 6"),
    (BLOCK + bytes_of(draft.Event(b"too long")), 36, "in a block, which has 13 bytes left", "2, reading 6"),
    (BLOCK + bytes_of(HELLO, draft.EndAppendBlock(WRITER, 14, 13)), 49, "0 + 13 was expected", "2, reading 7"),
    (BLOCK + bytes_of(HELLO, draft.KeepAlive()), 49, "behind the last byte of a block", "2, readings 6"),
    (bytes_of(END), 0, "Partial (End) without a Begin", "2, readings 4"),
    (bytes.fromhex("fffffffe 00000002 0700"), 8, "is none of Begin (0)", "2, reading 4"),
]


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(("data", "at", "rule", "clause"), WRONG)
def test_requests_that_are_wrong(data: bytes, at: int, rule: str, clause: str, size: int) -> None:
    of = conversation("segment")
    said = cut_up([(CLIENT, SETUP + data)], size)
    _, (problem,), _ = parts(hear(SegmentDialogue(of), events(of, said)))
    assert rule in problem.rule
    assert (problem.offset, problem.fatal) == (len(SETUP) + at, True)
    assert problem.clause.startswith(f"segment fact sheet, {clause}")


@pytest.mark.parametrize("size", [1, 9, 5000])
def test_a_conversation_from_its_middle(size: int) -> None:
    """The first message shows the dialect, and connections may be set up at any level."""
    of = conversation("segment")
    middle = [asks(draft.BeginAppendBlock(WRITER, 700, 13), HELLO, draft.EndAppendBlock(WRITER, 713, 13))]
    said = cut_up([(CLIENT, b"x"), *middle, says(draft.DataAppended(WRITER, 713)), *STORY[6:]], size)
    heard, problems, records = parts(hear(SegmentDialogue(of), events(of, said, offsets=(50, 60))))
    assert [(each.offset, each.rule.split()[0]) for each in problems] == [(50, "1")]
    assert [each.kind for each in heard][:4] == ["BeginAppendBlock", "Event", "EndAppendBlock", "DataAppended"]
    assert [(r.action, r.body, r.acknowledged) for r in records] == [
        (APPENDED, b"hello", True),
        (DELIVERED, b"hello", True),
        (DELIVERED, b"worldwide", True),
    ]


def test_what_is_half_said() -> None:
    of = conversation("segment")
    for last in (BLOCK + bytes_of(HELLO)[:9], bytes_of(BEGIN), BLOCK + bytes_of(HELLO)):
        _, (problem,), _ = parts(hear(SegmentDialogue(of), events(of, [(CLIENT, SETUP + last)])))
        assert problem.offset == len(SETUP + last) and not problem.fatal


async def test_a_real_front(tmp_path: Path) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    stream = RecordedStream(ours)
    client = Client(stream, Dialect.DRAFT)
    bodies = [b"hello", b"x" * 3000]
    async with store_with_basin(tmp_path) as back, trio.open_nursery() as nursery:
        nursery.start_soon(SegmentFront(back).serve, theirs)
        await client.expect(released.SegmentCreated, released.CreateSegment(1, SEGMENT, 0, 0))
        writer = await client.writer()
        size = len(join_events(bodies))
        await client.send(
            draft.BeginAppendBlock(writer, 0, size), *map(draft.Event, bodies), draft.EndAppendBlock(writer, size, size)
        )
        await client.reply()
        await client.expect(draft.SegmentRead, draft.ReadSegment(SEGMENT, 0, 1 << 20))
        await stream.send_eof()
        nursery.cancel_scope.cancel()
    of = conversation("segment")
    _, problems, records = parts(hear(SegmentDialogue(of), events(of, stream.said)))
    assert not problems
    assert [(r.action, r.body, r.offset, r.stream, r.acknowledged) for r in records] == [
        (APPENDED, b"hello", None, SEGMENT, True),
        (APPENDED, b"x" * 3000, None, SEGMENT, True),
        (DELIVERED, b"hello", 0, SEGMENT, True),
        (DELIVERED, b"x" * 3000, 13, SEGMENT, True),
    ]


NOT_ALONE = {
    "append-block-with-partial": "into a message",  # its AppendBlockEnd is missing
    "append-block-exact": "into a message",
    "append-block-with-padding": "into a message",
    "partial-event": "into a message",  # stands in blocks only, and looks like a Partial
    "draft-partial-begin": "into a message",
    "draft-partial-middle": "beginning is not recorded",
    "draft-end-append-block": "beginning is not recorded",
}
"""Vectors that are no whole conversation, and what is said of them."""


@pytest.mark.parametrize("size", [1, 7, 5000])
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_vectors(vector: dict[str, Any], size: int) -> None:
    """Every message that stands alone is found in the middle of a conversation, in its dialect, without a Problem."""
    of = conversation("segment")
    sender = SERVER if vector["direction"] == "reply" else CLIENT
    data = bytes.fromhex(vector["hex"])
    heard, problems, _ = parts(hear(SegmentDialogue(of), events(of, cut_up([(sender, data)], size), offsets=(9, 9))))
    if vector["name"] in NOT_ALONE:
        assert NOT_ALONE[vector["name"]] in problems[-1].rule
        return
    assert not problems, problems
    assert heard[0].offset == 9
    assert heard[-1].kind == "end" or heard[-1].offset + heard[-1].length == 9 + len(data)
    assert (type(heard[0].event).__module__.endswith("draft")) is (vector["mode"] == "draft")
