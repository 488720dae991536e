"""Dialogues over HTTP/2: handwritten frames, violations and their places, and connections recorded from the middle."""

from __future__ import annotations

import hpack
import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from support.captures.dialogues import CLIENT, SERVER, Said, conversation, cut_up, events, hear, parts
from support.http.h2_frames import grease, headers
from support.s2.whole_api import STREAM, by_side, talk

from penstock.capture.dialogue import APPENDED, DELIVERED, Message, Problem
from penstock.capture.dialogue.http.dialogue import HttpDialogue
from penstock.capture.pcapng import Noted, Sender
from penstock.wire.http import PREFACE

GET = [(":method", "GET"), (":scheme", "http"), (":authority", "b.localhost"), (":path", "/x")]
OK = [(":status", "200")]
START = PREFACE + SettingsFrame(0).serialize()
ACK = SettingsFrame(0, flags=["ACK"]).serialize()


def wire(*frames: Frame) -> bytes:
    return b"".join(frame.serialize() for frame in frames)


def heard(*said: tuple[Sender, bytes], offsets: tuple[int, int] = (0, 0)) -> tuple[list[Message], list[Problem]]:
    of = conversation("s2")
    told, problems, _ = parts(hear(HttpDialogue(of), events(of, said, offsets=offsets)))
    return told, problems


def exchanged(*client: Frame, server: tuple[Frame, ...] = ()) -> tuple[list[Message], list[Problem]]:
    """Behind the beginnings of both sides; every cut says the same."""
    said: Said = [(CLIENT, START), (SERVER, wire(SettingsFrame(0))), (CLIENT, wire(*client)), (SERVER, wire(*server))]
    told, problems = heard(*said)
    again, same = heard(*cut_up(said, 1))
    assert [(each.kind, each.offset, each.length) for each in again] == [
        (each.kind, each.offset, each.length) for each in told
    ]
    assert [(each.rule, each.offset) for each in same] == [(each.rule, each.offset) for each in problems]
    return [each for each in told if each.kind != "SETTINGS"], problems


def kinds(told: list[Message]) -> list[tuple[int | None, str]]:
    return [(each.exchange, each.kind) for each in told]


def data(stream_id: int, content: bytes, *flags: str, pad: int = 0) -> DataFrame:
    return DataFrame(stream_id, content, pad_length=pad, flags=[*flags, *(["PADDED"] if pad else [])])


def test_padding_priority_and_continuation_are_taken_off() -> None:
    whole = headers(1, [*GET, ("x", "y" * 100)]).data
    first = HeadersFrame(1, whole[:7], flags=["PADDED", "PRIORITY"], pad_length=9, depends_on=0, stream_weight=5)
    rest = [ContinuationFrame(1, whole[7:50]), ContinuationFrame(1, whole[50:], flags=["END_HEADERS"])]
    told, problems = exchanged(
        first, *rest, data(1, b"body", pad=200), data(1, b"", pad=1), data(1, b"!", "END_STREAM", pad=3)
    )
    assert not problems
    assert kinds(told) == [(1, "GET"), (1, "body")]
    assert told[0].fields["headers"] == [["x", "y" * 100]]
    assert told[0].length == sum(len(frame.serialize()) for frame in (first, *rest))
    assert told[1].fields["bytes"] == 5


def test_streams_interleave() -> None:
    told, problems = exchanged(
        headers(1, GET),
        headers(3, GET, "END_STREAM"),
        data(1, b"abc"),
        server=(
            headers(3, OK),
            headers(1, [(":status", "103")]),
            data(3, b"x"),
            headers(1, OK),
            data(1, b"yy", "END_STREAM"),
            data(3, b"", "END_STREAM"),
        ),
    )
    assert not problems
    assert kinds(told) == [(1, "GET"), (3, "GET"), (3, "200"), (1, "103"), (1, "200"), (1, "body"), (3, "body")]
    assert [each.state for each in told if each.exchange == 3] == ["half-closed", "half-closed", "done"]
    assert told[-2].state == "answered"


