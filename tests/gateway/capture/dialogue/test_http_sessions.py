"""S2S sessions in a dialogue: which records an acknowledgement makes known, and what is wrong in frames."""

from __future__ import annotations

import gzip

import pytest
import zstandard
from hyperframe.frame import DataFrame, RstStreamFrame, SettingsFrame
from support.captures.dialogues import CLIENT, SERVER, Said, conversation, events, hear, parts
from support.http.h2_frames import headers
from support.http.messages import (
    INPUT,
    LAST,
    OPEN,
    PATH,
    READ,
    SESSION,
    STAMPED,
    ack,
    batch,
    chunk,
    heard,
    known,
    request,
)
from support.s2.frames import encode_frame

from penstock.capture.dialogue.http import appends
from penstock.capture.dialogue.http.dialogue import HttpDialogue
from penstock.capture.pcapng import Noted, Opened
from penstock.wire.http import PREFACE
from penstock_proto import s2_pb2 as pb

# ---- appends -------------------------------------------------------------------------------------------------------


def test_timestamps_are_what_the_acknowledgement_tells() -> None:
    inputs = [chunk(encode_frame(STAMPED)), chunk(encode_frame(INPUT)), chunk(encode_frame(STAMPED))]
    acks = [ack(0, 3, (5, 7)), ack(3, 5, (8, 11)), ack(5, 8, (11, 11))]
    said = [(CLIENT, SESSION + b"".join(inputs)), (SERVER, OPEN + b"".join(chunk(encode_frame(each)) for each in acks))]
    _, problems, records = heard(*said)
    assert not problems
    assert [(each.seq_num, each.timestamp) for each in records] == [
        *[(0, 5), (1, 6), (2, 7)],
        *[(3, 8), (4, 11)],
        *[(5, 11), (6, 11), (7, 11)],
    ]


def test_unacknowledged_records_come_at_the_end() -> None:
    inputs = chunk(encode_frame(INPUT)) + chunk(encode_frame(STAMPED))
    told, problems, records = heard((CLIENT, SESSION + inputs), (SERVER, OPEN + chunk(encode_frame(ack(0, 2)))))
    assert not problems
    assert [record.acknowledged for record in records] == [True, True, False, False, False]
    assert (told[-1].kind, told[-1].length) == ("end", 0)
    assert known(told[-1].records) == [(b"x", None, stamp, False, "") for stamp in (5, 6, 7)]


def test_records_went_by_with_the_input_that_brought_them() -> None:
    """Not when they were acknowledged, refused or given up, which the message that makes them known tells."""
    inputs = chunk(encode_frame(INPUT)) + chunk(encode_frame(STAMPED))
    told, _, records = heard((CLIENT, SESSION + inputs), (SERVER, OPEN + chunk(encode_frame(ack(0, 2)))))
    sent = [each.end_ns for each in told if each.kind == "AppendInput"]
    acknowledged = [each.end_ns for each in told if each.kind == "AppendAck"]
    assert [record.time_ns for record in records] == [sent[0]] * 2 + [sent[1]] * 3
    assert acknowledged[0] > sent[1]


def test_unacknowledged_records_come_when_the_response_ends() -> None:
    told, (problem,), _ = heard((CLIENT, SESSION + chunk(encode_frame(INPUT)) + LAST), (SERVER, OPEN + LAST))
    assert (problem.sender, problem.offset, problem.fatal) == (SERVER, len(OPEN), False)
    assert problem.rule == "the session ended with 1 inputs unacknowledged"
    assert [(each.kind, len(each.records)) for each in told] == [
        ("POST", 0),
        ("AppendInput", 0),
        ("END", 0),
        ("200", 0),
        ("END", 2),
    ]


