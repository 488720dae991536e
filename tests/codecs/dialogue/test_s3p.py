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
from support.dialogues import CLIENT, SERVER, RecordedStream, Said, conversation, cut_up, events, hear, messages, parts
from support.s3p_front import Client, store_with_basin

from penstock.backs.base import Back
from penstock.fronts.s3p import S3PFront
from penstock_codecs.capture import Chunk, Closed, Lost, Opened
from penstock_codecs.dialogue import APPENDED, DELIVERED, Message
from penstock_codecs.dialogue.s3p import S3PDialogue
from penstock_codecs.dialogue.waiting import Waiting
from penstock_codecs.model import RecordId
from penstock_codecs.s3p import (
    AppendedId,
    AppendRecords,
    Command,
    Create,
    Delete,
    ErrorReply,
    Ok,
    ReadRecords,
    Records,
    Reply,
    TrimRecords,
)
from penstock_codecs.s3p.encoding import encode_command, encode_reply

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "conformance" / "s3p_cases.json").read_text())
MS = 1_700_000_000_000


def command(*commands: Command) -> tuple[Any, bytes]:
    return CLIENT, b"".join(piece for each in commands for piece in encode_command(each))


def reply(*replies: Reply) -> tuple[Any, bytes]:
    return SERVER, b"".join(map(encode_reply, replies))


def raw(text: str) -> tuple[Any, bytes]:
    return CLIENT, text.encode("latin-1")


STORY: Said = [
    command(Create(b"orders")),
    reply(Ok()),
    command(AppendRecords(b"orders", [b"hello", b"\r\n$5\r\n\0\xff"], MS), AppendRecords(b"orders", [b"x" * 300])),
    reply(AppendedId(RecordId(MS, 1)), AppendedId(RecordId(MS, 2))),
    command(ReadRecords(b"orders", 10, 250, RecordId(MS, 1)), Create(b"orders")),
    reply(Records.of([(RecordId(MS, 1), b"\r\n$5\r\n\0\xff"), (RecordId(MS, 2), b"x" * 300)])),
    reply(ErrorReply("ERR_STREAM_EXISTS", "stream orders already exists")),
    command(AppendRecords(b"none\xff", [b"lost"]), TrimRecords(b"orders", RecordId(MS, 1)), ReadRecords(b"orders")),
    reply(ErrorReply("ERR_UNKNOWN_STREAM", "stream none does not exist"), Ok(), Records.of([])),
    command(Delete(b"orders")),
    reply(Ok()),
]


def told(said: Said) -> list[Message]:
    return messages(S3PDialogue, conversation("s3p"), said)


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


# ---- what is wrong ---------------------------------------------------------------------------------------------------


FIRST = "*3\r\n$6\r\nCREATE\r\n$1\r\ns\r\n*0\r\n"
WRONG = [
    ("*3\n", 0, "not by CRLF", "3:"),
    ("+OK\r\n", 0, "expected an array", "4:"),
    ("*5\r\n", 0, "3 or 4 elements", "4:"),
    ("*3\r\n$4\r\nPING\r\n", 4, "unknown command PING", "7:"),
    ("*4\r\n$4\r\nREAD\r\n", 4, "READ is an array of 3", "8.3"),
    ("*3\r\n$6\r\nCREATE\r\n$0\r\n\r\n", 16, "zero-length", "3:"),
    ("*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*1\r\n", 21, "pairs of key and value", "7:"),
    ("*3\r\n$6\r\nCREATE\r\n$1\r\ns\r\n*2\r\n$1\r\nX\r\n", 27, "unknown option X of CREATE", "8.1"),
    ("*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*2\r\n$5\r\nCOUNT\r\n$1\r\nz\r\n", 36, "COUNT 'z' is not", "8.3"),
    ("*3\r\n$4\r\nTRIM\r\n$1\r\ns\r\n*2\r\n$6\r\nMIN_ID\r\n$1\r\nz\r\n", 37, "MIN_ID 'z'", "5:"),
    ("*3\r\n$4\r\nTRIM\r\n$1\r\ns\r\n*0\r\n", 21, "needs option MIN_ID", "8.4"),
    ("*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*0\r\n", 27, "at least one record", "8.2"),
    ("*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*1\r\n$1\r\nab\r\n", 31, "not by CRLF", "3:"),
    ("*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*1\r\n:1\r\n", 31, "expected a bulk string", "8.2"),
]


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(("text", "at", "rule", "clause"), WRONG)
def test_a_command_that_is_no_command(text: str, at: int, rule: str, clause: str, size: int) -> None:
    said = cut_up([raw(FIRST), raw(text)], size)
    said.append(reply(Ok(), ErrorReply("ERR_BAD_FORMAT", "no")))
    of = conversation("s3p")
    heard, problems, _ = parts(hear(S3PDialogue(of), events(of, said)))
    (problem,) = problems
    assert (problem.sender, problem.offset, problem.exchange, problem.fatal) == (CLIENT, len(FIRST) + at, 2, True)
    assert rule in problem.rule
    assert problem.clause.startswith(f"S3P 0.2.0, section {clause}")
    place = problem.offset - problem.context_offset
    assert problem.context[place:].startswith(text[at : at + 1].encode())
    assert [(each.kind, each.exchange) for each in heard] == [("CREATE", 1), ("OK", 1), ("ERR_BAD_FORMAT", 2)]
    assert heard[-1].state == "failed"


