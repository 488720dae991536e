"""Histories through a bridge: clients, a gateway, and the server behind it, whose connections something happens to.

The gateway is put together from a configuration, as a process does it, and runs in virtual time with the second
gateway that it has as its server. Dice decide all that is otherwise a matter of luck, so two runs have the same
messages up to where something is done to one of them. Real servers take real time, and two runs differ a little.
"""

from __future__ import annotations

import errno
import random
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import structlog
import trio
import trio.testing
from chaos.wire import Act, Chaos, Direction
from simulation import runtime
from simulation.checker import Call, Lost
from simulation.histories import BASIN, FAILED, LOGS, Client, Follower, Histories, Talks, read_all
from support.store import NOW

from penstock.app.bootstrap import open_listeners, open_router, open_store
from penstock.app.config import parse_config
from penstock.core import clock
from penstock.core.back import Back
from penstock.model.failures import FailureCode, OperationFailed
from penstock.model.operations import Capability, CreateBasin, CreateStream
from penstock.model.records import Record, StreamRef
from penstock.net import upstream
from penstock.net.upstream import Watch, unwatched
from penstock.routing.router import Router
from penstock.store import store
from penstock.store.schema import connect_writer
from penstock_durable.codec import RECORDS_TYPE, RecordContent

__all__ = ["PAIRS", "Pair", "Run", "run", "run_real"]

PORTS: Final = {"s2": 1001, "s3p": 1002, "segment": 1003, "controller": 1004, "durable": 1005, "kafka": 1006}
LISTENERS: Final = "\n".join(
    f'[listeners.{kind}]\nbind = "127.0.0.1:{port}"\n{more}'
    for kind, port, more in (
        ("s2", PORTS["s2"], ""),
        ("s3p", PORTS["s3p"], f'basin = "{BASIN}"\n'),
        ("segment", PORTS["segment"], f'basin = "{BASIN}"\n'),
        ("controller", PORTS["controller"], f'advertise = "127.0.0.1:{PORTS["segment"]}"\n'),
        ("durable", PORTS["durable"], f'basin = "{BASIN}"\ncontent_type = "{RECORDS_TYPE}"\n'),
        ("kafka", PORTS["kafka"], f'basin = "{BASIN}"\nadvertise = "127.0.0.1:{PORTS["kafka"]}"\n'),
    )
)
CONFIG: Final = f"""
{LISTENERS}
[management]
enabled = false

[store]
directory = "{{data}}"
"""
BACK: Final = f"""
[backs.far]
{{back}}

[[routes]]
name = "all"
basin = "{BASIN}"
to_basin = "{{basin}}"
to_stream = "{{prefix}}{{{{stream}}}}"
back = "far"
"""
DELAY_SECONDS: Final = 1.0
STALL_SECONDS: Final = 8.0
REAL_DELAY_SECONDS: Final = 0.2
REAL_REQUEST_SECONDS: Final = 2.0
REAL_STALL_SECONDS: Final = 3.0
"""Of real time, which tests wait for."""
WEIGHTS: Final = {"append": 6, "session": 4, "tail": 2, "read": 2}
CLIENTS: Final = 2
CALLS: Final = 4
_LOST: Final = {FailureCode.UNAVAILABLE, FailureCode.UPSTREAM_TIMEOUT, FailureCode.UPSTREAM_FAULT}
"""Failures after which the call may have had an effect (docs/guarantees.md)."""


@dataclass(frozen=True)
class Pair:
    """A protocol to the server. `keys`: those of the back's table beside its address.

    `by`: the key of the address, "address" or "controller". `more`: calls that it can do beside those of all.
    `unpacked`: the records in the bodies of those that the server has.
    """

    name: str
    kind: str
    keys: str = ""
    by: str = "address"
    more: Mapping[str, float] = field(default_factory=dict)
    unpacked: Callable[[list[bytes]], list[bytes]] = list

    @property
    def talks(self) -> Talks:
        """The calls of its clients."""
        return Talks(self.name, {**WEIGHTS, **self.more})

    def table(self, port: int, basin: str = BASIN, prefix: str = "") -> str:
        """Return the configuration of the back for a server at this port, and of the route to it.

        `prefix`: begins the names of streams there, for servers that have no basins.
        """
        keys = [f'kind = "{self.kind}"', f'{self.by} = "127.0.0.1:{port}"', self.keys]
        if self.kind != "s2":
            keys.append(f'basin = "{basin}"')
        return BACK.format(back="\n".join(keys), basin=basin, prefix=prefix)


