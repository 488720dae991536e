"""One real recording of every protocol for all tests of this room, in one file and in many."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.captures.small_recording import Clients, small_recording


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one file."""
    return small_recording(tmp_path_factory.mktemp("captures"))


@pytest.fixture(scope="session")
def rotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with many files, compressed: every connection of some length goes on from one to the next."""

    def say(clients: Clients) -> None:
        clients.all(rounds=12)

    return small_recording(tmp_path_factory.mktemp("rotated"), say, rotate_bytes=4096, compress="zstd")
