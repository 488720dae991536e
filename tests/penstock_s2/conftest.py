"""Fixtures of tests with a running gateway: a client in a basin of its own, and streams."""

import itertools

import pytest
from support.process import BASIN, GatewayProcess
from support.s2.client import S2Client

_numbers = itertools.count()


@pytest.fixture(scope="module")
def s2(gateway: GatewayProcess) -> S2Client:
    """A client of a basin in which nothing is created unasked."""
    return S2Client(("127.0.0.1", gateway.s2_port)).ensure_basin("served-basin")


@pytest.fixture
def stream(s2: S2Client) -> str:
    """An empty stream of that basin."""
    return s2.ensure_stream(f"served/{next(_numbers)}")


@pytest.fixture
def own_basin(s2: S2Client) -> S2Client:
    """A client of a basin that no other test uses."""
    return s2.ensure_basin(f"served-own-{next(_numbers)}")


@pytest.fixture
def shared_basin(gateway: GatewayProcess) -> S2Client:
    """A client of the basin that the clients of other protocols share."""
    return S2Client(("127.0.0.1", gateway.s2_port), BASIN)
