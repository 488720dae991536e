"""A store for each test, in a directory of its own, whose wall clock stands still."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.store import BASIN, STREAM, Wall

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock_codecs.operations import CreateBasin, CreateStream


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
