"""A store with one stream of ten records, and a management front over it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.management import Asker, asking, overview
from support.store import BASIN, STREAM, Wall, appending

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.model.operations import CreateBasin, CreateStream

BODIES = [b"%d" % number * (number + 1) for number in range(10)]


@pytest.fixture
async def back(tmp_path: Path) -> AsyncIterator[EmbeddedBack]:
    async with open_embedded(EmbeddedSettings(directory=tmp_path), Wall()) as opened:
        await opened.perform(CreateBasin(BASIN))
        await opened.perform(CreateStream(STREAM))
        await opened.perform(appending(*BODIES[:4], timestamps=[100, 100, 100, 200]))
        await opened.perform(appending(*BODIES[4:], timestamps=[200, 300, 300, 300, 400, 500]))
        yield opened


@pytest.fixture
async def asker(back: EmbeddedBack) -> AsyncIterator[Asker]:
    async with asking(overview(back)) as one:
        yield one
