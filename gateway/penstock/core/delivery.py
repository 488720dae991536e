"""The guarantee for appends whose acknowledgement was lost on the way from a server; docs/guarantees.md has the
table."""

from __future__ import annotations

from enum import Enum

__all__ = ["Delivery"]


class Delivery(Enum):
    """The way a back handles an append that it sent and that was never acknowledged (the value is the TOML word).

    In all cases a client gets an acknowledgement only for records that the server acknowledged, or that were read back
    from it.
    """

    EXACTLY_ONCE = "exactly-once"
    """Ask the server for its position before sending again, if its protocol can tell."""
    AT_LEAST_ONCE = "at-least-once"
    """Send again; the records may then be in the stream twice, next to each other or with others between."""
    REFUSE = "refuse"
    """Fail with UNAVAILABLE (a side effect is possible) and do not send again: the client decides."""
