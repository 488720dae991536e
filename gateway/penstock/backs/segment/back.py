"""A back of segment stores, while it is open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import trio

from penstock.backs.segment.administration import Administration
from penstock.backs.segment.controller import open_controller
from penstock.backs.segment.direct import SegmentDirect
from penstock.backs.segment.native import SegmentNative
from penstock.backs.segment.reader import Reader
from penstock.backs.segment.settings import SegmentBackSettings
from penstock.backs.segment.stores import Stores
from penstock.backs.segment.writers import Writers
from penstock.backs.upstream import Breaker, Dial, Upstream, Watch, unwatched

__all__ = ["SegmentBack", "open_segment"]


@dataclass(frozen=True, slots=True)
class SegmentBack:
    """Two views of the same stores: records in native terms, and bytes and tables as they are."""

    native: SegmentNative
    direct: SegmentDirect
    breaker: Breaker
    """Of the connections to the controller where there is one, else to the store."""


@asynccontextmanager
async def open_segment(
    settings: SegmentBackSettings, dial: Dial | None = None, watch: Watch = unwatched
) -> AsyncIterator[SegmentBack]:
    """The back until the block ends, and its connections with it. Nothing is dialled before it is needed; `dial` makes
    the connections below TLS, to stores and controller (None: over TCP), and `watch` is given them."""
    server = partial(Upstream, dial=dial, watch=watch)
    async with AsyncExitStack() as stack:
        controller = None
        upstream = server(settings.controller or settings.upstream)
        if settings.controller is not None:
            controller = await stack.enter_async_context(open_controller(upstream, settings))
        manager = trio.open_nursery()
        nursery = await manager.__aenter__()
        stores = Stores(settings, nursery, controller, server)
        if settings.controller is None:
            stores.add(upstream)
        writers, reader = Writers(stores), Reader(stores)
        administration = Administration(stores, reader)
        try:
            yield SegmentBack(
                SegmentNative(stores, writers, reader, administration),
                SegmentDirect(stores, writers, reader, administration),
                upstream.breaker,
            )
        finally:  # what the block raised goes on as it is, not in a group
            nursery.cancel_scope.cancel()
            await manager.__aexit__(None, None, None)
