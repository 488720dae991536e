"""Limits of the whole process and of each client: who may connect, how much may be held, how fast may be asked.

Each connection has a `Seat`, which its front finds in the context (`current_seat`). What is configured is asked for
whenever it matters (`Limiter.table`), so that a reload takes hold at once.
"""

from penstock.limits.account import Account, client_key
from penstock.limits.current import SEAT, current_seat
from penstock.limits.limiter import Limiter
from penstock.limits.pace import Pace
from penstock.limits.seat import Crowded, Holding, Seat, too_many

__all__ = ["SEAT", "Account", "Crowded", "Holding", "Limiter", "Pace", "Seat", "client_key", "current_seat", "too_many"]
