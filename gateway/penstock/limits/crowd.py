"""Connections that share a limit, and which of them goes first when there are too many."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.limits.seat import Seat

__all__ = ["Crowd"]

STRANGER_RESTS: Final = 1.0
"""A connection on which nothing was ever answered is left alone for so many seconds: it may be about to ask."""
KNOWN_RESTS: Final = 5.0
"""The same for others, whose clients keep them for later."""
LOOKS: Final = 64
"""So many are compared to find one that rests, about 10 us: what is found is nearly the one that rests longest."""


class Crowd:
    """Connections with a common limit. Strangers, on which nothing was answered yet but refusals, go first.

    Both queues are in the order in which it was last known that their connections were in use, with the time of that.
    """

    __slots__ = ("_known", "_strangers")

    def __init__(self) -> None:
        self._strangers: OrderedDict[Seat, float] = OrderedDict()
        self._known: OrderedDict[Seat, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._strangers) + len(self._known)

    def enter(self, seat: Seat) -> None:
        """One more."""
        (self._known if seat.known else self._strangers)[seat] = seat.rested_at

    def has(self, seat: Seat) -> bool:
        """Whether it is one of them."""
        return seat in (self._known if seat.known else self._strangers)

    def leave(self, seat: Seat) -> None:
        """One less, if it is one of them."""
        (self._known if seat.known else self._strangers).pop(seat, None)

    def spare(self, now: float) -> Seat | None:
        """The one to be closed for another; None where all are busy, or were a moment ago."""
        found = _longest_at_rest(self._strangers, now, STRANGER_RESTS)
        return found or _longest_at_rest(self._known, now, KNOWN_RESTS)


def _longest_at_rest(queue: OrderedDict[Seat, float], now: float, seconds: float) -> Seat | None:
    found: Seat | None = None
    used: list[Seat] = []
    for seat, known_at in islice(queue.items(), LOOKS):
        if not seat.busy and seat.rested_at <= now - seconds:
            if found is None or seat.rested_at < found.rested_at:
                found = seat
        elif seat.busy or seat.rested_at > known_at:
            used.append(seat)
        else:
            break  # those behind it rest even less long
    for seat in used:
        queue[seat] = now
        queue.move_to_end(seat)  # others are looked at next time
    return found