def test_what_the_protocol_itself_says_is_told() -> None:
    told, problems = exchanged(
        PingFrame(0, b"12345678"),
        WindowUpdateFrame(0, 5),
        grease(),
        headers(1, GET),
        RstStreamFrame(1, 2),
        GoAwayFrame(0, last_stream_id=0, error_code=1, additional_data=b"why"),
        server=(PingFrame(0, b"12345678", flags=["ACK"]), RstStreamFrame(1, 0)),
    )
    assert not problems
    assert [(each.kind, each.failure) for each in told] == [
        ("PING", ""),
        ("GET", ""),
        ("RST_STREAM", "INTERNAL_ERROR"),
        ("GOAWAY", "PROTOCOL_ERROR: why"),
        ("PING", ""),
        ("RST_STREAM", ""),
    ]
    assert told[2].state == "reset"


def test_frames_on_their_way_to_a_stream_that_was_reset_are_passed_over() -> None:
    told, problems = exchanged(
        headers(1, GET),
        RstStreamFrame(1, 8),
        headers(3, GET, "END_STREAM"),
        server=(headers(1, OK), data(1, b"late", "END_STREAM"), headers(3, OK, "END_STREAM")),
    )
    assert not problems
    assert kinds(told) == [(1, "GET"), (1, "RST_STREAM"), (3, "GET"), (3, "200")]


def test_the_state_of_hpack_is_each_sides_own() -> None:
    encoder = hpack.Encoder()
    fields, flags = [*GET, ("secret", "x" * 50)], ["END_HEADERS", "END_STREAM"]
    blocks = [HeadersFrame(number, encoder.encode(fields), flags=flags) for number in (1, 3, 5)]
    assert len(blocks[1].data) < 20
    told, problems = exchanged(*blocks, server=(headers(5, OK, "END_STREAM"),))
    assert not problems
    assert [each.fields["headers"] for each in told[:3]] == [[["secret", "x" * 50]]] * 3


def test_a_table_may_be_as_large_as_the_peer_allows() -> None:
    encoder = hpack.Encoder()
    encoder.header_table_size = 60_000
    block = encoder.encode(GET)
    request = HeadersFrame(1, block, flags=["END_HEADERS", "END_STREAM"])
    settings = wire(SettingsFrame(0, settings={1: 65_536}))
    told, problems = heard((CLIENT, START), (SERVER, settings), (CLIENT, wire(request)))
    assert not problems
    assert kinds(told)[-1] == (1, "GET")
    _, (problem,) = heard((CLIENT, START), (SERVER, wire(SettingsFrame(0))), (CLIENT, wire(request)))
    assert problem.clause == "RFC 7541, section 6.3"


def test_a_promise_is_told_and_kept() -> None:
    block = headers(2, GET).data
    promise = PushPromiseFrame(1, promised_stream_id=2, data=block, flags=["END_HEADERS"])
    told, problems = exchanged(
        headers(1, GET, "END_STREAM"), server=(promise, headers(2, OK), data(2, b"x", "END_STREAM"))
    )
    assert not problems
    assert kinds(told) == [(1, "GET"), (1, "PUSH_PROMISE"), (2, "200"), (2, "body")]
    assert told[1].fields["promised"] == 2


