"""Which connection a task serves: bound once, said by each of its log lines."""

from __future__ import annotations

import itertools

from structlog.contextvars import bind_contextvars

__all__ = ["bind_connection"]

_numbers = itertools.count(1)


def bind_connection(listener: str, peer: str) -> None:
    """Give this task, and all that it starts, a new connection number; each log line then has it and these two."""
    bind_contextvars(connection=next(_numbers), listener=listener, peer=peer)
