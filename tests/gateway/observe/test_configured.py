"""The `[tracing]` table and its error messages."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from penstock.app.bootstrap import check_files
from penstock.app.bootstrap.tracing import LAST_SECONDS, open_tracing
from penstock.app.config import ConfigError, parse_config
from penstock.app.report import report
from penstock.core.errors import CannotStart
from penstock.observe.tracing import tracer

PAGE = Path(__file__).parents[3] / "docs" / "observing.md"
LISTENER = "[listeners.s2]\n"


def shown() -> str:
    """The configuration in the page."""
    (found,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return LISTENER + found


def test_the_pages_configuration() -> None:
    config = parse_config(shown())
    check_files(config)
    assert "0.1 of the traces that begin here go to http://127.0.0.1:4318/v1/traces, as service orders-gateway." in (
        " ".join(report(config, "it").split())
    )
    assert "Traces" not in report(parse_config(LISTENER), "it")


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ('endpoint = "127.0.0.1:4318"', "endpoint: expected http://HOST:PORT/PATH, got '127.0.0.1:4318'"),
        ('endpoint = "ftp://x/"', "endpoint"),
        ("", "endpoint"),
        ('endpoint = "http://x/"\nsample_ratio = 1.5', "sample_ratio"),
        ('endpoint = "http://x/"\nservice_name = " "', "service_name: expected a name"),
    ],
)
def test_what_cannot_be(words: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(wrong)):
        parse_config(f"{LISTENER}[tracing]\n{words}\n")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(CannotStart, match=r"opentelemetry\.sdk is not installed.*pip install '\.\[otel\]'"):
        check_files(parse_config(shown()))


async def test_a_collector_that_hangs_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    over = threading.Event()

    @contextmanager
    def exporting(*_: object) -> Iterator[object]:
        yield object()
        over.wait()

    monkeypatch.setattr("penstock.observe.otel.exporting", exporting)
    async with open_tracing(parse_config(shown())):
        began = trio.current_time()
    assert trio.current_time() - began == pytest.approx(LAST_SECONDS)
    over.set()


async def test_a_collector_that_is_away_is_no_trouble() -> None:
    config = parse_config(LISTENER + '[tracing]\nendpoint = "http://127.0.0.1:1/v1/traces"\n')
    async with open_tracing(config):
        assert tracer() is not None
    assert tracer() is None
    async with open_tracing(parse_config(LISTENER)):
        assert tracer() is None
