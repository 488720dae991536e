"""Fixtures: a store, and a front over it that coordinates groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.kafka.group_front import GroupFront, running
from trio.testing import MockClock


@pytest.fixture
async def front(clock: MockClock, tmp_path: Path) -> AsyncIterator[GroupFront]:
    async with running(tmp_path) as found:
        yield found
