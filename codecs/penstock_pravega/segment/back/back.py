"""Opening a back of segment stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import msgspec
import trio

from penstock.net.upstream import Breaker, Dial, Upstream, Watch, unwatched
from penstock_pravega.segment.back.administration import SegmentAdministration
from penstock_pravega.segment.back.controller import open_controller
from penstock_pravega.segment.back.direct import SegmentDirect
from penstock_pravega.segment.back.native import SegmentNative
from penstock_pravega.segment.back.reader import StoreReader
from penstock_pravega.segment.back.settings import SegmentBackSettings
from penstock_pravega.segment.back.stores import SegmentStores
from penstock_pravega.segment.back.writers import StoreWriters

__all__ = ["SegmentBack", "open_segment"]


class SegmentBack(msgspec.Struct, frozen=True):
    """Two views of the same stores: records (`native`), and bytes and tables (`direct`)."""

    native: SegmentNative
    direct: SegmentDirect
    breaker: Breaker
    """Circuit breaker of the connections to the controller if there is one, else to the store."""


@asynccontextmanager
async def open_segment(
    settings: SegmentBackSettings, dial: Dial | None = None, watch: Watch = unwatched
) -> AsyncIterator[SegmentBack]:
    """Open the back until the block ends; its connections are closed with it. None is made before it is needed.

    `dial` makes the connections below TLS, to stores and controller (None: over TCP), and `watch` observes them.
    """
    server = partial(Upstream, dial=dial, watch=watch)
    async with AsyncExitStack() as stack:
        controller = None
        upstream = server(settings.controller or settings.upstream)
        if settings.controller is not None:
            controller = await stack.enter_async_context(open_controller(upstream, settings))
        manager = trio.open_nursery()
        nursery = await manager.__aenter__()
        stores = SegmentStores(settings, nursery, controller, server)
        if settings.controller is None:
            stores.add(upstream)
        writers, reader = StoreWriters(stores), StoreReader(stores)
        administration = SegmentAdministration(stores, reader)
        try:
            yield SegmentBack(
                SegmentNative(stores, writers, reader, administration),
                SegmentDirect(stores, writers, reader, administration),
                upstream.breaker,
            )
        finally:  # so that the block's exception is raised as it is, not in a group
            nursery.cancel_scope.cancel()
            await manager.__aexit__(None, None, None)
