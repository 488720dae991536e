"""Signals to `penstock serve`."""

from __future__ import annotations

import os
import signal

import pytest
import trio
import trio.testing

from penstock.app.config import default_config
from penstock.app.host import ALONE
from penstock.cli import lifecycle as life


class Running:
    """A gateway that has nothing but an end."""

    def __init__(self) -> None:
        self.addresses: dict[str, object] = {}
        self.drained = trio.Event()

    def drain(self) -> None:
        self.drained.set()


async def test_one_that_comes_while_it_starts_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that it listens before it is known to have started."""

    async def serve(_config: object, _surroundings: object, *, task_status: trio.TaskStatus[Running]) -> None:
        running = Running()
        os.kill(os.getpid(), signal.SIGTERM)
        await trio.testing.wait_all_tasks_blocked()
        task_status.started(running)
        await running.drained.wait()

    monkeypatch.setattr(life, "serve", serve)
    monkeypatch.setattr(life, "banner", lambda *_: "")
    with trio.fail_after(5):
        await life.serve_until_signalled(default_config(), ALONE)
