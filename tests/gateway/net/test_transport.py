"""The transport beneath the links: what waits for the peer, for how long, and how that ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
import trio.testing

from penstock.net.transport import TooSlow, Transport
from penstock_codecs.limits import KIB, MIB

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
