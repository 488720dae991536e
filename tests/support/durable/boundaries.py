"""The boundaries between the messages of a connection: those of HTTP."""

from __future__ import annotations

from support.http.boundaries import Boundaries

__all__ = ["Boundaries"]
