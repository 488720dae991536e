"""Live recordings: a listener's events, and what happens if it does not read them."""

import pytest
import trio
from structlog.testing import capture_logs
from support.captures import read
from support.captures.recording import Talk, check_bytes, given_up, spans

from penstock.capture.pcapng import CaptureReader, Chunk, Sender
from penstock.model.limits import KIB, MIB
from penstock.recorder import live as module
from penstock.recorder.live import LiveRecording
from penstock.recorder.status import RecordingState


async def test_a_listener_gets_what_is_put_while_it_happens() -> None:
    async with LiveRecording(flush_seconds=0.0) as live:
        reader, talk = CaptureReader(), Talk(live, 1)
        assert talk.open()
        for size in (1, 1000, 200_000):
            assert talk.say(size)
            got = 0
            async for piece in live:
                reader.receive(piece)
                events = list(reader.events())
                check_bytes(events)
                got += sum(len(event.data) for event in events if isinstance(event, Chunk))
                if got == size:
                    break
        status = live.status()
        assert status.state is RecordingState.RECORDING and status.conversations == 1 and status.bytes > 201_001
        assert status.file is None and live.generation == 1


async def test_the_end_gives_what_waits() -> None:
    async with LiveRecording(flush_seconds=60.0) as live:
        talk = Talk(live, 1)
        talk.open()
        for _ in range(50):
            assert talk.say(10_000) and talk.say(5, Sender.SERVER)
        live.end()
        events = read(b"".join([piece async for piece in live]))
    check_bytes(events)
    assert spans(events)[1] == [(0, 500_000)]
    assert await trio.to_thread.run_sync(live.flush)
    assert live.status().state is RecordingState.STOPPED and live.status().dropped == 0


async def test_a_slow_listener_loses_whole_conversations() -> None:
    with capture_logs() as lines:
        async with LiveRecording(queue_bytes=2 * MIB) as live:
            small, large = Talk(live, 1), Talk(live, 2)
            assert small.open() and large.open()
            for _ in range(200):
                assert small.say(2000)
                large.say(100 * KIB)
            status = live.status()
            assert status.queue_bytes <= 2 * MIB and status.dropped == 1
            assert not large.say(1) and live.generation == 1
            live.end()
            pieces = [piece async for piece in live]
    assert sum(map(len, pieces)) < 12 * MIB
    events = read(b"".join(pieces))
    check_bytes(events)
    assert spans(events)[1] == [(0, 400_000)]
    assert given_up(events) == [2]
    assert sum(line["conversations"] for line in lines) == 1


async def test_a_listener_may_leave_whatever_waits() -> None:
    async with LiveRecording() as live:
        talk = Talk(live, 1)
        talk.open()
        for _ in range(100):
            talk.say(100 * KIB)
        await live.__anext__()
    assert await trio.to_thread.run_sync(live.flush)
    assert live.status().state is RecordingState.STOPPED
    assert not talk.say(1)


async def test_a_listener_may_be_cancelled() -> None:
    with trio.CancelScope() as scope:
        async with LiveRecording() as live:
            await live.__anext__()
            scope.cancel()
            await live.__anext__()
    assert await trio.to_thread.run_sync(live.flush)
    assert live.status().state is RecordingState.STOPPED


def test_a_loop_that_ends_is_no_error() -> None:
    recorded: list[LiveRecording] = []

    async def main() -> None:
        live = LiveRecording()
        recorded.append(live)
        await live.__aenter__()
        Talk(live, 1).open()

    with capture_logs() as lines:
        trio.run(main)
        recorded[0].end()
        assert recorded[0].flush()
    assert not lines


async def test_a_defect_of_ours_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_anything: object) -> None:
        raise ZeroDivisionError("a defect")

    with capture_logs() as lines:
        async with LiveRecording() as live:
            await live.__anext__()
            monkeypatch.setattr(module.CaptureWriter, "encode", broken)
            Talk(live, 1).open()
            assert [piece async for piece in live] == []
            assert await trio.to_thread.run_sync(live.flush)
            assert live.status().state is RecordingState.SUSPENDED
    assert [line["error"] for line in lines] == ["a defect"]
