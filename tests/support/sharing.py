"""Scheduling of tests on several processes: each file on one process, and all files that need Spark on the same one,
because its session takes long to start.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

__all__ = ["ByFile", "needs_spark"]

ROOT = Path(__file__).parents[2]


@lru_cache
def needs_spark(file: str) -> bool:
    """Return whether a file has tests marked `spark`."""
    return "mark.spark" in (ROOT / file).read_text(encoding="utf-8")


class ByFile(LoadScopeScheduling):
    """Hands out one file after the other, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark" if needs_spark(file) else file
