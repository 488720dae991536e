"""The events of captures, read in a thread so that a slow disk or pipe holds up nobody."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import islice
from typing import Final

import trio

from penstock.captures import Captures
from penstock_codecs.capture import CaptureEvent

__all__ = ["capture_events"]

_AT_ONCE: Final = 256
"""Events that are fetched together: a hop between threads costs about as much as twenty of them."""


async def capture_events(captures: Captures) -> AsyncGenerator[CaptureEvent, None]:
    """All events, in order. Raises UnreadableCapture. What comes over a pipe is given as it comes; one that says
    nothing is not waited for when this is cancelled."""
    events = iter(captures)
    count = 1 if captures.live else _AT_ONCE
    while some := await trio.to_thread.run_sync(lambda: list(islice(events, count)), abandon_on_cancel=captures.live):
        for event in some:
            yield event
