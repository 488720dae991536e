"""Where taps give what they hear. Both calls come from the trio thread, cost a few us, and never wait."""

from __future__ import annotations

from typing import Protocol

from penstock_codecs.capture import CaptureEvent

__all__ = ["Sink"]


class Sink(Protocol):
    """One recording's way to its file or its live listener: a queue of bounded bytes, and a thread behind it.

    A conversation begins with `Opened`, and what comes before that is not taken. It ends with `Closed` of both sides or
    with `reset`, or with a `Lost` of length 0 where its tap ends before its connection does: until then it is
    remembered. Files that are rotated need nothing of the taps: the recording begins conversations anew in the next
    file, with their offsets and with what was noted of them.
    """

    def put(self, event: CaptureEvent) -> bool:
        """Take an event. False: this conversation is not recorded any further, since the queue is full or the disk is;
        it has been told to whoever reads the recording, and nothing more need be put of it, until `generation` grows:
        then it may be put again, beginning with `Opened(continued=True)` at the offsets of that moment."""

    @property
    def generation(self) -> int:
        """Grows whenever a new file begins in which conversations that were dropped may be recorded again."""
