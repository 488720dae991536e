"""Errors that concern the operator."""

__all__ = ["CannotStart"]


class CannotStart(Exception):
    """The gateway cannot start, for a reason that its operator can mend; the message says it in one line."""
