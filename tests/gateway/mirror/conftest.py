"""Two stores for each test, on a clock that jumps when nobody has anything to do."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio.testing
from support.mirror import Two, two_stores


@pytest.fixture
def clock(autojump_clock: trio.testing.MockClock) -> trio.testing.MockClock:
    """The stores work in threads, of which the clock does not know."""
    autojump_clock.autojump_threshold = 0.1
    return autojump_clock


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    async with two_stores(tmp_path) as opened:
        yield opened
