"""The transport beneath the links: what waits for the peer, for how long, and how that ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
import trio.testing

from penstock.model.limits import KIB, MIB
from penstock.net.draining import Draining
from penstock.net.limits import CONNECTION_QUOTA, Limiter
from penstock.net.limits.limiter import ConnectionQuota
from penstock.net.limits.settings import Limits
from penstock.net.transport import FrontTransport, SlowSender, TooSlow, Transport

LARGE = bytes(8 * MIB)


@pytest.fixture
def sockets() -> Iterator[tuple[trio.socket.SocketType, trio.SocketStream]]:
    ours, theirs = trio.socket.socketpair()
    with ours, theirs:
        yield ours, trio.SocketStream(theirs)


async def taken(peer: trio.socket.SocketType, size: int) -> None:
    while size:
        size -= len(await peer.recv(size))


async def test_room_opens_once_a_task_has_written_the_rest(
    sockets: tuple[trio.socket.SocketType, trio.SocketStream],
) -> None:
    peer, stream = sockets
    transport = Transport(stream, 64 * KIB)
    async with trio.open_nursery() as writing, trio.open_nursery() as waiting:
        transport.begin(writing)
        transport.put([LARGE, b"small"])
        transport.flush()
        waiting.start_soon(transport.room, 1 * MIB)
        await trio.testing.wait_all_tasks_blocked()
        assert waiting.child_tasks
        await taken(peer, len(LARGE) + 5)
    assert not transport.pending


async def test_nothing_waits_for_room_of_a_connection_that_ends(
    sockets: tuple[trio.socket.SocketType, trio.SocketStream],
) -> None:
    transport = Transport(sockets[1], 64 * KIB)
    async with trio.open_nursery() as nursery:
        transport.begin(nursery)
        transport.put([LARGE])
        transport.flush()
        async with trio.open_nursery() as waiting:
            waiting.start_soon(transport.room)
            await trio.testing.wait_all_tasks_blocked()
            transport.give_up()
        nursery.cancel_scope.cancel()


async def test_what_is_said_before_the_beginning_is_written_then(
    sockets: tuple[trio.socket.SocketType, trio.SocketStream],
) -> None:
    peer, stream = sockets
    transport = Transport(stream, 64 * KIB)
    transport.put([b"early"])
    transport.flush()
    assert not transport.written
    async with trio.open_nursery() as nursery:
        transport.begin(nursery)
    assert await peer.recv(10) == b"early"


async def test_a_piece_is_written_at_once_and_its_rest_by_a_task(
    sockets: tuple[trio.socket.SocketType, trio.SocketStream],
) -> None:
    peer, stream = sockets
    transport = Transport(stream, 64 * KIB)
    async with trio.open_nursery() as nursery:
        transport.begin(nursery)
        assert transport.write_piece(b"small")
        assert (transport.written, transport.pending) == (5, 0)
        assert not transport.write_piece(LARGE)
        assert transport.pending and transport.written + transport.pending == 5 + len(LARGE)
        assert not nursery.child_tasks
        transport.flush()
        await taken(peer, 5 + len(LARGE))
    assert not transport.pending


async def test_a_piece_for_a_lost_peer_waits_for_a_flush_which_reports_it(
    sockets: tuple[trio.socket.SocketType, trio.SocketStream],
) -> None:
    peer, stream = sockets
    transport = Transport(stream, 64 * KIB)
    lost: list[Exception] = []
    peer.close()
    async with trio.open_nursery() as nursery:
        transport.begin(nursery, lost=lost.append)
        assert not transport.write_piece(b"small") and not lost
        transport.flush()
    assert [type(error) for error in lost] == [trio.BrokenResourceError]


@pytest.mark.parametrize(("each_second", "slow"), [(128 * KIB, False), (20 * KIB, True)])
async def test_a_peer_must_take_the_least_part_in_time(
    autojump_clock: trio.testing.MockClock, each_second: int, slow: bool
) -> None:
    """At 128 KiB a second, 256 KiB take two seconds; at 20 KiB a second they take too long."""
    ours, theirs = trio.testing.lockstep_stream_pair()
    transport = Transport(theirs, 64 * KIB, 3, least=256 * KIB)
    transport.put([bytes(1 * MIB)])

    async def take() -> None:
        while True:
            await trio.sleep(1)
            await ours.receive_some(each_second)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        if slow:
            with pytest.raises(TooSlow):
                await transport.drain()
        else:
            await transport.drain()
            assert not transport.pending
        nursery.cancel_scope.cancel()


async def test_a_lost_peer_is_reported_once_by_the_writer(
    sockets: tuple[trio.socket.SocketType, trio.SocketStream],
) -> None:
    peer, stream = sockets
    transport = Transport(stream, 64 * KIB)
    lost: list[Exception] = []
    async with trio.open_nursery() as nursery:
        transport.begin(nursery, lost=lost.append)
        transport.put([LARGE])
        transport.flush()
        await trio.testing.wait_all_tasks_blocked()
        peer.close()
    assert [type(error) for error in lost] == [trio.BrokenResourceError]


async def test_owned_bytes_stay_when_more_is_received(
    sockets: tuple[trio.socket.SocketType, trio.SocketStream],
) -> None:
    peer, stream = sockets
    transport = Transport(stream, 64 * KIB)
    await peer.send(b"first")
    owned = await transport.receive(owned=True)
    await peer.send(b"later")
    assert await transport.receive() == b"later"
    assert type(owned) is bytes
    assert owned == b"first"
    peer.shutdown(trio.socket.SHUT_WR)
    assert await transport.receive(owned=True) == b""


@pytest.mark.parametrize(("size", "is_taken"), [(16 * MIB - 1, True), (32 * MIB, False)])
async def test_the_end_waits_for_what_the_peer_is_sending(
    sockets: tuple[trio.socket.SocketType, trio.SocketStream], size: int, is_taken: bool
) -> None:
    """A client that sends a refused body of 10 MiB at once reads the answer only afterwards; nothing is endless."""
    peer, stream = sockets
    transport, sender = Transport(stream, 64 * KIB), trio.SocketStream(peer)

    async def linger() -> None:
        await transport.linger(60)
        await transport.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(linger)
        try:
            await sender.send_all(bytes(size))
            await sender.send_eof()
        except trio.BrokenResourceError:
            assert not is_taken
        else:
            assert is_taken


def front_transport(stream: trio.abc.Stream, limiter: Limiter) -> FrontTransport:
    quota = limiter.enter("listeners.s3p", 100, "10.0.0.1")
    assert isinstance(quota, ConnectionQuota)
    CONNECTION_QUOTA.set(quota)
    return FrontTransport(stream, 1 * MIB, 30, idle=60, draining=Draining(), finishes=True)


async def test_a_sender_whose_turn_comes_after_its_time_is_too_slow(
    sockets: tuple[trio.socket.SocketType, trio.SocketStream], autojump_clock: trio.testing.MockClock
) -> None:
    transport = front_transport(sockets[1], Limiter())
    received: list[int] = []
    await sockets[0].send(b"begun")
    assert await transport.read_into(lambda data: received.append(len(data)), 0) == 5
    with trio.move_on_after(1):
        await transport.read_into(lambda data: received.append(len(data)), 5)
    await trio.sleep(Limits().receive_grace_seconds + 10)
    with pytest.raises(SlowSender):
        await transport.read_into(lambda data: received.append(len(data)), 5)


async def test_connections_that_can_be_read_at_the_same_time_hold_no_more_than_the_limit(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limiter = Limiter(Limits(max_inflight_bytes=64 * MIB, max_inflight_bytes_per_client=32 * MIB))
    pairs = [trio.socket.socketpair() for _ in range(4)]
    streams = [trio.SocketStream(theirs) for _, theirs in pairs]
    transports = [front_transport(stream, limiter) for stream in streams]
    received: list[int] = []
    async with trio.open_nursery() as nursery:
        for transport in transports:
            nursery.start_soon(transport.read_into, lambda data: received.append(len(data)), 0)
        await trio.testing.wait_all_tasks_blocked()
        transports[0].hold(33 * MIB)  # the others have begun to wait before
        for ours, _ in pairs:
            await ours.send(bytes(100 * KIB))
    assert all(size <= 64 * KIB for size in received[1:])
    assert len(received) == 4
    transports[0].hold(0)
    for (ours, _), stream in zip(pairs, streams, strict=True):
        ours.close()
        await stream.aclose()
