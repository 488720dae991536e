"""An embedded store with a basin and an empty stream."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.store import BASIN, STREAM

from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.core.back import Back
from penstock.model.operations import CreateBasin, CreateStream


@pytest.fixture
async def back(tmp_path: Path) -> AsyncIterator[Back]:
    async with open_embedded(EmbeddedSettings(directory=tmp_path / "data")) as opened:
        await opened.perform(CreateBasin(BASIN))
        await opened.perform(CreateStream(STREAM))
        yield opened