WRONG_REPLIES = [
    (b":1\r\n", 0, "expected a reply", "4:"),
    (b"+FINE\r\n", 0, "neither +OK nor", "9:"),
    (b"$3\r\nabc\r\n", 0, "is not an identifier", "5:"),
    (b"*1\r\n", 0, "pairs of identifier", "8.3"),
    (b"*4\r\n$3\r\n2-0\r\n$1\r\na\r\n$3\r\n1-0\r\n$1\r\nb\r\n", 0, "not increasing", "8.3"),
    (b"*2\r\n+OK\r\n", 4, "expected a bulk string", "8.3"),
]


@pytest.mark.parametrize(("data", "at", "rule", "clause"), WRONG_REPLIES)
def test_a_reply_that_is_no_reply(data: bytes, at: int, rule: str, clause: str) -> None:
    said = [command(Create(b"s"), Create(b"t")), (SERVER, b"+OK\r\n" + data)]
    of = conversation("s3p")
    _, (problem,), _ = parts(hear(S3PDialogue(of), events(of, said)))
    assert (problem.sender, problem.offset, problem.exchange, problem.fatal) == (SERVER, 5 + at, 2, True)
    assert rule in problem.rule
    assert problem.clause.startswith(f"S3P 0.2.0, section {clause}")


@pytest.mark.parametrize(
    ("said", "offset", "rule", "exchange"),
    [
        ([command(Create(b"s")), reply(AppendedId(RecordId(1, 1)))], 0, "ID came where OK was expected", 1),
        ([command(Create(b"s")), reply(Ok(), Ok())], 5, "OK came where nothing was expected", None),
        ([(CLIENT, b"*3\r\n$6"), reply(Ok())], 0, "OK came where nothing was expected", None),
        (
            [command(Create(b"s")), reply(ErrorReply("ERR_LIMITS", "x"), Ok())],
            15,
            "OK after an error that ends the connection",
            None,
        ),
    ],
)
def test_a_reply_that_answers_nothing(said: Said, offset: int, rule: str, exchange: int | None) -> None:
    of = conversation("s3p")
    _, problems, _ = parts(hear(S3PDialogue(of), events(of, said, closed=())))
    (problem,) = [each for each in problems if each.sender is SERVER]
    assert (problem.offset, problem.rule, problem.exchange) == (offset, rule, exchange)
    assert problem.clause


def test_what_a_server_refuses_is_shown_in_the_command() -> None:
    """A well-formed command can be too large, for this server or for the usual limits."""
    read = "*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*2\r\n$5\r\nCOUNT\r\n$4\r\n5000\r\n"
    said = [raw(FIRST), reply(Ok()), raw(read), reply(ErrorReply("ERR_LIMITS", "COUNT 5000"))]
    of = conversation("s3p")
    heard, (problem,), _ = parts(hear(S3PDialogue(of), events(of, said)))
    assert problem.sender is CLIENT and problem.exchange == 2 and not problem.fatal
    assert problem.offset == len(FIRST) + read.index("$4\r\n5000")
    assert problem.rule == "refused with ERR_LIMITS: COUNT 5000 is not in the range 1 to 1000"
    assert problem.clause.startswith("S3P 0.2.0, section 8.3")
    assert heard[-1].failure == "ERR_LIMITS: COUNT 5000"


