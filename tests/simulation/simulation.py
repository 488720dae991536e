"""A run of the gateway's store, or of the whole gateway, that follows from a seed.

A run is a few *lives* of the process. In each, the store is opened by the gateway's own code on the simulated disk;
clients call, and followers read, all by dice. A life ends when the power is lost at some call of the disk, when the
process ends because a sync failed, or when the clients are ready. The next life begins on a disk as it may be then, and
first checks all that was answered (`histories`, `checker`). The last life only checks.
"""

from __future__ import annotations

import hashlib
import random
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
import trio
from simulation import runtime
from simulation.checker import TooManyOrders
from simulation.disk import Disk, Fates
from simulation.fronts import FRONTS, PORTS, Front
from simulation.histories import BASIN, DIRECT, LOGS, MOST_CLIENTS, Follower, Histories, prepare, read_all
from simulation.network import Network
from support.store import NOW

from penstock.app.bootstrap import apply_resources
from penstock.app.config import Config
from penstock.app.host import HostServices
from penstock.app.server import serve
from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Back
from penstock.core.errors import CannotStart, StoreFailed
from penstock.model.failures import OperationFailed
from penstock.net.upstream import Watch
from penstock.store.schema import FILE_NAME

__all__ = ["NO_FAULTS", "Report", "Simulation", "faults_of", "has_fronts"]

LIVES: Final = 3
CALLS_PER_LIFE: Final = 300
"""Calls of the disk within which the power is lost; most lives have about as many."""
DOWN_SECONDS: Final = 1.0
SHELL_SECONDS: Final = 0.05
"""Mean time that the shell reads, and that it rests."""
NO_FAULTS: Final = Fates()
FAILED_CONNECTION: Final = "connection_failed"
"""The line that the gateway logs where a front fails that should have told its client."""


def has_fronts(seed: int) -> bool:
    """Return whether the whole gateway runs, and not its store alone: in two seeds of four."""
    return seed // 2 % 2 == 1


def faults_of(seed: int) -> Fates:
    """Return the troubles of a seed: every second one has none but losses of power."""
    dice = random.Random(f"faults {seed}")
    if seed % 2 == 0:
        return NO_FAULTS
    kinds = ({"sync_fails": 0.01}, {"write_fails": 0.01}, {"full": 0.01}, {"read_fails": 0.005})
    chosen: dict[str, float] = {}
    for kind in dice.sample(kinds, dice.randint(1, 2)):
        chosen |= kind
    return Fates(**chosen)


@dataclass
class Report:
    """The events of a run, as a trace that two runs of a seed have in common."""

    seed: int
    lines: list[str] | None = None
    """All events, if they are wanted."""
    power_losses: int = 0
    broken_connections: int = 0
    failed_calls: int = 0
    disk_calls: int = 0
    answered: int = 0
    undecided: bool = False
    """True if a check was given up, and the run ended with it."""
    digest: str = ""
    """A hash of all events so far."""

    def add(self, line: str) -> None:
        """Add an event."""
        self.digest = hashlib.sha256(f"{self.digest}{line}".encode()).hexdigest()
        if self.lines is not None:
            self.lines.append(line)


