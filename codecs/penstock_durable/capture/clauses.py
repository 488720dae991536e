"""Sections of the protocol document whose rules readers enforce."""

from __future__ import annotations

from typing import Final

__all__ = ["APPENDS", "BODIES", "CREATES", "EVENTS", "JSON_MODE", "POLLS", "READS"]

_DOCUMENT: Final = "Durable Streams Protocol 1.0, section"

BODIES: Final = f"{_DOCUMENT} 5"
CREATES: Final = f"{_DOCUMENT} 5.1"
APPENDS: Final = f"{_DOCUMENT} 5.2"
READS: Final = f"{_DOCUMENT} 5.5"
POLLS: Final = f"{_DOCUMENT} 5.6"
EVENTS: Final = f"{_DOCUMENT} 5.7"
JSON_MODE: Final = f"{_DOCUMENT} 7.1"
