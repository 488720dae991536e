"""In which order, and when, recorded clients speak again."""

from __future__ import annotations

import math
import random

import pytest
import trio.testing
from support.captures.replay import (
    ACK,
    FAST,
    Recording,
    S3PDouble,
    append,
    create,
    played,
    read,
    records,
    talk,
    two_clients,
)

from penstock.tools.replay.items import ClientSent, Item
from penstock.tools.replay.player import CONVERSATION_BYTES, PlaybackBuffer, Player, Turns
from penstock.tools.replay.replaying import PlayedParts, ReplaySettings
from penstock_s3p.codec import Ok

Clock = trio.testing.MockClock


# ---- across connections ----------------------------------------------------------------------------------------------


async def test_connections_wait_for_each_other(server: S3PDouble, autojump_clock: Clock) -> None:
    server.delay = 3.0
    await played(two_clients().events, server, FAST)
    assert server.heard == [(0.0, create()), (3.0, append(b"a")), (6.0, append(b"b"))]


async def test_or_each_for_itself(server: S3PDouble, autojump_clock: Clock) -> None:
    server.delay = 3.0
    await played(two_clients().events, server, ReplaySettings(speed=math.inf, together=False))
    assert sorted(server.times) == [0.0, 0.0, 3.0]


async def test_a_reader_that_waits_for_a_writer_holds_up_no_other(server: S3PDouble, autojump_clock: Clock) -> None:
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
    ahead = PlaybackBuffer(100_000)
    most = 0
    taken = ahead.take

    async def take(size: int) -> None:
        nonlocal most
        await taken(size)
        most = max(most, ahead._held)

    ahead.take = take  # type: ignore[method-assign]
    server.delay = 1.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.tools.replay.replaying.PlaybackBuffer", lambda: ahead)
        summary = await played(recording.events, server, FAST)
    assert summary.same and len(server.records) == 200
    assert 50_000 < most <= 100_000


async def test_few_conversations_are_read_ahead(server: S3PDouble, autojump_clock: Clock) -> None:
    """Each takes more than its items, however short it is."""
    recording = Recording()
    for number in range(1, 201):
        recording.asked(append(b"%d" % number), number=number)
        recording.answered(ACK, number=number)
        recording.closed(number)
    most = 0

    class Noted(Player):
        async def put(self, item: Item) -> None:
            nonlocal most
            await super().put(item)
            place = getattr(item, "place", 0)
            most = max(most, place // 3 - len(server.records))  # three items each

    server.delay = 1.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.tools.replay.replaying.PlaybackBuffer", lambda: PlaybackBuffer(10 * CONVERSATION_BYTES))
        patch.setattr("penstock.tools.replay.replaying.Player", Noted)
        summary = await played(recording.events, server, FAST)
    assert summary.same and summary.count == 200
    assert 5 < most <= 11


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
    assert ClientSent(b"x" * 1000, 0).size > 1000


async def test_records_that_are_not_played_are_not_waited_for(server: S3PDouble, autojump_clock: Clock) -> None:
    """Neither those before the time that was asked for, nor those of other streams."""
    began = trio.current_time()
    await played(talk(10.0).events, server, ReplaySettings(rate=0.5, since="15"))
    assert server.heard == [(0.0, append(b"b", b"c")), (4.0, read())]
    assert trio.current_time() - began < 6.0
    recording = Recording()
    for body in (b"a", b"b"):
        recording.asked(append(body))
        recording.answered(ACK)
        recording.asked(append(*[b"x"] * 1000, name="others"))
        recording.answered(ACK)
    recording.closed()
    server.heard.clear()
    await played(recording.events, server, ReplaySettings(rate=0.5, parts=PlayedParts(streams=["orders"])))
    assert [later - server.times[0] for later in server.times] == [0.0, 2.0]
