"""Dialogues over HTTP/1.1: framing, violations and their places, and conversations recorded from their middle."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.captures.dialogues import CLIENT, SERVER, Said, conversation, cut_up, events, hear, parts

from penstock.capture.dialogue import Message, Problem
from penstock.capture.dialogue.http.dialogue import HttpDialogue
from penstock.capture.pcapng import Chunk, Closed, Lost, Opened
from penstock.model.failures import RemoteProtocolError
from penstock.wire.codec import Role
from penstock.wire.http import End, HttpHeaders, RequestHead, ResponseHead
from penstock.wire.http.h1 import Http1Connection

GET = b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n"
POST = b"POST /v1/streams/s/records HTTP/1.1\r\nhost: basin-one.localhost:1\r\ncontent-type: application/json\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK"
JSON = b'{"records":[{"body":"x"}]}'


def heard(*said: tuple[object, bytes], protocol: str = "") -> tuple[list[Message], list[Problem]]:
    of = conversation(protocol)
    told, problems, _ = parts(hear(HttpDialogue(of), events(of, said)))  # type: ignore[arg-type]
    return told, problems


def kinds(told: list[Message]) -> list[tuple[int | None, str]]:
    return [(each.exchange, each.kind) for each in told]


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", [(1, "204")]),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", [(1, "304")]),
        (OK, [(1, "200"), (1, "body")]),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", [(1, "200")]),
        (b"HTTP/1.1 200\r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\nOK\r\n0\r\n\r\n", [(1, "200"), (1, "body")]),
        (
            b"HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\n\r\n1\r\nO\r\n1\r\nK\r\n00\r\nx-sum: 5\r\n\r\n",
            [(1, "200"), (1, "body"), (1, "trailers")],
        ),
        (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK, [(1, "103"), (1, "200"), (1, "body")]),
    ],
)
def test_how_a_response_ends_is_known(answer: bytes, wanted: list[tuple[int, str]]) -> None:
    """So that the next one is heard."""
    told, problems = heard((CLIENT, GET), (SERVER, answer), (CLIENT, GET), (SERVER, OK))
    assert not problems
    assert kinds(told) == [(1, "GET"), *wanted, (2, "GET"), (2, "200"), (2, "body")]
    assert all(each.fields["bytes"] == 2 for each in told if each.kind == "body")
    assert told[-1].state == "done"
    cut = cut_up([(CLIENT, GET), (SERVER, answer), (CLIENT, GET), (SERVER, OK)], 1)
    assert kinds(heard(*cut)[0]) == kinds(told)


def test_a_head_request_has_no_body_in_its_answer() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n"
    told, problems = heard((CLIENT, b"HEAD" + GET[3:]), (SERVER, head), (CLIENT, GET), (SERVER, OK))
    assert not problems
    assert kinds(told) == [(1, "HEAD"), (1, "200"), (2, "GET"), (2, "200"), (2, "body")]


def test_a_body_may_end_with_the_connection() -> None:
    told, problems = heard((CLIENT, GET), (SERVER, b"HTTP/1.0 200 OK\r\n\r\nuntil "), (SERVER, b"the end"))
    assert not problems
    assert (told[-1].kind, told[-1].fields["bytes"], told[-1].state) == ("body", 13, "done")


def test_pipelined_requests_are_answered_in_their_order() -> None:
    body = POST + b"content-length: %d\r\n\r\n%b" % (len(JSON), JSON)
    position = b'{"seq_num":%d,"timestamp":5}'
    ack = b'{"start":%b,"end":%b,"tail":%b}' % (position, position, position)
    answers = [ack % (number, number + 1, 9) for number in (3, 4)]
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    told, problems = heard((CLIENT, GET + body + body), (SERVER, OK + b"".join(answer % (len(a), a) for a in answers)))
    assert not problems
    acks = [each for each in told if each.kind == "AppendAck"]
    assert [(each.exchange, each.records[0].seq_num, each.records[0].stream) for each in acks] == [
        (2, 3, "basin-one/s"),
        (3, 4, "basin-one/s"),
    ]


def test_100_continue_is_no_answer_yet() -> None:
    head = POST + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(JSON)
    told, problems = heard((CLIENT, head), (SERVER, b"HTTP/1.1 100 Continue\r\n\r\n"), (CLIENT, JSON), (SERVER, OK))
    assert not problems
    assert kinds(told) == [(1, "POST"), (1, "100"), (1, "AppendInput"), (1, "200"), (1, "body"), (1, "END")]
    assert told[3].answers == 1000
    assert [record.acknowledged for record in told[-1].records] == [False]


def test_a_client_that_is_refused_may_leave_its_body_out() -> None:
    head = POST + b"expect: 100-continue\r\ncontent-length: 1000\r\n\r\n"
    refusal = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
    told, problems = heard((CLIENT, head), (SERVER, refusal), (CLIENT, GET), (SERVER, OK))
    assert not problems
    assert kinds(told) == [(1, "POST"), (1, "404"), (1, "END"), (2, "GET"), (2, "200"), (2, "body")]
    told, _ = heard((CLIENT, head), (SERVER, refusal), (CLIENT, b"x" * 1000), (CLIENT, GET), (SERVER, OK))
    assert kinds(told)[2:] == [(1, "END"), (2, "GET"), (2, "200"), (2, "body")]


def test_an_absolute_target_is_read_as_the_server_reads_it() -> None:
    target = b"http://Basin-One.localhost/v1/streams/s/records?x=1"
    told, _ = heard((CLIENT, b"GET %b HTTP/1.1\r\nhost: other\r\n\r\n" % target))
    assert (told[0].fields["target"], told[0].stream) == ("/v1/streams/s/records?x=1", "basin-one/s")


def test_what_follows_a_switch_of_protocols_is_not_read() -> None:
    answer = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n\x81\x05hello"
    told, problems = heard((CLIENT, GET), (SERVER, answer), (CLIENT, b"\x81\x05hello"))
    assert kinds(told) == [(1, "GET"), (1, "101")]
    assert [(each.sender, each.offset) for each in problems] == [(SERVER, answer.index(b"\x81"))]


# ---- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "wrong", "section"),
    [
        (b"\x16\x03\x01\x02\x00\r\n", b"\x16", "3"),
        (b"GET  /x HTTP/1.1\r\n", b" /x", "3"),
        (b"GET /x\r\n", b"\r\n", "3"),
        (b"GET /x HTTP/2\r\n", b"HTTP/2", "3"),
        (b"GET /x HTTP/1.1 \r\n", b" \r\n", "3"),
        (b"GET /x HTTP/1.1\r\nhost : a\r\n\r\n", b" : a", "5"),
        (b"GET /x HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n", b"\0b", "5"),
        (b"GET /x HTTP/1.1\r\n host: a\r\n\r\n", b" host", "2.2"),
        (b"GET /x HTTP/1.1\r\nx: y\r\n\r\n", b"GET", "3.2"),
        (b"GET /x HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", b"host: b", "3.2"),
        (b"GET /x HTTP/1.1\r\nhost: a\r\ncontent-length: 1x\r\n\r\n", b"content", "6.3"),
        (b"GET /x HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", b"content-length: 2", "6.3"),
        (b"GET /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n", b"transfer", "6.1"),
        (b"GET /x HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", b"transfer", "6.1"),
        (b"GET /x HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n", b"transfer", "6.1"),
    ],
)
def test_the_first_wrong_byte_of_a_head_is_told(said: bytes, wrong: bytes, section: str) -> None:
    for cut in (cut_up([(CLIENT, GET + said)], len(GET + said)), cut_up([(CLIENT, GET + said)], 3)):
        _, (problem,) = heard(*cut)
        assert problem.fatal
        assert problem.clause == f"RFC 9112, section {section}"
        assert problem.exchange == (2 if section in ("3.2", "6.1", "6.3") else None)
        offset = len(GET) + said.index(wrong)
        assert problem.offset == offset
        at = problem.offset - problem.context_offset
        assert problem.context[at : at + 1] == wrong[:1]
        assert (GET + said).find(problem.context) >= 0


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (b"x\r\n", 0),
        (b"5z\r\nhello\r\n0\r\n\r\n", 1),
        (b"5\r\nhelloX\r\n0\r\n\r\n", 8),
        (b"0\r\nno trailer\r\n\r\n", 3),
        (b"12345678901234567\r\n", 17),
    ],
)
def test_the_first_wrong_byte_of_a_chunked_body_is_told(body: bytes, at: int) -> None:
    head = b"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    for cut in (cut_up([(CLIENT, head + body)], 1000), cut_up([(CLIENT, head + body)], 1)):
        _, (problem,) = heard(*cut)
        assert (problem.offset, problem.exchange) == (len(head) + at, 1)
        assert problem.clause.startswith("RFC 9112, section 7.1")
        assert problem.context


def test_a_body_that_the_connection_cuts_short() -> None:
    for head in (b"POST /x HTTP/1.1\r\nhost: a\r\n", POST):
        head += b"content-length: 10\r\n\r\n"
        _, (problem,) = heard((CLIENT, head + b"hello"), protocol="s2")
        assert (problem.sender, problem.offset, problem.exchange) == (CLIENT, len(head) + 5, 1)
        assert "5 bytes of a body are missing" in problem.rule


@pytest.mark.parametrize(
    ("said", "at", "rule"),
    [
        (b"\0\1garbage", 0, "a request begins with a method"),
        (b"GET \xff", 4, "a request target of visible characters"),
        (b"GET", 3, "a head is cut short"),
        (b"GET /x HTT", 10, "a head is cut short"),
        (b"GET /x HTTP/1.1\r\nhost", 21, "a head is cut short"),
    ],
)
def test_a_head_that_the_connection_cuts_short(said: bytes, at: int, rule: str) -> None:
    _, (problem,) = heard((CLIENT, said))
    assert problem.offset == at and rule in problem.rule


UPLOAD = b"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"


@pytest.mark.parametrize("answer", [OK, b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"])
def test_a_client_may_stop_its_body_once_the_answer_is_complete(answer: bytes) -> None:
    """RFC 9112, section 9.5: it should not go on then."""
    _, problems = heard((CLIENT, UPLOAD), (SERVER, answer))
    assert not problems


def test_a_client_that_breaks_its_request_off_is_told_of_once() -> None:
    """The server's answer cannot end then."""
    _, problems = heard((CLIENT, UPLOAD), (SERVER, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"))
    assert [(each.sender, each.offset) for each in problems] == [(CLIENT, len(UPLOAD))]


def test_what_the_text_of_an_error_says_is_told() -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 8\r\n\r\nno host\n"
    told, _ = heard((CLIENT, GET), (SERVER, answer))
    assert (told[-1].kind, told[-1].failure) == ("body", "400: no host")
    told, _ = heard((CLIENT, GET), (SERVER, answer.replace(b"length: 8\r\n\r\nno host\n", b"length: 2\r\n\r\n\r\n")))
    assert (told[-1].kind, told[-1].failure) == ("body", "")


def test_a_head_without_end_is_not_held() -> None:
    _, (problem,) = heard((CLIENT, b"GET /x HTTP/1.1\r\n"), *[(CLIENT, b"x: y\r\n" * 500)] * 30)
    assert problem.fatal
    assert "65536 bytes" in problem.rule


_HEADS = [
    b"POST /v1/streams HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    b"GET /x HTTP/1.0\r\nx:  y \r\n z\r\ntransfer-encoding: Chunked\r\n\r\n",
    b"PUT http://h/x?y HTTP/1.1\nhost: a\nhost: b\ncontent-length: 1, 1\r\n\r\n",
]
_ANSWERS = [
    b"HTTP/1.1 200 OK\r\ncontent-length: 3, 3\r\ncontent-length: 3\r\n\r\n",
    b"HTTP/1.0 404\r\ntransfer-encoding: chunked\r\nx: \t y\r\n\tz\r\n\r\n",
]


def mutated(data: st.DataObject, heads: list[bytes]) -> bytes:
    head = bytearray(data.draw(st.sampled_from(heads)))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(head) - 1))
        head[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b" ", b"\r", b"\n", b"\0", b"\t", b":", b"x", b"9", b",", b"\xff", b"\x0b"])
        )
    return bytes(head.lstrip(b"\r\n")) + b"\r\n\r\n"


