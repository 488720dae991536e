"""The connection that a task serves: bound once, and added to each of its log lines."""

from __future__ import annotations

import itertools

from structlog.contextvars import bind_contextvars

__all__ = ["bind_connection", "next_connection_number", "number_connections_from"]

_numbers = itertools.count(1)


def next_connection_number() -> int:
    """Return a number that is new in this process; connections with clients and with servers share one count."""
    return next(_numbers)


def number_connections_from(first: int) -> None:
    """Number connections from `first` on, so that the numbers of several processes differ."""
    global _numbers
    _numbers = itertools.count(first)


def bind_connection(number: int, listener: str, peer: str) -> None:
    """Add these to each further log line of this task, and of all tasks that it starts."""
    bind_contextvars(connection=number, listener=listener, peer=peer)
