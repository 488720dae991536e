"""The boundaries between the messages of a connection: those of HTTP."""

from __future__ import annotations

from support.http import boundaries

from penstock_s2.codec.s2s.frames import FrameError
from penstock_s2.codec.s2s.whole_frames import WholeFrames

__all__ = ["Boundaries"]


class Boundaries(boundaries.Boundaries):
    """As those of HTTP. A piece of one of S2S's frames is not repeatable: all after it would be taken for that frame's
    rest, and a reader waits for it."""

    def repeatable(self, message: bytes) -> bool:
        frames = WholeFrames()
        try:
            frames.feed(self.data(message))
        except FrameError:
            return super().repeatable(message)  # it is something else
        return frames.held == 0 and super().repeatable(message)
