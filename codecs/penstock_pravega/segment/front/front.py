"""Front for Pravega's segment store protocol, draft and released, on top of a back."""

from __future__ import annotations

from collections import Counter

import structlog
import trio

from penstock.core.back import Back
from penstock.model.features import Feature
from penstock.model.operations import Capability
from penstock.net.draining import Draining
from penstock.net.transport import TooSlow
from penstock_pravega.segment.front.administration import RequestContext
from penstock_pravega.segment.front.connection import ClientConnection
from penstock_pravega.segment.front.link import SegmentLink
from penstock_pravega.segment.front.settings import SegmentSettings
from penstock_pravega.segment.front.streams import FrontStreams
from penstock_pravega.segment.front.writers import FrontWriters

__all__ = ["SegmentFront"]

log = structlog.get_logger()


class SegmentFront:
    """Front that serves connections over one back.

    `dropped` counts by feature what reads have dropped since the start.
    """

    def __init__(self, back: Back, settings: SegmentSettings | None = None) -> None:
        """Raise ValueError for a back without BYTES, which the protocol needs."""
        if Capability.BYTES not in back.capabilities:
            raise ValueError("the segment protocol needs a back that keeps byte offsets")
        self._settings = settings or SegmentSettings()
        streams = FrontStreams(back, self._settings.names, numbered=self._settings.numbered)
        self._desk = RequestContext(back, streams)
        self._writers: FrontWriters = {}
        self._draining = Draining()
        self.dropped: Counter[Feature] = Counter()

    def drain(self) -> None:
        """Begin to shut down: answer the requests taken so far, then end the connections.

        Must be called within trio.
        """
        self._draining.begin()

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until it ends, and close it. Never raises for errors of a client or the back."""
        link = SegmentLink(stream, self._settings, self._draining)
        try:
            await ClientConnection(
                self._desk, self._writers, link, self._settings, self._draining, self.dropped.update
            ).run()
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as lost:
            log.debug("connection_lost", reason=type(lost.exceptions[0]).__name__)
        except* TooSlow:
            log.info("connection_lost", reason="the client accepts no data")
        except* Exception:
            log.exception("connection_failed")
        finally:
            await link.cut()
