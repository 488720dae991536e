"""What the segment front's tests share: a store, a front over it, and time that passes when nothing happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.records_only import RecordsOnly, WithTables
from support.segment_front import Connect, WatchedBack, serving
from trio.testing import MockClock

from penstock.backs.bytes_on_records import open_bytes_on_records
from penstock.backs.embedded import EmbeddedSettings, open_embedded
from penstock.fronts.segment import SegmentFront


@pytest.fixture
def clock(autojump_clock: MockClock) -> MockClock:
    """Time passes when nothing happens, the store's threads included: a disk needs some real milliseconds."""
    autojump_clock.autojump_threshold = 0.1
    return autojump_clock


@pytest.fixture(params=["embedded", "bytes on records"])
async def back(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[WatchedBack]:
    """The embedded store; and the same used for its records only, as another server's are."""
    async with open_embedded(EmbeddedSettings(directory=tmp_path)) as store:
        if request.param == "embedded":
            yield WatchedBack(store)
            return
        async with open_bytes_on_records(RecordsOnly(store), "other", store) as opened:
            yield WatchedBack(WithTables(opened, store))


@pytest.fixture
async def front(back: WatchedBack) -> SegmentFront:
    return SegmentFront(back)


@pytest.fixture
async def connect(front: SegmentFront) -> AsyncIterator[Connect]:
    async with serving(front) as connecting:
        yield connecting
