"""Names of received headers, and other words that clients repeat, as text."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

__all__ = ["header_name"]

_MOST_BYTES: Final = 64
"""Longer names are not kept: 512 of them would be 32 MiB."""


def header_name(name: bytes) -> str:
    """Return the name of a header, a method, a scheme or a version as text: one object for all messages that have it,
    and not one for each. Not for values of headers, which may be secret: it may stay for ever."""
    return _kept(name) if len(name) <= _MOST_BYTES else name.decode("latin-1")


@lru_cache(512)
def _kept(name: bytes) -> str:
    return name.decode("latin-1")
