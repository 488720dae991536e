"""Starts that are interrupted: whatever call of the disk is the last one, the next start succeeds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from simulation import runtime
from simulation.disk import Disk
from support.store import Wall

from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.core.errors import CannotStart, StoreFailed
from penstock.model.operations import EnsureBasin


@pytest.mark.parametrize("end", [pytest.param("kill", marks=pytest.mark.slow), "lose_power"])
def test_the_first_start_ends_at_any_call_of_the_disk(tmp_path: Path, end: str) -> None:
    """Found by seed 12: where it ended inside the first change, every later start was refused, since a connection that
    only reads cannot roll that change back ("attempt to write a readonly database")."""
    dice = random.Random(20261122)

    async def start() -> None:
        async with open_embedded(EmbeddedSettings(directory=disk.directory), Wall()) as back:
            await back.perform(EnsureBasin("basin-one"))

    calls = 0
    ended_before = True
    with runtime.deterministic(dice):
        while ended_before:
            calls += 1
            place = tmp_path / str(calls)
            place.mkdir()
            disk = Disk(place, dice)
            with disk.mounted():
                disk.crash_at = calls
                try:
                    runtime.run(start)
                except (CannotStart, StoreFailed, BaseExceptionGroup):
                    assert disk.crashed
                ended_before = disk.crashed
                getattr(disk, end)()
                runtime.run(start)
    assert calls > 80, "a first start makes more calls"
