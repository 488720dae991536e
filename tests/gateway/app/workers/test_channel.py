"""Messages between two processes: all of them, in order, however they are cut."""

import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.lowlevel

from penstock.app.workers.channel import Channel, uncopied


@asynccontextmanager
async def both_ends() -> AsyncIterator[tuple[Channel, Channel, list[Any]]]:
    """Two ends, and what the second has received."""
    one, two = (Channel(end) for end in socket.socketpair())
    received: list[Any] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run, received.append)
        nursery.start_soon(two.run, received.append)
        yield one, two, received
        one.close()
        nursery.cancel_scope.cancel()
    two.close()


async def have(received: list[Any], count: int) -> None:
    with trio.fail_after(30):
        while len(received) < count:  # noqa: ASYNC110  (it comes from a socket, which has no event)
            await trio.sleep(0.001)


@pytest.mark.parametrize("seed", range(4))
async def test_messages_of_all_sizes_come_whole_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((0, 1, 100, 4095, 4096, 5000, 70_000, 300_000, 2_000_000)) for _ in range(60)]
    pieces = [rng.randbytes(size) for size in sizes]
    async with both_ends() as (one, _, received):
        for number, piece in enumerate(pieces):
            one.post((number, uncopied(piece), {"size": len(piece)}))
            if rng.random() < 0.3:
                await trio.lowlevel.checkpoint()
        await have(received, len(pieces))
        await one.flushed()
    assert [(number, bytes(piece)) for number, piece, _ in received] == list(enumerate(pieces))


async def test_many_small_messages_are_several_frames() -> None:
    async with both_ends() as (one, two, received):
        for number in range(5000):
            one.post(number)
        await have(received, 5000)
        assert received == list(range(5000))
        two.post("back")
        await have(received, 5001)


async def test_what_was_put_off_goes_with_the_rest() -> None:
    async with both_ends() as (one, _, received):
        later = ["later"]
        one.before_sending = lambda: [one.post(later.pop()) for _ in range(len(later))] and None
        one.wake()
        await have(received, 1)
        one.post("now")
        later.append("and this")
        await have(received, 3)
    assert received == ["later", "now", "and this"]


async def test_room_is_waited_for_while_the_peer_takes_nothing() -> None:
    ends = socket.socketpair()
    one = Channel(ends[0])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run, lambda _: None)
        one.post(uncopied(bytes(32 << 20)))
        with trio.move_on_after(0.2) as waiting:
            await one.room()
        assert waiting.cancelled_caught
        received: list[Any] = []
        two = Channel(ends[1])
        nursery.start_soon(two.run, received.append)
        with trio.fail_after(30):
            await one.room()
            await have(received, 1)
        nursery.cancel_scope.cancel()
    one.close()
    two.close()


@pytest.mark.parametrize("sending", [False, True])
async def test_run_ends_when_the_peer_has_gone(sending: bool) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.run, lambda _: None)
            await trio.lowlevel.checkpoint()
            if sending:
                channel.post(uncopied(bytes(8 << 20)))
                await trio.lowlevel.checkpoint()
            theirs.close()
    channel.close()
