"""Time for tests that wait."""

from __future__ import annotations

import pytest
from support.clocks import threads_hold
from trio.testing import MockClock


@pytest.fixture
def clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Time passes when nothing happens, the store's threads included."""
    return threads_hold(autojump_clock, monkeypatch)
