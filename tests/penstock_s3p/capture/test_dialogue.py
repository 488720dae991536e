"""S3P conversations as messages, records and problems."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.captures.dialogues import CLIENT, SERVER, RecordedStream, Said, conversation, cut_up, events, hear, parts
from support.s3p.dialogue import MS, STORY, command, raw, reply, told
from support.s3p.front import Client, store_with_basin

from penstock.capture.dialogue import APPENDED, DELIVERED
from penstock.capture.dialogue.waiting import PendingBatches
from penstock.core.back import Back
from penstock.model.records import RecordId
from penstock_s3p.capture.conversation import S3PDialogue
from penstock_s3p.codec import AppendedId, AppendRecords, Create, Ok, ReadRecords, Records
from penstock_s3p.codec.encoding import encode_command, encode_reply
from penstock_s3p.front import S3PFront

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "conformance" / "s3p_cases.json").read_text())


def test_commands_and_replies_are_paired_in_order() -> None:
    heard = told(STORY)
    assert [(each.sender, each.kind, each.exchange) for each in heard] == [
        (CLIENT, "CREATE", 1),
        (SERVER, "OK", 1),
        (CLIENT, "APPEND", 2),
        (CLIENT, "APPEND", 3),
        (SERVER, "ID", 2),
        (SERVER, "ID", 3),
        (CLIENT, "READ", 4),
        (CLIENT, "CREATE", 5),
        (SERVER, "RECORDS", 4),
        (SERVER, "ERR_STREAM_EXISTS", 5),
        (CLIENT, "APPEND", 6),
        (CLIENT, "TRIM", 7),
        (CLIENT, "READ", 8),
        (SERVER, "ERR_UNKNOWN_STREAM", 6),
        (SERVER, "OK", 7),
        (SERVER, "RECORDS", 8),
        (CLIENT, "DELETE", 9),
        (SERVER, "OK", 9),
    ]
    assert {each.layer for each in heard} == {"s3p"}
    assert heard[2].fields == {"name": "orders", "count": 2, "size": 13, "id": MS}
    assert heard[6].fields == {"name": "orders", "count": 10, "block": 250, "min_id": f"{MS}-1"}
    assert heard[8].fields == {"count": 2, "size": 308, "first_id": f"{MS}-1", "last_id": f"{MS}-2"}
    assert heard[8].stream == heard[6].stream == "orders"
    assert heard[9].failure == "ERR_STREAM_EXISTS: stream orders already exists"
    assert heard[9].fields["clause"] == "S3P 0.2.0, section 8.1"
    assert heard[10].stream == "none\\xff"
    assert heard[12].fields == {"name": "orders"} and heard[12].event == ReadRecords(b"orders")
    assert {each.state for each in heard} == {"open"}


def test_messages_stand_where_they_were_said() -> None:
    data = {sender: b"".join(part for who, part in STORY if who is sender) for sender in (CLIENT, SERVER)}
    ends = {CLIENT: 0, SERVER: 0}
    for each in told(STORY):
        assert each.offset == ends[each.sender]
        ends[each.sender] = each.offset + each.length
        piece = data[each.sender][each.offset : ends[each.sender]]
        again = encode_command(each.event) if each.sender is CLIENT else [encode_reply(each.event)]
        assert piece == b"".join(again)
    assert ends == {sender: len(whole) for sender, whole in data.items()}


def test_times_are_those_of_the_first_and_last_byte() -> None:
    create, ok = STORY[0][1], STORY[1][1]
    said = [(CLIENT, create[:3]), (CLIENT, create[3:9]), (CLIENT, create[9:] + create[:1])]
    said += [(CLIENT, create[1:]), (SERVER, ok + ok[:2]), (SERVER, ok[2:])]
    first, second, one, two = told(said)
    assert [(each.start_ns, each.end_ns) for each in (first, second, one, two)] == [
        (1000, 3000),
        (3000, 4000),
        (5000, 5000),
        (5000, 6000),
    ]
    assert (first.answers, one.answers, two.answers) == (None, 2000, 2000)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_cuts_change_nothing_but_times(size: int) -> None:
    def seen(said: Said) -> list[Any]:
        keys = ["sender", "offset", "length", "kind", "exchange", "stream", "fields", "failure"]
        heard = told(said)
        records = [
            (r.action, r.stream, r.body, r.record_id, r.timestamp, r.acknowledged, r.failure)
            for each in heard
            for r in each.records
        ]
        return [[tuple(getattr(each, key) for key in keys) for each in heard], records]

    assert seen(cut_up(STORY, size)) == seen(STORY)


def test_records_are_those_that_went_by() -> None:
    *_, records = parts(told(STORY))
    odd = b"\r\n$5\r\n\0\xff"
    assert [(r.action, r.stream, r.body, r.record_id, r.timestamp, r.acknowledged, r.failure) for r in records] == [
        (APPENDED, "orders", b"hello", f"{MS}-0", MS, True, ""),
        (APPENDED, "orders", odd, f"{MS}-1", MS, True, ""),
        (APPENDED, "orders", b"x" * 300, f"{MS}-2", MS, True, ""),
        (DELIVERED, "orders", odd, f"{MS}-1", MS, True, ""),
        (DELIVERED, "orders", b"x" * 300, f"{MS}-2", MS, True, ""),
        (APPENDED, "none\\xff", b"lost", None, None, False, "ERR_UNKNOWN_STREAM: stream none does not exist"),
    ]
    assert [record.time_ns for record in records] == [3000, 3000, 3000, 6000, 6000, 8000]


def test_appends_without_an_answer_come_at_the_end() -> None:
    said = [command(AppendRecords(b"s", [b"a", b"b"]), AppendRecords(b"s", [b"c"])), reply(AppendedId(RecordId(5, 1)))]
    heard = told(said)
    assert heard[-1].kind == "end" and heard[-1].length == 0 and heard[-1].state == "closed"
    *_, records = parts(heard)
    assert [(r.body, r.acknowledged, r.record_id) for r in records] == [
        (b"a", True, "5-0"),
        (b"b", True, "5-1"),
        (b"c", False, None),
    ]


def test_an_identifier_that_cannot_be_counted_back_is_not_made_up() -> None:
    *_, records = parts(told([command(AppendRecords(b"s", [b"a", b"b"])), reply(AppendedId(RecordId(5, 0)))]))
    assert [(r.body, r.record_id) for r in records] == [(b"a", None), (b"b", "5-0")]


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_appends_that_are_never_answered_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    of = conversation("s3p")
    dialogue = S3PDialogue(of)
    dialogue._waiting = PendingBatches(most=2)
    appends = [command(AppendRecords(b"s", [b"%d" % number])) for number in range(4)]
    answers = reply(*[AppendedId(RecordId(number, 0)) for number in range(4)])
    heard, problems, records = parts(hear(dialogue, events(of, [*appends, answers])))
    assert not problems
    assert [(r.body, r.acknowledged, r.record_id) for r in records] == [
        (b"0", False, None),
        (b"1", False, None),
        (b"2", True, "2-0"),
        (b"3", True, "3-0"),
    ]
    assert [each.exchange for each in heard] == [1, 2, 3, 4, 1, 2, 3, 4]


def test_commands_that_are_never_answered_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_s3p.capture.conversation.MOST_WAITING", 2)
    said = [command(*[Create(b"%d" % number) for number in range(4)]), reply(Ok(), Ok(), Ok(), Ok())]
    assert [(each.exchange, each.stream) for each in told(said)[4:]] == [(1, ""), (2, ""), (3, "2"), (4, "3")]


# ---- against the front, and everything else --------------------------------------------------------------------------


@pytest.fixture
async def back(tmp_path: Path) -> AsyncIterator[Back]:
    async with store_with_basin(tmp_path) as opened:
        yield opened


async def test_a_real_front(back: Back) -> None:
    """The dialogue reports exactly what the client sent and received."""
    ours, theirs = trio.testing.memory_stream_pair()
    stream = RecordedStream(ours)
    client = Client(stream)
    bodies = [random.Random(7).randbytes(size) for size in (1, 300, 5000)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(S3PFront(back).serve, theirs)
        await client.call(Create(b"orders"))
        ids = await client.call(AppendRecords(b"orders", bodies[:2]), AppendRecords(b"orders", bodies[2:], 1 << 50))
        (found,) = await client.call(ReadRecords(b"orders"))
        await client.send(raw=b"*3\r\n$4\r\nREAD\r\n$6\r\norders\r\n*2\r\n$5\r\nCOUNT\r\n$4\r\n1001\r\n")
        client.codec.send(Create(b"x"))
        await client.reply()
        await stream.send_eof()
        nursery.cancel_scope.cancel()
    of = conversation("s3p")
    heard, (problem,), records = parts(hear(S3PDialogue(of), events(of, stream.said)))
    assert isinstance(found, Records)
    assert [(r.action, r.body, r.record_id) for r in records] == [
        (action, body, str(record_id)) for action in (APPENDED, DELIVERED) for record_id, body in found.pairs()
    ]
    assert [each.event for each in heard if each.kind == "ID"] == ids
    assert problem.rule == "refused with ERR_LIMITS: COUNT 1001 is not in the range 1 to 1000"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_cases(case: dict[str, Any]) -> None:
    """Dialogues report where a conversation is wrong and go on; well-formed commands are reported as commands."""
    send = "".join(case["send"]) if isinstance(case["send"], list) else case["send"]
    said = [raw("".join(case["setup"]) + send)]
    of = conversation("s3p")
    _, problems, _ = parts(hear(S3PDialogue(of), events(of, said, closed=())))
    if case["closes"] and "BAD_FORMAT" in case["expect"] and "LIMITS" not in case["expect"]:
        assert problems and problems[0].clause
    for problem in problems:
        assert 0 <= problem.offset <= len(said[0][1])
        assert problem.clause or "into a message" in problem.rule


@given(st.data())
def test_mutations_are_read_as_before_up_to_the_problem(data: st.DataObject) -> None:
    """Nothing before the problem's offset changes, and nothing raises."""
    spoken = b"".join(part for who, part in STORY if who is CLIENT)
    at = data.draw(st.integers(0, len(spoken) - 1))
    changed = spoken[:at] + data.draw(st.binary(max_size=3)) + spoken[at + data.draw(st.integers(0, 3)) :]
    of = conversation("s3p")
    heard, problems, _ = parts(hear(S3PDialogue(of), events(of, [(CLIENT, changed)])))
    before = [each for each in told([(CLIENT, spoken)]) if each.kind != "end"]
    for old, new in itertools.takewhile(
        lambda pair: pair[0].offset + pair[0].length <= at, zip(before, heard, strict=False)
    ):
        assert (old.offset, old.kind, old.fields) == (new.offset, new.kind, new.fields)
    for problem in problems:
        assert problem.offset >= max((old.offset for old in before if old.offset <= at), default=0)
