"""The traces that a configuration asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from importlib.util import find_spec
from typing import Final

import trio

from penstock.config import Config
from penstock.config.tracing import Tracing
from penstock.errors import CannotStart
from penstock.observe.tracing import Tracer, tracing

__all__ = ["LAST_SECONDS", "check_tracing", "open_tracing"]

_NEEDED: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")

LAST_SECONDS: Final = 5.0
"""A collector that hangs holds the end of the gateway up for no longer."""


def check_tracing(config: Config) -> None:
    """Raises CannotStart where traces are wanted and what makes them is not installed."""
    if config.tracing is None:
        return
    for module in _NEEDED:
        if not _is_there(module):
            raise CannotStart(f"tracing: {module} is not installed: install penstock with its extra, penstock[otel]")


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # one of the packages that it is in
        return False


@asynccontextmanager
async def open_tracing(config: Config) -> AsyncIterator[None]:
    """Spans are made and sent until the block ends, where the configuration has `[tracing]`. What is left then is sent
    within LAST_SECONDS, or never. Raises CannotStart."""
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
    from penstock.observe.otel import exporting  # only here: it is an extra, and takes long to import

    return exporting(table.endpoint, table.sample_ratio, table.service_name)
