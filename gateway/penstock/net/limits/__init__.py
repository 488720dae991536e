"""Limits of the whole process and of each client: connections, bytes in flight, and rates.

Each connection has a `ConnectionQuota`, which its front finds in the context (`current_quota`). The configured limits
are read at each use (`Limiter.table`), so a reload takes effect at once.
"""

from penstock.net.limits.limiter import (
    CONNECTION_QUOTA,
    ClientQuota,
    ConnectionQuota,
    Crowded,
    HeldBytes,
    Limiter,
    client_key,
    current_quota,
    too_many,
)

__all__ = [
    "CONNECTION_QUOTA",
    "ClientQuota",
    "ConnectionQuota",
    "Crowded",
    "HeldBytes",
    "Limiter",
    "client_key",
    "current_quota",
    "too_many",
]
