"""The server's life: listening, accepting within limits, failing at the connection boundary, draining."""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec
import pytest
import structlog
import trio
from msgspec.structs import replace

from penstock.app import server
from penstock.app.config import Config, DrainTable, Listeners, RecorderTable
from penstock.app.host import HostServices
from penstock.app.server import RunningGateway, serve
from penstock.core.address import Address
from penstock.core.errors import CannotStart
from penstock.net.accepting import Listener, accept_connections, open_sockets
from penstock.net.limits import CONNECTION_QUOTA, Limiter
from penstock.net.listeners import ListenerServer
from penstock.net.upstream import Watch
from penstock.observe.taps.connections import Connections
from penstock.observe.taps.tapped import TappedStream
from penstock_s2.config import S2Listener

Serve = Callable[[trio.abc.Stream], Awaitable[None]]


class Front:
    """A front that is told what to do with a connection."""

    def __init__(self, serve: Serve, *, limit: int = 100, bind: str = "127.0.0.1:0") -> None:
        self.draining = trio.Event()
        self.listener = Listener("listeners.s2", "test", Address.parse(bind), limit, serve, self.draining.set)


def failing_accepts(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> list[int]:
    """The system refuses to accept for these reasons first; those that are left."""
    left, accept = list(numbers), socket.socket.accept

    def fail_or_accept(self: socket.socket) -> tuple[socket.socket, object]:
        if left:
            raise OSError(left.pop(), "accept(2) says so")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", fail_or_accept)
    return left


async def echo(stream: trio.abc.Stream) -> None:
    async for data in stream:
        await stream.send_all(data)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Front], list[str]]:
    """Return a function that replaces the configured fronts by one, and returns the list of the store's events."""

    def put(front: Front) -> list[str]:
        story: list[str] = []

        @asynccontextmanager
        async def open_store(_config: Config, _watch: Watch) -> AsyncIterator[object]:
            story.append("opened")
            try:
                yield object()
            finally:
                story.append("closed")

        monkeypatch.setattr(server, "ALONE", HostServices(open_embedded=open_store))
        monkeypatch.setattr(server, "open_listeners", lambda *_: [front.listener])
        return story

    return put


def config(deadline_seconds: float = 10.0) -> Config:
    return Config(listeners=Listeners(s2=(S2Listener(),)), drain=DrainTable(deadline_seconds=deadline_seconds))


async def connect(running: RunningGateway) -> trio.SocketStream:
    return await trio.open_tcp_stream(*running.addresses["listeners.s2"][0])


async def test_serves_on_the_port_it_says(install: Callable[[Front], list[str]], nursery: trio.Nursery) -> None:
    install(Front(echo))
    with structlog.testing.capture_logs() as lines:
        running: RunningGateway = await nursery.start(serve, config())
    (address,) = running.addresses["listeners.s2"]
    assert address.host == "127.0.0.1" and address.port > 0
    said = [line for line in lines if line["event"] == "listening"]
    assert [(line["listener"], line["protocol"], line["host"], line["port"]) for line in said] == [
        ("listeners.s2", "test", *address)
    ]
    async with await connect(running) as stream:
        await stream.send_all(b"hello")
        assert await stream.receive_some(100) == b"hello"
    nursery.cancel_scope.cancel()


async def test_listens_on_ipv6(install: Callable[[Front], list[str]], nursery: trio.Nursery) -> None:
    install(Front(echo, bind="[::1]:0"))
    try:
        running: RunningGateway = await nursery.start(serve, config())
    except CannotStart as error:
        pytest.skip(f"no IPv6 here: {error}")
    async with await connect(running) as stream:
        await stream.send_all(b"hello")
        assert await stream.receive_some(100) == b"hello"
    nursery.cancel_scope.cancel()


async def test_a_failed_connection_is_one_log_line_and_harms_no_other(
    install: Callable[[Front], list[str]], nursery: trio.Nursery
) -> None:
    async def fail(stream: trio.abc.Stream) -> None:
        data = await stream.receive_some(100)
        if data == b"fail":
            async with trio.open_nursery():
                raise RuntimeError("oops")
        await stream.send_all(data)

    install(Front(fail))
    running: RunningGateway = await nursery.start(serve, config())
    async with await connect(running) as good, await connect(running) as bad:
        with structlog.testing.capture_logs() as lines:
            await bad.send_all(b"fail")
            assert await bad.receive_some(100) == b""
            await good.send_all(b"good")
            assert await good.receive_some(100) == b"good"
        failures = [line for line in lines if line["event"] == "connection_failed"]
        assert len(failures) == 1
        assert "oops" in repr(failures[0]["exc_info"].exceptions)
    nursery.cancel_scope.cancel()


