"""The Redactor's contract: events in order, nothing lost or moved, memory bounded, and no bytes through if it fails."""

from __future__ import annotations

import tracemalloc

import pytest
from support.captures.redaction import CLIENT, SERVER, Tape, conversation

from penstock.capture.pcapng import CaptureEvent, Chunk, Closed, Lost, Noted, Opened
from penstock.capture.redaction import redactor as module
from penstock.capture.redaction.choice import ContentChooser
from penstock.capture.redaction.redactor import Redactor
from penstock.capture.redaction.rules import RedactionRules

HEAD = b"POST /x HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 100\r\nauthorization: hush\r\n\r\n"
PATTERN = RedactionRules(patterns=(rb"hush-[0-9]+",))


def data_of(events: list[CaptureEvent]) -> bytes:
    return b"".join(bytes(event.data) for event in events if isinstance(event, Chunk))


@pytest.mark.parametrize("pattern", [b"(", b"[z-a]", b"*"])
def test_a_pattern_that_is_none(pattern: bytes) -> None:
    with pytest.raises(ValueError, match="is not a regular expression"):
        Redactor(RedactionRules(patterns=(pattern,)))
    with pytest.raises(ValueError, match="longest_match"):
        Redactor(RedactionRules(longest_match=0))


def test_other_events_go_by() -> None:
    redactor = Redactor(RedactionRules())
    one = conversation()
    events: list[CaptureEvent] = [
        Opened(one, 1),
        Noted(one, 2, "route", "x"),
        Lost(one, 3, CLIENT, 0, 7, "too slow"),
        Closed(one, 4, CLIENT),
        Closed(one, 5, SERVER),
        Noted(one, 6, "stream", "y"),
    ]
    for event in events:
        assert redactor.redact(event) == [event]


def test_notes_are_searched_for_patterns() -> None:
    redactor, one = Redactor(PATTERN), conversation()
    seen = Noted(one, 1, "stream", "b/orders")
    assert redactor.redact(seen)[0] is seen
    assert redactor.redact(Noted(one, 1, "stream", "b/\u00edhush-47")) == [Noted(one, 1, "stream", "b/\u00ed*******")]


def test_what_is_held_back_comes_before_the_end_of_its_side() -> None:
    tape = Tape()
    assert tape.say(CLIENT, b"GET / HTTP/1.1\r\nauthorization: hu") != []
    out = tape.redactor.redact(Closed(tape.conversation, 9, CLIENT))
    assert isinstance(out[-1], Closed)
    assert data_of(out) == b"authorization:***"
    assert [event.time_ns for event in out] == [9, 9]


def test_a_reset_ends_both_sides() -> None:
    tape = Tape()
    tape.say(CLIENT, b"GET / HT")
    tape.say(SERVER, b"HTTP/1.1 2")
    assert tape.redactor.held == 18
    out = tape.redactor.redact(Closed(tape.conversation, 9, CLIENT, reset=True))
    assert data_of(out) == b"GET / HTHTTP/1.1 2"
    assert tape.redactor.held == 0


def test_lost_bytes() -> None:
    tape = Tape()
    tape.say(CLIENT, HEAD + b"{")
    lost = Lost(tape.conversation, 5, CLIENT, len(HEAD) + 1, 50, "too slow")
    assert tape.redactor.redact(lost) == [lost]
    rest = b"end of it\r\ncookie: hush\r\n"
    chunk = Chunk(tape.conversation, 6, CLIENT, len(HEAD) + 51, rest)
    out = tape.redactor.redact(chunk) + tape.redactor.redact(Closed(tape.conversation, 7, CLIENT))
    assert data_of(out) == b"*********\r\ncookie:*****\r\n"


def test_bytes_that_do_not_follow_each_other() -> None:
    tape = Tape()
    tape.say(CLIENT, b"GET / HTTP/1.1\r\ncookie: hu")
    out = tape.redactor.redact(Chunk(tape.conversation, 5, CLIENT, 1000, b"GET / HTTP/1.1\r\ncookie: hush\r\n\r\n"))
    assert data_of(out) == b"cookie:***GET / HTTP/1.1\r\ncookie: ****\r\n\r\n"


def test_nothing_follows_any_more() -> None:
    tape = Tape()
    tape.say(CLIENT, b"GET / HTTP/1.1\r\ncookie: hu")
    lost = Lost(tape.conversation, 5, SERVER, 0, 0, "the disk is full")
    *before, last = tape.redactor.redact(lost)
    assert last is lost
    assert data_of(before) == b"cookie:***"


