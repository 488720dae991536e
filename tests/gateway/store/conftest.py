"""A store for each test, in a directory of its own, whose wall clock stands still.

What appends and reads is tested twice: in the process that has the store, and from another one
(`penstock.app.workers`).
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.store import BASIN, STREAM, Wall
from support.workers import open_shared

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock_codecs.operations import CreateBasin, CreateStream

_BY_WORKERS_TOO = frozenset(
    f"test_{name}"
    for name in (
        "append_bytes",
        "appends",
        "byte_reads",
        "byte_waits",
        "encryption",
        "failing",
        "follow",
        "reads",
        "seal",
        "truncate",
        "usage",
    )
)

_LOOK_INSIDE = frozenset(
    f"test_{name}"
    for name in (
        "a_client_that_reads_on_gets_more_batches_with_each_hop",
        "a_hop_reads_a_bounded_number_of_bytes",
        "everything_that_was_decided_on_top_fails_too",
        "many_small_batches_are_given_in_several_reads",
        "purged_between_two_looks",
        "readers_share_the_room_for_reading_ahead",
        "reads_that_are_given_up_leave_room_for_reading_ahead",
        "what_is_kept_of_rows_is_bounded",
    )
)
"""Tests that look at parts which a worker has for itself, or that count passes of the scheduler."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "by_worker" in metafunc.fixturenames:
        module, name = metafunc.module.__name__.rpartition(".")[2], metafunc.function.__name__
        too = module in _BY_WORKERS_TOO and name not in _LOOK_INSIDE
        metafunc.parametrize("by_worker", [False, True] if too else [False], ids=["here", "worker"][: 1 + too])


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def settings(tmp_path: Path) -> EmbeddedSettings:
    return EmbeddedSettings(directory=tmp_path / "data")


@pytest.fixture
async def back(settings: EmbeddedSettings, wall: Wall, by_worker: bool) -> AsyncIterator[EmbeddedBack]:
    """With one basin and one stream in it."""
    async with (open_shared if by_worker else open_embedded)(settings, wall) as opened:
        await opened.perform(CreateBasin(BASIN))
        await opened.perform(CreateStream(STREAM))
        yield opened