def test_a_refusal_in_the_middle_of_a_command() -> None:
    """The limit is on the announced length, so the server need not wait for the record."""
    append = "*4\r\n$6\r\nAPPEND\r\n$1\r\ns\r\n*0\r\n*1\r\n$2000000\r\n" + 1000 * "x"
    said = [raw(append), reply(ErrorReply("ERR_LIMITS", "record too large"))]
    of = conversation("s3p")
    heard, problems, _ = parts(hear(S3PDialogue(of), events(of, said)))
    assert [(each.kind, each.exchange) for each in heard] == [("ERR_LIMITS", 1)]
    assert problems[0].offset == append.index("$2000000")
    assert "record 1 of 2000000 bytes exceeds" in problems[0].rule
    assert problems[1].rule == f"the client finished {len(append)} bytes into a message"


def test_what_is_half_said_at_the_end() -> None:
    of = conversation("s3p")
    said = [raw(FIRST + FIRST[:10]), (SERVER, b"+OK\r\n+O")]
    for closed, words in (([], "the recording ends"), ([CLIENT, SERVER], "finished")):
        _, problems, _ = parts(hear(S3PDialogue(of), events(of, said, closed=closed)))
        assert [(each.sender, each.offset, each.fatal) for each in problems] == [
            (CLIENT, len(FIRST) + 10, False),
            (SERVER, 7, False),
        ]
        assert all(words in each.rule for each in problems)
        assert problems[0].context == FIRST[10:].encode() + FIRST[:10].encode() or problems[0].context_offset == 0


def test_a_reset_ends_both_sides() -> None:
    of = conversation("s3p")
    said = [Opened(of, 0), Chunk(of, 1, CLIENT, 0, FIRST[:5].encode()), Closed(of, 2, SERVER, reset=True)]
    _, (problem,), _ = parts(hear(S3PDialogue(of), said))
    assert problem.sender is CLIENT and problem.rule == "the connection was reset by the server 5 bytes into a message"


# ---- what is missing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5, 100])
def test_a_conversation_from_its_middle(size: int) -> None:
    """What stands before the first message is skipped, in however many chunks."""
    middle = [raw("0\r\n"), (SERVER, b"lo\r\n"), *STORY]
    of = conversation("s3p")
    _, problems, records = parts(hear(S3PDialogue(of), events(of, cut_up(middle, size), offsets=(1000, 2000))))
    assert [(each.sender, each.offset, each.fatal) for each in problems] == [
        (CLIENT, 1000, False),
        (SERVER, 2000, False),
    ]
    assert [each.rule.split()[0] for each in problems] == ["3", "4"]
    whole, _, expected = parts(told(STORY))
    assert [(r.body, r.record_id) for r in records] == [(r.body, r.record_id) for r in expected]
    assert whole[0].offset == 0


def test_an_identifier_within_a_reply_is_no_beginning() -> None:
    of = conversation("s3p")
    said = [(SERVER, b"$3\r\n5-0\r\n$5\r\nhello\r\n"), (SERVER, b"$3\r\n6-0\r\n$1\r\nx\r\n"), reply(Ok())]
    heard, (problem,), _ = parts(hear(S3PDialogue(of), events(of, said, offsets=(10, 10))))
    assert [each.kind for each in heard] == ["OK"]
    assert problem.offset == 10 and problem.rule.startswith("36 bytes")


def test_lost_bytes() -> None:
    """What was under way is lost with them; what follows is read from the next message on."""
    of = conversation("s3p")
    one = STORY[0][1]
    said = [
        Opened(of, 0),
        Chunk(of, 1, CLIENT, 0, one + one[:7]),
        Chunk(of, 2, SERVER, 0, b"+OK\r\n"),
        Lost(of, 3, CLIENT, len(one) + 7, 100, "not written"),
        Chunk(of, 4, CLIENT, len(one) + 107, b"rubbish\r\n"),
        Chunk(of, 5, CLIENT, len(one) + 116, encode_command(Delete(b"s"))[0]),
        Chunk(of, 6, SERVER, 5, b"+OK\r\n"),
    ]
    heard, problems, _ = parts(hear(S3PDialogue(of), said))
    assert [(each.kind, each.exchange, each.offset) for each in heard] == [
        ("CREATE", 1, 0),
        ("OK", 1, 0),
        ("DELETE", 2, len(one) + 116),
        ("OK", 2, 5),
    ]
    assert [(each.offset, each.time_ns, each.fatal) for each in problems] == [
        (len(one) + 7, 3, False),
        (len(one) + 107, 4, False),
    ]


