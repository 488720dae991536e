"""S3P conversations with errors, and with parts missing."""

from __future__ import annotations

import pytest
from support.captures.dialogues import CLIENT, SERVER, Said, conversation, cut_up, events, hear, parts
from support.s3p.dialogue import STORY, command, raw, reply, told

from penstock.capture.dialogue import APPENDED, DELIVERED
from penstock.capture.pcapng import Chunk, Closed, Lost, Opened, Sender
from penstock.model.records import RecordId
from penstock_s3p.capture.conversation import S3PDialogue
from penstock_s3p.codec import AppendedId, AppendRecords, Create, Delete, ErrorReply, Ok, ReadRecords, Records
from penstock_s3p.codec.encoding import encode_command, encode_reply

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
    heard, (problem,), _ = parts(hear(S3PDialogue(of), events(of, said)))
    assert [(each.kind, each.exchange) for each in heard] == [("ERR_LIMITS", 1)]
    assert problem.offset == append.index("$2000000")
    assert "record 1 of 2000000 bytes exceeds" in problem.rule


def test_what_is_half_said_at_the_end() -> None:
    of = conversation("s3p")
    said = [raw(FIRST + FIRST[:10]), (SERVER, b"+OK\r\n+O")]
    for closed, words in (([], "the recording ends"), ([CLIENT, SERVER], "finished")):
        _, problems, _ = parts(hear(S3PDialogue(of), events(of, said, closed=closed)))
        assert [(each.sender, each.offset, each.time_ns, each.fatal) for each in problems] == [
            (CLIENT, len(FIRST) + 10, 3000 if closed else 2000, False),
            (SERVER, 7, 4000 if closed else 2000, False),
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
    """Bytes before the first message are skipped, in however many chunks."""
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


def test_what_only_looked_like_a_message_is_no_end() -> None:
    """A record may contain a command. A violation after a guess is a reason to guess again."""
    of = conversation("s3p")
    first, rest = encode_command(Delete(b"s"))[0], b" was said\r\n"
    said = [(CLIENT, first), (CLIENT, rest), command(Create(b"a")), command(Create(b"b"))]
    heard, (problem,), _ = parts(hear(S3PDialogue(of), events(of, said, offsets=(1000, 0))))
    assert [each.kind for each in heard] == ["DELETE", "CREATE", "CREATE"]
    assert problem.rule.startswith("expected an array") and not problem.fatal
    assert problem.offset == 1000 + len(first)


def test_an_identifier_within_a_reply_is_no_beginning() -> None:
    of = conversation("s3p")
    said = [(SERVER, b"$3\r\n5-0\r\n$5\r\nhello\r\n"), (SERVER, b"$3\r\n6-0\r\n$1\r\nx\r\n"), reply(Ok())]
    heard, (problem,), _ = parts(hear(S3PDialogue(of), events(of, said, offsets=(10, 10))))
    assert [each.kind for each in heard] == ["OK"]
    assert problem.offset == 10 and problem.rule.startswith("36 bytes")


def test_lost_bytes() -> None:
    """The message in progress is lost with them; reading resumes at the next message."""
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


def appends_around_a_gap(before: list[int], after: list[list[int]]) -> list[tuple[bytes, str | None, bool]]:
    """Commands at once; then a gap with the reply to the first; then replies and commands, in turn."""
    of = conversation("s3p")
    ends = {CLIENT: 0, SERVER: 0}

    def chunk(sender: Sender, numbers: list[int]) -> Chunk:
        asked = b"".join(command(AppendRecords(b"s", [b"%d" % number]))[1] for number in numbers)
        told = b"".join(reply(AppendedId(RecordId(number, 0)))[1] for number in numbers)
        data = asked if sender is CLIENT else told
        ends[sender] += len(data)
        return Chunk(of, 1, sender, ends[sender] - len(data), data)

    said = [Opened(of, 0), chunk(CLIENT, before), Lost(of, 2, SERVER, 0, 10, "not captured")]
    ends[SERVER] = 10
    said += [chunk((SERVER, CLIENT)[turn % 2], numbers) for turn, numbers in enumerate(after) if numbers]
    *_, records = parts(hear(S3PDialogue(of), said))
    return [(r.body, r.record_id, r.acknowledged) for r in records]


def test_a_client_that_waits_for_replies_was_given_those_that_are_lost() -> None:
    """Replies after the gap belong to the latest requests, not to those whose replies were never seen."""
    assert appends_around_a_gap([1], [[], [2], [2], [3], [3]]) == [
        (b"2", "2-0", True),
        (b"3", "3-0", True),
        (b"1", None, False),
    ]


def test_positions_are_not_guessed_behind_lost_replies() -> None:
    """Of a client that does not wait. Once all is answered nothing was lost."""
    assert appends_around_a_gap([1, 2, 3], [[2], [4], [3], [5]]) == [
        (b"1", None, True),
        (b"2", None, True),
        (b"3", None, False),
        (b"4", None, False),
        (b"5", None, False),
    ]
    assert appends_around_a_gap([1, 2], [[1, 2], [3, 4], [3, 4]]) == [
        (b"1", None, True),
        (b"2", "2-0", True),
        (b"3", "3-0", True),
        (b"4", "4-0", True),
    ]


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
