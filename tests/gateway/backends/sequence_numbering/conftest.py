"""Servers in memory for the tests of numbered backs."""

from __future__ import annotations

import pytest
from support.native import FakeNative
from support.store import Wall


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture(params=["s3p", "segment"])
def native(request: pytest.FixtureRequest, wall: Wall) -> FakeNative:
    return FakeNative(wall, offsets=request.param == "segment", most=1000)


@pytest.fixture
def segment(wall: Wall) -> FakeNative:
    return FakeNative(wall, offsets=True, most=1000)
