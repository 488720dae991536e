"""The findings of a check."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__all__ = ["Finding", "Severity", "fine", "notable", "wrong"]


class Severity(Enum):
    """Severity of a finding; the value is the word in the report."""

    FINE = "ok"
    NOTABLE = "note"
    """The gateway runs, but could do better."""
    WRONG = "wrong"
    """The gateway would not start, or not work."""


class Finding(NamedTuple):
    """One finding. `about`: the thing checked, in a word or two; `text`: its state; `advice`: what to do, "" if
    nothing."""

    about: str
    state: Severity
    text: str
    advice: str = ""


def fine(about: str, text: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(about, Severity.FINE, text)


def notable(about: str, text: str, advice: str) -> Finding:
    """Return a finding about something that could be better."""
    return Finding(about, Severity.NOTABLE, text, advice)


def wrong(about: str, text: str, advice: str) -> Finding:
    """Return a finding about something that must be fixed."""
    return Finding(about, Severity.WRONG, text, advice)
