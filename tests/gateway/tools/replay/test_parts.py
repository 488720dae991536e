"""Parts of recordings, and recordings of which parts are missing."""

from __future__ import annotations

import math

import pytest
import trio.testing
from support.captures.replay import ACK, FAST, Recording, S3PDouble, append, create, played, read, talk, two_clients

from penstock.capture.pcapng import Lost, Opened, Sender, Side
from penstock.tools.replay.replaying import PlayedParts, ReplaySettings, moment
from penstock.tools.replay.report import MOST_SHOWN, ReplaySummary, Report
from penstock_s3p.codec import ErrorReply, Ok

Clock = trio.testing.MockClock


# ---- which -----------------------------------------------------------------------------------------------------------


def parts(**what: object) -> ReplaySettings:
    return ReplaySettings(speed=math.inf, parts=PlayedParts(**what))  # type: ignore[arg-type]


async def test_only_some_streams(server: S3PDouble, autojump_clock: Clock) -> None:
    """Replies to omitted commands are not waited for, and later replies are compared with their own."""
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


async def test_the_management_listener_is_not_replayed(server: S3PDouble, autojump_clock: Clock) -> None:
    recording = Recording()
    recording.of(1, protocol="management")
    recording.said(Sender.CLIENT, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    summary = await played(recording.events, server, FAST)
    assert not server.connections
    assert summary.left_out == {"nothing plays what they speak (management)": 1}


async def test_a_recording_that_begins_in_the_middle(server: S3PDouble, autojump_clock: Clock) -> None:
    """The partial message is skipped and reported, and the rest is replayed."""
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


async def test_what_comes_after_its_end_is_no_conversation(server: S3PDouble, autojump_clock: Clock) -> None:
    """A conversation that was dropped, and then closed."""
    recording = Recording()
    recording.asked(create())
    recording.answered(Ok())
    recording.events.append(Lost(recording.of(1), recording._time_ns, Sender.CLIENT, 99, 0, "the disk was full"))
    recording.closed()
    summary = await played(recording.events, server, FAST)
    assert (summary.count, summary.left_out) == (1, {})
    assert server.commands == [create()]


def test_that_there_is_more_is_told() -> None:
    report = Report(Recording().of(1), "s3p")
    for number in range(MOST_SHOWN + 5):
        report.leave_out(f"reason {number}")
        report.waited(f"wait {number}")
    summary = ReplaySummary()
    summary.add(report)
    lines = list(summary.lines())
    assert "connection 1: and 5 more waits ran out" in lines
    assert lines.count("connection 1: and there is more that was not carried") == 1
    assert f"connection 1: reason {MOST_SHOWN - 1}" in lines
