"""Choice of the dialogue for a conversation, by its known protocol or by its bytes alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.captures.dialogues import CLIENT, SERVER, Said, conversation, cut_up, events, hear, parts
from support.segment.front import bytes_of
from support.segment.messages import WRITER

from penstock.capture.dialogue import choosing as deciding
from penstock.capture.dialogue.choosing import ENOUGH, UNKNOWN, dialogue_for, spoken_by
from penstock.capture.dialogue.http.dialogue import HttpDialogue
from penstock.capture.dialogue.withheld import RedactedDialogue
from penstock.capture.pcapng import Chunk, Lost, Opened, Sender
from penstock.wire.http.sniff import PREFACE
from penstock_pravega.capture.conversation import SegmentDialogue
from penstock_pravega.codec import draft, released
from penstock_s3p.capture.conversation import S3PDialogue

HELLO = bytes_of(released.Hello(16, 5))
S3P_READ = b"*3\r\n$4\r\nREAD\r\n$1\r\ns\r\n*0\r\n"
BEGINNINGS: list[tuple[Sender, bytes, str]] = [
    (CLIENT, PREFACE, "http"),
    (CLIENT, b"GET / HTTP/1.1\r\n", "http"),
    (CLIENT, b"OPTIONS * HTTP/1.1\r\n", "http"),
    (CLIENT, b"GET http://x/ HTTP/1.1\r\n", "http"),
    (CLIENT, S3P_READ, "s3p"),
    (CLIENT, HELLO, "segment"),
    (CLIENT, bytes_of(draft.SetupAppend(WRITER, "s")), "segment"),
    (CLIENT, bytes_of(draft.ReadSegment("s", 0, 10)), "segment"),
    (CLIENT, b"\x16\x03\x01\x02\x00\x01", "tls"),
    (CLIENT, b"SSH-2.0-OpenSSH_9.2\r\n", UNKNOWN),
    (CLIENT, b"\0\0\x10\0" + bytes(80), UNKNOWN),
    (CLIENT, b"PRI * HTTP/1.0\r\n\r\n", "http"),
    (SERVER, b"HTTP/1.1 200 OK\r\n", "http"),
    (SERVER, bytes.fromhex("00000c040000000000 000300000064"), "http"),
    (SERVER, b"+OK\r\n", "s3p"),
    (SERVER, b"$3\r\n1-0\r\n", "s3p"),
    (SERVER, HELLO, "segment"),
    (SERVER, bytes_of(draft.AppendSetup("s", WRITER, 0)), "segment"),
    (SERVER, b"\x16\x03\x03\x00\x7a", "tls"),
    (SERVER, b"220 mail ESMTP\r\n", UNKNOWN),
]


@pytest.mark.parametrize(("sender", "first", "protocol"), BEGINNINGS)
def test_the_first_bytes_show_what_is_spoken(sender: Sender, first: bytes, protocol: str) -> None:
    """However few there are: the shortest answer that is given stands."""
    assert spoken_by(sender, first) == protocol
    answers = [spoken_by(sender, first[:size]) for size in range(len(first) + 1)]
    assert {answer for answer in answers if answer is not None} == {protocol}
    assert answers[0] is None


@given(st.sampled_from(Sender), st.binary(min_size=ENOUGH, max_size=200))
def test_enough_bytes_always_decide(sender: Sender, data: bytes) -> None:
    assert spoken_by(sender, data) is not None


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        ("s2", HttpDialogue),
        ("controller", HttpDialogue),
        ("management", HttpDialogue),
        ("s3p", S3PDialogue),
        ("segment", SegmentDialogue),
    ],
)
def test_a_known_protocol_needs_no_bytes(protocol: str, kind: type) -> None:
    of = conversation(protocol)
    assert isinstance(redacted := dialogue_for(of), RedactedDialogue)
    assert isinstance(redacted.dialogue, kind)


def kinds(said: Said, **options: Any) -> list[tuple[str, str]]:
    heard, problems, _ = parts(hear(dialogue_for(conversation("")), events(conversation(""), said, **options)))
    return [(each.layer, each.kind) for each in heard] + [("problem", each.rule) for each in problems]


def test_bytes_choose_where_no_protocol_is_known() -> None:
    """No protocol is recorded, or that of a plug-in which is not installed."""
    assert kinds([(CLIENT, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")])[0] == ("http", "GET")
    assert kinds([(CLIENT, b"SSH-2.0-x\r\n")])[0][0] == "tcp"
    newer = conversation("newer")
    heard, problems, _ = parts(hear(dialogue_for(newer), events(newer, [(CLIENT, HELLO)])))
    assert [each.kind for each in heard] == ["Hello"] and not problems


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_everything_is_heard_once_it_is_clear(size: int) -> None:
    """Earlier bytes are dissected as well, with their own times and offsets."""
    said = cut_up([(CLIENT, S3P_READ), (SERVER, b"*0\r\n")], size)
    of = conversation("")
    heard, problems, _ = parts(hear(dialogue_for(of), events(of, said)))
    assert not problems
    assert (heard[0].kind, heard[0].offset, heard[0].start_ns) == ("READ", 0, 1000)
    assert [each.kind for each in heard] == ["READ", "RECORDS"]
    assert kinds(cut_up([(CLIENT, HELLO), (SERVER, HELLO)], size)) == [("segment", "Hello")] * 2


def test_a_server_may_speak_first() -> None:
    assert kinds([(SERVER, HELLO)]) == [("segment", "Hello")]
    said = [(SERVER, b"welcome\r\n"), (CLIENT, S3P_READ)]
    assert kinds(said)[0] == ("s3p", "READ")


def test_the_middle_of_a_conversation_shows_itself_at_some_chunk() -> None:
    said = [(CLIENT, b"x" * 100), (CLIENT, b"rest\r\n"), (CLIENT, S3P_READ), (SERVER, b"*0\r\n")]
    assert kinds(said, offsets=(7, 7)) == [
        ("s3p", "READ"),
        ("s3p", "RECORDS"),
        ("problem", "106 bytes of a message whose beginning is not recorded are skipped"),
    ]


FRAMES = bytes.fromhex("00000801 04 00000003 8286848741098acc") + bytes.fromhex("000004000100000003 00000000")
NO_FRAMES = [
    bytes.fromhex("00000801 04 00000000 8286848741098acc"),  # HEADERS of no stream
    bytes.fromhex("000008060000000001 0000000000000000"),  # PING of one
    bytes.fromhex("000007060000000000 00000000000000"),  # too short a PING
    bytes.fromhex("000004000180000003 00000000"),  # a reserved bit
    bytes.fromhex("0000040b0100000003 00000000"),  # an unknown type
    bytes.fromhex("7fff000001 00000003"),
    FRAMES + b"GET / HTTP/1.1",
]


def test_frames_of_http_2_show_themselves_in_the_middle_only() -> None:
    for sender in Sender:
        assert spoken_by(sender, FRAMES, late=True) == "http"
        assert spoken_by(sender, FRAMES) == UNKNOWN
        assert [spoken_by(sender, data, late=True) for data in NO_FRAMES] == [UNKNOWN] * len(NO_FRAMES)
    heard = kinds([(CLIENT, b"rest"), (CLIENT, FRAMES)], offsets=(100, 0))
    assert ("http", "HEADERS") in heard, heard


def test_lost_bytes_make_a_middle() -> None:
    of = conversation("")
    said = [
        Opened(of, 0),
        Lost(of, 1, CLIENT, 0, 50, "no room"),
        Chunk(of, 2, CLIENT, 50, b"rest\r\n"),
        Chunk(of, 3, CLIENT, 56, S3P_READ),
    ]
    heard, _, _ = parts(hear(dialogue_for(of), said))
    assert [(each.kind, each.offset) for each in heard] == [("READ", 56)]


def test_bytes_of_no_known_protocol_are_shown_by_size() -> None:
    rule = "the first bytes are those of no protocol that Penstock speaks"
    said = [(SERVER, b"SSH-2.0-a\r\n"), (CLIENT, b"SSH-2.0-b\r\n")]
    of = conversation("")
    heard, (problem,), _ = parts(hear(dialogue_for(of), events(of, said)))
    assert [(each.sender, each.kind, each.length, each.fields) for each in heard] == [
        (SERVER, "data", 11, {"size": 11}),
        (CLIENT, "data", 11, {"size": 11}),
    ]
    assert (problem.rule, problem.fatal, problem.context) == (rule, False, b"SSH-2.0-a\r\n")
    assert "TLS" in kinds([(CLIENT, b"\x16\x03\x01\x02\x00")])[1][1]


def test_a_conversation_that_ends_undecided() -> None:
    assert kinds([(CLIENT, b"*")])[0] == ("tcp", "data")
    assert kinds([]) == []


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "MOST_EVENTS", 5)
    of = conversation("")
    dialogue = dialogue_for(of)
    told = [list(dialogue.receive(event)) for event in events(of, [(SERVER, b"?")] * 10)]
    assert [len(each) for each in told[:8]] == [0, 0, 0, 0, 0, 6, 1, 1]
