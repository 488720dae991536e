"""The events of captures, read in a thread so that a slow disk or pipe does not block trio."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import islice
from typing import Final

import trio

from penstock.recorder.captures.opening import CaptureEvents
from penstock_analysis.capture import CaptureEvent

__all__ = ["capture_events"]

_AT_ONCE: Final = 256
"""Events fetched together: a hop between threads costs about as much as twenty of them."""


async def capture_events(captures: CaptureEvents) -> AsyncGenerator[CaptureEvent, None]:
    """Yield all events, in order. Raises UnreadableCapture.

    Events from a pipe are yielded as they arrive; on cancellation a silent pipe is not waited for.
    """
    events = iter(captures)
    count = 1 if captures.live else _AT_ONCE
    while some := await trio.to_thread.run_sync(lambda: list(islice(events, count)), abandon_on_cancel=captures.live):
        for event in some:
            yield event
