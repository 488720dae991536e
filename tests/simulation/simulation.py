"""A run of the gateway's store, or of the whole gateway, that follows from a seed.

A run is a few *lives* of the process. In each, the store is opened by the gateway's own code on the simulated disk;
clients call, and followers read, all by dice. A life ends when the power is lost at some call of the disk, when the
process ends because a sync failed, or when the clients are ready. The next life begins on a disk as it may be then, and
first checks all that was answered (`histories`, `checker`). The last life only checks.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
import trio
from simulation import runtime
from simulation.disk import Disk, Fates
from simulation.histories import DIRECT, LOGS, Client, Follower, Histories, prepare, read_all
from support.store import NOW

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.back import Back
from penstock.core.errors import CannotStart, StoreFailed
from penstock_codecs.failures import OperationFailed

__all__ = ["NO_FAULTS", "Report", "Simulation", "faults_of"]

LIVES: Final = 3
CALLS_PER_LIFE: Final = 300
"""Calls of the disk within which the power is lost; most lives have about as many."""
DOWN_SECONDS: Final = 1.0
NO_FAULTS: Final = Fates()


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
    failed_calls: int = 0
    disk_calls: int = 0
    answered: int = 0
    digest: str = ""
    """A hash of all events so far."""

    def add(self, line: str) -> None:
        """Add an event."""
        self.digest = hashlib.sha256(f"{self.digest}{line}".encode()).hexdigest()
        if self.lines is not None:
            self.lines.append(line)


class Simulation:
    """A run. Raises AssertionError with what went wrong."""

    def __init__(self, seed: int, fates: Fates | None = None, *, wants_lines: bool = False) -> None:
        """`fates`: troubles of the disk instead of those that the seed has."""
        self.report = Report(seed, [] if wants_lines else None)
        self._fates = faults_of(seed) if fates is None else fates
        self._dice = random.Random(f"run {seed}")
        self._time = 0.0

    def run(self) -> Report:
        """Live a few lives."""
        with tempfile.TemporaryDirectory(prefix="simulation-") as place, structlog.testing.capture_logs():
            with runtime.deterministic(self._dice):
                disk = self._disk = Disk(Path(place), self._dice)
                disk.trace = self.report.add
                self._histories = Histories(self._now, self.report.add)
                with disk.mounted(reads=self._fates.read_fails > 0):
                    for life in range(LIVES + 1):
                        runtime.run(lambda life=life: self._live(life))
            self.report.failed_calls, self.report.disk_calls = disk.failed, disk.calls
            self.report.answered = self._histories.answered
        return self.report

    def _now(self) -> float:
        return self._time + trio.current_time()

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
        )
        has_ended = False
        self.report.add(f"life {life} crash at {disk.crash_at}")
        with trio.CancelScope() as scope:
            disk.on_crash = scope.cancel
            try:
                async with open_embedded(settings, self._wall) as back:
                    await self._check(back)
                    if not is_last:
                        disk.fates = self._fates
                        await self._serve(back, life)
            except BaseException as error:
                if not _is_the_disks(error) or not (disk.crashed or disk.failed):
                    raise
                self.report.add(f"ended: {type(error).__name__}")
                has_ended = True
        self._ended_in_failure = has_ended or disk.crashed
        if disk.crashed:
            self.report.power_losses += 1
        self._time += trio.current_time() + DOWN_SECONDS
        if self._ended_in_failure and dice.random() < 0.8:
            disk.lose_power()
        elif self._ended_in_failure:
            disk.kill()

    _ended_in_failure = False

    async def _check(self, back: Back) -> None:
        await prepare(back)
        await self._histories.check(back, ended_in_failure=self._ended_in_failure)

    async def _serve(self, back: EmbeddedBack, life: int) -> None:
        """Let clients call until they are ready, and see that followers get everything."""
        dice = self._dice
        followers = [
            Follower(f"follower-{life}-{index}", stream, back, self._histories) for index, stream in enumerate(LOGS)
        ]
        async with trio.open_nursery() as nursery:
            for follower in followers:
                nursery.start_soon(follower.run)
            async with trio.open_nursery() as clients:
                for number in range(dice.randint(2, 4)):
                    client = Client(f"c{life}.{number}", DIRECT, back, self._histories, dice)
                    clients.start_soon(client.run, dice.randint(3, 10))
            for follower in followers:
                try:
                    there = await read_all(back, follower.stream)
                except OperationFailed:
                    continue
                if there:  # a follower that had nothing to read before a trim stays where it was
                    await follower.reach(there[-1].seq_num + 1)
            nursery.cancel_scope.cancel()


def _is_the_disks(error: BaseException) -> bool:
    """Return whether an error is one with which a process ends that cannot use its disk."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_the_disks, error.exceptions))
    return isinstance(error, CannotStart | StoreFailed | OperationFailed | trio.Cancelled)
