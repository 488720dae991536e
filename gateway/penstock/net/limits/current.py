"""The quota of the connection that the current task serves."""

from __future__ import annotations

from contextvars import ContextVar

from penstock.net.limits.limiter import ClientQuota, ConnectionQuota, EvictionPool, Limiter

__all__ = ["CONNECTION_QUOTA", "current_quota"]

CONNECTION_QUOTA: ContextVar[ConnectionQuota] = ContextVar("penstock.seat")
"""Set for each accepted connection, for all tasks that serve it."""


def current_quota() -> ConnectionQuota:
    """Return the quota of the current connection. A task outside of any connection gets its own, with the default
    limits."""
    seat = CONNECTION_QUOTA.get(None)
    if seat is None:
        seat = ConnectionQuota(Limiter(), "", ClientQuota(""), EvictionPool(), 0.0)
        CONNECTION_QUOTA.set(seat)
    return seat
