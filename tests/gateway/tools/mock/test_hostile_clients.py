"""Clients of a mock that say too much, leave at a bad time, take long, or have secrets that were redacted."""

from __future__ import annotations

import time

import pytest
import trio.testing
from msgspec.structs import replace
from support.captures.dialogues import CLIENT, SERVER, Said, conversation, events
from support.captures.mock import asked, exactly, mock, say_again
from support.captures.replay import ACK, Recording, append, create
from support.s2.whole_api import talk

from penstock.tools.mock.client_messages import alike
from penstock.tools.mock.serving import PATIENCE_SECONDS
from penstock_analysis.capture import CaptureEvent, Closed
from penstock_codecs.http import PREFACE
from penstock_codecs.s3p import Ok

Clock = trio.testing.MockClock


async def test_a_client_that_says_far_more_at_once_than_is_kept(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read on when what it said was heard, also beyond the end of the recording."""
    monkeypatch.setattr("penstock.tools.mock.serving.MOST_UNPROCESSED", 20)
    count = 50
    recording = Recording()
    recording.asked(*[append(b"a")] * count)
    recording.answered(*[ACK] * count)
    recording.closed()
    async with mock(recording.events) as served:
        stream = served.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, asked(append(b"a")) * count)
            with trio.fail_after(1000):
                assert len(await exactly(stream, 9 * count)) == 9 * count
        with trio.fail_after(1000):
            for _ in range(count):
                await stream.send_all(asked(append(b"more")))
            await stream.send_eof()
            assert await exactly(stream, 1) == b"", "it has seen that the client left"
    assert served.report.played == 1 and served.report.different == count


@pytest.fixture
def said() -> Said:
    """By a client of HTTP/2."""
    return talk("h2").said


def spoken_to_first(said: Said) -> Said:
    """A client that asks only when it has the server's settings."""
    (_, first), second, settings, *more = said
    at = len(PREFACE) + 9 + int.from_bytes(first[len(PREFACE) :][:3], "big")
    return [(CLIENT, first[:at]), settings, (CLIENT, first[at:]), second, *more]


PING, PONG = (b"\0\0\x08\x06%c\0\0\0\x0012345678" % flags for flags in (0, 1))


async def test_a_client_that_leaves_while_its_ping_is_answered(said: Said, autojump_clock: Clock) -> None:
    """The connection is over at once, without waiting for the answer."""
    async with mock(events(conversation("s2"), said)) as served:
        stream = served.connect()
        for sender, data in said:
            if sender is CLIENT:
                await stream.send_all(data)
            else:
                await exactly(stream, len(data))
        await trio.testing.wait_all_tasks_blocked()
        served.slow(5.0)
        await stream.send_all(PING)
        await trio.sleep(1)
        await stream.aclose()
        await trio.sleep(10)
        assert not served.open


async def test_pings_are_answered_during_recorded_delays(said: Said, autojump_clock: Clock) -> None:
    """The first answer is due only after an hour."""
    first = next(place for place, (sender, _) in enumerate(said) if sender is SERVER)
    recorded = [
        replace(event, time_ns=0 if place <= first else 3600 * 10**9)
        for place, event in enumerate(events(conversation("s2"), said))
    ]
    async with mock(recorded, speed=1.0) as served:
        stream = served.connect()
        await stream.send_all(b"".join(data for _, data in said[:first]) + PING)
        with trio.move_on_after(60):
            assert PONG in await exactly(stream, 10**6)


async def test_a_slow_client_is_not_sent_half_an_answer(said: Said, autojump_clock: Clock) -> None:
    """The client reads a pong more slowly than the mock's time limit allows; the pong still goes out in one piece."""
    said = spoken_to_first(said)
    async with mock(events(conversation("s2"), said)) as served:
        stream = served.connect()
        await stream.send_all(said[0][1])
        assert await exactly(stream, len(said[1][1])) == said[1][1]
        await stream.send_all(said[2][1])
        await trio.testing.wait_all_tasks_blocked()
        served.slow(PATIENCE_SECONDS * 2)
        await stream.send_all(PING)
        await trio.sleep(PATIENCE_SECONDS)
        assert served.taken == [], "it is being sent"
        await trio.sleep(PATIENCE_SECONDS * 2)
        assert served.taken == [PONG]


async def test_again_also_for_clients_that_wait_to_be_spoken_to(said: Said, autojump_clock: Clock) -> None:
    """A client of HTTP/2 may wait for the server's settings before it asks anything."""
    said = spoken_to_first(said)
    async with mock(events(conversation("s2"), said), repeat=True) as served:
        for _ in range(2):
            with trio.fail_after(60):
                await say_again(served.connect(), said)
    assert served.report.different == 0


async def test_a_recorded_client_that_was_lost(autojump_clock: Clock) -> None:
    """That was the client's doing: a live one that stays is left in peace, and was served to the end."""
    recording = Recording()
    recording.asked(create())
    recording.answered(Ok())
    recording.closed(reset=True)
    async with mock(recording.events, strict=True) as served:
        stream = served.connect()
        await stream.send_all(asked(create()))
        assert await exactly(stream, 5) == b"+OK\r\n"
        with trio.move_on_after(100):
            assert await stream.receive_some() == "nothing"
        await stream.aclose()
    assert (served.report.played, served.report.different) == (1, 0)


async def test_a_recorded_server_that_was_lost(autojump_clock: Clock) -> None:
    recording = Recording()
    recording.asked(create())
    recording.answered(Ok())
    recording.events.append(Closed(recording.of(1), recording.events[-1].time_ns, SERVER, reset=True))
    async with mock(recording.events, strict=True) as served:
        stream = served.connect()
        await stream.send_all(asked(create()))
        assert await exactly(stream, 50) == b"+OK\r\n"
    assert (served.report.played, served.report.different) == (1, 0)


async def test_what_was_redacted_is_not_compared(autojump_clock: Clock) -> None:
    """Neither where a conversation is looked for, nor where what a client says is."""
    asked = b"GET /v1/basins?token=%b&n=%b HTTP/1.1\r\nHost: here\r\nS2-Encryption-Key: %b\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%b"
    recorded: list[CaptureEvent] = []
    for number in (b"1", b"2"):
        said = [(CLIENT, asked % (b"*****", number, b"******")), (SERVER, answer % number)] * 2
        recorded += events(replace(conversation("s2"), number=int(number)), said)
    async with mock(recorded, strict=True) as served:
        for number in (b"2", b"1"):
            stream = served.connect()
            for key in (b"secret", b'quite "another" one'):
                await stream.send_all(asked % (b"mine", number, key))
                wanted = answer % number
                assert await exactly(stream, len(wanted)) == wanted
            await stream.aclose()
            await trio.testing.wait_all_tasks_blocked()
    assert served.report.different == 0, served.report.differences


def test_stars_that_are_no_secrets() -> None:
    assert alike('["accept", "*/*"]', '["accept", "*/*"]')
    assert not alike('["accept", "*/*"]', '["accept", "text/plain"]')
    assert alike('["key", "****"], ["a", "b"]', '["key", ""], ["a", "b"]')
    assert not alike('["key", "****"], ["a", "b"]', '["key", "x"], ["more", "y"], ["a", "b"]')
    assert alike('{"a": "x***y***", "b": "***"}', '{"a": "x1y\\"2", "b": "\udc80"}')


def test_what_a_client_says_in_place_of_secrets_takes_no_time() -> None:
    recorded = "a".join(["***"] * 12)
    began = time.process_time()
    assert not alike(f'["{recorded}"]', '["' + "a" * 2000 + 'b", "c"]')
    assert time.process_time() - began < 1.0
