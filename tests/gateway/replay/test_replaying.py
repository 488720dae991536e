"""Recorded conversations over S3P, played to a server that a test has in its hand."""

from __future__ import annotations

import math
import random

import pytest
import trio.testing
from support.captures import read as read_capture
from support.captures import written
from support.replay import Recording, S3PDouble, append, create, played, read

from penstock.replay.items import Say
from penstock.replay.order import ReadAhead, Turns
from penstock.replay.pace import Pace
from penstock.replay.replaying import ReplaySettings
from penstock.replay.selection import PlayedParts, moment
from penstock_codecs.capture import Chunk, Lost, Opened, Sender, Side
from penstock_codecs.model import RecordId
from penstock_codecs.s3p import AppendedId, ErrorReply, Ok, Records

Clock = trio.testing.MockClock
ACK = AppendedId(RecordId(1, 0))
FAST = ReplaySettings(speed=math.inf)


@pytest.fixture
def server() -> S3PDouble:
    """Used with a clock that jumps where nobody has anything to do: no test really waits."""
    return S3PDouble()


def talk(seconds: float = 1.0) -> Recording:
    """A client that asks four times, so many seconds apart, each time after its answer."""
    recording = Recording()
    for number, (command, reply) in enumerate(
        [(create(), Ok()), (append(b"a"), ACK), (append(b"b", b"c"), ACK), (read(), records(3))]
    ):
        recording.now = number * seconds
        recording.asked(command)
        recording.answered(reply)
    recording.closed()
    return recording


def records(count: int) -> Records:
    return Records.of((RecordId(1, place), b"x") for place in range(count))


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
    """What the writer writes and the reader reads is what is played."""
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
    assert report.answers == 1 and server.commands == [create()]


async def test_what_was_half_said_is_half_said(server: S3PDouble, autojump_clock: Clock) -> None:
    """The client left amid a command, and so it does again."""
    recording = Recording()
    recording.asked(create())
    recording.answered(Ok())
    recording.said(Sender.CLIENT, b"*4\r\n$6\r\nAPPEND\r\n$6\r\nord")
    recording.closed()
    assert (await played(recording.events, server, FAST)).same
    assert server.commands == [create()]


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

    class Noted(Pace):
        async def wait(self, time_ns: int, records: int) -> None:
            await super().wait(time_ns, records)
            said_at.append(trio.current_time())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.replay.replaying.Pace", Noted)
        await played(recording.events, server, FAST)
    assert [at - said_at[0] for at in said_at] == [0.0, 0.0, 0.0, 2.0]


async def test_a_wait_that_runs_out_is_told_and_forgiven(server: S3PDouble, autojump_clock: Clock) -> None:
    server.delays = {b"a": 10.0}
    summary = await played(talk().events, server, ReplaySettings(speed=math.inf, patience=7.0))
    [report] = summary.conversations
    assert server.commands == [create(), append(b"a"), append(b"b", b"c"), read()], "it went on after its patience"
    assert report.waits == ["1 of 2 answers did not come in 7 s"] and report.ran_out == 1
    assert not summary.same


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
    assert report.different == 1
    assert str(report.differences[0]) == "exchange 2: ID was recorded, and ERR_UNKNOWN_STREAM came"
    assert not summary.same and any("ERR_UNKNOWN_STREAM came" in line for line in summary.lines())


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


async def test_a_server_that_is_not_there_is_told(autojump_clock: Clock) -> None:
    async def refuse(_host: str, _port: int) -> trio.abc.Stream:
        raise OSError("nobody listens there")

    summary = await played(talk().events, S3PDouble(dial=refuse), FAST)
    assert summary.totals["said"] == 0 and not summary.same
    assert "nobody listens there" in summary.conversations[0].not_carried[0]


# ---- across connections ----------------------------------------------------------------------------------------------


def two_clients() -> Recording:
    """One creates, and only when that is answered the other appends."""
    recording = Recording()
    recording.of(1)
    recording.of(2)
    recording.asked(create(), number=1)
    recording.answered(Ok(), number=1)
    recording.asked(append(b"a"), number=2)
    recording.answered(ACK, number=2)
    recording.asked(append(b"b"), number=1)
    recording.answered(ACK, number=1)
    recording.closed(1)
    recording.closed(2)
    return recording


async def test_connections_wait_for_each_other(server: S3PDouble, autojump_clock: Clock) -> None:
    server.delay = 3.0
    await played(two_clients().events, server, FAST)
    assert server.heard == [(0.0, create()), (3.0, append(b"a")), (6.0, append(b"b"))]


