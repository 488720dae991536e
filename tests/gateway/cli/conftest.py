"""Helpers common to the tests of commands."""

from pathlib import Path

import pytest
from support.captures.commands import two_conversations


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A conversation over S3P, and one over S2."""
    return two_conversations(tmp_path / "two.pcapng")
