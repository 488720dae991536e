"""The seat of the connection that the current task serves."""

from __future__ import annotations

from contextvars import ContextVar

from penstock.limits.account import Account
from penstock.limits.crowd import Crowd
from penstock.limits.limiter import Limiter
from penstock.limits.seat import Seat

__all__ = ["SEAT", "current_seat"]

SEAT: ContextVar[Seat] = ContextVar("penstock.seat")
"""Set by whoever accepts connections, for all tasks that serve one."""


def current_seat() -> Seat:
    """The connection's seat. A task that nobody gave one has the default limits for itself."""
    seat = SEAT.get(None)
    if seat is None:
        seat = Seat(Limiter(), "", Account(""), Crowd(), 0.0)
        SEAT.set(seat)
    return seat
