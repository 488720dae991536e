"""The pace of a replay: as recorded, faster or slower, by records a second, or without delays."""

from __future__ import annotations

import math
from typing import Final

import trio

__all__ = ["ReplayPace"]

_NANOSECONDS: Final = 1_000_000_000


class ReplayPace:
    """The clock of one run through a capture.

    `speed`: 1.0 as recorded, 10.0 ten times as fast, inf without delays. `rate`: records a second instead, counted as
    they were acknowledged and delivered in the recording; None: by time.
    """

    def __init__(self, speed: float = 1.0, rate: float | None = None) -> None:
        self._speed = speed
        self._rate = rate
        self._began_at: float | None = None
        self._began_ns = 0
        self._began_records = 0
        self.latest = 0.0
        """The largest delay behind the pace, in seconds."""

    async def wait(self, time_ns: int, records: int) -> None:
        """Wait until a message is due that was sent at `time_ns`, after `records` records. The clock starts with the
        first one.

        A message that is late is sent at once: a replay that was held up catches up.
        """
        if self._began_at is None:
            self._began_at = trio.current_time()
            self._began_ns = time_ns
            self._began_records = records
        due = self._began_at + self._after(time_ns, records)
        late = trio.current_time() - due
        if late >= 0:
            if self._rate is None and self._speed < math.inf:
                self.latest = max(self.latest, late)
            return
        await trio.sleep_until(due)

    def _after(self, time_ns: int, records: int) -> float:
        if self._rate is not None:
            return (records - self._began_records) / self._rate
        return (time_ns - self._began_ns) / _NANOSECONDS / self._speed