def others(headers: HttpHeaders) -> list[tuple[str, str]]:
    """Headers without those that h11 writes anew; a dialogue tells what was said."""
    return [each for each in headers if each[0] not in ("content-length", "transfer-encoding")]


@given(st.data())
def test_requests_are_judged_as_the_codec_judges_them(data: st.DataObject) -> None:
    head = mutated(data, _HEADS)
    codec = Http1Connection(Role.SERVER)
    codec.receive(head)
    told, problems = heard((CLIENT, head))
    try:
        event = codec.next_event()
    except RemoteProtocolError:
        assert not told, told
        assert problems
    else:
        assert isinstance(event, RequestHead)
        said = told[0].event
        assert (said.method, said.target, said.authority) == (event.method, event.target, event.authority)
        assert (others(said.headers), said.version) == (others(event.headers), event.version)
        assert said.expects_continue == event.expects_continue


@given(st.data())
def test_responses_are_judged_as_the_codec_judges_them(data: st.DataObject) -> None:
    head = mutated(data, _ANSWERS)
    codec = Http1Connection(Role.CLIENT)
    codec.send(RequestHead(1, "GET", "/x", [("host", "a")]))
    codec.send(End(1))
    codec.receive(head)
    told, problems = heard((CLIENT, GET), (SERVER, head))
    try:
        event = codec.next_event()
    except RemoteProtocolError:
        assert len(told) == 1, told
        assert problems
    else:
        if isinstance(event, ResponseHead):
            assert (told[1].event.status, others(told[1].event.headers)) == (event.status, others(event.headers))