def test_a_refusal_is_of_all_that_follows() -> None:
    terminal = encode_frame(b"\x01\x9c" + b'{"seq_num_mismatch":2}', 0x80)
    inputs = b"".join(chunk(encode_frame(each)) for each in (INPUT, INPUT, STAMPED))
    told, problems, _ = heard(
        (CLIENT, SESSION + inputs + LAST), (SERVER, OPEN + chunk(encode_frame(ack(0, 2)) + terminal) + LAST)
    )
    assert not problems
    (last,) = [each for each in told if each.kind == "Terminal"]
    failure = "seq_num_mismatch: sequence number mismatch: the next is 2"
    assert last.failure == failure
    assert {record.failure for record in last.records} == {failure}
    assert len(last.records) == 5


def test_a_reset_leaves_appends_unacknowledged() -> None:
    fields = [(":method", "POST"), (":scheme", "http"), (":authority", "h"), (":path", PATH)]
    fields += [("s2-basin", "basin-one"), ("content-type", "s2s/proto")]
    frames = [headers(1, fields), DataFrame(1, encode_frame(INPUT)), RstStreamFrame(1, 8)]
    wire = PREFACE + b"".join(each.serialize() for each in (SettingsFrame(0), *frames))
    told, problems, _ = heard((CLIENT, wire))
    assert not problems
    assert (told[-1].kind, told[-1].state) == ("RST_STREAM", "reset")
    assert known(told[-1].records) == [(body, None, None, False, "") for body in (b"one", b"two")]


def test_so_much_waits_for_an_acknowledgement_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "MAX_WAITING", 2)
    inputs = chunk(encode_frame(INPUT) * 3)
    acks = [chunk(b"".join(encode_frame(ack(n, n + 2)) for n in numbers)) for numbers in ((0, 2, 4), (6,))]
    told, (problem,), records = heard(
        (CLIENT, SESSION + inputs), (SERVER, OPEN + acks[0]), (CLIENT, chunk(encode_frame(INPUT))), (SERVER, acks[1])
    )
    assert [each.kind for each in told].count("AppendAck") == 4
    assert [record.seq_num for record in records] == [0, 1, 2, 3, 6, 7]
    assert not problem.fatal
    assert "an acknowledgement is waited for" in problem.rule


def test_the_basin_may_be_known_to_the_gateway_alone() -> None:
    of = conversation("s2")
    said: Said = [(CLIENT, request("GET").replace(b"s2-basin: basin-one\r\n", b""))]
    opened, *rest = events(of, said)
    assert isinstance(opened, Opened)
    notes = [("route", "r"), ("stream", "noted-one/s"), ("stream", "noted-one/other")]
    noted = [Noted(of, 0, key, value) for key, value in notes]
    told, _, _ = parts(hear(HttpDialogue(of), [opened, *noted, *rest]))
    assert told[0].stream == "noted-one/s"
    told, _, _ = parts(hear(HttpDialogue(of), [opened, *rest]))
    assert told[0].stream == "s"


# ---- faults in sessions --------------------------------------------------------------------------------------------

GOOD = encode_frame(INPUT)


