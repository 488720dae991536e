"""The parts of which all tables of planted faults are made: edits of the bytes that a client or a server sends."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from functools import partial

from support.rewriting_relay import Fault

__all__ = ["Faults", "asked", "later", "replaced", "replied", "respelled"]

Faults = Mapping[str, tuple[Fault | Callable[[], Fault], str, set[str]]]
"""By name: a fault, the clauses or cases to run with blanks between them, and the cases that must fail."""


def replaced(old: bytes, new: bytes) -> Fault:
    """Replace bytes in what the client sends."""
    return Fault(request=partial(_replace, old, new))


def replied(old: bytes, new: bytes) -> Fault:
    """Replace bytes in what the server sends."""
    return Fault(reply=partial(_replace, old, new))


def _replace(old: bytes, new: bytes, data: bytes) -> bytes:
    return data.replace(old, new)


def asked(pattern: bytes, new: bytes) -> Fault:
    """Replace what a pattern finds in a piece of the client."""
    return Fault(request=partial(re.compile(pattern, re.DOTALL).sub, new))


def respelled(pattern: bytes, new: bytes) -> Fault:
    """Replace what a pattern finds in a piece of the server."""
    return Fault(reply=partial(re.compile(pattern, re.DOTALL).sub, new))


def later(old: bytes, new: bytes) -> Fault:
    """Replace bytes in what the server sends, but not where they come first."""
    before = itertools.count()
    return Fault(reply=lambda data: data.replace(old, new) if old in data and next(before) else data)
