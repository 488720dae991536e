"""Metrics that are counted where the event happens: pauses, retries, and transactions that fail."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.process import BASIN, GatewayProcess
from support.s2.client import S2Client
from support.s2.frames import append_input
from support.scraping import Scrape
from trio.testing import MockClock

from penstock.model.failures import FailureCode, OperationFailed, fail
from penstock.net.retries import RetryPolicy, retrying
from penstock.observe.metrics import running_timers as module
from penstock.observe.metrics.families import BACK_RETRIES, STORE_COMMIT_FAILURES, STORE_COMMITS
from penstock.observe.metrics.running_timers import running_samples, running_timer
from penstock.observe.metrics.series import Count, Family, MetricKind
from penstock.store.committer import Change, Committer
from penstock.store.payload_files import PayloadFiles


def test_what_stands_still_counts_while_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    family = Family("test_standing_total", MetricKind.COUNTER, "X.", ("a",), Count)

    def seconds() -> float:
        (asked,) = [sample.value for sample in running_samples() if sample.family is family]
        return asked + family.child("x").value

    with running_timer(family, "x").still():
        now[0] = 103.0
        assert seconds() == pytest.approx(3)
        with running_timer(family, "x").still():
            now[0] = 105.0
            assert seconds() == pytest.approx(7)
        assert seconds() == pytest.approx(7)
        now[0] = 106.0
    assert seconds() == family.child("x").value == pytest.approx(8)
    now[0] = 200.0
    assert seconds() == pytest.approx(8)


def test_a_client_that_takes_nothing_is_seen(gateway: GatewayProcess) -> None:
    client = S2Client(("127.0.0.1", gateway.s2_port), BASIN)
    session = client.append_session("slow-reader")
    for _ in range(16):
        session.send(append_input(*[b"x" * 100_000] * 10))
        session.ack()
    session.close()

    def paused() -> float:
        scrape = Scrape(gateway.management_port)
        return scrape.sum("penstock_paused_seconds_total", listener="listeners.s2", direction="out")

    before = paused()
    with socket.create_connection(("127.0.0.1", gateway.s2_port), timeout=20) as slow:
        lines = "GET /v1/streams/slow-reader/records?seq_num=0 HTTP/1.1", "host: localhost", f"s2-basin: {BASIN}"
        slow.sendall("\r\n".join([*lines, "content-type: s2s/proto", "", ""]).encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 200")
        first = more_than(before, paused)
        more_than(first, paused)  # it goes on while the client does nothing
        scrape = Scrape(gateway.management_port)
        assert scrape.sum("penstock_outflow_bytes", listener="listeners.s2") > 0


def more_than(value: float, asked: Callable[[], float]) -> float:
    """Ask until it is more."""
    for _ in range(2000):
        if (found := asked()) > value:
            return found
    raise AssertionError(f"it stays at {value}")


async def test_retries_are_counted_for_their_back(autojump_clock: MockClock) -> None:
    async def attempt() -> None:
        raise fail(FailureCode.HOT_SERVER, "no")

    with pytest.raises(OperationFailed):
        await retrying(attempt, RetryPolicy(attempts=4), back="counted")
    assert BACK_RETRIES.child("counted").value == 3


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    yield connection
    connection.close()


async def test_transactions_that_fail_are_counted(db: sqlite3.Connection, tmp_path: Path) -> None:
    committer = Committer(db, PayloadFiles(tmp_path, 1, 1 << 20), tmp_path, 1 << 20)
    before = STORE_COMMITS.child().value, STORE_COMMIT_FAILURES.child().value
    committer.add(Change([("CREATE TABLE t (a)", ())]))
    await committer.commit_group()
    committer.add(Change([("INSERT INTO nothing VALUES (1)", ())]))
    assert committer.pending == 1
    await committer.commit_group()
    assert (STORE_COMMITS.child().value, STORE_COMMIT_FAILURES.child().value) == (before[0] + 1, before[1] + 1)