# ---- the middle ----------------------------------------------------------------------------------------------------


def test_it_is_heard_from_the_first_request_that_begins_a_chunk() -> None:
    of = conversation("s2")
    said: Said = [(SERVER, b"tail of a body"), (CLIENT, b"more body"), (SERVER, OK), (CLIENT, GET), (SERVER, OK)]
    told, problems, _ = parts(hear(HttpDialogue(of), events(of, said, offsets=(1000, 5000))))
    assert kinds(told) == [(1, "GET"), (1, "200"), (1, "body")]
    assert told[0].offset == 1009
    assert [(each.sender, each.offset, each.fatal) for each in problems] == [
        (SERVER, 5000, False),
        (CLIENT, 1000, False),
    ]


def test_after_a_gap_it_is_heard_from_the_next_request() -> None:
    of = conversation("s2")
    head = POST + b"content-length: %d\r\n\r\n%b" % (len(JSON), JSON)
    dialogue = HttpDialogue(of)
    said = [
        Opened(of, 0),
        Chunk(of, 1, CLIENT, 0, head),
        Lost(of, 2, SERVER, 0, 300, "the disk was full"),
        Chunk(of, 3, SERVER, 300, b"rest of the lost answer"),
        Chunk(of, 4, CLIENT, len(head), GET),
        Chunk(of, 5, SERVER, 323, OK),
        Closed(of, 6, CLIENT, reset=True),
    ]
    told, problems, records = parts(hear(dialogue, said))
    assert kinds(told) == [(1, "POST"), (1, "AppendInput"), (1, "lost"), (2, "GET"), (2, "200"), (2, "body")]
    assert [(each.body, each.acknowledged) for each in records] == [(b"x", False)]
    assert [each.fatal for each in problems] == [False, False]
    assert "300 bytes are not in the recording: the disk was full" in problems[0].rule
    assert problems[1].offset == 300