def raw(kind: int, payload: bytes, stream_id: int = 0, flags: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big") + payload


@pytest.mark.parametrize(
    ("frame", "at", "clause"),
    [
        (raw(0, b"x", 0), 5, "RFC 9113, section 6.1"),
        (raw(0, b"\x05x", 1, 8), 9, "RFC 9113, section 6.1"),
        (raw(0, b"x", 5), 0, "RFC 9113, section 5.1"),
        (raw(1, b"\x05x", 7, 12), 9, "RFC 9113, section 6.2"),
        (raw(2, b"xxxx", 7), 0, "RFC 9113, section 6.3"),
        (raw(3, b"xxxx", 9), 0, "RFC 9113, section 5.1"),
        (raw(4, b"xxxx", 0), 0, "RFC 9113, section 6.5"),
        (raw(4, b"\0\5\0\0\0\1", 0), 9, "RFC 9113, section 6.5.2"),
        (raw(4, b"\0\1\0\0\0\1\0\2\0\0\0\7", 0), 15, "RFC 9113, section 6.5.2"),
        (raw(6, b"xxxx", 0), 0, "RFC 9113, section 6.7"),
        (raw(7, b"xxxx", 0), 0, "RFC 9113, section 6.8"),
        (raw(8, bytes(4), 0), 9, "RFC 9113, section 6.9"),
        (raw(9, b"", 1, 4), 0, "RFC 9113, section 6.10"),
        (raw(1, b"", 7) + raw(0, b"", 7), 9, "RFC 9113, section 6.10"),
        (raw(1, b"\xff\xff\xff", 7, 4), 9, "RFC 7541"),
        (raw(0, b"x" * 16_385, 1), 0, "RFC 9113, section 4.2"),
        (raw(1, b"", 8, 4), 0, "RFC 9113, section 5.1"),
        (wire(headers(7, GET, "END_STREAM")) + raw(1, b"", 5, 4), 70, "RFC 9113, section 5.1.1"),
    ],
)
def test_the_first_wrong_byte_of_a_frame_is_told(frame: bytes, at: int, clause: str) -> None:
    before = wire(headers(1, GET))
    for size in (1, 100_000):
        said = cut_up([(CLIENT, START), (CLIENT, before + frame + wire(headers(11, GET)))], size)
        told, problems = heard(*said)
        problem = problems[0]
        assert problem.offset == len(START + before) + at
        assert problem.clause.startswith(clause)
        assert problem.fatal
        assert problem.exchange is None
        assert (1, "GET") in kinds(told)
        whole = b"".join(chunk for _, chunk in said)
        assert whole[problem.context_offset :].startswith(problem.context)
        assert problem.context_offset <= problem.offset < problem.context_offset + len(problem.context)


@pytest.mark.parametrize("first", [PingFrame(0), headers(1, GET)])
def test_settings_come_first(first: Frame) -> None:
    _, (problem,) = heard((CLIENT, PREFACE + wire(first)))
    assert (problem.offset, problem.clause) == (len(PREFACE), "RFC 9113, section 3.4")


BAD_HEADS = [
    [*GET, ("Upper", "x")],
    [*GET, ("connection", "close")],
    [*GET[:3]],
    [("x", "y"), *GET],
    [*GET, (":method", "GET")],
    [*GET, ("te", "gzip")],
]


@pytest.mark.parametrize("fields", BAD_HEADS)
def test_a_malformed_head_ends_its_stream_alone(fields: list[tuple[str, str]]) -> None:
    told, problems = exchanged(
        headers(1, GET),
        headers(3, fields),
        data(3, b"x", "END_STREAM"),
        headers(5, GET, "END_STREAM"),
        data(1, b"x", "END_STREAM"),
        server=(headers(3, [(":status", "400")], "END_STREAM"), headers(5, OK, "END_STREAM")),
    )
    assert [(each.exchange, each.fatal) for each in problems] == [(3, True)]
    assert kinds(told) == [(1, "GET"), (5, "GET"), (1, "body"), (5, "200")]


@pytest.mark.parametrize(
    ("client", "server"),
    [
        ((headers(1, [*GET, ("content-length", "3")]), data(1, b"xxxx")), ()),
        ((headers(1, [*GET, ("content-length", "3")]), data(1, b"xx", "END_STREAM")), ()),
        ((headers(1, [*GET, ("content-length", "3x")]),), ()),
        ((headers(1, GET), headers(1, [("t", "x")])), ()),
        ((headers(1, GET), headers(1, [(":path", "x")], "END_STREAM")), ()),
        ((headers(1, GET, "END_STREAM"), data(1, b"x")), ()),
        ((headers(1, GET), WindowUpdateFrame(1, 0)), ()),
        ((headers(1, GET),), (data(1, b"x"),)),
        ((headers(1, GET),), (headers(1, [("x", "y")]),)),
        ((headers(1, GET),), (headers(1, [(":status", "abc")]),)),
        ((headers(1, GET, "END_STREAM"),), (headers(1, OK, "END_STREAM"), data(1, b"x"))),
    ],
)
def test_a_fault_in_one_stream_is_not_the_others(client: tuple[Frame, ...], server: tuple[Frame, ...]) -> None:
    frames = list(client)
    if isinstance(frames[-1], WindowUpdateFrame):
        frames[-1].window_increment = 0
    told, problems = exchanged(
        *frames,
        headers(3, GET, "END_STREAM"),
        server=(*server, headers(3, OK), data(3, b"fine", "END_STREAM")),
    )
    assert [(each.exchange, each.fatal) for each in problems] == [(1, True)]
    assert problems[0].clause.startswith("RFC 9113, section ")
    assert kinds(told)[-2:] == [(3, "200"), (3, "body")]


def test_a_response_without_a_request() -> None:
    _, (problem,) = exchanged(server=(headers(1, OK),))
    assert (problem.sender, problem.fatal, problem.clause) == (SERVER, True, "RFC 9113, section 5.1")


def test_what_comes_amid_a_frame_at_the_end() -> None:
    frame = wire(headers(1, GET))
    _, (problem,) = heard((CLIENT, START + frame[:-5]))
    assert "the connection ends between frames" in problem.rule
    of = conversation("s2")
    _, (problem,), _ = parts(hear(HttpDialogue(of), events(of, [(CLIENT, START + frame[:-5])], closed=())))
    assert (problem.rule, problem.fatal) == ("the recording ends amid a frame", False)


def test_no_more_than_1000_exchanges_are_followed_at_once() -> None:
    many = [headers(2 * number + 1, GET, "END_STREAM") for number in range(1200)]
    answers = [headers(2 * number + 1, OK, "END_STREAM") for number in range(1200)]
    told, problems = heard(
        (CLIENT, START + wire(*many)), (SERVER, wire(SettingsFrame(0), *answers)), (CLIENT, wire(headers(9999, GET)))
    )
    assert ["1000 exchanges" in each.rule for each in problems] == [True]
    assert [each.exchange for each in told if each.kind == "200"] == [2 * number + 1 for number in range(1000)]
    assert told[-1].exchange == 9999


# ---- the middle ----------------------------------------------------------------------------------------------------


def chunks_of(said: Said, sender: Sender) -> list[bytes]:
    return [chunk for who, chunk in said if who is sender]


def test_a_session_from_the_middle_is_told_where_its_frames_decode() -> None:
    """From the middle of a session on: heads cannot be known, frames can."""
    said = talk("h2").said
    of = conversation("s2")
    whole, _, _ = parts(hear(HttpDialogue(of), events(of, said)))
    first = next(number for number, (_, chunk) in enumerate(said) if b"stamped too" in chunk)
    offsets = tuple(len(by_side(said[:first])[sender]) for sender in (CLIENT, SERVER))
    dialogue = HttpDialogue(of)
    opened, *rest = events(of, said[first:], offsets=offsets)  # type: ignore[arg-type]
    noted = Noted(of, 0, "stream", str(STREAM))
    told, problems, records = parts(hear(dialogue, [opened, noted, *rest]))
    assert not [problem for problem in problems if problem.fatal]
    assert {problem.clause for problem in problems} == {"RFC 7541, section 2.3"}

    def frames(messages: list[Message]) -> list[tuple[object, ...]]:
        return [
            (each.kind, each.offset, each.length, each.stream)
            for each in messages
            if each.layer == "s2s" and each.kind != "Terminal" and each.offset >= offsets[each.sender is SERVER]
        ]

    assert frames(told) == [each for each in frames(whole) if each in frames(told)]
    assert {kind for kind, *_ in frames(told)} == {"AppendInput", "AppendAck", "ReadBatch", "heartbeat"}
    assert len(frames(told)) >= len(frames(whole)) - 2
    assert {(record.action, record.acknowledged) for record in records} == {(APPENDED, False), (DELIVERED, True)}
    assert {record.stream for record in records} == {str(STREAM)}
    states = {(each.kind, each.state) for each in told if each.layer == "s2s" and each.kind != "Terminal"}
    assert states == {
        ("AppendInput", "appending"),
        ("AppendAck", "appending"),
        ("ReadBatch", "reading"),
        ("heartbeat", "reading"),
    }
    assert {"HEADERS", "DATA", "PING"} - {each.kind for each in told} <= {"PING"}


def test_a_whole_connection_after_bytes_that_were_lost() -> None:
    """The preface marks the beginning of a connection, wherever the recording places it."""
    told, problems = heard((CLIENT, START), (SERVER, ACK), (CLIENT, wire(headers(1, GET))), offsets=(7, 7))
    assert not problems
    assert kinds(told)[-1] == (1, "GET")


def test_bytes_that_begin_like_nothing_are_one_problem() -> None:
    told, problems = heard((CLIENT, b"\xff" * 50), (SERVER, b"\xff" * 20), (CLIENT, b"\xff" * 50), offsets=(5, 5))
    assert not told
    assert [(each.sender, each.offset, each.fatal) for each in problems] == [(CLIENT, 5, False), (SERVER, 5, False)]
