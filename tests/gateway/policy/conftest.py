"""Time for tests that wait."""

from __future__ import annotations

import pytest
from trio.testing import MockClock


@pytest.fixture
def clock(autojump_clock: MockClock) -> MockClock:
    """Time passes when nothing happens, the store's threads included: a disk needs some real milliseconds."""
    autojump_clock.autojump_threshold = 0.1
    return autojump_clock
