"""The interface through which taps deliver events. It is called from the trio thread, costs a few us, and never
waits."""

from __future__ import annotations

from typing import Protocol

from penstock.capture.pcapng import CaptureEvent

__all__ = ["Sink"]


class Sink(Protocol):
    """One recording's way to its file or its live listener: a bounded queue of bytes, and a thread behind it.

    A conversation begins with `Opened`; events before that are dropped. It ends with `Closed` of both sides or with
    `reset`, or with a `Lost` of length 0 if its tap ends before its connection does: until then the sink remembers it.
    Taps need not know of rotated files: the recording begins conversations again in the next file, with their offsets
    and their `Noted` events.
    """

    def put(self, event: CaptureEvent) -> bool:
        """Accept an event. Returns False if it drops the conversation, since the queue or the disk is full.

        The recording then says so to its readers. No more events of the conversation are needed until `generation`
        grows: then it may begin again, with `Opened(continued=True)` at the offsets of that moment.
        """

    @property
    def generation(self) -> int:
        """Grows with each new file, in which conversations that were dropped may be recorded again."""