def _records(appends: list[bytes]) -> list[bytes]:
    """Return the records of a stream of Durable Streams, of which the server has one record for each append."""
    reader = RecordContent().reader()
    reader.receive(b"".join(appends))
    found: list[bytes] = []
    while some := reader.take(1000, 1 << 20).bodies:
        found += some
    return found


PAIRS: Final = {
    pair.name: pair
    for pair in (
        Pair("s2 over http/2", "s2", 'http = "h2"', more={"fence": 1, "command": 1}),
        Pair("s2 over http/1.1", "s2", 'http = "h1"', more={"fence": 1, "command": 1}),
        Pair("s3p", "s3p"),
        Pair("segment", "segment"),
        Pair("segment by a controller", "segment", by="controller"),
        Pair("durable over http/2", "durable", 'http = "h2"', unpacked=_records),
        Pair("durable over http/1.1", "durable", 'http = "h1"', unpacked=_records),
        Pair("kafka", "kafka", more={"trim": 1}),
    )
}


class BridgeClient(Client):
    """A client of a gateway: it asks for what the back can do, and is told of lost servers."""

    def _new_append(self, stream: StreamRef) -> Call:
        """At most one condition: a server that checks two may name either."""
        call, able = super()._new_append(stream), self._back.capabilities
        match = call.match if Capability.MATCH_SEQ_NUM in able else None
        return replace(call, match=match, token=call.token if match is None and Capability.FENCING in able else None)

    def _refusal(self, error: OperationFailed) -> Any:
        if error.failure.code is FailureCode.HOT_SERVER:
            return FAILED  # which promises that nothing was done
        return Lost if error.failure.code in _LOST else super()._refusal(error)


class BridgeFollower(Follower):
    """A reader of one log through a gateway, which goes on after a server that broke its protocol, too."""

    async def _read(self) -> None:
        try:
            await super()._read()
        except OperationFailed as error:
            if error.failure.code not in _LOST:
                raise


@dataclass
class Run:
    """The messages of a run in each direction, and its answers."""

    messages: dict[Direction, list[bytes]]
    acted: bool
    answered: int


def run(pair: Pair, act: Act | None = None, seed: int = 0) -> Run:
    """Run a history, and check it. Raises AssertionError with what went wrong."""
    dice = random.Random(f"chaos {seed}")
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as place,
        structlog.testing.capture_logs(),
        runtime.deterministic(dice),
        patch.object(store, "connect_writer", _connect_without_sync),
        patch.object(clock, "time", SimpleNamespace(time_ns=_time_ns, clock_gettime_ns=lambda _: _time_ns())),
        patch.object(clock.wall_clock, "_offset", 0),
    ):
        return runtime.run(lambda: _run(pair, act, dice, Path(place)))


def _time_ns() -> int:
    return NOW * 1_000_000 + int(trio.current_time() * 1e9)


def _connect_without_sync(directory: Path) -> sqlite3.Connection:
    """As the store connects, but fast: no power is lost here."""
    db = connect_writer(directory)
    db.execute("PRAGMA synchronous=OFF")
    return db


async def _run(pair: Pair, act: Act | None, dice: random.Random, place: Path) -> Run:
    port = PORTS[pair.kind if pair.by == "address" else pair.by]
    async with trio.open_nursery() as nursery:
        network = Network(nursery)
        with patch.object(upstream, "_dial_tcp", network.dial):
            async with gateway(CONFIG.format(data=place / "server")) as (server, listeners):
                network.listen(listeners)
                chaos = Chaos(nursery, act, DELAY_SECONDS, STALL_SECONDS)
                found = await _history(pair, pair.table(port), server, chaos, dice, place)
        nursery.cancel_scope.cancel()
    return found


