"""Recorded servers, played again in memory: byte for byte, and only when the client has said what it had said."""

from __future__ import annotations

import pytest
import trio.testing
from support.captures.dialogues import CLIENT, SERVER, Said, conversation, events
from support.captures.mock import Mock, asked, exactly, mock, say_again
from support.captures.replay import ACK, Recording, append, create, read
from support.s2.whole_api import talk

from penstock.tools.mock.script import Script
from penstock.tools.mock.serving import PATIENCE_SECONDS
from penstock_analysis.capture import Lost, Opened, Sender
from penstock_codecs.s3p import ErrorReply, Ok

Clock = trio.testing.MockClock


@pytest.fixture(params=["http/1.1", "h2"])
def said(request: pytest.FixtureRequest) -> Said:
    return talk(request.param).said


async def test_all_of_s2_byte_for_byte(said: Said, autojump_clock: Clock) -> None:
    async with mock(events(conversation("s2"), said), strict=True) as served:
        await say_again(served.connect(), said)
        await trio.testing.wait_all_tasks_blocked()
    assert served.report.played == 1 and served.report.different == 0
    assert served.report.sent == sum(len(data) for sender, data in said if sender is SERVER)


def s3p(name: str = "orders") -> Recording:
    recording = Recording()
    recording.asked(create(name))
    recording.answered(Ok())
    recording.now = 2.0
    recording.asked(append(b"a", name=name), append(b"b", name=name))
    recording.answered(ACK)
    recording.now = 5.0
    recording.answered(ACK)
    recording.closed()
    return recording


async def test_nothing_is_said_before_the_client_has_said_it(autojump_clock: Clock) -> None:
    async with mock(s3p().events) as served:
        stream = served.connect()
        await stream.send_all(asked(create())[:10])
        with trio.move_on_after(100):
            assert await stream.receive_some() == "nothing"
        await stream.send_all(asked(create())[10:])
        assert await exactly(stream, 5) == b"+OK\r\n"
        with trio.move_on_after(100):
            assert await stream.receive_some() == "nothing"
        await stream.send_all(asked(append(b"a"), append(b"b")))
        assert await exactly(stream, 18) == b"$3\r\n1-0\r\n" * 2
        await stream.aclose()
    assert served.report.different == 0


async def test_the_recorded_delays_if_wanted(autojump_clock: Clock) -> None:
    async with mock(s3p().events, speed=2.0) as served:
        stream = served.connect()
        await stream.send_all(asked(create(), append(b"a"), append(b"b")))
        began = trio.current_time()
        assert await exactly(stream, 14) == b"+OK\r\n$3\r\n1-0\r\n"
        assert trio.current_time() == began
        assert await exactly(stream, 9) == b"$3\r\n1-0\r\n"
        assert trio.current_time() - began == pytest.approx(1.5)


async def test_each_client_is_given_the_conversation_that_begins_alike(autojump_clock: Clock) -> None:
    """In their order, each once; and then again, if that is wanted."""
    recording = Recording()
    for number, name, code in ((1, "a", "ERR_A"), (2, "b", "ERR_B"), (3, "a", "ERR_C")):
        recording.asked(create(name), number=number)
        recording.answered(ErrorReply(code, "no"), number=number)
        recording.closed(number)

    async def answer(served: Mock, name: str) -> bytes:
        stream = served.connect()
        await stream.send_all(asked(create(name)))
        got = bytes(await stream.receive_some())
        await stream.aclose()
        return got.split()[0] if got else got

    async with mock(recording.events) as served:
        assert [await answer(served, name) for name in ("a", "b", "a")] == [b"-ERR_A", b"-ERR_B", b"-ERR_C"]
        assert await answer(served, "a") == b""
        assert "no unplayed conversation begins with" in served.report.differences[0]
    async with mock(recording.events, repeat=True) as served:
        assert [await answer(served, "a") for _ in range(4)] == [b"-ERR_A", b"-ERR_C", b"-ERR_B", b"-ERR_A"]
        assert served.report.different == 1, "the third began otherwise, and was given what was left"