async def test_a_vanished_client_is_no_error(install: Callable[[Front], list[str]], nursery: trio.Nursery) -> None:
    async def lose(_stream: trio.abc.Stream) -> None:
        raise trio.BrokenResourceError("reset by peer")

    install(Front(lose))
    running: RunningGateway = await nursery.start(serve, config())
    with structlog.testing.capture_logs() as lines:
        async with await connect(running) as stream:
            assert await stream.receive_some(1) == b""
    assert not [line for line in lines if line["log_level"] in ("error", "warning")]
    nursery.cancel_scope.cancel()


async def test_connections_over_the_limit_are_refused(
    install: Callable[[Front], list[str]], nursery: trio.Nursery
) -> None:
    async def busy(stream: trio.abc.Stream) -> None:
        CONNECTION_QUOTA.get().busy = True  # or it would be closed for the next one
        await echo(stream)

    install(Front(busy, limit=1))
    running: RunningGateway = await nursery.start(serve, config())
    async with await connect(running) as first:
        await first.send_all(b"1")
        assert await first.receive_some(1) == b"1"
        async with await connect(running) as second:
            assert await second.receive_some(1) == b""
        await first.send_all(b"2")
        assert await first.receive_some(1) == b"2"
    nursery.cancel_scope.cancel()


async def test_silent_peers_are_probed(install: Callable[[Front], list[str]], nursery: trio.Nursery) -> None:
    async def tell(stream: trio.abc.Stream) -> None:
        assert isinstance(stream, TappedStream) and isinstance(stream.inner, trio.SocketStream)
        on = stream.inner.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle = stream.inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        await stream.send_all(f"{on} {idle}".encode())

    install(Front(tell))
    running: RunningGateway = await nursery.start(serve, config())
    async with await connect(running) as stream:
        assert await stream.receive_some(100) == b"1 60"
    nursery.cancel_scope.cancel()