def run_real(pair: Pair, port: int, basin: str, act: Act | None = None) -> Run:
    """Run a history with a real server at this port, in a new basin there, and check it: see `run`.

    A second gateway, to whose connections nothing happens, tells what the server has.
    """

    async def main() -> Run:
        with tempfile.TemporaryDirectory(prefix="chaos-") as name:
            place, dice, where = Path(name), random.Random("chaos"), (port, basin, f"{basin}-")
            seen = replace(pair, unpacked=list)  # by a gateway, which unpacks them
            async with trio.open_nursery() as nursery:
                async with gateway(CONFIG.format(data=place / "server") + pair.table(*where)) as (server, _):
                    chaos = Chaos(nursery, act, REAL_DELAY_SECONDS, REAL_STALL_SECONDS)
                    impatient = replace(pair, keys=f"{pair.keys}\nrequest_seconds = {REAL_REQUEST_SECONDS}")
                    found = await _history(seen, impatient.table(*where), server, chaos, dice, place)
                nursery.cancel_scope.cancel()
        return found

    with structlog.testing.capture_logs():
        return trio.run(main)


async def _history(pair: Pair, table: str, server: Router, chaos: Chaos, dice: random.Random, place: Path) -> Run:
    """Run a history through a bridge whose back is configured by `table`; `server` is asked beside it."""
    histories = Histories(trio.current_time)
    await prepare(server.for_listener("s2"))
    async with gateway(CONFIG.format(data=place / "bridge") + table, chaos.watch) as (bridge, _):
        back = bridge.for_listener("s2")
        await talk(pair, back, histories, dice)
        await chaos.settle()
        await check(pair, back, server.for_listener("s2"), histories)
    return Run(chaos.messages, chaos.acted, histories.answered)


class Network:
    """The listeners by port, and connections in memory to them."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._listeners: dict[int, Callable[[trio.abc.Stream], Awaitable[None]]] = {}

    def listen(self, listeners: Mapping[int, Callable[[trio.abc.Stream], Awaitable[None]]]) -> None:
        """Accept connections at these ports."""
        self._listeners.update(listeners)

    async def dial(self, _host: str, port: int) -> trio.abc.Stream:
        """See `penstock.net.upstream.Dial`."""
        await trio.lowlevel.checkpoint()
        if port not in self._listeners:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        near, far = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._listeners[port], far)
        return near


@asynccontextmanager
async def gateway(text: str, watch: Watch = unwatched) -> AsyncIterator[tuple[Router, dict[int, Any]]]:
    """A gateway by its configuration: its router, and the function that serves a connection, by port."""
    config = parse_config(text)
    async with open_store(config) as own, open_router(config, own, watch) as router, trio.open_nursery() as nursery:
        listeners = open_listeners(config, router)
        for listener in listeners:
            if listener.duties is not None:
                nursery.start_soon(listener.duties)
        yield router, {listener.address.port: listener.serve for listener in listeners}
        nursery.cancel_scope.cancel()


async def prepare(server: Back) -> None:
    """Create the logs."""
    await server.perform(CreateBasin(BASIN))
    for stream in LOGS:
        await server.perform(CreateStream(stream))


async def talk(pair: Pair, back: Back, histories: Histories, dice: random.Random) -> None:
    """Let clients call until they are ready, and see that followers get everything."""
    followers = [BridgeFollower(f"follower-{stream.stream}", stream, back, histories) for stream in LOGS]
    async with trio.open_nursery() as nursery:
        for follower in followers:
            nursery.start_soon(follower.run)
        async with trio.open_nursery() as clients:
            for number in range(CLIENTS):
                client = BridgeClient(f"c.{number}", pair.talks, back, histories, dice)
                clients.start_soon(client.run, CALLS)
        for follower in followers:
            if there := await all_of(back, follower.stream):
                await follower.reach(there)
        nursery.cancel_scope.cancel()


async def all_of(back: Back, stream: StreamRef) -> list[Record]:
    """Return all records, and ask a second time if the server was lost."""
    try:
        return await read_all(back, stream)
    except OperationFailed as error:
        assert error.failure.code in _LOST, error
        return await read_all(back, stream)


async def check(pair: Pair, back: Back, server: Back, histories: Histories) -> None:
    """Check all answers against the logs, as they are seen through the bridge, and at the server itself."""
    await histories.check(back, may_be_done=False)
    for stream in LOGS:
        seen, there = await read_all(back, stream), await read_all(server, stream)
        assert [record.body for record in seen] == pair.unpacked([record.body for record in there]), stream