def test_nothing_follows_what_is_lost_for_good() -> None:
    of = conversation("s3p")
    lost = Lost(of, 3, SERVER, 0, 0, "the disk is full")
    said = [Opened(of, 0), Chunk(of, 1, CLIENT, 0, command(AppendRecords(b"s", [b"a"]))[1]), lost]
    _, (problem,), records = parts(hear(S3PDialogue(of), said))
    assert problem.fatal and "the disk is full" in problem.rule
    assert [(r.body, r.acknowledged) for r in records] == [(b"a", False)]


def test_lost_replies_leave_commands_behind() -> None:
    of = conversation("s3p")
    asked = command(AppendRecords(b"s", [b"a"]), Create(b"t"), ReadRecords(b"s"))[1]
    found = encode_reply(Records.of([(RecordId(1, 0), b"a")]))
    said = [
        Opened(of, 0),
        Chunk(of, 1, CLIENT, 0, asked),
        Lost(of, 2, SERVER, 0, 14, "not written"),
        Chunk(of, 3, SERVER, 14, found),
    ]
    heard, _, records = parts(hear(S3PDialogue(of), said))
    assert [(each.kind, each.exchange) for each in heard[3:]] == [("RECORDS", 3), ("end", None)]
    assert [(r.action, r.body, r.acknowledged) for r in records] == [(DELIVERED, b"a", True), (APPENDED, b"a", False)]


def test_a_rotation_is_no_gap_and_a_pause_is_one() -> None:
    of = conversation("s3p")
    one = STORY[0][1]
    said = [
        Opened(of, 0),
        Chunk(of, 1, CLIENT, 0, one),
        Opened(of, 2, len(one), 0, continued=True),
        Chunk(of, 3, CLIENT, len(one), one),
        Opened(of, 4, 2 * len(one) + 50, 0, continued=True),
        Chunk(of, 5, CLIENT, 2 * len(one) + 50, one),
    ]
    heard, problems, _ = parts(hear(S3PDialogue(of), said))
    assert [each.kind for each in heard] == ["CREATE"] * 3
    assert [each.rule for each in problems] == ["50 bytes are not in the capture: recording paused"]


def test_bytes_that_came_twice_count_once() -> None:
    of = conversation("s3p")
    one = STORY[0][1]
    said = [Opened(of, 0), Chunk(of, 1, CLIENT, 0, one), Chunk(of, 2, CLIENT, 4, one[4:] + one)]
    heard, problems, _ = parts(hear(S3PDialogue(of), said))
    assert [each.offset for each in heard] == [0, len(one)] and not problems


# ---- bounds ----------------------------------------------------------------------------------------------------------


def test_appends_that_are_never_answered_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    of = conversation("s3p")
    dialogue = S3PDialogue(of)
    dialogue._waiting = Waiting(most=2)
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
    monkeypatch.setattr("penstock_codecs.dialogue.s3p.conversation.MOST_WAITING", 2)
    said = [command(*[Create(b"%d" % number) for number in range(4)]), reply(Ok(), Ok(), Ok(), Ok())]
    assert [(each.exchange, each.stream) for each in told(said)[4:]] == [(1, ""), (2, ""), (3, "2"), (4, "3")]


# ---- against the front, and everything else --------------------------------------------------------------------------


@pytest.fixture
async def back(tmp_path: Path) -> AsyncIterator[Back]:
    async with store_with_basin(tmp_path) as opened:
        yield opened


async def test_a_real_front(back: Back) -> None:
    """What the dialogue makes known is what the client sent and was given."""
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
    """Whatever is said, dialogues say where it is wrong and go on; well-formed commands are commands."""
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
