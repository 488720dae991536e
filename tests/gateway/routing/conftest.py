"""Two stores for routes to lead to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.store import Wall

from penstock.backends.embedded import EmbeddedBack, EmbeddedSettings, open_embedded
from penstock.core.internal_names import INTERNAL_BASIN
from penstock.model.operations import EnsureBasin


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[EmbeddedBack]:
    async with open_embedded(EmbeddedSettings(directory=tmp_path / "here"), Wall()) as back:
        await back.perform(EnsureBasin(INTERNAL_BASIN))
        yield back


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[EmbeddedBack]:
    async with open_embedded(EmbeddedSettings(directory=tmp_path / "there"), Wall()) as back:
        await back.perform(EnsureBasin(INTERNAL_BASIN))
        yield back
