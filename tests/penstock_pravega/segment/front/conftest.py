"""Fixtures of the segment front's tests: a store, a front over it, and a clock that jumps while all tasks are idle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.clocks import threads_hold
from support.records_only import RecordsOnly, WithTables
from support.segment.back import BytesElsewhere
from support.segment.back import opened as opened_back
from support.segment.front import Connect, WatchedBack, serving
from trio.testing import MockClock

from penstock.backends.byte_view import open_bytes_on_records
from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock_pravega.segment.front import SegmentFront


@pytest.fixture
def clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """Time passes when nothing happens, the store's threads included."""
    return threads_hold(autojump_clock, monkeypatch)


OTHERS_DECIDE = {
    "test_what_is_left_out_is_counted_and_logged_once",
    "test_a_refusal_is_logged_once",
    "test_what_is_refused_can_be_configured",
    "test_a_reply_that_does_not_fit_into_a_message",
}
"""Tests whose results depend on settings of the store behind: its loss policy, and its largest reply."""


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("bytes on records", marks=pytest.mark.slow),
        pytest.param("segment store", marks=pytest.mark.long),
    ]
)
async def back(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[WatchedBack]:
    """The embedded store; the same used for its records only, as another server's are; and behind a segment front."""
    async with open_embedded(EmbeddedSettings(directory=tmp_path)) as store:
        if request.param == "embedded":
            yield WatchedBack(store)
            return
        if request.param == "segment store":
            if request.node.originalname in OTHERS_DECIDE:
                pytest.skip("the store behind decides")
            async with opened_back(SegmentFront(store)) as (behind, _):
                yield WatchedBack(BytesElsewhere(store, behind.direct))
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