def test_a_new_file_changes_nothing_and_a_gap_does() -> None:
    tape = Tape()
    tape.say(CLIENT, HEAD[:-10])
    assert tape.redactor.held
    again = Opened(tape.conversation, 5, len(HEAD) - 10, 0, continued=True)
    assert tape.redactor.redact(again) == [again]
    assert b"****\r\n\r\n" in data_of(tape.say(CLIENT, HEAD[-10:]))
    later = Opened(tape.conversation, 6, 5000, 0, continued=True)
    assert tape.redactor.redact(later) == [later]
    assert tape.redactor.redact(Chunk(tape.conversation, 7, CLIENT, 5000, b"GET / HTTP/1.1\r\n"))


def test_a_conversation_that_was_never_opened() -> None:
    redactor = Redactor(RedactionRules())
    out = redactor.redact(Chunk(conversation(), 1, CLIENT, 0, b"GET / HTTP/1.1\r\ncookie: hush\r\n\r\n"))
    assert data_of(out) == b"GET / HTTP/1.1\r\ncookie: ****\r\n\r\n"


def test_flush_blanks_what_could_not_be_judged_and_reading_goes_on() -> None:
    tape = Tape(PATTERN)
    tape.say(CLIENT, HEAD.replace(b"100", b"20") + b'{"body":"hu')
    tape.say(SERVER, b"HTTP/1.1 200 OK\r\nset-cookie: hu")
    assert tape.redactor.held
    tape.hear(tape.redactor.flush())
    assert tape.redactor.held == 0
    assert tape.redactor.flush() == []
    tape.say(CLIENT, b'sh-4711"}GET / HTTP/1.1\r\ncookie: hush\r\n\r\n')
    tape.say(SERVER, b"sh\r\ncontent-length: 0\r\n\r\n")
    client, server = tape.close()
    assert b"hush" not in client
    assert client.endswith(b"GET / HTTP/1.1\r\ncookie: ****\r\n\r\n")
    assert server == b"HTTP/1.1 200 OK\r\n" + b"*" * 14 + b"**\r\ncontent-length: 0\r\n\r\n"


def test_a_fault_in_redaction_lets_nothing_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(ContentChooser, "of_body", fails)
    tape = Tape()
    out = data_of(tape.say(CLIENT, HEAD + b"secret"))
    assert out == b"*" * (len(HEAD) + 6)
    assert tape.redactor.failures == 1
    later = data_of(tape.say(CLIENT, b"plain\r\ncookie: hush\r\n" + b"." * 200))
    assert later.startswith(b"plain\r\ncookie:*****\r\n.")
    assert tape.redactor.failures == 1


def test_times_never_fall() -> None:
    tape = Tape()
    tape.say(CLIENT, b"GET / HTTP/1.1\r\ncookie: hu")
    tape.say(SERVER, b"HTTP/1.1 200 OK\r\n")
    tape.say(CLIENT, b"sh\r\n\r\n")
    assert tape.close()[0] == b"GET / HTTP/1.1\r\ncookie: ****\r\n\r\n"


def test_a_side_holds_back_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HELD", 100_000)
    tape = Tape(PATTERN)
    tape.say(CLIENT, HEAD.replace(b"100", b"3000000"))
    for _ in range(40):
        tape.say(CLIENT, b'{"body":"hush-1' * 1000)
        assert tape.redactor.held <= 100_000
    assert b"hush" not in tape.out[CLIENT]


def test_all_sides_together_hold_back_no_more_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HELD_IN_ALL", 100_000)
    redactor = Redactor(PATTERN)
    head = HEAD.replace(b"100", b"3000000")
    for number in range(40):
        one = conversation(number=number)
        redactor.redact(Chunk(one, 1, CLIENT, 0, head))
        out = data_of(redactor.redact(Chunk(one, 2, CLIENT, len(head), b'{"body":"hush-1' * 1000)))
        assert redactor.held <= 100_000
        assert b"hush" not in out
    assert redactor.flush()
    assert redactor.held == 0


def test_conversations_are_forgotten() -> None:
    redactor = Redactor(PATTERN)
    tracemalloc.start()
    try:
        for number in range(900):
            if number == 300:
                before = tracemalloc.get_traced_memory()[0]
            one = conversation(number=number)
            redactor.redact(Opened(one, 1))
            redactor.redact(Chunk(one, 1, CLIENT, 0, HEAD + b"{"))
            redactor.redact(Chunk(one, 1, SERVER, 0, b"HTTP/1.1 200 OK\r\n\r\n"))
            redactor.redact(Closed(one, 2, CLIENT))
            redactor.redact(Closed(one, 2, SERVER) if number % 2 else Closed(one, 2, SERVER, reset=True))
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()


def test_many_short_chunks_cost_little() -> None:
    tape = Tape(PATTERN)
    tape.say(CLIENT, HEAD.replace(b"100", b"3000000"))
    tracemalloc.start()
    try:
        for _ in range(8000):
            tape.say(CLIENT, b"{")
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
