"""Supervision of a worker by its parent: whether it is started again, in any circumstances."""

import itertools
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from support.clocks import threads_hold
from support.store import Fails, Wall
from trio.testing import MockClock

from penstock.app.config import Config, Listeners
from penstock.app.workers.messages import StartRefused
from penstock.app.workers.supervisor import Supervisor
from penstock.app.workers.worker import SILENT_SECONDS, Worker
from penstock.backends.embedded import EmbeddedSettings, open_embedded
from penstock.protocols.s2.config import S2Listener
from penstock_codecs.failures import FailureCode


@pytest.fixture
async def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Worker]:
    """One whose processes end at once, each with code 1."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    async with open_embedded(EmbeddedSettings(directory=tmp_path), Wall()) as back:
        yield Worker(1, Config(workers=2, listeners=Listeners(s2=(S2Listener(),))), back, {})


async def lives(worker: Worker, nursery: trio.Nursery, count: int) -> None:
    """Run the worker until it has ended `count` times and waits to be started again."""
    ended, enough = itertools.count(1), trio.Event()

    def look(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if event["event"] == "worker_ended" and next(ended) == count:
            enough.set()
        raise structlog.DropEvent

    structlog.configure(processors=[look])
    nursery.start_soon(worker.run)
    await enough.wait()


async def test_a_drain_ends_the_wait_before_the_next_start(worker: Worker) -> None:
    worker.settled.set()
    with capture_logs() as events:
        async with trio.open_nursery() as nursery:
            await lives(worker, nursery, 1)
            worker.drain()
    assert worker.over.is_set()
    assert events == []


async def test_what_cannot_be_started_is_said_at_the_start(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere")
    await worker.run()
    assert worker.refusal == "cannot start a worker: No such file or directory"


async def test_what_cannot_be_started_later_is_tried_again(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory, no descriptor: it may be there in a moment."""
    monkeypatch.setattr(sys, "executable", "/nowhere")
    worker.settled.set()
    async with trio.open_nursery() as nursery:
        await lives(worker, nursery, 2)
        assert not worker.over.is_set()
        worker.drain()


async def test_a_worker_that_refuses_later_is_started_again(worker: Worker) -> None:
    """A file that it reads may be there again soon."""
    worker.settled.set()
    async with trio.open_nursery() as nursery:
        await lives(worker, nursery, 1)
        with capture_logs() as events:
            worker._receive(StartRefused("no certificate"))
        assert [event["reason"] for event in events] == ["no certificate"]
        await trio.sleep(0.6)
        assert not worker.over.is_set()
        worker.drain()
    assert worker.refusal is None


async def test_a_worker_that_hangs_is_killed_and_started_again(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(sys, "executable", hanging(tmp_path))
    worker.settled.set()
    async with trio.open_nursery() as nursery:
        await lives(worker, nursery, 2)
        assert trio.current_time() >= 2 * SILENT_SECONDS
        nursery.cancel_scope.cancel()


async def test_who_asks_is_told_of_a_worker_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    threads_hold(autojump_clock, monkeypatch)
    monkeypatch.setattr(sys, "executable", hanging(tmp_path))
    async with open_embedded(EmbeddedSettings(directory=tmp_path), Wall()) as back, trio.open_nursery() as nursery:
        supervisor = Supervisor(Config(workers=1, listeners=Listeners(s2=(S2Listener(bind="127.0.0.1:0"),))), back, {})
        nursery.start_soon(supervisor.begin, nursery)
        await trio.sleep(1)
        with Fails(FailureCode.UNAVAILABLE, "worker 1 has not answered for 5 s"):
            await supervisor.snapshots()
        nursery.cancel_scope.cancel()


def hanging(directory: Path) -> str:
    """A program that starts and says nothing."""
    program = directory / "hanging"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    return str(program)