@pytest.mark.parametrize(
    ("bad", "at", "rule"),
    [
        (b"\0\0\0", 0, "empty frame payload"),
        (b"\x20\0\1", 0, "frame exceeds decode limit"),
        (b"\0\0\2\x60x", 3, "unknown compression algorithm"),
        (encode_frame(b"\x01\x9c{}", 0x80), 3, "Unexpected terminal frame as input"),
        (encode_frame(zstandard.compress(b"x" * 50)[:-2], 0x20), 4, "compressed data is cut short"),
        (encode_frame(b"not gzip", 0x40), 4, "damaged gzip"),
        (encode_frame(INPUT + b"\x0a\x05\x1a\x09abc"), 4 + len(INPUT) + 3, "AppendRecord.body takes 9 bytes, 3 "),
        (encode_frame(INPUT + b"\x1a\x03ab\xff"), 4 + len(INPUT) + 4, "AppendInput.fencing_token is text of UTF-8"),
        (encode_frame(INPUT + b"\x0f"), 4 + len(INPUT), "a field of AppendInput has a number and a wire type"),
        (encode_frame(INPUT + b"\x10\xff\xff"), 4 + len(INPUT) + 1, "a number of AppendInput.match_seq_num ends"),
        (encode_frame(gzip.compress(INPUT + b"\x0f", mtime=0), 0x40), 4, "a field of AppendInput has"),
    ],
)
def test_the_first_wrong_byte_of_a_session_is_told(bad: bytes, at: int, rule: str) -> None:
    said = SESSION + chunk(GOOD + bad + GOOD) + LAST
    told, problems, _ = heard((CLIENT, said), (SERVER, OPEN + chunk(encode_frame(ack(0, 2))) + LAST))
    problem = problems[0]
    start = said.index(GOOD) + len(GOOD)
    assert rule in problem.rule
    assert problem.offset == start + at
    assert (problem.exchange, problem.fatal) == (1, True)
    assert problem.clause.startswith("S2 API v1")
    assert said[problem.context_offset :].startswith(problem.context)
    assert problem.context_offset <= problem.offset < problem.context_offset + len(problem.context)
    assert [each.kind for each in told] == ["POST", "AppendInput", "END", "200", "AppendAck", "END"]


def test_a_session_that_ends_amid_a_frame() -> None:
    said = SESSION + chunk(GOOD + GOOD[:-2]) + LAST
    _, problems, _ = heard((CLIENT, said), (SERVER, OPEN + chunk(encode_frame(ack(0, 2))) + LAST))
    behind = said.rindex(GOOD[-4:-2]) + 2
    assert [(each.rule, each.offset) for each in problems] == [("bytes remaining on stream", behind)]


def test_acknowledgements_that_fit_no_input() -> None:
    acks = [ack(0, 3), ack(3, 5)]
    _, problems, records = heard(
        (CLIENT, SESSION + chunk(GOOD)), (SERVER, OPEN + chunk(b"".join(map(encode_frame, acks))))
    )
    assert [each.rule for each in problems] == [
        "an acknowledgement of 2 records says so many, not 3",
        "an acknowledgement answers an input",
    ]
    assert [each.fatal for each in problems] == [False, False]
    assert [record.seq_num for record in records] == [0, 1]


def test_sequence_numbers_that_do_not_grow() -> None:
    acks = chunk(encode_frame(ack(5, 7)) + encode_frame(ack(6, 8)))
    _, (problem,), records = heard((CLIENT, SESSION + chunk(GOOD + GOOD)), (SERVER, OPEN + acks))
    assert (problem.rule, problem.fatal) == ("sequence numbers grow: 6 comes after 6", False)
    assert [record.seq_num for record in records] == [5, 6, 6, 7]
    batches = chunk(encode_frame(batch(5, b"a", b"b")) + encode_frame(batch(6, b"c")))
    _, (problem,), records = heard((CLIENT, READ), (SERVER, OPEN + batches))
    assert (problem.sender, problem.rule) == (SERVER, "sequence numbers grow: 6 comes after 6")
    assert [record.seq_num for record in records] == [5, 6, 6]


def test_nothing_follows_a_terminal_frame() -> None:
    terminal = encode_frame(b"\x01\xf4", 0x80)
    said = OPEN + chunk(encode_frame(batch(3, b"a")) + terminal + b"more")
    told, (problem,), records = heard((CLIENT, READ), (SERVER, said))
    assert (problem.sender, problem.offset, problem.rule) == (
        SERVER,
        said.index(b"more"),
        "nothing follows a terminal frame",
    )
    assert told[-1].failure == "other: HTTP status 500"
    assert known(records) == [(b"a", 3, 9, True, "")]


def test_batches_with_gaps_are_none() -> None:
    bad = pb.ReadBatch(records=[pb.SequencedRecord(seq_num=n) for n in (1, 3)]).SerializeToString()
    _, (problem,), _ = heard((CLIENT, READ), (SERVER, OPEN + chunk(encode_frame(bad))))
    assert "not consecutive" in problem.rule
