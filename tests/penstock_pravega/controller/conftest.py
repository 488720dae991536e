"""A controller for each test, over a store of its own, whose wall clock stands still."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio.testing
from support.clocks import threads_hold
from support.controller import SCOPE, SCOPES, settings, store
from support.controller.client import Client
from support.http.client import serving
from support.store import Wall

from penstock.backends.embedded import EmbeddedBack
from penstock_pravega.controller.controller.controller import Controller
from penstock_pravega.controller.front import ControllerFront
from penstock_proto import pravega_controller_pb2 as pb


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
async def back(tmp_path: Path, wall: Wall) -> AsyncIterator[EmbeddedBack]:
    async with store(tmp_path / "data", wall) as opened:
        yield opened


@pytest.fixture
async def controller(back: EmbeddedBack, wall: Wall) -> Controller:
    """With two scopes: one that is a basin, and one that is not."""
    made = Controller(back, settings(), wall)
    for scope in SCOPES:
        await made.scopes.create(scope)
    return made


@pytest.fixture
def clock(autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch) -> trio.testing.MockClock:
    """Time passes when nothing happens, the store's threads included."""
    return threads_hold(autojump_clock, monkeypatch)


@pytest.fixture
def front(back: EmbeddedBack, wall: Wall) -> ControllerFront:
    return ControllerFront(Controller(back, settings(), wall))


@pytest.fixture
async def client(front: ControllerFront) -> AsyncIterator[Client]:
    """With the scope `tiny`."""
    async with serving(front.handle, "h2") as http:
        made = Client(http)
        await made.createScope(pb.ScopeInfo(scope=SCOPE))
        yield made
