"""Builds the tracing of a configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from importlib.util import find_spec
from typing import Final

import trio

from penstock.app.config import Config
from penstock.app.config.tracing import Tracing
from penstock.core.errors import CannotStart
from penstock.observe.tracing import Tracer, tracing

__all__ = ["LAST_SECONDS", "check_tracing", "open_tracing"]

_NEEDED: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")

LAST_SECONDS: Final = 5.0
"""Longest wait for the collector when the gateway stops."""


def check_tracing(config: Config) -> None:
    """Raise CannotStart if traces are configured and their packages are not installed."""
    if config.tracing is None:
        return
    for module in _NEEDED:
        if not _is_there(module):
            how = "install Penstock with its extra otel (in a checkout: pip install '.[otel]')"
            raise CannotStart(f"tracing: {module} is not installed: {how}")


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


@asynccontextmanager
async def open_tracing(config: Config) -> AsyncIterator[None]:
    """Make and send spans until the block ends, if `[tracing]` is configured. Spans left then are sent within
    LAST_SECONDS or dropped. Raises CannotStart."""
    if config.tracing is None:
        yield
        return
    check_tracing(config)
    exporting = _exporting(config.tracing)
    with tracing(exporting.__enter__()):
        try:
            yield
        finally:
            with trio.move_on_after(LAST_SECONDS, shield=True):
                await trio.to_thread.run_sync(exporting.__exit__, None, None, None, abandon_on_cancel=True)


def _exporting(table: Tracing) -> AbstractContextManager[Tracer]:
    from penstock.observe.otel import exporting  # imported here: it is an optional extra, and slow to import

    return exporting(table.endpoint, table.sample_ratio, table.service_name)