class Simulation:
    """A run. Raises AssertionError with what went wrong."""

    def __init__(
        self, seed: int, fates: Fates | None = None, *, fronts: bool | None = None, wants_lines: bool = False
    ) -> None:
        """`fates`: troubles of the disk instead of those that the seed has; `fronts`: see `has_fronts`."""
        self.report = Report(seed, [] if wants_lines else None)
        self._fronts = has_fronts(seed) if fronts is None else fronts
        self._fates = faults_of(seed) if fates is None else fates
        self._dice = random.Random(f"run {seed}")
        self._time = 0.0

    def run(self) -> Report:
        """Live a few lives."""
        with tempfile.TemporaryDirectory(prefix="simulation-") as place, structlog.testing.capture_logs() as self._log:
            with runtime.deterministic(self._dice, self._wall):
                disk = self._disk = Disk(Path(place), self._dice)
                disk.trace = self.report.add
                self._histories = Histories(self._now, self.report.add)
                with disk.mounted(reads=self._fates.read_fails > 0):
                    try:
                        for life in range(LIVES + 1):
                            runtime.run(lambda life=life: self._live(life))
                    except* TooManyOrders:
                        self.report.undecided = True
            self.report.failed_calls, self.report.disk_calls = disk.failed, disk.calls
            self.report.answered = self._histories.answered
        return self.report

    def _now(self) -> float:
        return self._time + (trio.current_time() if trio.lowlevel.in_trio_run() else 0.0)

    def _wall(self) -> int:
        return NOW + int(self._now() * 1000)

    async def _live(self, life: int) -> None:
        disk, dice = self._disk, self._dice
        is_last = life == LIVES
        disk.fates = NO_FAULTS
        disk.on_crash = lambda: None
        if not is_last and dice.random() < 0.9:
            disk.crash_at = disk.calls + dice.randint(1, CALLS_PER_LIFE)
        settings = EmbeddedSettings(
            directory=disk.directory,
            checkpoint_bytes=dice.choice((1, 8, 64)) * 16 * 1024,
            log_bytes=dice.choice((8, 32, 128)) * 16 * 1024,
            checkpoint_seconds=dice.choice((0.02, 0.2, 5.0)),
            tail_cache_bytes=dice.choice((1, 1 << 14, 1 << 20)),
            cached_streams=dice.choice((1, 100)),
            sweep_interval_seconds=1.0,
            payload_file_bytes=random.Random(f"payloads {self.report.seed} {life}").choice((1, 64, 32 * 1024)),
        )
        has_ended = False
        failed_before = disk.failed
        self.report.add(f"life {life} crash at {disk.crash_at}")
        with trio.CancelScope() as scope:
            disk.on_crash = scope.cancel
            try:
                async with self._opened(settings, is_last) as back:
                    if not is_last:
                        await self._serve(back, life)
            except BaseException as error:
                if not _is_the_disks(error) or not (disk.crashed or disk.failed):
                    raise
                self.report.add(f"ended: {type(error).__name__}")
                has_ended = True
        ended_in_failure = has_ended or disk.crashed
        self._may_be_done = ended_in_failure or disk.failed > failed_before
        if disk.crashed:
            self.report.power_losses += 1
        self._time += trio.current_time() + DOWN_SECONDS
        if ended_in_failure and dice.random() < 0.8:
            disk.lose_power()
        elif ended_in_failure:
            disk.kill()

    _may_be_done = False

    @asynccontextmanager
    async def _opened(self, settings: EmbeddedSettings, is_last: bool) -> AsyncIterator[EmbeddedBack]:
        """Open the store, or the whole gateway, and check what is there."""
        if not self._fronts:
            async with self._store(settings, is_last) as back:
                yield back
            return
        config = _config(settings)
        stores: list[EmbeddedBack] = []

        @asynccontextmanager
        async def open_store(config: Config, _watch: Watch) -> AsyncIterator[Back]:
            async with self._store(settings, is_last, config) as back:
                stores.append(back)
                try:
                    yield back
                finally:  # clients of the store itself do not outlive it
                    inside.cancel()

        async def serve_to_the_end(*, task_status: trio.TaskStatus[Any]) -> None:
            try:
                await serve(config, HostServices(open_embedded=open_store), task_status=task_status)
            finally:
                over.set()

        inside, over = trio.CancelScope(), trio.Event()
        network = Network(self._dice, self.report.add)
        try:
            with network.connected():
                async with trio.open_nursery() as nursery:
                    await nursery.start(serve_to_the_end)
                    if self._dice.random() < 0.7:
                        nursery.start_soon(network.break_some, self._dice.choice((0.02, 0.2, 1.0)))
                    with inside:
                        yield stores[0]
                    if inside.cancel_called:  # and the gateway is about to raise the reason
                        await over.wait()
                    nursery.cancel_scope.cancel()
        finally:
            self.report.broken_connections += network.broken

    @asynccontextmanager
    async def _store(
        self, settings: EmbeddedSettings, is_last: bool, config: Config | None = None
    ) -> AsyncIterator[EmbeddedBack]:
        async with open_embedded(settings, self._wall) as back:
            if config is not None:
                await apply_resources(back, config)
            await prepare(back)
            await self._histories.check(back, may_be_done=self._may_be_done)
            if not is_last:
                self._disk.fates = self._fates
            yield back

    async def _serve(self, back: EmbeddedBack, life: int) -> None:
        """Let clients call until they are ready, and see that followers get everything."""
        dice = self._dice
        async with AsyncExitStack() as stack:
            followers, clients = [], []
            for index, stream in enumerate(LOGS):
                front, way = await self._way(stack, back)
                followers.append(front.follower(f"follower-{life}-{index}", stream, way, self._histories))
            for number in range(dice.randint(2, MOST_CLIENTS - 1)):
                front, way = await self._way(stack, back)
                clients.append(front.client(f"c{life}.{number}", front.talks, way, self._histories, dice))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_shell, self._disk.directory, dice)
                for follower in followers:
                    nursery.start_soon(follower.run)
                async with trio.open_nursery() as calling:
                    for client in clients:
                        calling.start_soon(client.run, dice.randint(3, 10))
                await self._reach(back, followers)
                nursery.cancel_scope.cancel()
        failed = [line for line in self._log if line["event"] == FAILED_CONNECTION]
        assert not failed or self._disk.crashed or self._disk.failed, failed

    async def _reach(self, back: Back, followers: Sequence[Follower]) -> None:
        for follower in followers:
            try:
                there = await read_all(back, follower.stream)
            except OperationFailed:
                continue
            if there:  # a follower that had nothing to read before a trim stays where it was
                await follower.reach(there)

    async def _way(self, stack: AsyncExitStack, back: EmbeddedBack) -> tuple[Front, Any]:
        """Return a way to talk to the gateway, and what a client calls; the store itself if there are no fronts."""
        if not self._fronts or self._dice.random() < 0.2:
            return INSIDE, back
        front = self._dice.choice(FRONTS)
        return front, await stack.enter_async_context(front.open(self._dice, self._wall, back))


