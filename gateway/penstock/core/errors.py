"""Errors that concern the operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["CannotReload", "CannotStart", "StoreFailed", "out_of_groups"]


class CannotStart(Exception):
    """Raised when the gateway cannot start, for a reason that its operator can fix; the message says it in one line."""


class StoreFailed(Exception):
    """Raised when the store can no longer guarantee that data is on disk, so that the gateway must end; the message
    says why, in one line."""


class CannotReload(Exception):
    """Raised when a new configuration is rejected; the running one is unchanged. The message says why, in one line."""


@contextmanager
def out_of_groups() -> Iterator[None]:
    """Raise a CannotStart or StoreFailed from within the block as it is, without the exception groups in which
    nurseries wrap it."""
    try:
        yield
    except BaseExceptionGroup as group:
        failure: BaseException | None
        failure, rest = group.split((CannotStart, StoreFailed))
        if failure is not None and rest is None:
            while isinstance(failure, BaseExceptionGroup):
                failure = failure.exceptions[0]
            raise failure from failure.__cause__
        raise
