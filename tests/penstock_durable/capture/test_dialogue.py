"""Conversations of Durable Streams as messages, records and problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.captures.dialogues import CLIENT, SERVER, Said, conversation, cut_up, events, hear, parts
from support.http.messages import LAST, chunk, head, whole

from penstock.capture.dialogue import APPENDED, DELIVERED, Message
from penstock.capture.dialogue.choosing import dialogue_for
from penstock.capture.pcapng import Chunk, Closed, Conversation, Joined, Lost, Opened, Sender
from penstock.model.records import Header
from penstock.wire.codec import Role
from penstock.wire.http import End, Received, RequestHead, ResponseHead, connection
from penstock_durable.codec import (
    RECORDS_TYPE,
    AppendRequest,
    Control,
    DataEvent,
    DurableEventsServer,
    EventMode,
    LiveMode,
    Producer,
    RecordContent,
    append_headers,
    read_query,
    spell_offset,
)

JSON, BYTES, TEXT = "application/json", "application/octet-stream", "text/plain"
RETRIED = [("producer-epoch", "0"), ("producer-seq", "0")]
Told = tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], list[tuple[str, str]]]


def asked(
    method: str, *headers: tuple[str, str], body: bytes = b"", path: str = "/v1/stream/orders"
) -> tuple[Sender, bytes]:
    """A request."""
    first = head(f"{method} {path} HTTP/1.1", "host: h", *(f"{name}: {value}" for name, value in headers))
    return CLIENT, whole(first, body) if body else first


def answered(
    status: int, *headers: tuple[str, str], body: bytes | None = b"", offset: int | str | None = None
) -> tuple[Sender, bytes]:
    """An answer; `offset`: the position that it tells."""
    if offset is not None:
        at = offset if isinstance(offset, str) else spell_offset(offset)
        headers = (*headers, ("stream-next-offset", at))
    first = head(f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers))
    return SERVER, first if body is None else whole(first, body)


def typed(kind: str) -> tuple[str, str]:
    return ("content-type", kind)


def append(body: bytes, kind: str = JSON, *, seq: int | None = None, closed: bool = False) -> tuple[Sender, bytes]:
    """A POST as the codec spells it; `seq`: that of a producer."""
    producer = None if seq is None else Producer("p", 0, seq)
    return asked("POST", *append_headers(AppendRequest(kind, closed, producer, None)), body=body)


def read(offset: int | str = "-1", live: LiveMode | None = None) -> tuple[Sender, bytes]:
    """A GET as the codec spells it."""
    at = offset if isinstance(offset, str) else spell_offset(offset)
    return asked("GET", path=f"/v1/stream/orders?{read_query(at, live)}")


def heard(said: Said, of: Conversation | None = None) -> tuple[Sequence[Message], Told]:
    """The messages; and those of the layer `durable`, the records and the problems in short. They are the same however
    the bytes are cut."""
    of = of or conversation("durable")

    def told(pieces: Said) -> tuple[Sequence[Message], Told]:
        messages, problems, records = parts(hear(dialogue_for(of), events(of, pieces)))
        short = [(one.kind, one.stream, one.state, one.failure) for one in messages if one.layer == "durable"]
        seen = [(one.action, one.body, one.seq_num, one.acknowledged, one.failure) for one in records]
        assert {one.stream for one in records} <= {"orders"}
        return messages, (short, seen, [(one.rule, one.clause) for one in problems])

    found = told(said)
    for size in (1, 7, 50):
        assert told(cut_up(said, size))[1] == found[1]
    return found


def short(*said: tuple[Sender, bytes]) -> Told:
    return heard(said)[1]


def records(*said: tuple[Sender, bytes]) -> list[tuple[bytes, int | None]]:
    """Bodies and numbers of the delivered records of a conversation without problems."""
    _, seen, problems = short(*said)
    assert not problems
    return [(body, number) for action, body, number, _, _ in seen if action == DELIVERED]


# ---- creating and appending ------------------------------------------------------------------------------------------


def test_appends_of_json_are_messages_and_records_with_the_numbers_behind_the_answer() -> None:
    told, (messages, seen, problems) = heard(
        [
            asked("PUT", typed(JSON), body=b"[0]"),
            answered(201, typed(JSON), offset=1),
            append(b'[{"id": 1}, [2]]'),
            answered(204, body=None, offset=3),
        ]
    )
    assert [(one.layer, one.kind) for one in told] == [
        *[("http", "PUT"), ("durable", "create"), ("http", "201"), ("durable", "created")],
        *[("http", "POST"), ("durable", "append"), ("http", "204"), ("durable", "appended")],
    ]
    assert messages == [
        ("create", "orders", "half-closed", ""),
        ("created", "orders", "done", ""),
        ("append", "orders", "half-closed", ""),
        ("appended", "orders", "done", ""),
    ]
    assert seen == [(APPENDED, body, number, True, "") for number, body in enumerate((b"0", b'{"id": 1}', b"[2]"))]
    assert problems == []
    assert told[5].fields == {"records": 2, "bytes": 16, "content_type": JSON}
    assert told[7].fields == {"next_offset": spell_offset(3), "records": 2, "first_seq_num": 1}


def test_an_append_of_bytes_is_one_record() -> None:
    _, seen, _ = short(
        append(b"\0[1]", BYTES), answered(204, body=None, offset=8), append(b"x", TEXT), answered(204, body=None)
    )
    assert seen == [(APPENDED, b"\0[1]", 7, True, ""), (APPENDED, b"x", None, True, "")]
    assert short(append(b"x", TEXT), answered(204, body=None, offset="a17"))[1] == [(APPENDED, b"x", None, True, "")]


def test_records_of_a_bridge_have_headers_and_no_numbers() -> None:
    content = RecordContent()
    body = content.join([content.encode([b"a", b"b"], {1: (Header(b"k", b"v"),)})])
    for said in (
        [append(body, RECORDS_TYPE), answered(204, body=None, offset=2)],
        [read(), answered(200, typed(RECORDS_TYPE), body=body, offset=2)],
    ):
        of = conversation("durable")
        _, problems, found = parts(hear(dialogue_for(of), events(of, said)))
        assert not problems
        assert [(one.body, one.headers, one.seq_num) for one in found] == [
            (b"a", (), None),
            (b"b", (Header(b"k", b"v"),), None),
        ]
    assert records(read(), answered(200, typed(RECORDS_TYPE), body=body[3:], offset=2)) == [(body[3:], None)]


def test_a_producer_has_a_place_and_what_it_repeats_has_no_number() -> None:
    told, (_, seen, problems) = heard(
        [
            append(b"1", seq=0),
            answered(200, *RETRIED, offset=1),
            append(b"1", seq=0),
            answered(204, *RETRIED, body=None, offset=1),
            append(b"1", seq=5),
            answered(409, typed(JSON), ("producer-expected-seq", "1"), body=b'{"no": 1}'),
        ]
    )
    assert [(number, acknowledged) for _, _, number, acknowledged, _ in seen] == [
        (0, True),
        (None, True),
        (None, False),
    ]
    assert seen[2][-1] == 'stale_writer_position: status 409: {"no": 1}' and not problems
    fields = [one.fields for one in told if one.layer == "durable"]
    assert {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}.items() <= fields[0].items()
    assert "repeated" not in fields[1] and fields[3]["repeated"] is True


def test_what_is_refused_is_not_acknowledged() -> None:
    error = b'{"error": {"code": "stream_sealed", "message": "it is closed"}}'
    messages, seen, problems = short(append(b"1"), answered(409, typed(JSON), ("stream-closed", "true"), body=error))
    assert messages[-1] == ("error", "orders", "done", "stream_sealed: it is closed")
    assert seen == [(APPENDED, b"1", None, False, "stream_sealed: it is closed")] and not problems
    _, seen, _ = short(append(b"1"), answered(503))
    assert seen == [(APPENDED, b"1", None, False, "503: Service Unavailable")]


def test_an_append_that_is_refused_before_it_is_complete_is_listed() -> None:
    sender, request = append(b'"long"')
    of = conversation("durable")
    said = [(sender, request[:-3]), answered(413), (sender, request[-3:])]
    _, _, found = parts(hear(dialogue_for(of), events(of, said)))
    assert [(one.body, one.acknowledged) for one in found] == [(b'"long"', False)]


def test_an_answer_that_neither_takes_nor_refuses_an_append() -> None:
    assert short(append(b"1"), answered(307, ("location", "/x")))[1] == [(APPENDED, b"1", None, False, "")]


def test_the_body_of_a_put_is_not_appended_to_a_stream_that_exists() -> None:
    messages, seen, _ = short(asked("PUT", typed(JSON), body=b"[1]"), answered(200, typed(JSON), offset=4))
    assert [kind for kind, *_ in messages] == ["create", "exists"]
    assert seen == [(APPENDED, b"1", None, False, "the stream exists, so nothing was appended")]


def test_an_append_without_an_answer_is_listed_at_the_end() -> None:
    told, (_, seen, problems) = heard([append(b"1")])
    assert seen == [(APPENDED, b"1", None, False, "")] and told[-1].kind == "end"
    assert problems == []


def test_closing_forking_looking_and_deleting() -> None:
    fork = [("stream-forked-from", "/v1/stream/other"), ("stream-fork-offset", "a_17"), ("stream-ttl", "60")]
    told, (messages, seen, problems) = heard(
        [
            asked("POST", ("stream-closed", "true")),
            answered(204, ("stream-closed", "true"), body=None, offset=2),
            asked("PUT", typed(JSON), *fork),
            answered(201, typed(JSON), offset=2),
            asked("HEAD"),
            answered(200, typed(JSON), ("stream-closed", "true"), body=None, offset=2),
            asked("DELETE"),
            answered(204, body=None),
        ]
    )
    assert [kind for kind, *_ in messages] == ["append", "appended", "create", "created", "position"]
    assert not seen and not problems
    fields = [one.fields for one in told if one.layer == "durable"]
    assert fields[0] == {"stream_closed": "true"} and fields[1]["stream_closed"] == "true"
    assert fields[2] == {"content_type": JSON} | {name.replace("-", "_"): value for name, value in fork}
    assert fields[4] == {"next_offset": spell_offset(2), "up_to_date": True, "closed": True, "content_type": JSON}
    assert {one.stream for one in told} == {"orders"}


# ---- reading ---------------------------------------------------------------------------------------------------------


def test_reads_of_json_number_the_messages_before_the_next_offset() -> None:
    up_to_date = ("stream-up-to-date", "true")
    told, (messages, _, _) = heard([read(), answered(200, typed(JSON), up_to_date, body=b'[1,"a"]', offset=5)])
    assert messages == [("batch", "orders", "done", "")]
    assert told[-1].fields == {
        "records": 2,
        "bytes": 7,
        "next_offset": spell_offset(5),
        "up_to_date": True,
        "first_seq_num": 3,
    }
    assert records(read(3), answered(200, typed(JSON), body=b'[1,"a"]', offset=5)) == [(b"1", 3), (b'"a"', 4)]
    assert records(read(), answered(200, typed(JSON), body=b"[]", offset=5)) == []
    dropped = records(read(2), answered(200, typed(JSON), body=b'[1,"a"]', offset=5))
    assert dropped == [(b"1", None), (b'"a"', None)], "the gateway left one out, and does not say which"


def test_reads_of_bytes_have_a_number_if_they_are_one_append() -> None:
    assert records(read(4), answered(200, typed(BYTES), body=b"abc", offset=5)) == [(b"abc", 4)]
    assert records(read(3), answered(200, typed(BYTES), body=b"abc", offset=5)) == [(b"abc", None)]
    assert records(read(), answered(200, typed(BYTES), body=b"abc", offset=1)) == [(b"abc", 0)]
    assert records(read(), answered(200, typed(BYTES), body=b"abc", offset="0_3")) == [(b"abc", None)]


def test_long_polls_and_answers_without_data() -> None:
    cursor = ("stream-cursor", "17")
    told, (messages, seen, problems) = heard(
        [
            read(4, LiveMode.LONG_POLL),
            answered(204, ("stream-up-to-date", "true"), cursor, body=None, offset=4),
            read(4, LiveMode.LONG_POLL),
            answered(200, typed(JSON), cursor, body=b"[7]", offset=5),
            read(5),
            answered(304, body=None),
            read(5),
            answered(200, typed(BYTES), offset=5),
        ]
    )
    assert [kind for kind, *_ in messages] == ["position", "batch", "position"] and not problems
    assert seen == [(DELIVERED, b"7", 4, True, "")]
    assert [one.fields["cursor"] for one in told if "cursor" in one.fields] == ["17", "17"]


# ---- event streams ---------------------------------------------------------------------------------------------------

EVENTS = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
CODED = ("stream-sse-data-encoding", "base64")


def streamed(mode: EventMode, *sent: DataEvent | Control) -> list[tuple[Sender, bytes]]:
    """The head of an event stream, and its events as the codec spells them, without its end."""
    server = DurableEventsServer(mode)
    pieces = [chunk(b"".join(server.send(event))) for event in sent]
    coded = [CODED] if mode is EventMode.BASE64 else []
    return [answered(200, *EVENTS, *coded, body=None), *[(SERVER, piece) for piece in pieces]]


def test_events_of_json_are_batches_with_their_positions() -> None:
    sent = [
        Control(spell_offset(2), 7, up_to_date=True),
        DataEvent((b"1", b"2")),
        Control(spell_offset(4), 8),
        DataEvent((b"3",)),
        Control(spell_offset(5), up_to_date=True, closed=True),
    ]
    said = [read("now", LiveMode.SSE), *streamed(EventMode.JSON, *sent), (SERVER, LAST)]
    told, (messages, seen, problems) = heard(said)
    assert [(kind, state) for kind, _, state, _ in messages] == [
        *[("control", "reading"), ("batch", "reading"), ("batch", "reading")]
    ]
    assert seen == [(DELIVERED, b"%d" % number, number + 1, True, "") for number in (1, 2, 3)] and not problems
    assert told[-1].kind == "END"
    assert told[-2].fields == {
        "records": 1,
        "bytes": 1,
        "next_offset": spell_offset(5),
        "up_to_date": True,
        "closed": True,
        "first_seq_num": 4,
    }


@pytest.mark.parametrize("mode", [EventMode.TEXT, EventMode.BASE64])
def test_events_of_bytes_are_numbered_if_they_are_one_append(mode: EventMode) -> None:
    sent = [
        *[DataEvent((b"first ",)), Control(spell_offset(5), 7)],
        *[DataEvent((b"[a", b"b]")), Control(spell_offset(7), 8)],
        *[DataEvent((b"c",)), Control(spell_offset(8), 8)],
    ]
    said = [read(4, LiveMode.SSE), *streamed(mode, *sent), (SERVER, LAST)]
    assert records(*said) == [(b"first ", 4), (b"[ab]", None), (b"c", 7)]


def test_the_server_may_end_at_any_event_and_the_client_may_leave() -> None:
    said = [read("-1", LiveMode.SSE), *streamed(EventMode.JSON, DataEvent((b"1",)), Control("x", 7))]
    assert records(*said, (SERVER, LAST)) == records(*said) == [(b"1", None)]


def test_data_without_its_position_is_a_record_all_the_same() -> None:
    said = [read(4, LiveMode.SSE), *streamed(EventMode.JSON, DataEvent((b"1",)), DataEvent((b"2",)))]
    of = conversation("durable")
    for end in ([Closed(of, 9, CLIENT)], [Lost(of, 9, SERVER, 0, 0, "full")], [Closed(of, 9, SERVER, reset=True)]):
        told = [*events(of, said, closed=()), *end]
        _, _, found = parts(hear(dialogue_for(of), told))
        assert [(one.body, one.seq_num) for one in found] == [(b"1", None), (b"2", None)]
    _, seen, problems = short(*said, (SERVER, LAST))
    assert len(seen) == 2
    assert problems == [("an event control follows each event data", "Durable Streams Protocol 1.0, section 5.7")]


def test_events_that_cannot_be_read_are_problems_and_reading_goes_on() -> None:
    broken = b"event: control\ndata: {}\n\nevent: other\ndata: x\n\n:\n\n"
    good = streamed(EventMode.JSON, DataEvent((b"1",)), Control(spell_offset(1), 7))
    said = [read("-1", LiveMode.SSE), good[0], (SERVER, chunk(broken)), *good[1:], (SERVER, LAST)]
    _, seen, ((rule, clause),) = short(*said)
    assert rule.startswith("a control event is malformed") and clause.endswith("section 5.7")
    assert seen == [(DELIVERED, b"1", 0, True, "")]


def test_events_of_a_stream_that_was_open_as_the_recording_began() -> None:
    client, server = connection("http/1.1", Role.CLIENT), connection("http/1.1", Role.SERVER)
    client.send(RequestHead(number := client.new_stream(), "GET", "/v1/stream/orders?offset=-1&live=sse", [], "h"))
    client.send(End(number))
    server.receive(b"".join(bytes(part) for part in client.output(1 << 20)))
    while isinstance(server.next_event(), Received):
        pass
    server.send(ResponseHead(number, 200, [*EVENTS[:1], CODED]))
    opened = sum(len(part) for part in server.output(1 << 20))
    preludes, of = server.preludes(), conversation("durable")
    assert preludes is not None
    data = b"".join(piece for _, piece in streamed(EventMode.BASE64, DataEvent((b"a",)), Control("x", 7))[1:])
    begun = Opened(of, 0, 100, opened)
    told = [begun, Joined(of, 1, server.version, 100, opened, preludes.received, preludes.sent)]
    told.append(Chunk(of, 2, SERVER, opened, chunk(b"bWlkZGxl\n\n") + data))
    _, problems, found = parts(hear(dialogue_for(of), told))
    assert not problems
    assert [(one.stream, one.body) for one in found] == [("orders", b"a")]


# ---- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "rule", "clause"),
    [
        (append(b"[1,"), "the body is not JSON", "7.1"),
        (asked("POST", typed(JSON), ("producer-id", "p"), body=b"1"), "producer-epoch: is missing", "5.2"),
        (asked("PUT", ("stream-ttl", "060")), "stream-ttl: expected an integer", "5.1"),
        (asked("GET", path="/v1/stream/orders?live=sse"), "offset: live=sse needs one", "5.5"),
        (asked("GET", path="/v1/stream/orders?live=long-poll"), "offset: live=long-poll needs one", "5.6"),
        (asked("GET", path="/v1/stream/orders?offset=1&offset=2"), "offset: given more than once", "5.5"),
    ],
)
def test_requests_that_break_the_protocol(said: tuple[Sender, bytes], rule: str, clause: str) -> None:
    _, _, ((told, where),) = short(said, answered(400, typed(JSON), body=b"{}"))
    assert told.startswith(rule) and where == f"Durable Streams Protocol 1.0, section {clause}"


@pytest.mark.parametrize(
    ("said", "rule", "clause"),
    [
        ([read(), answered(200, typed(JSON), body=b"{}", offset=1)], "an answer that is not an array", "7.1"),
        ([read(), answered(200, typed(JSON), body=b"[1")], "an answer without stream-next-offset", "5.5"),
        ([read(), answered(200, typed(BYTES), body=b"1", offset="now")], "stream-next-offset 'now' is no", "5.5"),
        ([append(b"1"), answered(204, body=None, offset="-1")], "stream-next-offset '-1' is no", "5.2"),
    ],
)
def test_answers_that_break_the_protocol(said: Said, rule: str, clause: str) -> None:
    _, _, problems = heard(said)[1]
    assert problems[0][0].startswith(rule) and problems[0][1].endswith(f"section {clause}")


def test_the_first_wrong_byte_of_json_is_told() -> None:
    said = [append(b'[1, {"a": tru}]'), answered(400)]
    of = conversation("durable")
    _, (problem,), _ = parts(hear(dialogue_for(of), events(of, said)))
    assert said[0][1][problem.offset :] == b"ru}]"


STORY: Said = [
    *[asked("PUT", typed(JSON), body=b"[1]"), answered(201, typed(JSON), offset=1)],
    *[append(b'[{"a": 2}]', seq=0), answered(200, *RETRIED, offset=2)],
    *[read(), answered(200, typed(JSON), body=b'[1,{"a": 2}]', offset=2)],
    *[append(b"1"), answered(409, typed(JSON), body=b'{"error": {"code": "c", "message": "m"}}')],
    *[read("-1", LiveMode.SSE), *streamed(EventMode.BASE64, DataEvent((b"a",)), Control(spell_offset(1), 7))],
]


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, len(STORY) - 1), st.integers(0, 400), st.binary(max_size=3)), min_size=1),
    st.integers(1, 60),
)
def test_damaged_bytes_never_raise(damage: list[tuple[int, int, bytes]], size: int) -> None:
    said = list(STORY)
    for index, at, data in damage:
        sender, before = said[index]
        at = min(at, len(before))
        said[index] = (sender, before[:at] + data + before[at + 1 :])
    of = conversation("durable")
    hear(dialogue_for(of), events(of, cut_up(said, size)))


# ---- names -----------------------------------------------------------------------------------------------------------


def test_names_are_decoded_and_follow_the_prefix() -> None:
    cases = [("", "/v1/stream/a/b%20c", "a/b c"), ("", "/streams/x", "streams/x"), ("/streams/", "/streams/x", "x")]
    for configured, path, stream in cases:
        of = replace(conversation("durable"), path=configured)
        told, _, _ = parts(hear(dialogue_for(of), events(of, [asked("HEAD", path=path)])))
        assert told[0].stream == stream
    unknown = conversation("")
    told, _, _ = parts(hear(dialogue_for(unknown), events(unknown, [append(b"1"), asked("HEAD", path="/x")])))
    assert [(one.layer, one.kind, one.stream) for one in told][:2] == [
        ("http", "POST", "orders"),
        ("durable", "append", "orders"),
    ]
    assert told[2].stream == ""
