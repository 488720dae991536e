"""What a look at something found."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__all__ = ["Finding", "State", "fine", "notable", "wrong"]


class State(Enum):
    """How bad it is; the value is the word in the report."""

    FINE = "ok"
    NOTABLE = "note"
    """A gateway runs, and might not as well as it could."""
    WRONG = "wrong"
    """A gateway would not start, or not do its work."""


class Finding(NamedTuple):
    """`about`: what was looked at, in a word or two; `text`: what is there; `advice`: what to do, "" where nothing."""

    about: str
    state: State
    text: str
    advice: str = ""


def fine(about: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(about, State.FINE, text)


def notable(about: str, text: str, advice: str) -> Finding:
    """Something that might be better."""
    return Finding(about, State.NOTABLE, text, advice)


def wrong(about: str, text: str, advice: str) -> Finding:
    """Something that must be mended."""
    return Finding(about, State.WRONG, text, advice)
