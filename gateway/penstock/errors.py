"""Errors that concern the operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["CannotReload", "CannotStart", "out_of_groups"]


class CannotStart(Exception):
    """The gateway cannot start, for a reason that its operator can mend; the message says it in one line."""


class CannotReload(Exception):
    """What was to be put in force cannot be, and everything stays as it was; the message says why, in one line."""


@contextmanager
def out_of_groups() -> Iterator[None]:
    """A CannotStart raised within is raised as it is: nurseries put what is raised in them into a group."""
    try:
        yield
    except BaseExceptionGroup as group:
        found, rest = group.split(CannotStart)
        while found is not None and rest is None:
            inner = found.exceptions[0]
            if isinstance(inner, CannotStart):
                raise inner from inner.__cause__
            assert isinstance(inner, BaseExceptionGroup)
            found = inner
        raise
