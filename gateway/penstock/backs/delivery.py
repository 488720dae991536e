"""What is promised about appends to a server whose acknowledgement got lost; docs/guarantees.md has the table."""

from __future__ import annotations

from enum import Enum

__all__ = ["Delivery"]


class Delivery(Enum):
    """What a back does with an append that it sent and whose acknowledgement never came (the value is the TOML word).

    In no case is anything acknowledged to a client that the server did not acknowledge, or that was not read back from
    it.
    """

    EXACTLY_ONCE = "exactly-once"
    """The server is asked where it stands before anything is sent again: S2 by appending with match_seq_num and reading
    back, segment stores by AppendSetup. Not to be had of S3P."""
    AT_LEAST_ONCE = "at-least-once"
    """It is sent again; the records may be there twice, next to each other or with others between."""
    REFUSE = "refuse"
    """It fails with UNAVAILABLE (a side effect is possible) and is not sent again: the client decides."""
