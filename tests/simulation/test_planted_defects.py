"""Defects that are planted in the store must be found: a simulation that misses them proves nothing.

Each test runs seeds until one fails, and checks that it fails for the right reason.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from simulation.checker import NotLinearizable
from simulation.disk import Fates
from simulation.histories import Stuck
from simulation.simulation import NO_FAULTS, Simulation

from penstock.core.errors import CannotStart
from penstock.store import checkpointer, schema, store
from penstock.store.append_changes import BatchesChange
from penstock_codecs.failures import OperationFailed

SEEDS = 60


def first_failure(fates: Fates = NO_FAULTS) -> BaseException:
    """Return the error of the first seed that fails."""
    for seed in range(SEEDS):
        try:
            Simulation(seed, fates).run()
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            return error
        except Exception as error:
            return error
    raise AssertionError(f"none of {SEEDS} seeds found it")


def connecting(synchronous: str, *, after: int = 0) -> Any:
    """Return a function that connects as the store does, the first `after` times, and then with this setting."""
    connected = iter(range(1_000_000))

    def connect_writer(directory: Path) -> sqlite3.Connection:
        db = schema.connect_writer(directory)
        if next(connected) % 2 >= after:  # each start makes two: of commits, and of checkpoints
            db.execute(f"PRAGMA synchronous={synchronous}")
        return db

    return connect_writer


def test_an_acknowledgement_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "connect_writer", connecting("NORMAL"))
    error = first_failure()
    assert isinstance(error, NotLinearizable) or "was seen, and the tail is" in str(error), error


def test_a_log_that_restarts_before_the_file_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "connect_writer", connecting("OFF", after=1))
    monkeypatch.setattr(checkpointer, "sync", lambda _file: None)
    assert isinstance(first_failure(), AssertionError | OperationFailed | CannotStart)


def test_a_reader_that_is_not_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchesChange, "publish", lambda _change: None)
    error = first_failure()
    assert isinstance(error, Stuck), error
