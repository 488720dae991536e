"""The controller as a whole: its parts, put together over a back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import structlog
import trio

from penstock.backs.base import Back
from penstock.clock import Clock, wall_clock
from penstock.controller.catalog import Catalog
from penstock.controller.deletion import Deletion
from penstock.controller.groups import Groups
from penstock.controller.listing import Listing
from penstock.controller.queries import Queries
from penstock.controller.recovery import Recovery
from penstock.controller.scaling import Scaling
from penstock.controller.scopes import Scopes
from penstock.controller.segments import SegmentStore
from penstock.controller.settings import ControllerSettings
from penstock.controller.streams import Streams
from penstock.controller.table import ControllerTable
from penstock.controller.transactions import Transactions
from penstock.identity import CLIENT
from penstock_codecs.failures import OperationFailed

__all__ = ["Controller"]

SWEEP_SECONDS: Final = 5.0
"""How often transactions whose lease is over are looked for."""
FORGET_SECONDS: Final = 3600.0
"""How often it is looked for what need not be known any longer."""

log = structlog.get_logger()


class Controller:
    """What Pravega's clients ask, without the words in which they do."""

    def __init__(self, back: Back, settings: ControllerSettings, clock: Clock = wall_clock) -> None:
        table, segments = ControllerTable(back), SegmentStore(back, settings.names)
        catalog = Catalog(table, segments)
        self.queries = Queries(catalog)
        self.scopes = Scopes(back, table, segments, settings.names, clock)
        self.scaling = Scaling(catalog, settings.segments)
        self.transactions = Transactions(catalog, self.scaling, clock)
        self.streams = Streams(catalog, self.scopes, self.scaling, self.transactions, settings.segments)
        self.groups = Groups(catalog, self.scopes)
        self.listing = Listing(back, catalog, self.scopes, settings.names)
        self.recovery = Recovery(catalog, self.streams, self.scaling)
        self.deletion = Deletion(back, catalog, self.scopes, self.streams, self.groups, self.listing, self.recovery)

    async def run(self) -> None:
        """Finish what was begun before the start, then end transactions when their time is over; until cancelled."""
        CLIENT.set(replace(CLIENT.get(), gateway=True))
        await self._attempt(self.recovery.finish_all)
        forget_at = trio.current_time()
        while True:
            await self._attempt(self.transactions.sweep)
            if trio.current_time() >= forget_at:
                forget_at += FORGET_SECONDS
                await self._attempt(self.transactions.forget_old)
            await trio.sleep(SWEEP_SECONDS)

    async def _attempt(self, duty: Callable[[], Awaitable[None]]) -> None:
        try:
            await duty()
        except OperationFailed as error:
            log.error("controller_duty_failed", duty=duty.__name__, error=str(error))