INSIDE: Final = Front(DIRECT, lambda _dice, _clock, _state: AsyncExitStack())


def _config(settings: EmbeddedSettings) -> Config:
    """Return the configuration of a gateway with all fronts."""
    tables: dict[str, Any] = {name: [{"bind": f"127.0.0.1:{port}"}] for name, port in PORTS.items()}
    for name in PORTS.keys() - {"s2"}:
        tables[name][0]["basin"] = BASIN
    tables["durable"][0]["content_type"] = "application/json"  # which keeps records apart
    tables["kafka"][0]["advertise"] = tables["kafka"][0]["bind"]
    document = {
        "listeners": tables,
        "management": {"enabled": False},
        "store": {"directory": str(settings.directory)},
    }
    return msgspec.convert(document, Config)


async def _shell(directory: Path, dice: random.Random) -> None:
    """Stay in one read after the other, as a SQLite shell may: a checkpoint moves the log only up to where it reads."""
    while True:
        await trio.sleep(dice.expovariate(1 / SHELL_SECONDS))
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(directory / FILE_NAME)) as db:
            db.execute("PRAGMA query_only=1")
            db.execute("BEGIN")
            db.execute("SELECT count(*) FROM batches").fetchone()
            await trio.sleep(dice.expovariate(1 / SHELL_SECONDS))


def _is_the_disks(error: BaseException) -> bool:
    """Return whether an error is one with which a process ends that cannot use its disk."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_the_disks, error.exceptions))
    return isinstance(error, CannotStart | StoreFailed | OperationFailed | trio.Cancelled)
