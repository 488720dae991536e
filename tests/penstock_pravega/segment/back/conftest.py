"""Fixtures of the segment back's tests: a store, a segment front over it, and a clock that jumps by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.clocks import threads_hold
from support.segment.front import WatchedBack
from trio.testing import MockClock

from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock_pravega.segment.front import SegmentFront


@pytest.fixture
def clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Time passes when nothing happens, the store's threads included."""
    return threads_hold(autojump_clock, monkeypatch)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[WatchedBack]:
    async with open_embedded(EmbeddedSettings(directory=tmp_path)) as back:
        yield WatchedBack(back)


@pytest.fixture
async def front(store: WatchedBack) -> SegmentFront:
    return SegmentFront(store)
