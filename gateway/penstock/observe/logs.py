"""Structured logs: one event a line on standard error, JSON for machines and colours for people.

A line costs about 15 us, so lines are written per connection, per group or per failure, never per record. Values that a
task binds with `structlog.contextvars` (the connection's number, its listener and peer) are on each of its lines, and
so are the route and the trace of its work.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from typing import IO, Any, BinaryIO, Literal, TextIO, cast

import orjson
import structlog

from penstock.observe.context import ROUTE, TRACE
from penstock.observe.levels import Leveled, set_level
from penstock.observe.metrics.families import LOG_LINES
from penstock.observe.throttle import Throttle

__all__ = ["configure_logging"]


def configure_logging(level: str = "info", format: Literal["auto", "json", "console"] = "auto") -> None:
    """Send structlog's events, and the log records of libraries, to standard error.

    `level` is the lowest that is written: debug, info, warning or error. "auto" means console on a terminal and JSON
    lines elsewhere.
    """
    people = format == "console" or (format == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        Throttle(),
        _add_context,
        structlog.processors.add_log_level,
        _count,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if people:
        structlog.configure(
            processors=[*shared, _console()],
            logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Lossy(sys.stderr))),
            wrapper_class=Leveled,
            cache_logger_on_first_use=True,
        )
    else:
        structlog.configure(
            processors=[*shared, structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_to_json)],
            logger_factory=structlog.BytesLoggerFactory(cast(BinaryIO, _Lossy(sys.stderr.buffer))),
            wrapper_class=Leveled,
            cache_logger_on_first_use=True,
        )
    logging.basicConfig(handlers=[_ToStructlog()], force=True)
    set_level(level)


class _Lossy:
    """A file that drops data that it cannot write: neither a full disk nor a closed pipe may fail the code that
    logs."""

    def __init__(self, file: IO[Any]) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        """Write all of the data, or drop it."""
        with contextlib.suppress(OSError):
            self._file.write(data)
        return len(data)

    def flush(self) -> None:
        """Flush the file; data that fails is retried with the next line."""
        with contextlib.suppress(OSError):
            self._file.flush()


def _add_context(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Add the task's route and trace, unless the line has its own."""
    route, trace = ROUTE.get(), TRACE.get()
    if route:
        event.setdefault("route", route)
    if trace is not None:
        event.setdefault("trace", trace.trace_id)
        event.setdefault("span", trace.span_id)
    return event


def _count(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    LOG_LINES.child(event["level"]).inc()
    return event


def _console() -> structlog.dev.ConsoleRenderer:
    # If `rich` is installed structlog would use it, and that shows the values of variables: tokens among them.
    plain = structlog.dev.plain_traceback
    colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)


def _to_json(event: Any, **_options: Any) -> bytes:
    try:
        return orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # a surrogate, or a number of more than 64 bits, in data of a peer
        return json.dumps(event, default=repr, skipkeys=True, separators=(",", ":")).encode("ascii")


class _ToStructlog(logging.Handler):
    """A logging handler that passes the log records of libraries to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info or None
        )
