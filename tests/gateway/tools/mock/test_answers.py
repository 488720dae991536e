"""The exchanges of a recording: which one answers a request, and when it is known."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from support.captures.dialogues import CLIENT, SERVER, conversation, events

from penstock.capture.pcapng import CaptureEvent, Lost, Sender
from penstock.tools.mock.answers import AnswerBook, RecordedAnswer, Undecided, alike, same_bytes
from penstock.tools.mock.exchanges import PartKind, request_head

BODY = b'{"records":[{"body":"first"}]}'
HEAD = request_head(
    "POST", "/v1/streams/orders/records", [("content-type", "application/json"), ("s2-basin", "penstock")]
)


def post(body: bytes, answer: bytes = b"{}") -> list[CaptureEvent]:
    request = (
        b"POST /v1/streams/orders/records HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ***\r\ns2-basin: penstock\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    )
    response = b"HTTP/1.1 200 OK\r\ndate: then\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer)
    return list(events(conversation("s2"), [(CLIENT, request), (SERVER, response)]))


@pytest.fixture
def book() -> Iterator[AnswerBook]:
    with AnswerBook() as opened:
        yield opened


def test_a_request_is_compared_when_it_is_whole(book: AnswerBook) -> None:
    book.load(post(BODY), "")
    assert book.choose("", "s2", HEAD, b"", False) is Undecided.MORE
    assert book.choose("", "s2", HEAD, BODY[:10], False) is Undecided.MORE
    assert book.choose("", "s2", HEAD, b"[", False) is Undecided.MISS, "its beginning differs already"
    assert book.choose("", "s2", HEAD, BODY[:10], True) is Undecided.MISS
    assert book.choose("", "s2", HEAD, BODY + b" ", True) is Undecided.MISS
    answer = book.choose("", "s2", HEAD, BODY, True)
    assert isinstance(answer, RecordedAnswer) and answer.title == "POST /v1/streams/orders/records"
    kinds = [part.kind for part in book.parts(answer)]
    assert kinds == [PartKind.ASKED, PartKind.ASKED_ALL, PartKind.HEAD, PartKind.ANSWER, PartKind.END]
    assert book.choose("", "s2", HEAD, BODY, True) is Undecided.MISS, "it was given"


def test_headers_that_differ_between_runs_are_not_compared(book: AnswerBook) -> None:
    book.load(post(BODY), "")
    assert "authorization" not in HEAD and "host" not in HEAD
    other = HEAD.replace("penstock", "other-basin")
    assert book.choose("", "s2", other, BODY, True) is Undecided.MISS, "but the basin is"
    assert book.choose("", "durable", HEAD, BODY, True) is Undecided.MISS, "and the protocol"
    assert isinstance(book.choose("", "s2", HEAD, BODY, True), RecordedAnswer)


def test_redacted_parts_are_like_anything(book: AnswerBook) -> None:
    book.load(post(b'{"records":[{"body":"card *** *** end"}]}'), "")
    assert book.choose("", "s2", HEAD, b'{"records":[{"body":"card 4111 1', False) is Undecided.MORE
    assert book.choose("", "s2", HEAD, b'{"records":[{"body":"card 4111 1111 start"}]}', True) is Undecided.MISS
    assert isinstance(book.choose("", "s2", HEAD, b'{"records":[{"body":"card 4111 1111 end"}]}', True), RecordedAnswer)
    assert same_bytes(b"\xff***\x00", b"\xff123\x00") and not same_bytes(b"\xff***\x00", b"\xff123\x01")


def test_a_test_comes_before_all_and_others_never(book: AnswerBook) -> None:
    for test, answer in (("", b"for all"), ("own", b"own"), ("other", b"other's")):
        book.load(post(BODY, answer), test)
    found = []
    while isinstance(answer := book.choose("own", "s2", HEAD, BODY, True), RecordedAnswer):
        found += [part.data for part in book.parts(answer) if part.kind is PartKind.ANSWER]
    assert found == [b"own", b"for all"]
    assert book.never_asked(["own", "", "other"]) == [("other", "POST /v1/streams/orders/records")]
    assert book.never_asked([""]) == []


def test_what_was_never_answered_is_no_answer(book: AnswerBook) -> None:
    book.load(post(BODY)[:2], "")
    assert book.size == 0 and book.choose("", "s2", HEAD, BODY, True) is Undecided.MISS


def test_a_conversation_with_a_gap_is_read_up_to_it(book: AnswerBook) -> None:
    talk = conversation("s3p")
    command = b"*3\r\n$6\r\nCREATE\r\n$1\r\na\r\n*0\r\n"
    said = list(events(talk, [(CLIENT, command), (SERVER, b"+OK\r\n"), (CLIENT, command), (SERVER, b"+OK\r\n")]))
    said.insert(3, Lost(talk, 0, Sender.CLIENT, len(command), 10, "test"))
    book.load(said, "")
    assert book.size == 1


def test_exchanges_may_be_left_out() -> None:
    with AnswerBook(without=lambda protocol, stream: (protocol, stream) == ("s2", "penstock/orders")) as book:
        book.load(post(BODY), "")
        assert book.size == 0


def test_stars_that_are_no_secrets() -> None:
    assert alike('["accept", "*/*"]', '["accept", "*/*"]')
    assert not alike('["accept", "*/*"]', '["accept", "text/plain"]')
    assert alike('["key", "****"], ["a", "b"]', '["key", ""], ["a", "b"]')
    assert not alike('["key", "****"], ["a", "b"]', '["key", "x"], ["more", "y"], ["a", "b"]')
    assert alike('{"a": "x***y***", "b": "***"}', '{"a": "x1y\\"2", "b": "\udc80"}')


def test_text_in_place_of_secrets_takes_no_time() -> None:
    recorded = "a".join(["***"] * 12)
    began = time.process_time()
    assert not alike(f'["{recorded}"]', '["' + "a" * 2000 + 'b", "c"]')
    assert time.process_time() - began < 1.0
