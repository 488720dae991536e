"""Fixtures of the front's tests: a store, a front over it, and a clock that jumps while all tasks are idle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.clocks import threads_hold
from support.durable import Service, running
from trio.testing import MockClock


@pytest.fixture
def clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Time passes when nothing happens, the store's threads included."""
    return threads_hold(autojump_clock, monkeypatch)


@pytest.fixture
async def service(clock: MockClock, tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path) as found:
        yield found
