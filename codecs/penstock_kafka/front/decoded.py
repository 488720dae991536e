"""Room for the decoded batches of a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from penstock.net.limits.limiter import ConnectionQuota, HeldBytes
from penstock_kafka.codec.batches import KafkaBatch

__all__ = ["DecodedBatches"]

_RECORD_BYTES: Final = 256
"""Memory of a decoded record beside its bytes: from 100 to 600 bytes, with its key and headers."""


class DecodedBatches:
    """The decoded batches of one connection. None are decoded while they take `capacity` bytes of memory or more, or
    the client or the process has too many bytes in flight (`max_inflight_bytes`)."""

    def __init__(self, capacity: int, quota: ConnectionQuota) -> None:
        self._capacity = capacity
        self._quota = quota
        self._held = HeldBytes(quota)
        self._turn = trio.Lock()
        self._freed = trio.lowlevel.ParkingLot()

    @asynccontextmanager
    async def hold(self, decode: Callable[[], Sequence[KafkaBatch]]) -> AsyncIterator[Sequence[KafkaBatch]]:
        """Decode batches once there is room, and hold them until the block ends. Raises what `decode` raises, and
        OperationFailed(RATE_LIMITED) if it takes too long until there is room for more bytes in flight.

        Callers take turns, one in each step of the scheduler: so other connections wait for the decoding of one
        partition, not of all.
        """
        async with self._turn:
            while self._held.size >= self._capacity:
                await self._freed.park()
            await self._quota.answer_room()
            batches = decode()
            size = sum(batch.decompressed + _RECORD_BYTES * len(batch) for batch in batches)
            self._held.set(self._held.size + size)
        try:
            yield batches
        finally:
            self._held.set(self._held.size - size)
            self._freed.unpark_all()
