"""The connection that a task serves: bound once, and added to each of its log lines."""

from __future__ import annotations

import itertools
from typing import Final

from structlog.contextvars import bind_contextvars

__all__ = ["bind_connection", "next_connection_number"]

_numbers: Final = itertools.count(1)


def next_connection_number() -> int:
    """Return a number that is new in this process; connections with clients and with servers share one count."""
    return next(_numbers)


def bind_connection(number: int, listener: str, peer: str) -> None:
    """Add these to each further log line of this task, and of all tasks that it starts."""
    bind_contextvars(connection=number, listener=listener, peer=peer)
