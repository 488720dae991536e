"""The disk after a loss of power: any mixture of the sectors that were not synced, but no half of a truncation."""

from __future__ import annotations

import os
import random
from pathlib import Path

from simulation.disk import SECTOR, Disk

OLD, NEW = b"o" * SECTOR, b"n" * SECTOR


def after_power_loss(place: Path, seed: int) -> bytes:
    """Return a file of four old sectors that was truncated after the first and got three new ones, none synced."""
    place.mkdir()
    disk = Disk(place, random.Random(seed))
    with disk.mounted():
        file = os.open(disk.directory / "file", os.O_CREAT | os.O_RDWR)
        os.pwrite(file, OLD * 4, 0)
        os.fsync(file)
        directory = os.open(disk.directory, os.O_RDONLY)
        os.fsync(directory)
        handle = disk.opened(str(disk.directory / "file"), begins_journal=False)
        assert disk.truncate(handle, SECTOR, lambda: os.ftruncate(file, SECTOR) or 0) == 0
        for number in (1, 2, 3):
            os.pwrite(file, NEW, number * SECTOR)
        os.close(file)
        os.close(directory)
    disk.lose_power()
    return (disk.directory / "file").read_bytes()


def test_a_truncation_is_whole(tmp_path: Path) -> None:
    """The old sectors come back all or none, and new ones only where the old ones are gone."""
    seen = {after_power_loss(tmp_path / str(seed), seed) for seed in range(300)}
    cut = {content[SECTOR:] for content in seen if content != OLD * 4}
    assert OLD * 4 in seen
    assert all(content.startswith(OLD) for content in seen)
    empty = bytes(SECTOR)
    assert {b"", NEW, empty, NEW + NEW, NEW + empty, empty + NEW, NEW * 3, empty + NEW + empty} <= cut
    assert not any(b"o" in content for content in cut)
