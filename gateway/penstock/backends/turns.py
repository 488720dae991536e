"""Turns at what several tasks change: one at a time has the turn at a stream, of all gateways with the same state.

A gateway that had the last turn at a stream owns it, and has the next turn without writing anything, until another
gateway needs the stream. If its turn lasts, it renews its ownership for as long as another gateway waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from weakref import WeakValueDictionary

import structlog
import trio

from penstock.backends.owners import PATIENCE, StreamOwners
from penstock.core.back import Back
from penstock.model.failures import OperationFailed
from penstock.model.records import StreamRef
from penstock.tables.byte_table import ByteTable

__all__ = ["StreamTurns"]

_RENEWED_SECONDS: Final = PATIENCE / 3
_LEAVING_SECONDS: Final = 1.0
"""Time in which a gateway that stops gives up what it owns."""

log = structlog.get_logger()


class StreamTurns:
    """The turns at streams, and at anything else with a name in two parts. `state` has the owners in table `name`, if
    there may be several gateways."""

    def __init__(self, state: Back, name: str) -> None:
        self._owners = StreamOwners(state, ByteTable(state, name))
        self._locks: WeakValueDictionary[StreamRef, trio.Lock] = WeakValueDictionary()
        self._giving_up: set[StreamRef] = set()

    @asynccontextmanager
    async def turn(self, ref: StreamRef) -> AsyncIterator[None]:
        """Have the turn at a stream in the block. Raises HOT_SERVER if the state cannot be reached."""
        async with self._lock(ref):
            await self._owners.take(ref)
            yield

    async def forget(self, ref: StreamRef) -> None:
        """Keep nothing of a stream that is gone. The caller has the turn at it."""
        await self._owners.forget(ref)

    async def run(self) -> None:
        """Give up what other gateways need, until cancelled; then everything."""
        try:
            async with trio.open_nursery() as nursery:
                async for ref in self._owners.wanted():
                    if ref not in self._giving_up:
                        self._giving_up.add(ref)
                        nursery.start_soon(self._give_up, ref)
        finally:
            with trio.move_on_after(_LEAVING_SECONDS, shield=True):
                await self._owners.give_up_all()

    async def _give_up(self, ref: StreamRef) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._renew, ref, renewing := trio.CancelScope())
                async with self._lock(ref):
                    renewing.cancel()
                    await self._owners.give_up(ref)
        except* OperationFailed as errors:
            log.info("stream_not_given_up", stream=str(ref), reason=str(errors.exceptions[0]))
        finally:
            self._giving_up.discard(ref)

    async def _renew(self, ref: StreamRef, renewing: trio.CancelScope) -> None:
        with renewing:
            while True:
                await trio.sleep(_RENEWED_SECONDS)
                with suppress(OperationFailed):
                    await self._owners.renew(ref)

    def _lock(self, ref: StreamRef) -> trio.Lock:
        return self._locks.setdefault(ref, trio.Lock())
