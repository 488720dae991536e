"""The segment front: connections of Pravega's segment store protocol, draft and released, on top of a back."""

from __future__ import annotations

from collections import Counter

import structlog
import trio

from penstock.backs.base import Back
from penstock.fronts.draining import Draining
from penstock.fronts.segment.administration import Desk
from penstock.fronts.segment.connection import Connection
from penstock.fronts.segment.link import Link
from penstock.fronts.segment.settings import SegmentSettings
from penstock.wire import TooSlow
from penstock_codecs.features import Feature
from penstock_codecs.operations import Capability

__all__ = ["SegmentFront"]

log = structlog.get_logger()


class SegmentFront:
    """Serves connections over one back. `dropped` counts what reads have left out since the start."""

    def __init__(self, back: Back, settings: SegmentSettings | None = None) -> None:
        """Raises ValueError for a back that does not know bytes, without which nothing can be said."""
        if Capability.BYTES not in back.capabilities:
            raise ValueError("the segment protocol needs a back that keeps byte offsets")
        self._settings = settings or SegmentSettings()
        self._desk = Desk(back, self._settings.names)
        self._draining = Draining()
        self.dropped: Counter[Feature] = Counter()

    def drain(self) -> None:
        """The gateway is about to stop: what was taken is answered, then connections end. Call within trio."""
        self._draining.begin()

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until it ends, and close it. Never raises for what a client or the back does."""
        link = Link(stream, self._settings, self._draining)
        try:
            await Connection(self._desk, link, self._settings, self._draining, self.dropped.update).run()
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as lost:
            log.debug("connection_lost", reason=type(lost.exceptions[0]).__name__)
        except* TooSlow:
            log.info("connection_lost", reason="the client takes nothing")
        except* Exception:
            log.exception("connection_failed")
        finally:
            link.forget()
            await trio.aclose_forcefully(stream)
