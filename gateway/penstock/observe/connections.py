"""Which connection a task serves: bound once, said by each of its log lines."""

from __future__ import annotations

import itertools

from structlog.contextvars import bind_contextvars

__all__ = ["bind_connection", "next_connection_number", "number_connections_from"]

_numbers = itertools.count(1)


def next_connection_number() -> int:
    """A number that no connection of this process had; those with clients and with servers share one count."""
    return next(_numbers)


def number_connections_from(first: int) -> None:
    """So that those of several processes differ."""
    global _numbers
    _numbers = itertools.count(first)


def bind_connection(number: int, listener: str, peer: str) -> None:
    """Each log line of this task, and of all that it starts, has these from now on."""
    bind_contextvars(connection=number, listener=listener, peer=peer)
