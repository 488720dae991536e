"""Tasks that wait for the progress of a connection."""

from __future__ import annotations

from collections.abc import Awaitable

import trio

__all__ = ["Waiters"]


class Waiters:
    """A `trio.lowlevel.ParkingLot` that is made when the first task waits: an empty one takes 240 bytes, and most
    connections never need it."""

    __slots__ = ("_lot",)

    def __init__(self) -> None:
        self._lot: trio.lowlevel.ParkingLot | None = None

    def park(self) -> Awaitable[None]:
        """Wait until `unpark_all` is called."""
        if self._lot is None:
            self._lot = trio.lowlevel.ParkingLot()
        return self._lot.park()

    def unpark_all(self) -> None:
        """Wake all tasks that wait."""
        if self._lot:
            self._lot.unpark_all()
