"""Recorded conversations over S3P, replayed to a server that the test controls: commands, times and results."""

from __future__ import annotations

import math
import socket
from collections.abc import AsyncGenerator

import pytest
import trio.testing
from msgspec.structs import replace
from support.captures import read as read_capture
from support.captures import written
from support.captures.replay import ACK, FAST, Recording, S3PDouble, append, create, played, read, records, talk

from penstock.capture.pcapng import CaptureEvent, Chunk, Sender
from penstock.core.errors import CannotStart
from penstock.tools.replay.player import ReplayPace
from penstock.tools.replay.replaying import Replay, ReplaySettings
from penstock.tools.target.url import parse_target
from penstock_s3p.codec import ErrorReply, Ok, Reply

Clock = trio.testing.MockClock


# ---- what is said ----------------------------------------------------------------------------------------------------


async def test_the_client_says_what_it_said(server: S3PDouble, autojump_clock: Clock) -> None:
    summary = await played(talk().events, server, FAST)
    assert server.commands == [create(), append(b"a"), append(b"b", b"c"), read()]
    [report] = summary.conversations
    assert (report.said, report.answers, report.appended, report.delivered) == (4, 4, 3, 3)
    assert summary.same and report.way == "direct"


@pytest.mark.parametrize("size", [1, 2, 7, 64])
async def test_however_the_bytes_were_cut(server: S3PDouble, autojump_clock: Clock, size: int) -> None:
    recording = Recording()
    whole = b"".join(bytes(e.data) for e in talk().events if isinstance(e, Chunk) and e.sender is Sender.CLIENT)
    for at in range(0, len(whole), size):
        recording.said(Sender.CLIENT, whole[at : at + size])
    recording.answered(Ok(), ACK, ACK, records(3))
    recording.closed()
    summary = await played(recording.events, server, FAST)
    assert server.commands == [create(), append(b"a"), append(b"b", b"c"), read()]
    assert summary.same


async def test_out_of_a_file(server: S3PDouble, autojump_clock: Clock) -> None:
    """A recording is replayed unchanged after it was written to and read from a file."""
    summary = await played(read_capture(written(talk().events)), server, FAST)
    assert summary.same and len(server.commands) == 4


async def test_what_breaks_the_protocol_is_said_as_it_was(server: S3PDouble, autojump_clock: Clock) -> None:
    recording = Recording()
    recording.asked(create())
    recording.answered(Ok())
    recording.said(Sender.CLIENT, b"*1\r\nnonsense")
    recording.answered(ErrorReply("ERR_BAD_FORMAT", "no"))
    recording.closed()
    summary = await played(recording.events, server, FAST)
    assert summary.same, list(summary.lines())
    [report] = summary.conversations
    assert (report.said, report.answers, server.commands) == (2, 2, [create()])


async def test_what_was_half_said_is_half_said(server: S3PDouble, autojump_clock: Clock) -> None:
    """The client left amid a command, and so it does again."""
    recording = Recording()
    recording.asked(create())
    recording.answered(Ok())
    recording.said(Sender.CLIENT, b"*4\r\n$6\r\nAPPEND\r\n$6\r\nord")
    recording.closed()
    assert (await played(recording.events, server, FAST)).same
    assert server.commands == [create()]


