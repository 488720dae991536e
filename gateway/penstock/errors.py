"""Errors that concern the operator."""

__all__ = ["CannotReload", "CannotStart"]


class CannotStart(Exception):
    """The gateway cannot start, for a reason that its operator can mend; the message says it in one line."""


class CannotReload(Exception):
    """What was to be put in force cannot be, and everything stays as it was; the message says why, in one line."""
