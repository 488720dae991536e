"""A store for each test, in a directory of its own, whose wall clock stands still."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from support.store import BASIN, STREAM, Wall

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.operations import CreateBasin, CreateStream
from penstock.store import payload_files
from penstock.store.sweeper import Sweeper


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def settings(tmp_path: Path) -> EmbeddedSettings:
    return EmbeddedSettings(directory=tmp_path / "data")


@pytest.fixture
async def back(settings: EmbeddedSettings, wall: Wall) -> AsyncIterator[EmbeddedBack]:
    """With one basin and one stream in it."""
    async with open_embedded(settings, wall) as opened:
        await opened.perform(CreateBasin(BASIN))
        await opened.perform(CreateStream(STREAM))
        yield opened


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests purge, and the sweeper do nothing by itself."""

    async def idle(_sweeper: Sweeper) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(Sweeper, "run", idle)


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a new file after each transaction."""
    monkeypatch.setattr(payload_files, "FILE_BYTES", 1)