async def test_something_else_is_told_and_answered_all_the_same(autojump_clock: Clock) -> None:
    async with mock(s3p().events) as served:
        stream = served.connect()
        await stream.send_all(asked(create(), read(), append(b"bb")))
        assert await exactly(stream, 23) == b"+OK\r\n" + b"$3\r\n1-0\r\n" * 2
        await stream.aclose()
    first, second = served.report.differences
    assert first.startswith("connection 1: it sent READ orders") and "(byte 32) where APPEND orders" in first
    assert '"size": 2' in second and '"size": 1' in second


async def test_or_not_where_that_is_strict(autojump_clock: Clock) -> None:
    async with mock(s3p().events, strict=True) as served:
        stream = served.connect()
        await stream.send_all(asked(create(), read()))
        assert await exactly(stream, 100) == b"+OK\r\n"
    assert served.report.different == 1 and served.report.played == 0


async def test_a_client_that_says_more_or_leaves_early(autojump_clock: Clock) -> None:
    async with mock(s3p().events, repeat=True) as served:
        stream = served.connect()
        await stream.send_all(asked(create(), append(b"a"), append(b"b"), read()))
        await exactly(stream, 23)
        await stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert "where nothing more was recorded" in served.report.differences[0]
        stream = served.connect()
        await stream.send_all(asked(create()))
        await stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert "it disconnected where an answer was recorded" in served.report.differences[1]


async def test_bytes_that_break_the_protocol_as_they_did(autojump_clock: Clock) -> None:
    said = [(CLIENT, b"*1\r\nnonsense"), (SERVER, b"-ERR_BAD_FORMAT no\r\n")]
    async with mock(events(conversation("s3p"), said), strict=True) as served:
        stream = served.connect()
        await stream.send_all(b"*1\r\nnonsense")
        assert await exactly(stream, 20) == b"-ERR_BAD_FORMAT no\r\n"


def request(path: str) -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: test:1\r\n\r\n" % path.encode()


async def test_what_may_change_from_run_to_run_is_not_compared(autojump_clock: Clock) -> None:
    asked = b"GET /v1/basins HTTP/1.1\r\nHost: %b\r\nAuthorization: Bearer %b\r\nAccept: */*\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    recorded = events(conversation("s2"), [(CLIENT, asked % (b"there:1", b"****")), (SERVER, answer)])
    async with mock(recorded, strict=True) as served:
        stream = served.connect()
        await stream.send_all(asked % (b"here:2", b"mine"))
        assert await exactly(stream, len(answer)) == answer
        await stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
    assert served.report.different == 0


async def test_a_client_that_says_something_else_beside_it_is_reported_after_a_while(autojump_clock: Clock) -> None:
    """Over HTTP the recorded exchange may still come: only after a time it is said that it did not."""
    one, two = request("/one"), request("/two")
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    recorded = [(CLIENT, one), (SERVER, answer), (CLIENT, b"*nonsense\r\n\r\n"), (SERVER, answer)]
    async with mock(events(conversation("s2"), recorded)) as served:
        stream = served.connect()
        await stream.send_all(one)
        assert await exactly(stream, len(answer)) == answer
        await stream.send_all(two)
        await trio.sleep(PATIENCE_SECONDS - 1)
        assert not served.report.different
        await trio.sleep(2)
        assert served.report.different == 1
        assert "it sent GET" in served.report.differences[0] and "problem" in served.report.differences[0]


def test_what_cannot_be_played_is_said() -> None:
    recording = s3p()
    middle = recording.of(2)
    recording.events[-1] = Opened(middle, 0, 10, 10)
    recording.asked(create(), number=2)
    recording.asked(create(), number=3)
    recording.events.append(Lost(recording.of(3), 0, Sender.SERVER, 0, 5, "the disk was full"))
    recording.of(4)
    with Script() as script:
        script.load(recording.events)
        assert script.left == 1
        assert script.left_out == {
            "its beginning was not recorded": 1,
            "some of its bytes are missing": 1,
            "its client sent nothing": 1,
        }
