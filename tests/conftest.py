"""Settings that every test shares."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from support.process import GatewayProcess, running_gateway

for profile, examples in (("default", 200), ("ci", 300), ("long", 2000)):
    settings.register_profile(
        profile, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile(os.environ.get("PENSTOCK_TEST_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


@pytest.fixture(scope="session")
def gateway() -> Iterator[GatewayProcess]:
    """One real gateway for the whole run. Tests share it: each uses streams (or basins) of its own, none stops it."""
    with running_gateway() as process:
        yield process


@pytest.fixture
def fresh_gateway() -> Iterator[GatewayProcess]:
    """A real gateway for one test, which may kill, terminate and restart it."""
    with GatewayProcess() as process:
        yield process