async def test_or_each_for_itself(server: S3PDouble, autojump_clock: Clock) -> None:
    server.delay = 3.0
    await played(two_clients().events, server, ReplaySettings(speed=math.inf, together=False))
    assert sorted(server.times) == [0.0, 0.0, 3.0]


async def test_a_reader_that_waits_for_a_writer_holds_up_nobody(server: S3PDouble, autojump_clock: Clock) -> None:
    """The read is answered only once the other connection has appended."""
    recording = Recording()
    recording.asked(read(block_ms=10_000), number=1)
    for number in range(50):
        recording.asked(append(b"%d" % number), number=2)
        recording.answered(ACK, number=2)
        if not number:
            recording.answered(records(1), number=1)
    recording.closed(1)
    recording.closed(2)
    appended = trio.Event()

    def answer(command: object) -> object:
        if command != read(block_ms=10_000):
            appended.set()
        return server.usual(command) if appended.is_set() else None

    server.answer = answer  # type: ignore[assignment]
    summary = await played(recording.events, server, ReplaySettings(speed=math.inf, patience=2.0))
    assert len(server.records) == 50
    assert summary.totals["appended"] == 50


async def test_little_is_read_ahead_however_long_a_conversation_waits(server: S3PDouble, autojump_clock: Clock) -> None:
    """A conversation that hangs for an hour keeps another one from being played, but takes no more memory."""
    recording = Recording()
    recording.asked(create(), number=1)
    recording.answered(Ok(), number=1)
    for _ in range(200):
        recording.asked(append(b"x" * 1000), number=2)
        recording.answered(ACK, number=2)
    recording.closed(1)
    recording.closed(2)
    ahead = ReadAhead(10_000)
    most = 0
    taken = ahead.take

    async def take(size: int) -> None:
        nonlocal most
        await taken(size)
        most = max(most, ahead._held)

    ahead.take = take  # type: ignore[method-assign]
    server.delay = 1.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.replay.replaying.ReadAhead", lambda: ahead)
        summary = await played(recording.events, server, FAST)
    assert summary.same and len(server.records) == 200
    assert 5_000 < most <= 10_000


# ---- when ------------------------------------------------------------------------------------------------------------


async def test_as_it_was(server: S3PDouble, autojump_clock: Clock) -> None:
    await played(talk(2.0).events, server)
    assert server.times == [0.0, 2.0, 4.0, 6.0]


async def test_so_many_times_as_fast(server: S3PDouble, autojump_clock: Clock) -> None:
    await played(talk(2.0).events, server, ReplaySettings(speed=10.0))
    assert server.times == [0.0, 0.2, 0.4, 0.6]


async def test_so_many_records_a_second(server: S3PDouble, autojump_clock: Clock) -> None:
    """Before the third command one record was known, before the last one three."""
    await played(talk(1000.0).events, server, ReplaySettings(rate=0.5))
    assert server.times == [0.0, 0.0, 2.0, 6.0]


async def test_late_is_caught_up_with(server: S3PDouble, autojump_clock: Clock) -> None:
    server.delays = {b"a": 3.0}
    summary = await played(talk(2.0).events, server)
    assert server.times == [0.0, 2.0, 5.0, 6.0]
    assert summary.late_seconds == pytest.approx(1.0)


async def test_stamps_out_of_order_are_played_in_the_order_of_the_file(
    server: S3PDouble, autojump_clock: Clock
) -> None:
    recording = Recording()
    for now, command in ((5.0, create()), (3.0, append(b"a")), (6.0, append(b"b"))):
        recording.now = now
        recording.asked(command)
    recording.closed()
    await played(recording.events, server)
    assert server.heard == [(0.0, create()), (0.0, append(b"a")), (1.0, append(b"b"))]


async def test_again_and_again(server: S3PDouble, autojump_clock: Clock) -> None:
    summary = await played(talk().events, server, ReplaySettings(speed=math.inf, loops=3))
    assert server.connections == 3 and len(server.commands) == 12
    assert summary.count == 3


# ---- which -----------------------------------------------------------------------------------------------------------


def parts(**what: object) -> ReplaySettings:
    return ReplaySettings(speed=math.inf, parts=PlayedParts(**what))  # type: ignore[arg-type]


