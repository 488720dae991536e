"""The seat of the connection that the current task serves."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from penstock.limits.account import Account
from penstock.limits.crowd import Crowd
from penstock.limits.limiter import Limiter
from penstock.limits.seat import Seat

__all__ = ["SEAT"]

_NOBODYS: Final = Seat(Limiter(), "", Account(""), Crowd(), 0.0)

SEAT: ContextVar[Seat] = ContextVar("penstock.seat", default=_NOBODYS)
"""Set by whoever accepts connections. Of a task that serves none: one that nobody else has."""