def test_it_goes_on_in_the_next_file() -> None:
    of = conversation("s2")
    said = [
        Opened(of, 0),
        Chunk(of, 1, CLIENT, 0, GET[:10]),
        Opened(of, 2, 10, 0, continued=True),
        Chunk(of, 3, CLIENT, 10, GET[10:]),
        Chunk(of, 4, SERVER, 0, OK),
    ]
    told, problems, _ = parts(hear(HttpDialogue(of), said))
    assert not problems
    assert kinds(told) == [(1, "GET"), (1, "200"), (1, "body")]


def test_bytes_that_come_twice_are_heard_once() -> None:
    of = conversation("s2")
    said = [Opened(of, 0), Chunk(of, 1, CLIENT, 0, GET), Chunk(of, 2, CLIENT, 10, GET[10:] + GET)]
    told, problems, _ = parts(hear(HttpDialogue(of), said))
    assert not problems
    assert kinds(told) == [(1, "GET"), (2, "GET")]


def test_what_is_left_half_said_is_told_at_the_end() -> None:
    of = conversation("s2")
    body = gzip.compress(JSON)
    head = POST + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    said: Said = [(CLIENT, head + body[:-3]), (SERVER, OK[:20])]
    told, problems, _ = parts(hear(HttpDialogue(of), events(of, said, closed=())))
    assert kinds(told) == [(1, "POST")]
    places = [(each.sender, each.offset, each.fatal) for each in problems]
    assert places == [(SERVER, 0, False), (CLIENT, len(head), False)]
