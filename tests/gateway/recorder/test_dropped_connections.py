"""Connections that a sink dropped are told to it again with its next file."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing
from support.captures.recorder import Process, use
from support.listening import Heard

from penstock.capture.pcapng import CaptureEvent, Chunk, Opened, Sender
from penstock.model.limits import KIB
from penstock.recorder.selection import Selection


async def test_dropped_connections_come_back_with_the_next_file(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    process = Process()
    nursery.start_soon(process.recorder.run)
    heard, whole = process.record(Selection()), process.record(Selection())
    tap, gone, fresh = process.front(), process.front(), process.front()
    use(tap)
    heard.takes = False
    for one in (tap, gone):
        one.received(b"dropped")
    gone.end()
    heard.takes = True
    await trio.sleep(10)
    tap.received(b"not yet")
    assert b"dropped" not in heard.said(Sender.CLIENT, tap), "the file is the same, where it was dropped"
    heard.generation += 1
    await trio.sleep(10)
    tap.received(b"again")
    assert heard.opened == [(1, 0, 0, False), (2, 0, 0, False), (3, 0, 0, False), (1, 14, 0, True)]
    assert heard.notes == [("stream", "penstock/orders")] * 2
    assert heard.said(Sender.CLIENT, tap) == b"again"
    assert whole.said(Sender.CLIENT, tap) == b"droppednot yetagain"
    fresh.received(b"x")
    assert heard.said(Sender.CLIENT, fresh) == b"x"


class Forgetful(Heard):
    """A sink that forgets connections with each file, as one does whose disk was full meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self._known = 0

    def put(self, event: CaptureEvent) -> bool:
        if isinstance(event, Opened):
            self._known = self.generation
        return self._known == self.generation and super().put(event)


def test_a_connection_that_was_silent_while_the_disk_was_full_loses_nothing() -> None:
    """It learns that it was forgotten when the next file has long begun."""
    process = Process()
    heard, whole = process.record(Selection(), Forgetful()), process.record(Selection())
    tap, other = process.front(), process.front()
    tap.received(b"asked")
    use(tap)
    heard.generation += 1
    tap.received(b"heard")
    heard.generation += 1
    tap.sent([bytes(50 * KIB), b"answer", bytes(50 * KIB)], 100 * KIB + 6)
    heard.generation += 1
    for one in (tap, other):
        one.end()
    assert heard.opened == [(1, 0, 0, False), (2, 0, 0, False), (1, 5, 0, True), (1, 10, 0, True)]
    assert heard.notes == [("stream", "penstock/orders")] * 3
    assert [len(event.data) for event in heard.events if isinstance(event, Chunk)] == [5, 5, 50 * KIB, 6, 50 * KIB]
    assert heard.ends == [], "nothing begins anew that is over"
    assert whole.said(Sender.CLIENT, tap) == b"askedheard"
    assert len(whole.said(Sender.SERVER, tap)) == 100 * KIB + 6


def test_a_sink_that_is_full_again_is_not_asked_for_ever() -> None:
    process = Process()
    heard = process.record(Selection())
    tap = process.front()
    heard.generation += 1
    heard.takes = False
    tap.received(b"dropped")
    heard.takes = True
    tap.received(b"not yet")
    assert heard.opened == [(1, 0, 0, False)] and heard.said(Sender.CLIENT) == b""


async def test_traffic_goes_on_while_many_are_recorded_again(nursery: trio.Nursery) -> None:
    process = Process()
    nursery.start_soon(process.recorder.run)
    heard = process.record(Selection())
    taps = [process.front() for _ in range(300)]
    heard.takes = False
    for tap in taps:
        tap.received(b"dropped")
    heard.takes = True
    heard.generation += 1
    with trio.fail_after(10):
        while len(heard.opened) == 300:
            await trio.lowlevel.checkpoint()
    assert len(heard.opened) < 500
    taps[-1].end()
    process.stop(heard)
    for _ in range(10):
        await trio.lowlevel.checkpoint()
    assert len(heard.opened) < 500 and not any(tap.sinks for tap in taps)


async def test_a_sink_that_stays_full_is_asked_once_for_each_file(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    process = Process()
    nursery.start_soon(process.recorder.run)
    heard = process.record(Selection())
    tap = process.front()
    asked: list[Any] = []
    heard.put = lambda event: bool(asked.append(event))  # type: ignore[method-assign]
    tap.received(b"x")
    heard.generation += 1
    await trio.sleep(100)
    assert len(asked) == 2 and isinstance(asked[1], Opened)
    tap.end()
    heard.generation += 1
    await trio.sleep(100)
    assert len(asked) == 2
