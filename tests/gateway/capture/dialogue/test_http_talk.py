"""Whole conversations with the S2 front, over both versions of HTTP, against what their client sent and got."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.captures.dialogues import CLIENT, SERVER, STEP_NS, Said, conversation, cut_up, events, hear, parts
from support.s2.whole_api import STREAM, Talk, by_side, talk

from penstock.capture.dialogue import APPENDED, DELIVERED, Message, Problem, SeenRecord
from penstock.capture.dialogue.http.dialogue import HttpDialogue

BOTH = pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
_TIMES = {"start_ns", "end_ns", "answers", "conversation", "records", "event"}


def heard(said: Said) -> tuple[list[Message], list[Problem], list[SeenRecord]]:
    """All of a conversation."""
    of = conversation("s2")
    return parts(hear(HttpDialogue(of), events(of, said)))


def timeless(message: Message) -> dict[str, Any]:
    """A message without what depends on how its bytes were cut."""
    told = {name: getattr(message, name) for name in message.__struct_fields__ if name not in _TIMES}
    for name in ("records", "carried"):
        told[name] = [replace(record, time_ns=0, conversation=None) for record in getattr(message, name)]
    return told


def told_records(records: list[SeenRecord], action: str) -> list[SeenRecord]:
    """Those that were appended, or delivered."""
    return [record for record in records if record.action == action]


@BOTH
@pytest.mark.parametrize("dialect", ["s2", "seed"])
def test_records_are_those_that_the_client_sent_and_got(alpn: str, dialect: str) -> None:
    spoken: Talk = talk(alpn, dialect)
    _, problems, records = heard(spoken.said)
    assert not problems
    assert {record.stream for record in records} == {str(STREAM)}
    appended = told_records(records, APPENDED)
    assert [(each.body, each.headers, each.seq_num, each.acknowledged) for each in appended] == spoken.appended
    assert all(bool(each.failure) is not each.acknowledged for each in appended)
    assert {each.timestamp for each in appended if each.acknowledged} == {1_700_000_000_000}
    delivered = told_records(records, DELIVERED)
    assert [(each.body, each.headers, each.seq_num, each.timestamp) for each in delivered] == spoken.delivered


@BOTH
@pytest.mark.parametrize("size", [1, 13, 1000])
def test_cuts_change_nothing_but_times(alpn: str, size: int) -> None:
    said = talk(alpn).said
    whole, _, _ = heard(said)
    cut, problems, _ = heard(cut_up(said, size))
    assert not problems
    assert list(map(timeless, cut)) == list(map(timeless, whole))


@BOTH
@settings(max_examples=20)
@given(st.data())
def test_cut_anywhere(alpn: str, data: st.DataObject) -> None:
    said = talk(alpn).said
    number = data.draw(st.integers(0, len(said) - 1))
    sender, chunk = said[number]
    at = data.draw(st.integers(0, len(chunk)))
    cut = [*said[:number], (sender, chunk[:at]), (sender, chunk[at:]), *said[number + 1 :]]
    whole, _, _ = heard(said)
    assert list(map(timeless, heard(cut)[0])) == list(map(timeless, whole))


@BOTH
def test_messages_say_where_their_bytes_are(alpn: str) -> None:
    said = talk(alpn).said
    sides = by_side(said)
    told, _, _ = heard(said)
    kinds = set()
    for message in told:
        data = sides[message.sender][message.offset : message.offset + message.length]
        assert len(data) == message.length
        kinds.add(message.kind)
        if message.layer == "s2s" and message.kind != "Terminal":
            size = message.fields["frame_bytes"]
            if message.length == size:  # nothing of HTTP stands between
                assert int.from_bytes(data[:3], "big") == size - 3, message
        if message.layer == "sse":
            assert data.endswith(b"\n\n") or alpn == "h2", message
        if alpn == "http/1.1" and message.event is not None and message.kind in ("GET", "POST", "200", "404"):
            assert data.endswith(b"\r\n\r\n"), message
    assert kinds >= {"GET", "POST", "AppendInput", "AppendAck", "ReadBatch", "heartbeat", "Terminal", "batch", "ping"}


@BOTH
def test_answers_tell_how_long_they_took(alpn: str) -> None:
    told, _, _ = heard(talk(alpn).said)
    last_of_request: dict[int | None, int] = {}
    inputs: dict[int | None, list[int]] = {}
    told_later: set[int | None] = set()
    for message in told:
        if message.kind == "GET" and message.state == "open":
            told_later.add(message.exchange)  # its end is a frame of its own, in the next chunk
        if message.sender is CLIENT:
            last_of_request[message.exchange] = message.end_ns
            if message.layer == "s2s":
                inputs.setdefault(message.exchange, []).append(message.end_ns)
        elif message.layer == "http" and message.kind.isdigit():
            wanted = message.end_ns - last_of_request[message.exchange]
            if message.exchange in told_later:
                wanted -= STEP_NS
            assert message.answers == wanted, message
        elif message.kind == "AppendAck" and message.layer == "s2s":
            assert message.answers == message.end_ns - inputs[message.exchange].pop(0), message
        else:
            assert message.answers is None, message


@BOTH
def test_states_follow_the_exchange(alpn: str) -> None:
    told, _, _ = heard(talk(alpn).said)
    session = next(each.exchange for each in told if each.kind == "AppendInput" and each.layer == "s2s")
    states = [each.state for each in told if each.exchange == session]
    wanted = ["appending", "appending", *["appending"] * 3, "half-closed", *["half-closed"] * 3, "done"]
    assert states == wanted
    reading = next(each.exchange for each in told if each.kind == "heartbeat")
    assert {each.state for each in told if each.exchange == reading and each.layer == "s2s"} == {"reading"}
    last = {each.exchange: each.state for each in told if each.exchange is not None}
    assert set(last.values()) <= {"done", "reset"}


@BOTH
def test_failures_are_told_where_they_are_said(alpn: str) -> None:
    told, _, _ = heard(talk(alpn).said)
    failures = [(each.kind, each.failure) for each in told if each.failure and each.kind != "RST_STREAM"]
    assert failures[:2] == [
        ("412", "412: Precondition Failed"),
        ("Error", "seq_num_mismatch: sequence number mismatch: the next is 6"),
    ]
    assert ("Error", "stream_not_found: no stream penstock/nope") in failures
    assert failures[-1] == ("Terminal", "seq_num_mismatch: sequence number mismatch: the next is 18")


@BOTH
def test_a_recording_that_ends_anywhere_loses_no_record_that_was_appended(alpn: str) -> None:
    """Inputs that arrived whole are reported, acknowledged or not, whatever the last byte is."""
    spoken = talk(alpn)
    pieces = cut_up(spoken.said[: len(spoken.said) * 2 // 3], 400)
    for cut in range(0, len(pieces), 7):
        _, problems, records = heard(pieces[:cut])
        assert all(not problem.fatal or "connection ends" in problem.rule for problem in problems)
        appended = [(each.body, each.headers) for each in told_records(records, APPENDED)]
        wanted = [(body, headers) for body, headers, _, _ in spoken.appended]
        assert appended == wanted[: len(appended)]
        acknowledged = [each.acknowledged for each in told_records(records, APPENDED)]
        assert [each.seq_num is not None for each in told_records(records, APPENDED)] == acknowledged


def test_a_reset_by_the_client_is_its_last_word() -> None:
    told, problems, _ = heard(talk("h2").said)
    assert not problems
    (reset,) = [each for each in told if each.kind == "RST_STREAM"]
    assert (reset.sender, reset.fields["code"], reset.failure, reset.state) == (CLIENT, "CANCEL", "", "reset")
    assert [each.kind for each in told if each.exchange == reset.exchange] == ["GET", "200", "ping", "RST_STREAM"]
    assert any(each.sender is SERVER and each.kind == "SETTINGS" for each in told)
