"""A controller for each test, over a store of its own, whose wall clock stands still."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.controller import SCOPES, settings, store
from support.store import Wall

from penstock.backs.embedded import EmbeddedBack
from penstock.controller.controller import Controller


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
async def back(tmp_path: Path, wall: Wall) -> AsyncIterator[EmbeddedBack]:
    async with store(tmp_path / "data", wall) as opened:
        yield opened


@pytest.fixture
async def controller(back: EmbeddedBack, wall: Wall) -> Controller:
    """With two scopes: one that is a basin, and one that is not."""
    made = Controller(back, settings(), wall)
    for scope in SCOPES:
        await made.scopes.create(scope)
    return made