async def test_a_connection_that_ended_before_it_was_accepted_harms_no_other(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = trio.Event()

    async def serve_one(_stream: trio.abc.Stream) -> None:
        served.set()

    listener = Front(serve_one).listener
    (real,) = await open_sockets(listener)
    errors = failing_accepts(monkeypatch, errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EAGAIN)
    async with real, trio.open_nursery() as nursery:
        place = ListenerServer(listener, [], Limiter(), Connections())
        nursery.start_soon(accept_connections, place, real, nursery, Connections())
        with socket.create_connection(real.socket.getsockname()):
            await served.wait()
        nursery.cancel_scope.cancel()
    assert not errors
    assert place.limiter.connections == 0, "every quota was released"


@pytest.mark.parametrize("readable", [False, True])
async def test_a_socket_that_is_closed_under_it_ends_it(readable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain closes it, also after a client has made it readable and before the task goes on."""
    listener = Front(echo).listener
    (real,) = await open_sockets(listener)
    wait_readable = trio.lowlevel.wait_readable

    async def readable_then_closed(descriptor: int) -> None:
        with socket.create_connection(real.socket.getsockname()):
            await wait_readable(descriptor)
        real.socket.close()

    if readable:
        monkeypatch.setattr(trio.lowlevel, "wait_readable", readable_then_closed)
    else:
        await real.aclose()
    async with trio.open_nursery() as nursery:
        place = ListenerServer(listener, [], Limiter(), Connections())
        await accept_connections(place, real, nursery, Connections())


async def test_out_of_descriptors_waits_and_goes_on(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = trio.Event()

    async def serve_one(_stream: trio.abc.Stream) -> None:
        served.set()

    listener = Front(serve_one).listener
    (real,) = await open_sockets(listener)
    errors = failing_accepts(monkeypatch, errno.EMFILE, errno.ENFILE)  # no descriptor is left, twice
    with structlog.testing.capture_logs() as lines:
        async with real, trio.open_nursery() as nursery:
            place = ListenerServer(listener, [], Limiter(), Connections())
            nursery.start_soon(accept_connections, place, real, nursery, Connections())
            with socket.create_connection(real.socket.getsockname()):
                await served.wait()
            nursery.cancel_scope.cancel()
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["cannot_accept"] * 2
    assert not errors
    assert place.limiter.connections == 0, "every quota was released"


async def test_drain_lets_connections_finish(install: Callable[[Front], list[str]]) -> None:
    front = Front(echo)
    story = install(front)
    async with trio.open_nursery() as nursery:
        running: RunningGateway = await nursery.start(serve, config())
        stream = await connect(running)
        await stream.send_all(b"a")
        assert await stream.receive_some(1) == b"a"
        running.drain()
        await front.draining.wait()
        with pytest.raises(OSError):
            await connect(running)
        await stream.send_all(b"b")
        assert await stream.receive_some(1) == b"b"
        assert story == ["opened"]
        await stream.aclose()
    assert story == ["opened", "closed"]


async def test_drain_ends_at_its_deadline(install: Callable[[Front], list[str]]) -> None:
    story = install(Front(echo))
    with structlog.testing.capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            running: RunningGateway = await nursery.start(serve, config(deadline_seconds=0.05))
            async with await connect(running) as stream:
                await stream.send_all(b"a")
                assert await stream.receive_some(1) == b"a"
                running.drain()
                assert await stream.receive_some(1) == b""
    assert story == ["opened", "closed"]
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["drain_deadline"]


async def test_a_front_is_told_where_it_listens_and_has_duties_of_its_own(
    install: Callable[[Front], list[str]],
) -> None:
    front = Front(echo)
    story = install(front)

    def bound(addresses: Sequence[Address]) -> None:
        story.append(f"bound to {len(addresses)} of {addresses[0].host}")

    async def duties() -> None:
        try:
            story.append("began")
            await trio.sleep_forever()
        finally:
            story.append("ended")

    front.listener = replace(front.listener, bound=bound, duties=duties)
    async with trio.open_nursery() as nursery:
        running: RunningGateway = await nursery.start(serve, config())
        async with await connect(running) as stream:
            await stream.send_all(b"a")
            assert await stream.receive_some(1) == b"a"
            running.drain()
            await front.draining.wait()
            assert story == ["opened", "bound to 1 of 127.0.0.1", "began"]
    assert story[3:] == ["ended", "closed"]


async def test_duties_that_fail_harm_no_connection(
    install: Callable[[Front], list[str]], nursery: trio.Nursery
) -> None:
    async def duties() -> None:
        raise RuntimeError("oops")

    front = Front(echo)
    front.listener = replace(front.listener, duties=duties)
    install(front)
    with structlog.testing.capture_logs() as lines:
        running: RunningGateway = await nursery.start(serve, config())
        async with await connect(running) as stream:
            await stream.send_all(b"hello")
            assert await stream.receive_some(100) == b"hello"
    assert [line["listener"] for line in lines if line["event"] == "listener_task_failed"] == ["listeners.s2"]
    nursery.cancel_scope.cancel()


async def test_a_port_in_use_says_which_and_what_to_do(install: Callable[[Front], list[str]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        story = install(Front(echo, bind=f"127.0.0.1:{port}"))
        with pytest.raises(
            CannotStart, match=rf"listeners\.s2: cannot listen on 127\.0\.0\.1:{port}: the port is in use"
        ):
            await serve(config())
    assert story == ["opened", "closed"]


@pytest.mark.parametrize("compress", ["none", "zstd"])
async def test_a_port_in_use_leaves_no_recording(
    install: Callable[[Front], list[str]], tmp_path: Path, compress: Literal["none", "zstd"]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        install(Front(echo, bind=f"127.0.0.1:{taken.getsockname()[1]}"))
        recorder = RecorderTable(directory=str(tmp_path), compress=compress)
        with pytest.raises(CannotStart, match="the port is in use"):
            await serve(msgspec.structs.replace(config(), recorder=recorder))
    assert list(await trio.Path(tmp_path).iterdir()) == []


async def test_an_address_of_another_machine_is_refused(install: Callable[[Front], list[str]]) -> None:
    install(Front(echo, bind="192.0.2.1:0"))
    with pytest.raises(CannotStart, match="this machine has no such address"):
        await serve(config())