@pytest.mark.parametrize("most", [30, 100])
async def test_many_answers_that_were_not_waited_for(
    server: S3PDouble, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Replies too many to be compared are reported, and not taken for replies that never came."""
    monkeypatch.setattr("penstock.tools.replay.report.MOST_UNPAIRED", most)
    recording = Recording()
    recording.asked(*[create()] * 50)
    recording.answered(*[Ok()] * 50)
    recording.closed()

    class Patient(ReplayPace):
        async def wait(self, time_ns: int, records: int) -> None:
            await super().wait(time_ns, records)
            await trio.testing.wait_all_tasks_blocked()  # the server answers each before the next is said

    monkeypatch.setattr("penstock.tools.replay.replaying.ReplayPace", Patient)
    summary = await played(recording.events, server, FAST)
    [report] = summary.conversations
    assert (report.answers, report.different) == (50, 0)
    assert summary.same == (most > 50) and len(report.not_carried) == (most < 50)


# ---- waits -----------------------------------------------------------------------------------------------------------


async def test_each_command_waits_for_the_answers_that_came_before_it(server: S3PDouble, autojump_clock: Clock) -> None:
    server.delay = 5.0
    await played(talk().events, server, FAST)
    assert server.times == [0.0, 5.0, 10.0, 15.0]


async def test_what_was_said_without_waiting_is_said_so_again(server: S3PDouble, autojump_clock: Clock) -> None:
    """Three commands at once, then one after two answers."""
    recording = Recording()
    recording.asked(create(), append(b"a"), append(b"b"))
    recording.answered(Ok(), ACK)
    recording.asked(append(b"c"))
    recording.answered(ACK, ACK)
    recording.closed()
    server.delay = 1.0
    said_at = []

    class Noted(ReplayPace):
        async def wait(self, time_ns: int, records: int) -> None:
            await super().wait(time_ns, records)
            said_at.append(trio.current_time())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.tools.replay.replaying.ReplayPace", Noted)
        await played(recording.events, server, FAST)
    assert [at - said_at[0] for at in said_at] == [0.0, 0.0, 0.0, 2.0]


async def test_a_wait_that_runs_out_is_told_and_forgiven(server: S3PDouble, autojump_clock: Clock) -> None:
    server.delays = {b"a": 10.0}
    summary = await played(talk().events, server, ReplaySettings(speed=math.inf, patience=7.0))
    [report] = summary.conversations
    assert server.commands == [create(), append(b"a"), append(b"b", b"c"), read()], "it went on after its patience"
    assert report.waits == ["1 of 2 answers did not come in 7 s"] and report.ran_out == 1
    assert not summary.same


async def test_what_took_long_may_take_as_long(server: S3PDouble, autojump_clock: Clock) -> None:
    """A read that was to wait for records, and did."""
    recording = Recording()
    recording.asked(append(b"a"))
    recording.now = 60.0
    recording.answered(ACK)
    recording.asked(create())
    recording.answered(Ok())
    recording.closed()
    server.delays = {b"a": 65.0}
    assert (await played(recording.events, server, ReplaySettings(speed=math.inf, patience=7.0))).same
    server.delays = {b"a": 68.0}
    summary = await played(recording.events, server, ReplaySettings(speed=math.inf, patience=7.0))
    assert summary.conversations[0].ran_out == 1


async def test_or_the_conversation_ends_there(server: S3PDouble, autojump_clock: Clock) -> None:
    server.delays = {b"a": 10.0}
    summary = await played(talk().events, server, ReplaySettings(speed=math.inf, patience=7.0, gives_up=True))
    [report] = summary.conversations
    assert server.commands == [create(), append(b"a")]
    assert "the rest was not said" in report.not_carried[0]


async def test_other_answers_are_differences(server: S3PDouble, autojump_clock: Clock) -> None:
    refusal = ErrorReply("ERR_UNKNOWN_STREAM", "there is none")
    server.answer = lambda command: refusal if command == append(b"a") else server.usual(command)
    summary = await played(talk().events, server, FAST)
    [report] = summary.conversations
    assert report.different == 2  # there is a record less to read
    assert str(report.differences[0]) == "exchange 2: ID was recorded, and ERR_UNKNOWN_STREAM came"
    assert not summary.same and any("ERR_UNKNOWN_STREAM came" in line for line in summary.lines())


async def test_more_records_than_were_recorded_are_a_difference(server: S3PDouble, autojump_clock: Clock) -> None:
    server.records = [b"old"] * 4
    summary = await played(talk().events, server, FAST)
    [report] = summary.conversations
    [difference] = report.differences
    assert str(difference) == "a total of 3 records was recorded, and a total of 7 records came"
    assert not summary.same


async def test_refused_as_it_was_is_no_difference(server: S3PDouble, autojump_clock: Clock) -> None:
    refusal = ErrorReply("ERR_UNKNOWN_STREAM", "there is none")
    recording = Recording()
    recording.asked(append(b"a"))
    recording.answered(ErrorReply("ERR_UNKNOWN_STREAM", "in other words"))
    recording.closed()
    server.answer = lambda _command: refusal
    summary = await played(recording.events, server, FAST)
    assert summary.same and summary.totals["refused"] == 1


async def test_a_server_that_is_lost_is_told(server: S3PDouble, autojump_clock: Clock) -> None:
    server.answer = lambda command: ErrorReply("ERR_LIMITS", "too much") if command == append(b"a") else Ok()
    summary = await played(talk().events, server, FAST)
    [report] = summary.conversations
    assert not summary.same
    assert report.differences[0].live == "ERR_LIMITS"


async def test_a_server_that_cannot_be_reached_ends_the_replay_at_once(autojump_clock: Clock) -> None:
    """Nothing is read behind the beginning of the first conversation."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        target = parse_target(f"s3p://127.0.0.1:{closed.getsockname()[1]}")

        async def events() -> AsyncGenerator[CaptureEvent, None]:
            for event in talk().events[:2]:
                yield event
            raise AssertionError("more is read")

        with pytest.raises(CannotStart, match=r"nothing was replayed: .*connection refused"):
            await Replay(target, events, FAST).run()


async def test_a_server_that_is_lost_later_is_told(autojump_clock: Clock) -> None:
    async def refuse(_host: str, _port: int) -> trio.abc.Stream:
        raise OSError("no listener there")

    summary = await played(talk().events, S3PDouble(dial=refuse), FAST)
    assert summary.totals["said"] == 0 and not summary.same
    assert "no listener there" in summary.conversations[0].not_carried[0]


# ---- what was not compared -------------------------------------------------------------------------------------------

NOPE = b"*1\r\n$4\r\nNOPE\r\n"
REFUSAL = ErrorReply("ERR_BAD_FORMAT", "unknown command")


def one_client(said: bytes, *replies: Reply) -> Recording:
    recording = Recording()
    recording.said(Sender.CLIENT, said)
    recording.answered(*replies)
    recording.closed()
    return recording


async def test_a_malformed_command_is_said_again_and_counted(server: S3PDouble, autojump_clock: Clock) -> None:
    summary = await played(one_client(NOPE, REFUSAL).events, server, FAST)
    assert (summary.same, summary.totals["said"], summary.totals["answers"]) == (True, 1, 1)
    other = one_client(NOPE, ErrorReply("ERR_LIMITS", "another answer"))
    assert (await played(other.events, server, FAST)).same is False


async def test_a_malformed_command_is_not_carried_over_another_protocol(autojump_clock: Clock) -> None:
    """The front of this process refuses it, and the server is never asked."""
    summary = await played(one_client(NOPE, REFUSAL).events, S3PDouble(), replace(FAST, through=True))
    [report] = summary.conversations
    assert summary.same is False and not summary.reached
    assert report.not_carried == [
        "not said again over another protocol: client, byte 0: a command is an array of 3 or 4 elements, not 1"
    ]


async def test_what_the_server_was_not_asked_is_not_the_same(autojump_clock: Clock) -> None:
    """Of a name that S3P does not allow the front of this process says so itself."""
    recording = one_client(b"*3\r\n$6\r\nCREATE\r\n$1\r\n\0\r\n*0\r\n", ErrorReply("ERR_BAD_FORMAT", "no name"))
    summary = await played(recording.events, S3PDouble(), replace(FAST, through=True))
    assert summary.same is not True and not summary.reached


@pytest.mark.parametrize(("said", "same", "why"), [(b"", None, "said nothing"), (b"*1", False, "said too little")])
async def test_where_nothing_was_said_nothing_is_the_same(
    said: bytes, same: bool | None, why: str, server: S3PDouble, autojump_clock: Clock
) -> None:
    recording = Recording()
    recording.of(1)
    if said:
        recording.said(Sender.CLIENT, said)
    recording.closed()
    summary = await played(recording.events, server, FAST)
    assert summary.same is same and summary.as_json()["same"] is same
    assert [why in each for each in summary.left_out] == [True]
    assert any("nothing was compared" in line for line in summary.lines()) == (same is None)
