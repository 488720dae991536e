"""Two stores for each test, on a clock that jumps while all tasks are idle."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.bridges.mirror import Two, two_stores
from support.clocks import threads_hold
from trio.testing import MockClock


@pytest.fixture
def clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Time passes when nothing happens, the store's threads included."""
    return threads_hold(autojump_clock, monkeypatch)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    async with two_stores(tmp_path) as opened:
        yield opened
