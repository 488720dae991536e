"""Events of a tap about the end of a connection, and about its client."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing
from support.http.client import memory_pair
from support.listening import Heard, tapped_front

from penstock.capture.pcapng import Sender, Side, SocketAddress
from penstock.model.limits import KIB, MIB
from penstock.net.transport import Transport
from penstock.net.upstream import UpstreamSettings
from penstock.observe.connections import next_connection_number
from penstock.observe.taps.connections import Connections

BOTH_ENDED = [(Sender.SERVER, False), (Sender.CLIENT, False)]


async def test_who_finishes_first(pair: tuple[trio.abc.Stream, trio.abc.Stream]) -> None:
    client, server = pair
    heard = Heard()
    wire = Transport(tapped_front(server, heard), 4 * KIB)
    assert isinstance(client, trio.abc.HalfCloseableStream)
    await client.send_eof()
    for _ in range(3):
        assert not await wire.receive()
    assert heard.ends == [(Sender.CLIENT, False)]
    await wire.close()
    await wire.close()
    assert heard.ends == [(Sender.CLIENT, False), (Sender.SERVER, False)]


async def test_our_own_end_is_told_before_the_peers(
    autojump_clock: trio.testing.MockClock, sockets: tuple[trio.abc.Stream, trio.abc.Stream]
) -> None:
    client, server = sockets
    heard = Heard()
    wire = Transport(tapped_front(server, heard), 4 * KIB)
    await wire.linger(1)
    assert heard.ends == [(Sender.SERVER, False)]
    await client.send_all(b"late")
    await client.aclose()
    await wire.linger(1)
    assert heard.said(Sender.CLIENT) == b"late"
    assert heard.ends == BOTH_ENDED


@pytest.mark.parametrize("by_wire", [True, False])
async def test_a_reset(by_wire: bool, tcp: tuple[trio.SocketStream, trio.SocketStream]) -> None:
    client, server = tcp
    heard = Heard()
    tapped = tapped_front(server, heard)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    await client.aclose()
    wire = Transport(tapped, 4 * KIB)
    with pytest.raises(trio.BrokenResourceError):
        await (wire.receive() if by_wire else tapped.receive_some())
    with pytest.raises(trio.BrokenResourceError):
        await tapped.send_all(b"in vain")
    await tapped.aclose()
    assert heard.ends == [(Sender.CLIENT, True)]
    assert heard.said(Sender.SERVER) == b""


async def test_a_write_into_a_connection_that_is_gone(tcp: tuple[trio.SocketStream, trio.SocketStream]) -> None:
    client, server = tcp
    heard = Heard()
    wire = Transport(tapped_front(server, heard), 4 * KIB)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    await client.aclose()
    wire.put([b"in vain"])
    with pytest.raises(trio.BrokenResourceError):
        wire.write_now()
    assert heard.ends == [(Sender.CLIENT, True)]


async def test_sockets_are_named(tcp: tuple[trio.SocketStream, trio.SocketStream]) -> None:
    client, server = tcp
    connections, number = Connections(), next_connection_number()
    front = connections.accepted(server, number, "listeners.durable", "durable", "/a/").tap.conversation
    far = UpstreamSettings(name="lite", host="x", port=1, protocol="durable", path="/b/")
    back = connections.dialled(client, far).tap.conversation
    there, here = SocketAddress(*client.socket.getsockname()), SocketAddress(*server.socket.getsockname())
    assert (front.client, front.server, front.side, front.number) == (there, here, Side.FRONT, number)
    assert (back.client, back.server, back.side, back.name) == (there, here, Side.BACK, "backs.lite")
    assert (front.protocol, front.path, back.protocol, back.path) == ("durable", "/a/", "durable", "/b/")
    assert front.run == back.run != "" and front.run != Connections().run
    assert [tap.conversation for tap in connections] == sorted([front, back], key=lambda one: one.number)
    await client.aclose()
    await server.aclose()


async def test_on_a_back_we_are_the_client() -> None:
    ours, theirs = memory_pair()
    heard = Heard()
    tapped = Connections().dialled(ours, UpstreamSettings(name="lite", host="x", port=1))
    tapped.tap.attach(heard)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(theirs.send_all, b"server")
        nursery.start_soon(theirs.receive_some)
        await tapped.send_all(b"client")
        await tapped.receive_some()
    await tapped.aclose()
    assert (heard.said(Sender.CLIENT), heard.said(Sender.SERVER)) == (b"client", b"server")
    assert heard.ends == [(Sender.CLIENT, False), (Sender.SERVER, False)]


async def test_a_write_whose_stream_is_closed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, sockets: tuple[trio.abc.Stream, trio.abc.Stream]
) -> None:
    """Another task may close it between the kernel's word that there is room and our next write."""
    heard = Heard()
    tapped = tapped_front(sockets[1], heard)

    async def close_first(_socket: object) -> None:
        await tapped.aclose()

    monkeypatch.setattr(trio.lowlevel, "wait_writable", close_first)
    with pytest.raises(trio.ClosedResourceError):
        await tapped.send_all(bytes(20 * MIB))
    assert heard.ends == BOTH_ENDED


async def test_no_task_finishes_within_a_write(sockets: tuple[trio.abc.Stream, trio.abc.Stream]) -> None:
    heard = Heard()
    tapped = tapped_front(sockets[1], heard)
    assert isinstance(tapped, trio.abc.HalfCloseableStream)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tapped.send_all, bytes(20 * MIB))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await tapped.send_eof()
        assert heard.ends == []
        nursery.cancel_scope.cancel()
