"""Log lines on standard error."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.observe import logs

_PROGRAM = """
import logging, structlog
from penstock.observe import configure_logging
configure_logging({level!r}, {format!r})
log = structlog.get_logger()
structlog.contextvars.bind_contextvars(connection=7)
log.debug("detail")
log.info("listening", port=8080, raw=b"x")
logging.getLogger("some.library").warning("careful with %s", "this")
logging.getLogger("some.library").info("chatter")
try:
    raise ValueError("oops")
except ValueError:
    log.exception("failed")
"""


def written(level: str, format: str) -> str:
    program = _PROGRAM.format(level=level, format=format)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "", "standard output is for people's commands"
    return done.stderr


@pytest.mark.parametrize("format", ["json", "auto"])
def test_an_object_per_line_without_a_terminal(format: str) -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in written("info", format).splitlines()]
    assert [line["event"] for line in lines] == ["listening", "careful with this", "failed"]
    first, library, failure = lines
    assert first["level"] == "info" and first["port"] == 8080 and first["connection"] == 7
    assert first["timestamp"].endswith("Z")
    assert library["level"] == "warning" and library["logger"] == "some.library" and library["connection"] == 7
    assert "ValueError: oops" in failure["exception"]


_STRANGE = """
import structlog
from penstock.observe import configure_logging
configure_logging("info", {format!r})
log = structlog.get_logger()
log.info("said", name="a\\udcff", number=1 << 64, lines="b\\nforged \\x1b[2J", raw=b"x")
try:
    raise ValueError("a\\udcff")
except ValueError:
    log.exception("failed")
"""


@pytest.mark.parametrize("format", ["json", "console"])
def test_whatever_a_peer_says_can_be_logged_and_ends_no_line(format: str) -> None:
    program = _STRANGE.format(format=format)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    first, *failure = done.stderr.splitlines()
    assert "said" in first and "forged" in first and "\\udcff" in first and "\x1b[2J" not in first
    assert "failed" in failure[0] and "ValueError" in done.stderr
    if format == "json":
        line = json.loads(first)
        assert (line["name"], line["number"], line["lines"]) == ("a\udcff", 1 << 64, "b\nforged \x1b[2J")


def test_the_level_is_the_least_that_is_written() -> None:
    assert [json.loads(line)["event"] for line in written("error", "json").splitlines()] == ["failed"]
    assert json.loads(written("debug", "json").splitlines()[0])["event"] == "detail"


def test_the_console_is_for_people() -> None:
    text = written("info", "console")
    assert "listening" in text and "port=8080" in text and "ValueError: oops" in text
    with pytest.raises(ValueError):
        json.loads(text.splitlines()[0])


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_no_color_is_honoured_on_a_terminal(no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("NO_COLOR", no_color)
    line = logs._console()(None, "info", {"event": "listening", "level": "info"})
    assert ("\x1b[" in line) is coloured


FAILING = """
import structlog
from penstock.observe import configure_logging
configure_logging("info", FORMAT)
def fails(token):
    raise RuntimeError("broken")
try:
    fails("se" + "cret")
except RuntimeError:
    structlog.get_logger().exception("handler_failed")
"""


@pytest.mark.parametrize("format", ["console", "json"])
def test_a_trace_tells_no_values(format: str) -> None:
    """They may be tokens; whatever is installed beside us that would show them."""
    done = subprocess.run(
        [sys.executable, "-c", FAILING.replace("FORMAT", repr(format))], capture_output=True, text=True, check=True
    )
    assert "RuntimeError: broken" in done.stderr and "secret" not in done.stderr


@pytest.mark.parametrize("format", ["json", "console"])
def test_lines_that_cannot_be_written_harm_no_request(format: str) -> None:
    """As where the disk is full that has the log."""
    program = _PROGRAM.format(level="info", format=format) + "print('to the end')"
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, timeout=30)
    assert done.stdout == b"to the end\n"
