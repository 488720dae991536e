"""The least that is logged changes while loggers are in use."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from penstock.observe.levels import level, set_level

_PROGRAM = """
import logging, structlog
from penstock.observe import configure_logging
from penstock.observe.levels import set_level
configure_logging("info", "json")
log = structlog.get_logger()
bound = structlog.get_logger().bind(connection=7)
log.info("one"), bound.debug("none")
set_level("debug")
log.debug("two"), bound.debug("three")
logging.getLogger("some.library").debug("none")
set_level("error")
log.warning("none"), logging.getLogger("some.library").warning("none"), bound.error("four")
"""


def test_loggers_that_are_in_use_follow() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=30)
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["one", "two", "three", "four"]


def test_an_unknown_level_changes_nothing() -> None:
    before = level()
    with pytest.raises(ValueError, match="expected one of debug, info, warning, error, got 'loud'"):
        set_level("loud")
    assert level() == before