async def test_only_some_streams(server: S3PDouble, autojump_clock: Clock) -> None:
    """Answers to what is left out are not waited for, and those that follow are compared with their own."""
    recording = Recording()
    recording.asked(create("orders"), create("bills"), append(b"a", name="bills"), append(b"b", name="orders"))
    recording.answered(Ok(), ErrorReply("ERR_STREAM_EXISTS", "is there"), ACK, ACK)
    recording.closed()
    summary = await played(recording.events, server, parts(streams=["ord*"]))
    assert server.commands == [create("orders"), append(b"b", name="orders")]
    assert summary.same


async def test_only_some_connections(server: S3PDouble, autojump_clock: Clock) -> None:
    summary = await played(two_clients().events, server, parts(connections=frozenset({2})))
    assert server.commands == [append(b"a")]
    assert summary.left_out == {"they were not asked for (--connection)": 1}


async def test_what_the_gateway_said_to_servers_is_not_said_twice(server: S3PDouble, autojump_clock: Clock) -> None:
    recording = Recording()
    recording.of(1, Side.FRONT)
    recording.of(2, Side.BACK)
    for number in (1, 2):
        recording.asked(create(str(number)), number=number)
        recording.answered(Ok(), number=number)
        recording.closed(number)
    await played(recording.events, server, FAST)
    assert server.commands == [create("1")]
    await played(recording.events, server, parts(side=Side.BACK))
    assert server.commands == [create("1"), create("2")]


async def test_from_and_until(server: S3PDouble, autojump_clock: Clock) -> None:
    await played(talk(1.0).events, server, ReplaySettings(since="1", until="2.5"))
    assert server.heard == [(0.0, append(b"a")), (1.0, append(b"b", b"c"))]


async def test_times_as_people_write_them(server: S3PDouble, autojump_clock: Clock) -> None:
    await played(talk(1.0).events, server, ReplaySettings(since="2023-11-14T22:13:22Z"))
    assert server.commands == [append(b"b", b"c"), read()]
    with pytest.raises(ValueError, match="'soon' is neither a number of seconds nor a time"):
        moment("soon", 0)


async def test_the_management_listener_is_nobodys_replay(server: S3PDouble, autojump_clock: Clock) -> None:
    recording = Recording()
    recording.of(1, protocol="management")
    recording.said(Sender.CLIENT, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    summary = await played(recording.events, server, FAST)
    assert not server.connections
    assert summary.left_out == {"nobody plays what they speak (management)": 1}


async def test_a_recording_that_begins_in_the_middle(server: S3PDouble, autojump_clock: Clock) -> None:
    """What is half there is skipped, told, and the rest is played."""
    recording = Recording()
    conversation = recording.of(1)
    recording.events[0] = Opened(conversation, recording._time_ns, 100, 50)
    recording._offsets = {(1, Sender.CLIENT): 100, (1, Sender.SERVER): 50}
    recording.said(Sender.CLIENT, b"ers\r\n*0\r\n")
    recording.asked(append(b"a"))
    recording.answered(ACK)
    recording.closed()
    summary = await played(recording.events, server, FAST)
    assert server.commands == [append(b"a")]
    assert any("skipped" in why for why in summary.conversations[0].not_carried)


async def test_lost_bytes(server: S3PDouble, autojump_clock: Clock) -> None:
    recording = Recording()
    recording.asked(create())
    recording.answered(Ok())
    offset = recording._offsets[1, Sender.CLIENT]
    recording.events.append(Lost(recording.of(1), recording._time_ns, Sender.CLIENT, offset, 40, "the disk was full"))
    recording._offsets[1, Sender.CLIENT] += 40
    recording.asked(append(b"a"))
    recording.answered(ACK)
    recording.closed()
    summary = await played(recording.events, server, FAST)
    assert server.commands == [create(), append(b"a")]
    assert "40 bytes are not in the capture" in summary.conversations[0].not_carried[0]


# ---- order -----------------------------------------------------------------------------------------------------------


async def test_turns_come_in_order_however_things_are_done(autojump_clock: Clock) -> None:
    turns = Turns()
    places = [turns.take() for _ in range(50)]
    shuffled = random.Random(5).sample(places, len(places))
    order: list[int] = []

    async def play(place: int) -> None:
        await turns.wait(place)
        order.append(place)
        turns.done(place)

    async with trio.open_nursery() as nursery:
        for place in shuffled:
            nursery.start_soon(play, place)
    assert order == places


def test_what_an_item_takes() -> None:
    assert Say(b"x" * 1000, 0).size > 1000
